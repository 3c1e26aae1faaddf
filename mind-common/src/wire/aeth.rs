//! The acknowledge extended transport header (IBTA volume 1, 9.3.5 and 9.7.5.2).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{refusal::Refusal, serial::Version};

/// Acknowledge extended transport header.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Aeth {
    /// See [`Syndrome`].
    pub syndrome: u8,
    msn: [u8; 3],
}

impl Aeth {
    /// A header with this syndrome; its message sequence number is a page's version.
    #[inline(always)]
    pub const fn new(syndrome: Syndrome, version: Version) -> Self {
        let msn = version.get();
        Self {
            syndrome: syndrome.to_u8(),
            msn: [(msn >> 16) as u8, (msn >> 8) as u8, msn as u8],
        }
    }

    /// The page's version, 24 bits, where RDMA has the message sequence number.
    #[inline(always)]
    pub const fn version(&self) -> Version {
        let [a, b, c] = self.msn;
        Version::new((a as u32) << 16 | (b as u32) << 8 | c as u32)
    }
}

/// What an acknowledgement says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Syndrome {
    /// Done.
    Ack,
    /// Not done, and why.
    Refused(Refusal),
}

/// Acknowledgement with "no credit limit", as responders without a receive queue say it.
const ACK: u8 = 0b000_11111;

impl Syndrome {
    /// The byte on the wire.
    #[inline(always)]
    pub const fn to_u8(self) -> u8 {
        match self {
            Self::Ack => ACK,
            Self::Refused(refusal) => refusal as u8,
        }
    }

    /// The syndrome of `byte`; `None` for syndromes that this protocol does not use.
    pub const fn from_u8(byte: u8) -> Option<Self> {
        Some(match byte {
            ACK => Self::Ack,
            0b001_00001 => Self::Refused(Refusal::Busy),
            0b011_00000 => Self::Refused(Refusal::NoCopy),
            0b011_00001 => Self::Refused(Refusal::Invalid),
            0b011_00010 => Self::Refused(Refusal::Denied),
            0b011_00011 => Self::Refused(Refusal::Stale),
            0b011_00100 => Self::Refused(Refusal::Unreachable),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_these_bytes() {
        let aeth = Aeth::new(Syndrome::Refused(Refusal::Denied), Version::new(0x01_0203));
        assert_eq!(aeth.as_bytes(), [0x62, 1, 2, 3]);
        assert_eq!(aeth.version(), Version::new(0x01_0203));
    }

    #[test]
    fn every_syndrome_survives_its_byte() {
        let refusals = Refusal::ALL.map(Syndrome::Refused);
        for syndrome in refusals.into_iter().chain([Syndrome::Ack]) {
            assert_eq!(Syndrome::from_u8(syndrome.to_u8()), Some(syndrome));
        }
        let known = (0..=u8::MAX).filter_map(Syndrome::from_u8).count();
        assert_eq!(known, Refusal::ALL.len() + 1);
    }
}
