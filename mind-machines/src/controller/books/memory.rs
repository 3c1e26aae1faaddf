//! Memory that memory blades offer: which of it is given out, and which must be zeroed before it is given out again.
//!
//! Each memory blade has the slice of the window that its number names (512 GiB), and an address's place in the slice is
//! its place in the blade's memory. So the translation of a whole slice is one LPM prefix.
//!
//! A length is rounded up to [`GRANULE`], the initial region, so that no region spans two vmas. Its *alignment* is the
//! largest power of two that the length has in it, so that a vma of 2^n pages is one prefix of the protection table, and
//! any vma is as few prefixes as its length allows, one for each bit of its number of pages (MIND, SOSP 2021, section
//! 4.2); only the length itself is taken. Where no place is so aligned, any place will do: more prefixes are better than
//! no memory. The smallest free piece that is large enough is taken.
//!
//! The blade is one of the least loaded ones: of which the smallest part is in use (section 4.1), or at most a 32nd more
//! than that. Of these, the one with the smallest such piece is taken, so that pieces of several blades are as good as
//! those of one: less room is lost to fragments, and loads are as good as even.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use mind_common::{
    addr::{INITIAL_REGION_ORDER, PAGE_SHIFT, PAGE_SIZE, SLICE_SHIFT, Va, WINDOW_BASE},
    id::MAX_BLADES,
};
use serde::{Deserialize, Serialize};

/// Bytes in which memory is given out.
pub const GRANULE: u64 = (PAGE_SIZE as u64) << INITIAL_REGION_ORDER;

/// Most bytes of one allocation, and of one blade.
pub const SLICE_SIZE: u64 = 1 << SLICE_SHIFT;

const _: () = assert!(SLICE_SIZE.is_multiple_of(GRANULE));

/// Free pieces that are looked at for an aligned place before any place is taken.
const CANDIDATES: usize = 64;

/// A blade is loaded as another one is if it is by less than one of so many parts more than that.
const LIKENESS: u128 = 32;

/// Why there is no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoMemory {
    /// Nothing was asked for.
    #[error("the length is 0")]
    Empty,
    /// More than any blade can have.
    #[error(
        "{length} bytes are more than a memory blade's part of the address space, {SLICE_SIZE}"
    )]
    TooLong {
        /// What was asked for, in bytes.
        length: u64,
    },
    /// No blade has it in one piece.
    #[error("no memory blade has {length} bytes in one piece")]
    Full {
        /// What was asked for, in bytes.
        length: u64,
    },
    /// No blade has it in one piece before memory that was freed is zeroed.
    #[error(
        "no memory blade has {length} bytes in one piece until memory that was freed is zeroed"
    )]
    Zeroing {
        /// What was asked for, in bytes.
        length: u64,
    },
}

/// A range of one memory blade's memory: whole granules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Extent {
    /// The memory blade.
    pub blade: u8,
    /// Bytes from the start of the blade's memory.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

impl Extent {
    /// Its first address.
    pub const fn va(self) -> Va {
        Va(WINDOW_BASE + ((self.blade as u64) << SLICE_SHIFT) + self.offset)
    }

    /// The extent of `length` bytes at `va`; `None` outside the window.
    pub fn at(va: Va, length: u64) -> Option<Self> {
        let blade = va.slice()?;
        let offset = (va.0 - WINDOW_BASE) & (SLICE_SIZE - 1);
        Some(Self {
            blade,
            offset,
            length,
        })
    }

    /// The first of its pages, counted from the start of the blade's memory.
    pub const fn first_page(self) -> u64 {
        self.offset >> PAGE_SHIFT
    }

    /// Its pages.
    pub const fn pages(self) -> u64 {
        self.length >> PAGE_SHIFT
    }
}

/// Pieces of memory that do not touch each other, by offset and by size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Pieces {
    /// Length by offset.
    by_offset: BTreeMap<u64, u64>,
    /// Length and offset.
    by_size: BTreeSet<(u64, u64)>,
}

impl Pieces {
    fn insert(&mut self, offset: u64, length: u64) {
        if length > 0 {
            self.by_offset.insert(offset, length);
            self.by_size.insert((length, offset));
        }
    }

    fn remove(&mut self, offset: u64) -> Option<u64> {
        let length = self.by_offset.remove(&offset)?;
        self.by_size.remove(&(length, offset));
        Some(length)
    }

    /// Adds a piece and joins it with those that it touches.
    fn join(&mut self, mut offset: u64, mut length: u64) {
        if let Some((&before, &size)) = self.by_offset.range(..offset).next_back() {
            debug_assert!(before + size <= offset, "memory is added twice");
            if before + size == offset {
                self.remove(before);
                offset = before;
                length += size;
            }
        }
        length += self.remove(offset + length).unwrap_or(0);
        self.insert(offset, length);
    }

    /// Takes `length` bytes out of a piece, those from `at` on; whether they are in one.
    fn cut(&mut self, at: u64, length: u64) -> bool {
        let Some((&offset, &size)) = self.by_offset.range(..=at).next_back() else {
            return false;
        };
        let (end, last) = (at + length, offset + size);
        if end > last {
            return false;
        }
        self.remove(offset);
        self.insert(offset, at - offset);
        self.insert(end, last - end);
        true
    }

    /// The smallest piece that has `length` bytes which begin at a multiple of `align`, a power of two: its size, and
    /// where they begin. Looks at [`CANDIDATES`] pieces.
    fn find(&self, length: u64, align: u64) -> Option<(u64, u64)> {
        let enough = self.by_size.range((length, 0)..).take(CANDIDATES);
        enough
            .map(|(size, offset)| (*size, offset.next_multiple_of(align), offset + size))
            .find(|(_, at, end)| at + length <= *end)
            .map(|(size, at, _)| (size, at))
    }

    fn largest(&self) -> u64 {
        self.by_size.last().map_or(0, |(length, _)| *length)
    }
}

/// The memory of one blade. Offsets and lengths are bytes, multiples of [`GRANULE`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slice {
    capacity: u64,
    used: u64,
    free: Pieces,
    /// Was freed, and is not zeroed yet.
    unclean: Pieces,
}

impl Slice {
    /// A blade with `capacity` bytes, all free. What exceeds a slice or is no whole granule is left out.
    fn new(capacity: u64) -> Self {
        let capacity = capacity.min(SLICE_SIZE) / GRANULE * GRANULE;
        let mut free = Pieces::default();
        free.insert(0, capacity);
        Self {
            capacity,
            used: 0,
            free,
            unclean: Pieces::default(),
        }
    }

    /// Bytes in use; not those that are being zeroed.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Bytes in all.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes that were freed and are not zeroed yet.
    pub fn unclean(&self) -> u64 {
        self.unclean.by_offset.values().sum()
    }

    /// Compares by which part of each is in use.
    fn compare_load(&self, other: &Self) -> Ordering {
        let (load, other) = self.loads(other);
        load.cmp(&other)
    }

    /// Whether no more is in use than of another one, or as good as no more.
    fn is_loaded_like(&self, other: &Self) -> bool {
        let (load, other) = self.loads(other);
        load <= other + other / LIKENESS
    }

    /// The parts of this one and of another one that are in use, by one scale.
    fn loads(&self, other: &Self) -> (u128, u128) {
        // A part is a fraction: used / capacity. Products of two lengths of up to 2^39 bytes are exact.
        let scaled = |used: u64, capacity: u64| u128::from(used) * u128::from(capacity);
        (
            scaled(self.used, other.capacity),
            scaled(other.used, self.capacity),
        )
    }

    /// Bytes of the largest piece that there will be when all is zeroed.
    fn largest_when_clean(&self) -> u64 {
        let mut largest = self.free.largest();
        // The piece that the last unclean one will be part of. Free pieces do not touch each other, unclean ones neither.
        let (mut start, mut end) = (0, 0);
        for (&offset, &length) in &self.unclean.by_offset {
            if offset != end {
                let before = self.free.by_offset.range(..offset).next_back();
                let touching = before.filter(|(from, size)| *from + *size == offset);
                start = touching.map_or(offset, |(from, _)| *from);
            }
            end = offset + length;
            end += self.free.by_offset.get(&end).copied().unwrap_or(0);
            largest = largest.max(end - start);
        }
        largest
    }
}

/// The memory of all blades.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Memory {
    slices: BTreeMap<u8, Slice>,
}

impl Memory {
    /// A memory blade joins with so many bytes. One that has been here keeps what is given out of it.
    pub fn add(&mut self, blade: u8, capacity: u64) {
        debug_assert!(usize::from(blade) < MAX_BLADES);
        self.slices
            .entry(blade)
            .or_insert_with(|| Slice::new(capacity));
    }

    /// A blade's memory, if it has joined.
    pub fn slice(&self, blade: u8) -> Option<&Slice> {
        self.slices.get(&blade)
    }

    /// Finds `length` bytes on the least loaded blade that has them in one piece, among those of which `is_here` is
    /// true. Of blades that are loaded alike, one with the smallest piece is taken, and of these the one with the lowest
    /// number.
    ///
    /// # Errors
    ///
    /// See [`NoMemory`].
    pub fn allocate(
        &mut self,
        length: u64,
        is_here: impl Fn(u8) -> bool,
    ) -> Result<Extent, NoMemory> {
        if length == 0 {
            return Err(NoMemory::Empty);
        }
        if length > SLICE_SIZE {
            return Err(NoMemory::TooLong { length });
        }
        let taken = length.next_multiple_of(GRANULE);
        // A blade without a whole granule has no part that could be in use.
        let here = self
            .slices
            .iter()
            .filter(|(blade, slice)| slice.capacity > 0 && is_here(**blade));
        let mut order: Vec<(u8, &Slice)> = here.map(|(blade, slice)| (*blade, slice)).collect();
        order.sort_by(|(_, slice), (_, other)| slice.compare_load(other));
        let aligns = [1 << taken.ilog2(), GRANULE];
        let found = aligns
            .into_iter()
            .find_map(|align| find(&order, taken, align));
        if let Some((blade, offset)) = found {
            if let Some(slice) = self.slices.get_mut(&blade) {
                slice.free.cut(offset, taken);
                slice.used += taken;
            }
            return Ok(Extent {
                blade,
                offset,
                length: taken,
            });
        }
        let mut slices = order.iter().map(|(_, slice)| slice);
        match slices.any(|slice| slice.largest_when_clean() >= taken) {
            true => Err(NoMemory::Zeroing { length }),
            false => Err(NoMemory::Full { length }),
        }
    }

    /// Takes a range that an earlier controller gave out; whether it was free.
    pub fn claim(&mut self, extent: Extent) -> bool {
        let slice = self.slices.get_mut(&extent.blade);
        slice.is_some_and(|slice| {
            let was_free = slice.free.cut(extent.offset, extent.length);
            slice.used += if was_free { extent.length } else { 0 };
            was_free
        })
    }

    /// What was given out is not used any more, and has to be zeroed.
    pub fn free(&mut self, extent: Extent) {
        if let Some(slice) = self.slices.get_mut(&extent.blade) {
            slice.used -= extent.length;
            slice.unclean.join(extent.offset, extent.length);
        }
    }

    /// What was given out was never used: nothing has been written there.
    pub fn give_back(&mut self, extent: Extent) {
        if let Some(slice) = self.slices.get_mut(&extent.blade) {
            slice.used -= extent.length;
            slice.free.join(extent.offset, extent.length);
        }
    }

    /// What was freed is zeroed.
    pub fn zeroed(&mut self, extent: Extent) {
        if let Some(slice) = self.slices.get_mut(&extent.blade)
            && slice.unclean.cut(extent.offset, extent.length)
        {
            slice.free.join(extent.offset, extent.length);
        }
    }

    /// Something of a blade's that has to be zeroed, at most `most` bytes.
    pub fn unclean(&self, blade: u8, most: u64) -> Option<Extent> {
        let (offset, length) = self
            .slices
            .get(&blade)?
            .unclean
            .by_offset
            .first_key_value()?;
        Some(Extent {
            blade,
            offset: *offset,
            length: (*length).min(most / GRANULE * GRANULE),
        })
    }
}

/// Where to take `length` bytes that begin at a multiple of `align`, from blades in the order of their loads.
fn find(order: &[(u8, &Slice)], length: u64, align: u64) -> Option<(u8, u64)> {
    let (_, least) = order.first()?;
    let alike = order.partition_point(|(_, slice)| slice.is_loaded_like(least));
    let (alike, others) = order.split_at(alike);
    let place = |(blade, slice): &(u8, &Slice)| {
        let (size, at) = slice.free.find(length, align)?;
        Some((size, *blade, at))
    };
    let smallest = alike.iter().filter_map(place).min();
    let found = smallest.or_else(|| others.iter().find_map(place));
    found.map(|(_, blade, at)| (blade, at))
}

#[cfg(test)]
mod tests {
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

    fn extent(offset: u64, length: u64) -> Extent {
        Extent {
            blade: 0,
            offset: offset * GRANULE,
            length: length * GRANULE,
        }
    }

    #[test]
    fn a_length_that_cannot_be_is_refused() {
        let mut memory = memory(&[4]);
        assert_eq!(memory.allocate(0, |_| true), Err(NoMemory::Empty));
        let length = SLICE_SIZE + 1;
        assert_eq!(
            memory.allocate(length, |_| true),
            Err(NoMemory::TooLong { length })
        );
        let length = 4 * GRANULE + 1;
        assert_eq!(
            memory.allocate(length, |_| true),
            Err(NoMemory::Full { length })
        );
        assert!(memory.allocate(4 * GRANULE, |_| true).is_ok());
    }

    #[test]
    fn the_least_loaded_blade_is_asked_first() {
        let mut memory = memory(&[8, 8]);
        let blades = [2, 1, 1, 1, 1]
            .map(|granules| memory.allocate(granules * GRANULE, |_| true).unwrap().blade);
        assert_eq!(blades, [0, 1, 1, 0, 1]);
        assert_eq!(
            memory.allocate(GRANULE, |blade| blade == 0).unwrap().blade,
            0
        );
    }

    #[test]
    fn the_least_loaded_blade_is_the_one_of_which_the_smallest_part_is_in_use() {
        let mut memory = memory(&[8, 64]);
        memory.add(2, GRANULE - 1);
        let blades =
            [4, 8, 1, 16, 8, 1].map(|granules| memory.allocate(granules * GRANULE, |_| true));
        let blades = blades.map(|extent| extent.unwrap().blade);
        // Parts in use before each: none; 4/8 and none; 4/8 and 8/64; 4/8 and 9/64; 4/8 and 25/64; 4/8 and 33/64.
        assert_eq!(blades, [0, 1, 1, 1, 1, 0]);
    }

    #[test]
    fn of_blades_that_are_loaded_alike_the_one_with_the_smallest_piece_is_taken() {
        let mut memory = memory(&[256, 256, 256]);
        let taken = [67, 65, 64, 2].map(|granules| {
            let extent = memory.allocate(granules * GRANULE, |_| true);
            extent.unwrap().blade
        });
        // Before the last one 67, 65 and 64 are in use: the latter two are alike, and the first of these has the smaller
        // piece.
        assert_eq!(taken, [0, 1, 2, 1]);
        // Now they are 67, 67 and 64.
        let extent = memory.allocate(GRANULE, |_| true).unwrap();
        assert_eq!(extent.blade, 2);
    }

    #[test]
    fn parts_of_the_largest_blades_are_compared_exactly() {
        let nearly = SLICE_SIZE - GRANULE;
        let slice = |used, capacity| Slice {
            used,
            ..Slice::new(capacity)
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
        assert_eq!(memory.allocate(1, |_| true).unwrap(), extent(0, 1));
        assert_eq!(
            memory.allocate(3 * GRANULE, |_| true).unwrap(),
            extent(2, 3)
        );
        // Three are free at 5, and no two of them at a multiple of 2.
        assert_eq!(
            memory.allocate(3 * GRANULE, |_| true).unwrap(),
            extent(5, 3)
        );
    }

    #[test]
    fn a_vma_is_as_few_prefixes_as_its_pages_have_bits() {
        let mut memory = memory(&[1 << 20]);
        for pages in [1, 2, 3, 64, 255, 257, 2049, 12_545, 20_647] {
            let length = pages << PAGE_SHIFT;
            let extent = memory.allocate(length, |_| true).unwrap();
            let prefixes = prefixes(extent.va(), length).count();
            assert_eq!(prefixes, pages.count_ones() as usize, "{pages} pages");
        }
    }

    #[test]
    fn what_is_claimed_is_not_given_out() {
        let mut memory = memory(&[8]);
        assert!(memory.claim(extent(2, 3)));
        assert!(!memory.claim(extent(4, 1)), "twice");
        assert!(!memory.claim(extent(7, 2)), "more than there is");
        assert!(
            !memory.claim(Extent {
                blade: 1,
                ..extent(0, 1)
            }),
            "no such blade"
        );
        assert_eq!(memory.slice(0).unwrap().used(), 3 * GRANULE);
        assert_eq!(
            memory.allocate(3 * GRANULE, |_| true).unwrap(),
            extent(5, 3)
        );
        memory.give_back(extent(2, 3));
        memory.give_back(extent(5, 3));
        assert_eq!(memory.slice(0).unwrap(), &Slice::new(8 * GRANULE));
    }

    #[test]
    fn what_was_freed_is_zeroed_before_it_is_given_out_again() {
        let mut memory = memory(&[4]);
        let all = memory.allocate(4 * GRANULE, |_| true).unwrap();
        memory.free(all);
        assert_eq!(
            (
                memory.slice(0).unwrap().used(),
                memory.slice(0).unwrap().unclean()
            ),
            (0, 4 * GRANULE)
        );
        let length = GRANULE;
        assert_eq!(
            memory.allocate(length, |_| true),
            Err(NoMemory::Zeroing { length })
        );
        let part = memory.unclean(0, GRANULE + 1).unwrap();
        assert_eq!(part, extent(0, 1));
        memory.zeroed(part);
        assert_eq!(memory.allocate(length, |_| true), Ok(part));
        assert_eq!(memory.unclean(0, u64::MAX).unwrap(), extent(1, 3));
        memory.zeroed(extent(1, 3));
        assert_eq!(memory.unclean(0, u64::MAX), None);
        memory.give_back(part);
        assert_eq!(memory.slice(0).unwrap(), &Slice::new(4 * GRANULE));
    }

    #[test]
    fn a_slice_begins_where_the_window_says() {
        let extent = Extent {
            blade: 3,
            ..extent(5, 1)
        };
        assert_eq!(extent.va().slice(), Some(3));
        assert_eq!(Extent::at(extent.va(), GRANULE), Some(extent));
        assert_eq!(Extent::at(Va(0), GRANULE), None);
    }

    #[derive(Clone, Debug)]
    enum Action {
        Allocate(u64),
        Free(prop::sample::Index),
        Zero,
    }

    fn action() -> impl Strategy<Value = Action> {
        prop_oneof![
            (1u64..20 * GRANULE).prop_map(Action::Allocate),
            any::<prop::sample::Index>().prop_map(Action::Free),
            Just(Action::Zero),
        ]
    }

    /// What a granule is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Granule {
        Free,
        Used,
        Unclean,
    }

    /// One value a granule: what the memory should be, slowly.
    struct Oracle(Vec<Vec<Granule>>);

    impl Oracle {
        fn fits(&self, granules: usize, fits: impl Fn(Granule) -> bool) -> bool {
            let has = |slice: &Vec<Granule>| {
                slice
                    .windows(granules)
                    .any(|w| w.iter().all(|granule| fits(*granule)))
            };
            self.0.iter().any(has)
        }

        fn mark(&mut self, extent: Extent, from: Granule, to: Granule) {
            let first = (extent.offset / GRANULE) as usize;
            let count = (extent.length / GRANULE) as usize;
            for granule in &mut self.0[usize::from(extent.blade)][first..first + count] {
                assert_eq!(
                    *granule, from,
                    "a granule is given out, freed or zeroed twice"
                );
                *granule = to;
            }
        }
    }

    proptest! {
        #[test]
        fn memory_is_given_once_fits_when_it_can_and_comes_back_in_one_piece(
            actions in prop::collection::vec(action(), 0..80),
        ) {
            let capacities = [40, 25, 64];
            let mut memory = memory(&capacities);
            let mut oracle = Oracle(capacities.map(|count| vec![Granule::Free; count as usize]).to_vec());
            let mut held: Vec<Extent> = Vec::new();
            for action in actions {
                match action {
                    Action::Allocate(length) => {
                        let granules = length.div_ceil(GRANULE) as usize;
                        match memory.allocate(length, |_| true) {
                            Ok(extent) => {
                                prop_assert_eq!(extent.length, granules as u64 * GRANULE);
                                oracle.mark(extent, Granule::Free, Granule::Used);
                                held.push(extent);
                            }
                            Err(error) => {
                                prop_assert!(!oracle.fits(granules, |granule| granule == Granule::Free));
                                let later = oracle.fits(granules, |granule| granule != Granule::Used);
                                let expected = if later { NoMemory::Zeroing { length } } else { NoMemory::Full { length } };
                                prop_assert_eq!(error, expected);
                            }
                        }
                    }
                    Action::Free(index) if !held.is_empty() => {
                        let extent = held.swap_remove(index.index(held.len()));
                        oracle.mark(extent, Granule::Used, Granule::Unclean);
                        memory.free(extent);
                    }
                    Action::Free(_) => {}
                    Action::Zero => for blade in 0..3 {
                        if let Some(extent) = memory.unclean(blade, 3 * GRANULE) {
                            oracle.mark(extent, Granule::Unclean, Granule::Free);
                            memory.zeroed(extent);
                        }
                    }
                }
                for (blade, granules) in oracle.0.iter().enumerate() {
                    let count = |of| granules.iter().filter(|granule| **granule == of).count() as u64 * GRANULE;
                    let slice = memory.slice(blade as u8).unwrap();
                    prop_assert_eq!(slice.used(), count(Granule::Used));
                    prop_assert_eq!(slice.unclean(), count(Granule::Unclean));
                }
            }
            for extent in held {
                memory.free(extent);
            }
            for (blade, capacity) in capacities.into_iter().enumerate() {
                while let Some(extent) = memory.unclean(blade as u8, 7 * GRANULE) {
                    memory.zeroed(extent);
                }
                prop_assert_eq!(memory.slice(blade as u8).unwrap(), &Slice::new(capacity * GRANULE));
            }
        }
    }
}
