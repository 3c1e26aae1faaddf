//! Why a request is not carried out.

/// Why a request is not carried out. The number of each is a standard NAK code of RDMA, so that any dissector names it
/// and a real NIC could say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Refusal {
    /// The region is being changed; ask again (RNR NAK).
    Busy = 0b001_00001,
    /// The requester is not a sharer any more, so a bare upgrade won't do: acquire the page (NAK, PSN sequence error).
    NoCopy = 0b011_00000,
    /// The request makes no sense: misaligned, wrong length, outside of the window (NAK, invalid request).
    Invalid = 0b011_00001,
    /// The domain lacks the permission, or is not placed on this blade (NAK, remote access error).
    Denied = 0b011_00010,
    /// A write-back of a blade that does not own the region, or of a version older than the one stored (NAK, remote
    /// operational error).
    Stale = 0b011_00011,
    /// No memory blade serves the address now, or the writes to it were lost (NAK, invalid RD
    /// request).
    Unreachable = 0b011_00100,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Busy,
        Self::NoCopy,
        Self::Invalid,
        Self::Denied,
        Self::Stale,
        Self::Unreachable,
    ];
}
