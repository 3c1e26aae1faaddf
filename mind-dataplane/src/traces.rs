//! Records of the packets that somebody traces.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use aya::maps::{Map, RingBuf};
use mind_common::trace::Record;
use zerocopy::FromBytes as _;

use crate::{Error, Result};

/// The ring of records. Readable ([`AsFd`]) when there are some.
pub struct Traces(RingBuf<aya::maps::MapData>);

impl Traces {
    pub(crate) fn new(name: &'static str, ring: Map) -> Result<Self> {
        let ring = ring.try_into().map_err(|source| Error::Map {
            name,
            source: Box::new(source),
        })?;
        Ok(Self(ring))
    }

    /// The next record, if there is one.
    pub fn take(&mut self) -> Option<Record> {
        // The programs put nothing else there.
        Record::read_from_bytes(&self.0.next()?).ok()
    }
}

impl AsFd for Traces {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring owns the descriptor, and lives as long as the borrow.
        unsafe { BorrowedFd::borrow_raw(self.0.as_raw_fd()) }
    }
}
