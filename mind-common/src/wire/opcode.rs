//! The opcode in the first byte of a BTH.

use crate::directory::{Source, Want};

/// What a datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// RDMA WRITE Only with Immediate, reliable connection: a page is written back; the immediate
    /// is its version.
    Write = 0x0b,
    /// RDMA READ Request: a page, to read.
    Read = 0x0c,
    /// RDMA READ Response Only.
    ReadResponse = 0x10,
    /// Acknowledge: a write-back is stored, an upgrade is granted, or (by its syndrome) a request
    /// is refused.
    Acknowledge = 0x11,
    /// Atomic Acknowledge: the value before the operation.
    AtomicAcknowledge = 0x12,
    /// Compare and swap 8 bytes.
    CmpSwap = 0x13,
    /// Fetch and add 8 bytes.
    FetchAdd = 0x14,
    /// Coherence: a page, to write.
    Acquire = 0xc0,
    /// Coherence: permission to write a page that the requester has a shared copy of.
    Upgrade = 0xc1,
    /// Coherence: give a region up, or (to shared) give up writing it.
    Invalidate = 0xc2,
    /// Coherence: the region is given up; the requester needs no page.
    InvalidateAck = 0xc3,
    /// Coherence: the region is given up; the requester's page is in memory. As long as a page
    /// request, for the switch makes the last one into a READ in the requester's name.
    InvalidateAckFetch = 0xc4,
    /// Coherence: the region is given up; here is the requester's page.
    Forward = 0xc5,
    /// Inside the switch only, from XDP to TC: one INVALIDATE to each blade listed.
    FanOut = 0xc6,
}

impl Opcode {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Write,
        Self::Read,
        Self::ReadResponse,
        Self::Acknowledge,
        Self::AtomicAcknowledge,
        Self::CmpSwap,
        Self::FetchAdd,
        Self::Acquire,
        Self::Upgrade,
        Self::Invalidate,
        Self::InvalidateAck,
        Self::InvalidateAckFetch,
        Self::Forward,
        Self::FanOut,
    ];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::ReadResponse => "read-response",
            Self::Acknowledge => "acknowledge",
            Self::AtomicAcknowledge => "atomic-acknowledge",
            Self::CmpSwap => "cmp-swap",
            Self::FetchAdd => "fetch-add",
            Self::Acquire => "acquire",
            Self::Upgrade => "upgrade",
            Self::Invalidate => "invalidate",
            Self::InvalidateAck => "invalidate-ack",
            Self::InvalidateAckFetch => "invalidate-ack-fetch",
            Self::Forward => "forward",
            Self::FanOut => "fan-out",
        }
    }

    /// The opcode with that number, if it is one of this protocol's.
    #[inline(always)]
    pub const fn from_u8(number: u8) -> Option<Self> {
        Some(match number {
            0x0b => Self::Write,
            0x0c => Self::Read,
            0x10 => Self::ReadResponse,
            0x11 => Self::Acknowledge,
            0x12 => Self::AtomicAcknowledge,
            0x13 => Self::CmpSwap,
            0x14 => Self::FetchAdd,
            0xc0 => Self::Acquire,
            0xc1 => Self::Upgrade,
            0xc2 => Self::Invalidate,
            0xc3 => Self::InvalidateAck,
            0xc4 => Self::InvalidateAckFetch,
            0xc5 => Self::Forward,
            0xc6 => Self::FanOut,
            _ => return None,
        })
    }

    /// What a request with that opcode asks for; `None` for opcodes that ask for no page.
    #[inline(always)]
    pub const fn want(self) -> Option<Want> {
        match self {
            Self::Read => Some(Want::Read),
            Self::Acquire => Some(Want::Acquire),
            Self::Upgrade => Some(Want::Upgrade),
            _ => None,
        }
    }

    /// From where the requester gets its page when an answer with that opcode is the last; `None` for opcodes that
    /// answer no INVALIDATE.
    #[inline(always)]
    pub const fn source(self) -> Option<Source> {
        match self {
            Self::InvalidateAck => Some(Source::Grant),
            Self::InvalidateAckFetch => Some(Source::Fetch),
            Self::Forward => Some(Source::Forward),
            _ => None,
        }
    }

    /// What the last answer becomes on its way to the requester: an acknowledgement, a READ in its name, or itself.
    #[inline(always)]
    pub const fn completing(source: Source) -> Self {
        match source {
            Source::Grant => Self::Acknowledge,
            Source::Fetch => Self::Read,
            Source::Forward => Self::Forward,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_one_opcode_or_none() {
        let known = (0..=u8::MAX).filter_map(Opcode::from_u8).count();
        assert_eq!(known, Opcode::ALL.len());
        for opcode in Opcode::ALL {
            assert_eq!(Opcode::from_u8(opcode as u8), Some(opcode));
        }
    }
}
