//! Who has which memory: first fit within a memory blade, the least loaded blade first.
//!
//! Each memory blade owns the slice of the window that its number names (512 GiB), and an address's place in the slice
//! is its place in the blade's memory. So the translation of a whole slice is one LPM prefix.
//!
//! A length is rounded up to [`GRANULE`], the initial region, so that no region spans two vmas. Its *alignment* is the
//! length rounded up to a power of two, so that a vma of 2^n pages is one prefix of the protection table (MIND, SOSP
//! 2021, section 4.2); only the length itself is taken. Where no place is so aligned, any place will do: more prefixes
//! are better than no memory.

use std::collections::BTreeMap;

use mind_common::addr::{
    INITIAL_REGION_ORDER, PAGE_SHIFT, PAGE_SIZE, SLICE_SHIFT, Va, WINDOW_BASE,
};
use mind_common::id::MAX_BLADES;
use serde::{Deserialize, Serialize};

/// Bytes in which memory is given out.
pub const GRANULE: u64 = (PAGE_SIZE as u64) << INITIAL_REGION_ORDER;

/// Most bytes of one allocation, and of one blade.
pub const SLICE_SIZE: u64 = 1 << SLICE_SHIFT;

const _: () = assert!(SLICE_SIZE.is_multiple_of(GRANULE));

/// Why there is no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocError {
    /// Nothing was asked for.
    #[error("the length is 0")]
    Empty,
    /// More than any blade can have.
    #[error(
        "{length} bytes are more than a memory blade's part of the address space, {SLICE_SIZE}"
    )]
    TooLong {
        /// What was asked for.
        length: u64,
    },
    /// No blade has it in one piece.
    #[error("no memory blade has {length} bytes in one piece")]
    Full {
        /// What was asked for.
        length: u64,
    },
}

/// The free memory of one blade. Offsets and lengths are bytes, multiples of [`GRANULE`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    capacity: u64,
    used: u64,
    /// Length by offset; no two touch.
    free: BTreeMap<u64, u64>,
}

impl Slice {
    /// A blade with `capacity` bytes, all free. What exceeds a slice or is no whole granule is left out.
    pub fn new(capacity: u64) -> Self {
        let capacity = capacity.min(SLICE_SIZE) / GRANULE * GRANULE;
        let free = (capacity > 0).then_some((0, capacity));
        Self {
            capacity,
            used: 0,
            free: free.into_iter().collect(),
        }
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Bytes in all.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Takes the first free `length` bytes that begin at a multiple of `align`, a power of two.
    fn take(&mut self, length: u64, align: u64) -> Option<u64> {
        let (start, size, at) = self.free.iter().find_map(|(&start, &size)| {
            let at = start.next_multiple_of(align);
            (at + length <= start + size).then_some((start, size, at))
        })?;
        self.free.remove(&start);
        if at > start {
            self.free.insert(start, at - start);
        }
        let rest = start + size - (at + length);
        if rest > 0 {
            self.free.insert(at + length, rest);
        }
        self.used += length;
        Some(at)
    }

    /// Takes these bytes; whether they were free.
    fn claim(&mut self, offset: u64, length: u64) -> bool {
        let around = self.free.range(..=offset).next_back();
        let Some((start, size)) = around.map(|(start, size)| (*start, *size)) else {
            return false;
        };
        let (end, last) = (offset + length, start + size);
        if end > last {
            return false;
        }
        self.free.remove(&start);
        for (from, to) in [(start, offset), (end, last)] {
            if from < to {
                self.free.insert(from, to - from);
            }
        }
        self.used += length;
        true
    }

    /// Gives back what [`take`](Self::take) took, and joins it with its free neighbours.
    fn give(&mut self, mut offset: u64, length: u64) {
        self.used -= length;
        let mut size = length;
        if let Some((&before, &free)) = self.free.range(..offset).next_back() {
            debug_assert!(before + free <= offset, "memory is freed twice");
            if before + free == offset {
                self.free.remove(&before);
                offset = before;
                size += free;
            }
        }
        if let Some(free) = self.free.remove(&(offset + size)) {
            size += free;
        }
        self.free.insert(offset, size);
    }
}

/// The memory of all blades.
#[derive(Clone, Debug, Default)]
pub struct Allocator {
    slices: [Option<Slice>; MAX_BLADES],
}

/// An allocated range: whole granules, all on one blade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

impl Allocator {
    /// A memory blade joins with so many bytes. One that has been here with as much, or more, keeps what is allocated.
    pub fn add(&mut self, blade: u8, capacity: u64) {
        let slot = &mut self.slices[usize::from(blade)];
        if slot.is_none() {
            *slot = Some(Slice::new(capacity));
        }
    }

    /// A blade's memory, if it has joined.
    pub fn slice(&self, blade: u8) -> Option<&Slice> {
        self.slices.get(usize::from(blade))?.as_ref()
    }

    /// Finds `length` bytes on the least loaded blade that has them in one piece, among those of which `is_here` is
    /// true.
    ///
    /// # Errors
    ///
    /// See [`AllocError`].
    pub fn allocate(
        &mut self,
        length: u64,
        is_here: impl Fn(u8) -> bool,
    ) -> Result<Extent, AllocError> {
        if length == 0 {
            return Err(AllocError::Empty);
        }
        if length > SLICE_SIZE {
            return Err(AllocError::TooLong { length });
        }
        let taken = length.next_multiple_of(GRANULE);
        let mut order: Vec<(u64, usize)> = self
            .slices
            .iter()
            .enumerate()
            .filter_map(|(blade, slice)| Some((slice.as_ref()?.used, blade)))
            .filter(|(_, blade)| is_here(*blade as u8))
            .collect();
        order.sort_unstable();
        for align in [taken.next_power_of_two(), GRANULE] {
            for &(_, blade) in &order {
                let offset = self.slices[blade]
                    .as_mut()
                    .and_then(|slice| slice.take(taken, align));
                if let Some(offset) = offset {
                    return Ok(Extent {
                        blade: blade as u8,
                        offset,
                        length: taken,
                    });
                }
            }
        }
        Err(AllocError::Full { length })
    }

    /// Takes a range that was allocated by an earlier controller; whether it was free.
    pub fn claim(&mut self, extent: Extent) -> bool {
        let slice = self.slices.get_mut(usize::from(extent.blade));
        slice
            .and_then(Option::as_mut)
            .is_some_and(|slice| slice.claim(extent.offset, extent.length))
    }

    /// Gives back what [`allocate`](Self::allocate) gave.
    pub fn free(&mut self, extent: Extent) {
        if let Some(Some(slice)) = self.slices.get_mut(usize::from(extent.blade)) {
            slice.give(extent.offset, extent.length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn allocator(capacities: &[u64]) -> Allocator {
        let mut allocator = Allocator::default();
        for (blade, capacity) in capacities.iter().enumerate() {
            allocator.add(blade as u8, capacity * GRANULE);
        }
        allocator
    }

    #[test]
    fn a_length_that_cannot_be_is_refused() {
        let mut allocator = allocator(&[4]);
        assert_eq!(allocator.allocate(0, |_| true), Err(AllocError::Empty));
        let length = SLICE_SIZE + 1;
        assert_eq!(
            allocator.allocate(length, |_| true),
            Err(AllocError::TooLong { length })
        );
        let length = 4 * GRANULE + 1;
        assert_eq!(
            allocator.allocate(length, |_| true),
            Err(AllocError::Full { length })
        );
        assert!(allocator.allocate(4 * GRANULE, |_| true).is_ok());
    }

    #[test]
    fn the_least_loaded_blade_is_asked_first() {
        let mut allocator = allocator(&[8, 8]);
        let blades: Vec<_> = [2, 1, 1, 1, 1]
            .map(|granules| {
                allocator
                    .allocate(granules * GRANULE, |_| true)
                    .unwrap()
                    .blade
            })
            .to_vec();
        assert_eq!(blades, [0, 1, 1, 0, 1]);
    }

    #[test]
    fn a_vma_is_aligned_to_its_length_while_there_is_such_a_place() {
        let mut allocator = allocator(&[8]);
        assert_eq!(allocator.allocate(1, |_| true).unwrap().offset, 0);
        assert_eq!(
            allocator.allocate(3 * GRANULE, |_| true).unwrap().offset,
            4 * GRANULE
        );
        // Three are free at 1, none of them at a multiple of 4.
        assert_eq!(
            allocator.allocate(3 * GRANULE, |_| true).unwrap().offset,
            GRANULE
        );
    }

    #[test]
    fn what_is_claimed_is_not_given_out() {
        let mut allocator = allocator(&[8]);
        let extent = |offset, length| Extent {
            blade: 0,
            offset: offset * GRANULE,
            length: length * GRANULE,
        };
        assert!(allocator.claim(extent(2, 3)));
        assert!(!allocator.claim(extent(4, 1)), "twice");
        assert!(!allocator.claim(extent(7, 2)), "more than there is");
        assert!(
            !allocator.claim(Extent {
                blade: 1,
                ..extent(0, 1)
            }),
            "no such blade"
        );
        assert_eq!(allocator.slice(0).unwrap().used(), 3 * GRANULE);
        assert_eq!(
            allocator.allocate(3 * GRANULE, |_| true).unwrap(),
            extent(5, 3)
        );
        allocator.free(extent(2, 3));
        allocator.free(extent(5, 3));
        assert_eq!(allocator.slice(0).unwrap(), &Slice::new(8 * GRANULE));
    }

    #[test]
    fn a_slice_begins_where_the_window_says() {
        let extent = Extent {
            blade: 3,
            offset: 5 * GRANULE,
            length: GRANULE,
        };
        assert_eq!(extent.va().slice(), Some(3));
        assert_eq!(Extent::at(extent.va(), GRANULE), Some(extent));
        assert_eq!(Extent::at(Va(0), GRANULE), None);
    }

    #[derive(Clone, Debug)]
    enum Action {
        Allocate(u64),
        Free(prop::sample::Index),
    }

    fn action() -> impl Strategy<Value = Action> {
        prop_oneof![
            (1u64..20 * GRANULE).prop_map(Action::Allocate),
            any::<prop::sample::Index>().prop_map(Action::Free),
        ]
    }

    /// One flag a granule: what the allocator should be, slowly.
    struct Model(Vec<Vec<bool>>);

    impl Model {
        fn fits_somewhere(&self, granules: usize) -> bool {
            self.0
                .iter()
                .any(|slice| slice.windows(granules).any(|w| w.iter().all(|used| !used)))
        }

        fn mark(&mut self, extent: Extent, used: bool) {
            let first = (extent.offset / GRANULE) as usize;
            let count = (extent.length / GRANULE) as usize;
            for flag in &mut self.0[usize::from(extent.blade)][first..first + count] {
                assert_ne!(*flag, used, "a granule is given out or taken back twice");
                *flag = used;
            }
        }
    }

    proptest! {
        #[test]
        fn memory_is_given_once_fits_when_it_can_and_comes_back_in_one_piece(
            actions in prop::collection::vec(action(), 0..80),
        ) {
            let capacities = [40, 25, 64];
            let mut allocator = allocator(&capacities);
            let mut model = Model(capacities.map(|count| vec![false; count as usize]).to_vec());
            let mut held: Vec<Extent> = Vec::new();
            for action in actions {
                match action {
                    Action::Allocate(length) => {
                        let granules = length.div_ceil(GRANULE) as usize;
                        match allocator.allocate(length, |_| true) {
                            Ok(extent) => {
                                prop_assert_eq!(extent.length, granules as u64 * GRANULE);
                                model.mark(extent, true);
                                held.push(extent);
                            }
                            Err(error) => {
                                prop_assert_eq!(error, AllocError::Full { length });
                                prop_assert!(!model.fits_somewhere(granules));
                            }
                        }
                    }
                    Action::Free(index) if !held.is_empty() => {
                        let extent = held.swap_remove(index.index(held.len()));
                        model.mark(extent, false);
                        allocator.free(extent);
                    }
                    Action::Free(_) => {}
                }
                for (blade, flags) in model.0.iter().enumerate() {
                    let used = flags.iter().filter(|used| **used).count() as u64 * GRANULE;
                    prop_assert_eq!(allocator.slice(blade as u8).unwrap().used(), used);
                }
            }
            for extent in held {
                allocator.free(extent);
            }
            for (blade, capacity) in capacities.into_iter().enumerate() {
                prop_assert_eq!(
                    allocator.slice(blade as u8).unwrap(),
                    &Slice::new(capacity * GRANULE)
                );
            }
        }
    }
}
