//! The atomic extended transport header (IBTA volume 1, 9.3.4).

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    big_endian::{U32, U64},
};

/// Atomic extended transport header.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct AtomicEth {
    /// Address of the word, a multiple of 8.
    pub va: U64,
    /// Protection domain on the compute side.
    pub rkey: U32,
    /// CmpSwap: the new value. FetchAdd: what to add.
    pub swap_or_add: U64,
    /// CmpSwap: the value that must be there. FetchAdd: unused.
    pub compare: U64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_these_bytes() {
        let atomic = AtomicEth {
            va: U64::new(0x0102_0304_0506_0708),
            rkey: U32::new(9),
            swap_or_add: U64::new(10),
            compare: U64::new(11),
        };
        assert_eq!(
            atomic.as_bytes(),
            [
                1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0,
                11
            ]
        );
    }
}

/// An atomic operation on an 8-byte word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Atomic {
    /// Replace the value if it is the expected one.
    CmpSwap {
        /// The value that must be there.
        expected: u64,
        /// The value to put there.
        new: u64,
    },
    /// Add, wrapping.
    FetchAdd {
        /// What to add.
        addend: u64,
    },
}
