//! Identities: blades and sets of blades, protection domains, connections.

/// Compute blades on one switch (and memory blades as well), as on the 32-port switch of the
/// paper (MIND, SOSP 2021, section 7). A directory word has a sharer bit for each.
pub const MAX_BLADES: usize = 32;

/// A compute blade: 0 to 31, given by the controller to a port of the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BladeId(u8);

impl BladeId {
    /// The blade with that number; `None` from 32 up.
    #[inline(always)]
    pub const fn new(number: u8) -> Option<Self> {
        if (number as usize) < MAX_BLADES {
            Some(Self(number))
        } else {
            None
        }
    }

    /// The blade with the number in the low five bits of `number`; the rest is dropped.
    #[inline(always)]
    pub const fn from_low_bits(number: u64) -> Self {
        Self((number & (MAX_BLADES as u64 - 1)) as u8)
    }

    /// The blade's number, below 32.
    #[inline(always)]
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl core::fmt::Display for BladeId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "c{}", self.0)
    }
}

/// A set of compute blades, one bit each.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct BladeSet(u32);

impl BladeSet {
    /// No blade.
    pub const EMPTY: Self = Self(0);

    /// The blades whose bits are set in `bits`.
    #[inline(always)]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// One bit a blade, bit 0 for blade 0.
    #[inline(always)]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Just this blade.
    #[inline(always)]
    pub const fn only(blade: BladeId) -> Self {
        Self(1 << blade.0)
    }

    /// These blades and `blade`.
    #[inline(always)]
    #[must_use]
    pub const fn with(self, blade: BladeId) -> Self {
        Self(self.0 | 1 << blade.0)
    }

    /// These blades but for `blade`.
    #[inline(always)]
    #[must_use]
    pub const fn without(self, blade: BladeId) -> Self {
        Self(self.0 & !(1 << blade.0))
    }

    /// Those of these that are not among `others`.
    #[inline(always)]
    #[must_use]
    pub const fn minus(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Whether `blade` is one of these.
    #[inline(always)]
    pub const fn contains(self, blade: BladeId) -> bool {
        self.0 >> blade.0 & 1 == 1
    }

    /// Whether there is none.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether there is exactly one.
    #[inline(always)]
    pub const fn is_single(self) -> bool {
        self.0 != 0 && self.0 & (self.0 - 1) == 0
    }

    /// How many there are. In a program for the switch, where BPF has no instruction for it,
    /// prefer [`is_empty`](Self::is_empty) and [`is_single`](Self::is_single).
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// The blade with the lowest number.
    ///
    /// Branch-light binary search, since BPF has no count-trailing-zeros instruction.
    #[inline(always)]
    pub const fn first(self) -> Option<BladeId> {
        if self.0 == 0 {
            return None;
        }
        let mut bits = self.0;
        let mut number = 0u8;
        if bits & 0xffff == 0 {
            number += 16;
            bits >>= 16;
        }
        if bits & 0xff == 0 {
            number += 8;
            bits >>= 8;
        }
        if bits & 0xf == 0 {
            number += 4;
            bits >>= 4;
        }
        if bits & 0x3 == 0 {
            number += 2;
            bits >>= 2;
        }
        if bits & 0x1 == 0 {
            number += 1;
        }
        Some(BladeId(number))
    }

    /// The blades, lowest number first.
    pub fn iter(self) -> impl Iterator<Item = BladeId> {
        let mut rest = self;
        core::iter::from_fn(move || {
            let blade = rest.first()?;
            rest = rest.without(blade);
            Some(blade)
        })
    }
}

impl FromIterator<BladeId> for BladeSet {
    fn from_iter<I: IntoIterator<Item = BladeId>>(blades: I) -> Self {
        blades.into_iter().fold(Self::EMPTY, Self::with)
    }
}

impl core::fmt::Debug for BladeSet {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_set()
            .entries(self.iter().map(BladeId::get))
            .finish()
    }
}

/// A protection domain (PDID of the paper, section 4.2): permissions are granted per domain. On the
/// wire it is the rkey of the RETH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainId(pub u32);

impl core::fmt::Display for DomainId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "d{}", self.0)
    }
}

/// A compute blade's connection to the switch, or through it to a memory blade: on the wire, the
/// BTH's destination queue pair. A blade that registers again has a new incarnation, and packets of
/// the old one are dropped.
///
/// ```
/// use mind_common::id::{BladeId, Connection};
///
/// let connection = Connection { blade: BladeId::from_low_bits(3), incarnation: 0x12 };
/// assert_eq!(connection.to_qp(), 0x1203);
/// assert_eq!(Connection::from_qp(0x1203), Some(connection));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Connection {
    /// The compute blade.
    pub blade: BladeId,
    /// The blade's incarnation: counted up by the controller whenever the blade registers.
    pub incarnation: u16,
}

impl Connection {
    /// The 24-bit queue pair number: incarnation in the upper 16 bits, blade in the lower 8.
    #[inline(always)]
    pub const fn to_qp(self) -> u32 {
        (self.incarnation as u32) << 8 | self.blade.0 as u32
    }

    /// What `qp` names; `None` when its lower 8 bits are no blade.
    #[inline(always)]
    pub const fn from_qp(qp: u32) -> Option<Self> {
        match BladeId::new(qp as u8) {
            Some(blade) => Some(Self {
                blade,
                incarnation: (qp >> 8) as u16,
            }),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn there_are_32_blades() {
        assert!(BladeId::new(31).is_some());
        assert_eq!(BladeId::new(32), None);
        assert_eq!(BladeId::from_low_bits(33).get(), 1);
    }

    #[test]
    fn a_queue_pair_of_no_blade_is_no_connection() {
        assert_eq!(Connection::from_qp(0x00_0020), None);
        assert_eq!(Connection::from_qp(0x00_00ff), None);
    }

    proptest! {
        #[test]
        fn the_first_of_a_set_is_its_lowest_bit(bits: u32) {
            let expected = (bits != 0).then(|| bits.trailing_zeros() as u8);
            prop_assert_eq!(BladeSet::from_bits(bits).first().map(BladeId::get), expected);
        }

        #[test]
        fn a_set_iterates_over_its_bits_in_order(bits: u32) {
            let set = BladeSet::from_bits(bits);
            let blades: Vec<_> = set.iter().collect();
            prop_assert_eq!(blades.len() as u32, set.len());
            prop_assert!(blades.is_sorted());
            prop_assert_eq!(blades.into_iter().collect::<BladeSet>(), set);
            prop_assert_eq!(set.is_single(), set.len() == 1);
        }

        #[test]
        fn a_connection_survives_its_queue_pair_number(blade in 0u8..32, incarnation: u16) {
            let connection = Connection { blade: BladeId::new(blade).unwrap(), incarnation };
            prop_assert!(connection.to_qp() < 1 << 24);
            prop_assert_eq!(Connection::from_qp(connection.to_qp()), Some(connection));
        }
    }
}
