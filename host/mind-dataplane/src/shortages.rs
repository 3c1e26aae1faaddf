//! What the switch's program tells when it took one of the last slots or tables.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use aya::maps::{Map, MapData, RingBuf};
use mind_common::table::FreeKind;

use crate::{Error, Result};

/// The ring of messages. Readable ([`AsFd`]) when there is one. A kind is told of once, until enough of it is
/// [given](crate::Directory::give) back or it is to be [told again](crate::Directory::tell_again).
pub struct Shortages {
    ring: RingBuf<MapData>,
}

impl Shortages {
    pub(crate) fn new(ring: Map) -> Result<Self> {
        let ring = ring.try_into().map_err(|source| Error::Map {
            name: "SHORT",
            source: Box::new(source),
        })?;
        Ok(Self { ring })
    }

    /// Takes all messages: of what little is left.
    pub fn take(&mut self) -> Vec<FreeKind> {
        let mut kinds = Vec::new();
        while let Some(item) = self.ring.next() {
            // The programs write nothing else to the ring.
            let Ok(number) = <[u8; 8]>::try_from(&item[..]).map(u64::from_ne_bytes) else {
                continue;
            };
            let kind = FreeKind::ALL
                .into_iter()
                .find(|kind| *kind as u64 == number);
            kinds.extend(kind);
        }
        kinds
    }
}

impl AsFd for Shortages {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring owns the descriptor, and lives as long as the borrow.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}
