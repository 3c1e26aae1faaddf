//! 24-bit numbers that wrap: sequence numbers, page versions, episodes of a directory slot.
//!
//! They are compared as in RFC 1982: of two numbers less than half the range apart, the later one
//! is the one that counting up reaches. The half range (8,388,608) is the assumption under which a
//! delayed packet is told from a current one: a packet that stays in the network while its page is
//! written back, its region invalidated, or its blade sends 8 million times, is lost.
//!
//! ```
//! use mind_common::serial::Seq;
//!
//! let last = Seq::new(0xff_ffff);
//! assert_eq!(last.next(), Seq::new(0));
//! assert!(Seq::new(0).is_after(last));
//! ```

/// Bits of every serial number, as many as a PSN has on the wire (IBTA 9.2, BTH).
pub const BITS: u32 = 24;
const MASK: u32 = (1 << BITS) - 1;
const HALF: u32 = 1 << (BITS - 1);

macro_rules! serial {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(u32);

        impl $name {
            /// The number whose low 24 bits are those of `raw`; the rest is dropped.
            #[inline(always)]
            pub const fn new(raw: u32) -> Self {
                Self(raw & MASK)
            }

            /// The number itself, below 2^24.
            #[inline(always)]
            pub const fn get(self) -> u32 {
                self.0
            }

            /// The number after this one.
            #[inline(always)]
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0.wrapping_add(1) & MASK)
            }

            /// Whether `self` is later than `other` (and not equal to it).
            #[inline(always)]
            pub const fn is_after(self, other: Self) -> bool {
                let ahead = self.0.wrapping_sub(other.0) & MASK;
                ahead != 0 && ahead < HALF
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

serial!(
    /// A request's number on its blade's connection. On the wire it is the BTH's PSN, and every
    /// answer to the request carries it.
    Seq
);
serial!(
    /// How often a page has been written back; only moves forward. On the wire it is the
    /// immediate of a WRITE and the MSN of its acknowledgement and of a READ response.
    Version
);
serial!(
    /// Which invalidation of a slot this is: the directory counts it up whenever the slot becomes
    /// busy, so that an acknowledgement of an earlier one never counts for a later one.
    Episode
);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_wrap_after_24_bits() {
        assert_eq!(Seq::new(0x00ff_ffff).next(), Seq::new(0));
        assert_eq!(Seq::new(0xab12_3456), Seq::new(0x12_3456));
    }

    #[test]
    fn a_number_is_not_after_itself() {
        assert!(!Version::new(7).is_after(Version::new(7)));
    }

    proptest! {
        #[test]
        fn of_two_numbers_less_than_half_the_range_apart_exactly_one_is_after(
            start in 0..=MASK, distance in 1..HALF,
        ) {
            let earlier = Version::new(start);
            let later = Version::new(start.wrapping_add(distance));
            prop_assert!(later.is_after(earlier));
            prop_assert!(!earlier.is_after(later));
        }
    }
}
