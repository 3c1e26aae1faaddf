//! The allocator against one state a granule.

use super::*;
use mind_common::addr::prefixes;
use proptest::prelude::*;

fn memory(capacities: &[u64]) -> Memory {
    let mut memory = Memory::default();
    for (blade, capacity) in capacities.iter().enumerate() {
        memory.add(blade as u8, capacity * GRANULE);
    }
    memory
}

fn extent(blade: u8, offset: u64, length: u64) -> Extent {
    Extent {
        blade,
        offset: offset * GRANULE,
        length: length * GRANULE,
    }
}

/// A piece at home on blade 0.
fn home(offset: u64, length: u64) -> Piece {
    let extent = extent(0, offset, length);
    Piece {
        va: extent.home(),
        extent,
    }
}

fn one(memory: &mut Memory, length: u64) -> Piece {
    let pieces = memory.allocate(length, |_| true).expect("there is memory");
    assert_eq!(pieces.len(), 1);
    pieces[0]
}

#[test]
fn a_length_that_cannot_be_is_refused() {
    let mut memory = memory(&[4]);
    assert_eq!(memory.allocate(0, |_| true), Err(NoMemory::Empty));
    let length = WINDOW_SIZE + 1;
    assert_eq!(
        memory.allocate(length, |_| true),
        Err(NoMemory::TooLong { length })
    );
    let (length, free) = (4 * GRANULE + 1, 4 * GRANULE);
    assert_eq!(
        memory.allocate(length, |_| true),
        Err(NoMemory::Full { length, free })
    );
    assert!(memory.allocate(4 * GRANULE, |_| true).is_ok());
}

#[test]
fn the_least_loaded_blade_is_asked_first() {
    let mut memory = memory(&[8, 8]);
    let blades = [2, 1, 1, 1, 1].map(|granules| one(&mut memory, granules * GRANULE).extent.blade);
    assert_eq!(blades, [0, 1, 1, 0, 1]);
    let only = memory.allocate(GRANULE, |blade| blade == 0).unwrap();
    assert_eq!(only[0].extent.blade, 0);
}

#[test]
fn the_least_loaded_blade_is_the_one_of_which_the_smallest_part_is_in_use() {
    let mut memory = memory(&[8, 64]);
    memory.add(2, GRANULE - 1);
    let blades =
        [4, 8, 1, 16, 8, 1].map(|granules| one(&mut memory, granules * GRANULE).extent.blade);
    // Parts in use before each: none; 4/8 and none; 4/8 and 8/64; 4/8 and 9/64; 4/8 and 25/64; 4/8 and 33/64.
    assert_eq!(blades, [0, 1, 1, 1, 1, 0]);
}

#[test]
fn of_blades_that_are_loaded_alike_the_one_with_the_smallest_piece_is_taken() {
    let mut memory = memory(&[256, 256, 256]);
    let taken = [67, 65, 64, 2].map(|granules| one(&mut memory, granules * GRANULE).extent.blade);
    // Before the last one 67, 65 and 64 are in use: the latter two are alike, and the first of these has the smaller
    // piece.
    assert_eq!(taken, [0, 1, 2, 1]);
    // Now they are 67, 67 and 64.
    assert_eq!(one(&mut memory, GRANULE).extent.blade, 2);
}

#[test]
fn parts_of_the_largest_blades_are_compared_exactly() {
    let nearly = SLICE_SIZE - GRANULE;
    let slice = |used, capacity| Slice {
        used,
        capacity,
        ..Slice::default()
    };
    let compare = |(used, capacity), (other_used, other_capacity)| {
        slice(used, capacity).compare_load(&slice(other_used, other_capacity))
    };
    assert_eq!(
        compare((nearly, SLICE_SIZE), (SLICE_SIZE, SLICE_SIZE)),
        Ordering::Less
    );
    // Their difference is less than one in 2^48.
    assert_eq!(
        compare((nearly - GRANULE, nearly), (nearly, SLICE_SIZE)),
        Ordering::Less
    );
    assert_eq!(compare((0, GRANULE), (0, SLICE_SIZE)), Ordering::Equal);
    assert_eq!(
        compare((GRANULE, 2 * GRANULE), (SLICE_SIZE / 2, SLICE_SIZE)),
        Ordering::Equal
    );
}

#[test]
fn a_vma_is_aligned_to_the_power_of_two_in_its_length_while_there_is_such_a_place() {
    let mut memory = memory(&[8]);
    assert_eq!(one(&mut memory, 1), home(0, 1));
    assert_eq!(one(&mut memory, 3 * GRANULE), home(2, 3));
    // Three are free at 5, and no two of them at a multiple of 2.
    assert_eq!(one(&mut memory, 3 * GRANULE), home(5, 3));
}

#[test]
fn a_vma_is_as_few_prefixes_as_its_pages_have_bits() {
    let mut memory = memory(&[1 << 20]);
    for pages in [1, 2, 3, 64, 255, 257, 2049, 12_545, 20_647] {
        let length = pages << PAGE_SHIFT;
        let piece = one(&mut memory, length);
        let prefixes = prefixes(Va(piece.va), length).count();
        assert_eq!(prefixes, pages.count_ones() as usize, "{pages} pages");
    }
}

#[test]
fn what_no_blade_has_in_one_piece_is_put_together() {
    let mut memory = memory(&[4, 8]);
    let pieces = memory.allocate(10 * GRANULE, |_| true).unwrap();
    let extents: Vec<_> = pieces.iter().map(|piece| piece.extent).collect();
    assert_eq!(extents, [extent(1, 0, 8), extent(0, 0, 2)]);
    assert_eq!(pieces[1].va, pieces[0].end());
    assert!(!pieces[0].is_home() && !pieces[1].is_home());
    assert_eq!(pieces[0].va % (8 * GRANULE), 0);
    // What is left is at home where it was.
    assert_eq!(one(&mut memory, 2 * GRANULE), home(2, 2));
    let (length, free) = (GRANULE, 0);
    assert_eq!(
        memory.allocate(length, |_| true),
        Err(NoMemory::Full { length, free })
    );
}

/// What is long is not cut for what is short, and a piece is one entry of the translation table.
#[test]
fn pieces_are_powers_of_two_from_the_smallest_ranges_that_have_them() {
    let mut memory = memory(&[16]);
    let all = [7, 1, 2, 1, 5].map(|granules| one(&mut memory, granules * GRANULE));
    // Free are 7, 2 and 5 granules.
    all.iter()
        .step_by(2)
        .for_each(|piece| memory.give_back(*piece));
    let pieces = memory.allocate(11 * GRANULE, |_| true).unwrap();
    let lengths = pieces.iter().map(|piece| piece.extent.length / GRANULE);
    assert_eq!(lengths.collect::<Vec<_>>(), [4, 4, 2, 1]);
    for piece in pieces {
        assert_eq!(prefixes(Va(piece.va), piece.extent.length).count(), 1);
    }
    assert_eq!(
        memory.slice(0).unwrap().free.longest(),
        Some((3 * GRANULE, 4 * GRANULE))
    );
}

#[test]
fn a_vma_may_be_larger_than_a_slice() {
    let mut memory = memory(&[SLICE_SIZE / GRANULE; 3]);
    let length = 2 * SLICE_SIZE + GRANULE;
    let pieces = memory.allocate(length, |_| true).unwrap();
    let sum = |of: fn(&Piece) -> u64| pieces.iter().map(of).sum::<u64>();
    assert_eq!(sum(|piece| piece.extent.length), length);
    assert_eq!(pieces.len(), 3);
}

/// With as many blades as there may be and all slices full there are no other addresses than those at home.
#[test]
fn without_other_addresses_pieces_are_at_home() {
    let mut memory = memory(&[SLICE_SIZE / GRANULE; MAX_BLADES]);
    let pieces = memory.allocate(SLICE_SIZE + GRANULE, |_| true).unwrap();
    assert!(pieces.iter().all(|piece| piece.is_home()));
    assert_eq!(pieces.len(), 2);
    // Memory at home at addresses that are needed for a blade which is gone.
    let pieces = memory.allocate(30 * SLICE_SIZE, |blade| blade != 5);
    assert_eq!(
        pieces,
        Err(NoMemory::Full {
            length: 30 * SLICE_SIZE,
            free: 30 * SLICE_SIZE - GRANULE
        })
    );
    let pieces = memory
        .allocate(29 * SLICE_SIZE, |blade| blade != 5)
        .unwrap();
    assert!(pieces.iter().all(|piece| piece.extent.blade != 5));
    for piece in pieces {
        memory.give_back(piece);
    }
    assert!(memory.allocate(30 * SLICE_SIZE, |_| true).is_ok());
}

#[test]
fn a_blade_joins_of_which_addresses_are_given_out() {
    let mut memory = memory(&[2, 2]);
    let pieces = memory.allocate(4 * GRANULE, |_| true).unwrap();
    // As if it had been put at the start of the slice of a blade that comes later.
    for piece in &pieces {
        memory.give_back(*piece);
    }
    let at = WINDOW_BASE + 2 * SLICE_SIZE;
    let mut va = at;
    for blade in [0, 1] {
        let extent = extent(blade, 0, 2);
        assert!(memory.claim(Piece { va, extent }));
        va += extent.length;
    }
    memory.add(2, 8 * GRANULE);
    assert_eq!(memory.slice(2).unwrap().free(), 8 * GRANULE);
    let pieces = memory.allocate(8 * GRANULE, |_| true).unwrap();
    let extents: Vec<_> = pieces.iter().map(|piece| piece.extent).collect();
    assert_eq!(extents, [extent(2, 0, 4), extent(2, 4, 4)]);
}

#[test]
fn what_is_claimed_is_not_given_out() {
    let mut memory = memory(&[8]);
    let fresh = memory.clone();
    assert!(memory.claim(home(2, 3)));
    assert!(!memory.claim(home(4, 1)), "twice");
    assert!(!memory.claim(home(7, 2)), "more than there is");
    let elsewhere = Piece {
        va: home(6, 1).va,
        extent: extent(0, 2, 1),
    };
    assert!(!memory.claim(elsewhere), "the same memory");
    let elsewhere = Piece {
        va: home(2, 1).va,
        extent: extent(0, 6, 1),
    };
    assert!(!memory.claim(elsewhere), "the same addresses");
    let elsewhere = Piece {
        extent: extent(1, 0, 1),
        ..home(0, 1)
    };
    assert!(!memory.claim(elsewhere), "no such blade");
    assert_eq!(memory.slice(0).unwrap().used(), 3 * GRANULE);
    assert_eq!(one(&mut memory, 3 * GRANULE), home(5, 3));
    memory.give_back(home(2, 3));
    memory.give_back(home(5, 3));
    assert_eq!(memory, fresh);
}

#[test]
fn what_was_freed_is_zeroed_before_it_is_given_out_again() {
    let mut memory = memory(&[4]);
    let fresh = memory.clone();
    let all = one(&mut memory, 4 * GRANULE);
    memory.free(all);
    let slice = memory.slice(0).unwrap();
    assert_eq!((slice.used(), slice.unclean()), (0, 4 * GRANULE));
    let length = GRANULE;
    assert_eq!(
        memory.allocate(length, |_| true),
        Err(NoMemory::Zeroing { length })
    );
    let part = |from, to| all.part(home(from, 1).va, home(to, 1).va).unwrap();
    memory.zeroed(part(0, 1));
    assert_eq!(memory.allocate(length, |_| true), Ok(vec![part(0, 1)]));
    memory.zeroed(part(1, 4));
    memory.give_back(part(0, 1));
    assert_eq!(memory, fresh);
}

#[test]
fn a_piece_has_parts() {
    let piece = Piece {
        va: WINDOW_BASE + 8 * GRANULE,
        extent: extent(3, 1, 4),
    };
    assert_eq!(piece.part(0, u64::MAX), Some(piece));
    let last = piece.part(piece.va + 3 * GRANULE, u64::MAX).unwrap();
    assert_eq!(last.va, piece.va + 3 * GRANULE);
    assert_eq!(last.extent, extent(3, 4, 1));
    assert_eq!(piece.part(0, piece.va), None);
    assert_eq!(piece.part(piece.end(), u64::MAX), None);
}

#[derive(Clone, Debug)]
enum Action {
    Allocate(u64),
    Free(prop::sample::Index),
    Zero,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        3 => (1u64..20 * GRANULE).prop_map(Action::Allocate),
        1 => (20 * GRANULE..80 * GRANULE).prop_map(Action::Allocate),
        3 => any::<prop::sample::Index>().prop_map(Action::Free),
        1 => Just(Action::Zero),
    ]
}

/// What a granule of memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Granule {
    Free,
    Used,
    Unclean,
}

/// One value a granule: what the memory should be, slowly.
struct Oracle {
    granules: Vec<Vec<Granule>>,
    /// Granules of addresses that a piece has.
    addresses: std::collections::BTreeSet<u64>,
}

impl Oracle {
    fn count(&self, of: Granule) -> u64 {
        let all = self.granules.iter().flatten();
        all.filter(|granule| **granule == of).count() as u64
    }

    fn in_one_piece(&self, granules: usize) -> bool {
        let mut blades = self.granules.iter().enumerate();
        blades.any(|(blade, slice)| {
            let is_free = |at: usize| {
                let va = extent(blade as u8, at as u64, 1).home();
                slice[at] == Granule::Free && !self.addresses.contains(&va)
            };
            let mut starts = 0..=slice.len().saturating_sub(granules);
            slice.len() >= granules && starts.any(|at| (at..at + granules).all(is_free))
        })
    }

    fn mark(&mut self, piece: Piece, from: Granule, to: Granule) {
        let first = (piece.extent.offset / GRANULE) as usize;
        let count = (piece.extent.length / GRANULE) as usize;
        let slice = &mut self.granules[usize::from(piece.extent.blade)];
        for granule in &mut slice[first..first + count] {
            assert_eq!(
                *granule, from,
                "a granule is given out, freed or zeroed twice"
            );
            *granule = to;
        }
        for at in 0..count as u64 {
            let va = piece.va + at * GRANULE;
            let was_free = match to {
                Granule::Used => self.addresses.insert(va),
                Granule::Unclean => self.addresses.contains(&va),
                Granule::Free => self.addresses.remove(&va),
            };
            assert!(was_free, "an address is given out twice, or to nothing");
        }
    }
}

proptest! {
    #[test]
    fn memory_is_given_once_whenever_there_is_enough_and_comes_back(
        actions in prop::collection::vec(action(), 0..80),
    ) {
        let capacities = [40, 25, 64];
        let mut memory = memory(&capacities);
        let fresh = memory.clone();
        let mut oracle = Oracle {
            granules: capacities.map(|count| vec![Granule::Free; count as usize]).to_vec(),
            addresses: Default::default(),
        };
        let mut held: Vec<Vec<Piece>> = Vec::new();
        let mut unclean: Vec<Piece> = Vec::new();
        for action in actions {
            match action {
                Action::Allocate(length) => {
                    let granules = length.div_ceil(GRANULE);
                    match memory.allocate(length, |_| true) {
                        Ok(pieces) => {
                            prop_assert_eq!(pieces.len() == 1, oracle.in_one_piece(granules as usize) || pieces.len() == 1);
                            prop_assert!(pieces.windows(2).all(|two| two[0].end() == two[1].va));
                            let sum: u64 = pieces.iter().map(|piece| piece.extent.length).sum();
                            prop_assert_eq!(sum, granules * GRANULE);
                            for piece in &pieces {
                                oracle.mark(*piece, Granule::Free, Granule::Used);
                            }
                            held.push(pieces);
                        }
                        Err(error) => {
                            let (free, later) = (oracle.count(Granule::Free), oracle.count(Granule::Unclean));
                            prop_assert!(free < granules);
                            let expected = match free + later >= granules {
                                true => NoMemory::Zeroing { length },
                                false => NoMemory::Full { length, free: free * GRANULE },
                            };
                            prop_assert_eq!(error, expected);
                        }
                    }
                }
                Action::Free(index) if !held.is_empty() => {
                    for piece in held.swap_remove(index.index(held.len())) {
                        oracle.mark(piece, Granule::Used, Granule::Unclean);
                        memory.free(piece);
                        unclean.push(piece);
                    }
                }
                Action::Free(_) => {}
                Action::Zero => if let Some(piece) = unclean.pop() {
                    let first = piece.part(piece.va, piece.va + 3 * GRANULE).unwrap();
                    oracle.mark(first, Granule::Unclean, Granule::Free);
                    memory.zeroed(first);
                    unclean.extend(piece.part(first.end(), piece.end()));
                }
            }
            // What a controller that follows makes of the pieces.
            let mut restored = fresh.clone();
            for piece in held.iter().flatten() {
                prop_assert!(restored.claim(*piece));
            }
            for piece in &unclean {
                prop_assert!(restored.claim(*piece));
                restored.free(*piece);
            }
            prop_assert_eq!(&restored, &memory);
        }
        for piece in held.into_iter().flatten() {
            memory.give_back(piece);
        }
        for piece in unclean {
            memory.zeroed(piece);
        }
        prop_assert_eq!(memory, fresh);
    }
}
