//! Memory that memory blades offer: which of it is given out, and which must be zeroed before it is given out again.
//!
//! Each memory blade has the slice of the window that its number names (512 GiB), and an address's place in the slice is
//! its place in the blade's memory. So the translation of a whole slice is one LPM prefix.
//!
//! A length is rounded up to [`GRANULE`], the initial region, so that no region spans two vmas. Its *alignment* is the
//! length rounded up to a power of two, so that a vma of 2^n pages is one prefix of the protection table (MIND, SOSP
//! 2021, section 4.2); only the length itself is taken. Where no place is so aligned, any place will do: more prefixes
//! are better than no memory. The smallest free piece that is large enough is taken.

use std::collections::{BTreeMap, BTreeSet};

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

    /// Where the smallest piece has `length` bytes that begin at a multiple of `align`, a power of two. Looks at
    /// [`CANDIDATES`] pieces.
    fn find(&self, length: u64, align: u64) -> Option<u64> {
        let enough = self.by_size.range((length, 0)..).take(CANDIDATES);
        enough
            .map(|(size, offset)| (offset.next_multiple_of(align), offset + size))
            .find(|(at, end)| at + length <= *end)
            .map(|(at, _)| at)
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

    fn take(&mut self, length: u64, align: u64) -> Option<u64> {
        let at = self.free.find(length, align)?;
        self.free.cut(at, length);
        self.used += length;
        Some(at)
    }

    /// Bytes of the largest piece that there will be when all is zeroed.
    fn largest_when_clean(&self) -> u64 {
        let mut all = self.free.clone();
        for (offset, length) in &self.unclean.by_offset {
            all.join(*offset, *length);
        }
        all.largest()
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
    /// true.
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
        let here = self.slices.iter().filter(|(blade, _)| is_here(**blade));
        let mut order: Vec<(u64, u8)> = here.map(|(blade, slice)| (slice.used, *blade)).collect();
        order.sort_unstable();
        for align in [taken.next_power_of_two(), GRANULE] {
            for (_, blade) in &order {
                let slice = self.slices.get_mut(blade);
                if let Some(offset) = slice.and_then(|slice| slice.take(taken, align)) {
                    return Ok(Extent {
                        blade: *blade,
                        offset,
                        length: taken,
                    });
                }
            }
        }
        let mut slices = order.iter().filter_map(|(_, blade)| self.slices.get(blade));
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

#[cfg(test)]
mod tests {
    use super::*;
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
    fn a_vma_is_aligned_to_its_length_while_there_is_such_a_place() {
        let mut memory = memory(&[8]);
        assert_eq!(memory.allocate(1, |_| true).unwrap(), extent(0, 1));
        assert_eq!(
            memory.allocate(3 * GRANULE, |_| true).unwrap(),
            extent(4, 3)
        );
        // Three are free at 1, none of them at a multiple of 4.
        assert_eq!(
            memory.allocate(3 * GRANULE, |_| true).unwrap(),
            extent(1, 3)
        );
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
