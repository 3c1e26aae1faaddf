//! A range of the domain's memory: what calls return, and what they take.

use std::ops::{Bound, RangeBounds};

/// A range of addresses in the window, in bytes. The memory is there until it is unmapped, whether or not this value is:
/// other processes may use it.
///
/// ```
/// use mind_client::Memory;
///
/// let memory = Memory::at(0x1000_0000_0000, 8192);
/// let second_page = memory.range(4096..);
/// assert_eq!((second_page.va(), second_page.len()), (0x1000_0000_1000, 4096));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Memory {
    pub(crate) va: u64,
    pub(crate) length: u64,
}

impl Memory {
    /// The range of `length` bytes from the address `va`. Calls fail where the domain has no such memory.
    pub const fn at(va: u64, length: u64) -> Self {
        Self { va, length }
    }

    /// The first address: the same on every blade.
    pub const fn va(self) -> u64 {
        self.va
    }

    /// Bytes.
    pub const fn len(self) -> usize {
        self.length as usize
    }

    /// Whether it has no bytes.
    pub const fn is_empty(self) -> bool {
        self.length == 0
    }

    /// A part of it: `bytes` counts from its first address.
    ///
    /// # Panics
    ///
    /// When the part does not lie in it, as for a slice.
    #[must_use]
    pub fn range(self, bytes: impl RangeBounds<u64>) -> Self {
        let start = match bytes.start_bound() {
            Bound::Included(start) => Some(*start),
            Bound::Excluded(start) => start.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let end = match bytes.end_bound() {
            Bound::Included(end) => end.checked_add(1),
            Bound::Excluded(end) => Some(*end),
            Bound::Unbounded => Some(self.length),
        };
        match (start, end) {
            (Some(start), Some(end)) if start <= end && end <= self.length => Self {
                va: self.va + start,
                length: end - start,
            },
            _ => panic!(
                "range {:?}..{:?} is not within memory of {} bytes",
                bytes.start_bound(),
                bytes.end_bound(),
                self.length
            ),
        }
    }

    /// The first address as a pointer, for unsafe code. Other processes may change the memory at any time, so plain
    /// references to what they write are undefined behaviour, as with any shared memory.
    pub const fn as_ptr(self) -> *mut u8 {
        self.va as *mut u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: Memory = Memory::at(0x1000, 0x3000);

    #[test]
    fn a_part_has_the_bounds_that_are_asked_for() {
        assert_eq!(MEMORY.range(..), MEMORY);
        assert_eq!(MEMORY.range(0x1000..0x2000), Memory::at(0x2000, 0x1000));
        assert_eq!(MEMORY.range(..=0xfff), Memory::at(0x1000, 0x1000));
        assert_eq!(
            MEMORY.range((Bound::Excluded(1), Bound::Unbounded)),
            Memory::at(0x1002, 0x2ffe)
        );
        assert!(MEMORY.range(0x3000..).is_empty());
    }

    #[test]
    #[should_panic(expected = "is not within memory of 12288 bytes")]
    fn a_part_beyond_the_end_panics() {
        let _ = MEMORY.range(0x1000..0x3001);
    }

    #[test]
    #[should_panic(expected = "is not within memory")]
    fn a_part_that_ends_beyond_all_numbers_panics() {
        let _ = MEMORY.range(0..=u64::MAX);
    }
}
