//! The RDMA extended transport header, in requests that name memory (IBTA volume 1, 9.3.3).

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    big_endian::{U32, U64},
};

use crate::{addr::Va, id::DomainId};

/// RDMA extended transport header.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Reth {
    /// On the compute side a global virtual address, on the memory side the translated one: the
    /// offset in the memory blade's store. In bytes.
    pub va: U64,
    /// On the compute side the protection domain, on the memory side 0.
    pub rkey: U32,
    /// Bytes wanted or sent.
    pub len: U32,
}

impl Reth {
    /// A header for `len` bytes at `va` in `domain`.
    #[inline(always)]
    pub fn new(va: Va, domain: DomainId, len: u32) -> Self {
        Self {
            va: U64::new(va.0),
            rkey: U32::new(domain.0),
            len: U32::new(len),
        }
    }

    /// The address.
    #[inline(always)]
    pub fn va(&self) -> Va {
        Va(self.va.get())
    }

    /// The protection domain.
    #[inline(always)]
    pub fn domain(&self) -> DomainId {
        DomainId(self.rkey.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_these_bytes() {
        let reth = Reth::new(Va(0x1000_0203_4000), DomainId(7), 4096);
        assert_eq!(
            reth.as_bytes(),
            [
                0, 0, 0x10, 0, 0x02, 0x03, 0x40, 0, 0, 0, 0, 7, 0, 0, 0x10, 0
            ]
        );
        assert_eq!(reth.va(), Va(0x1000_0203_4000));
        assert_eq!(reth.domain(), DomainId(7));
    }
}
