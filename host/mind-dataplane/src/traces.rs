//! Records of traced packets, and which packets are traced.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use aya::maps::{Array, Map, MapData, MapError, PerCpuArray, RingBuf};
use mind_common::trace::{Record, Tracing};
use zerocopy::FromBytes as _;

use crate::{Error, Result, value::Plain};

/// Which packets are traced.
pub(crate) const TRACING: &str = "TRACING";
/// The record of the packet at hand.
pub(crate) const TRACED: &str = "TRACED";
/// The ring.
pub(crate) const RECORDS: &str = "RECORDS";
/// How many records found no room in the ring.
pub(crate) const LOST_RECORDS: &str = "LOST_RECORDS";
/// Bytes of the ring: 16,000 records.
pub(crate) const RING: u32 = 1 << 20;

/// The ring of records. Readable ([`AsFd`]) when there are some.
pub struct Traces(RingBuf<MapData>);

impl Traces {
    pub(crate) fn new(ring: Map) -> Result<Self> {
        Ok(Self(ring.try_into().map_err(unfit(RECORDS))?))
    }

    /// The next record, if there is one.
    pub fn take(&mut self) -> Option<Record> {
        // The programs write nothing else to the ring.
        Record::read_from_bytes(&self.0.next()?).ok()
    }
}

impl AsFd for Traces {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring owns the descriptor, and lives as long as the borrow.
        unsafe { BorrowedFd::borrow_raw(self.0.as_raw_fd()) }
    }
}

/// Turns tracing on and off.
pub struct TraceControl {
    tracing: Array<MapData, Plain<Tracing>>,
    lost: PerCpuArray<MapData, u64>,
}

impl TraceControl {
    pub(crate) fn new(tracing: Map, lost: Map) -> Result<Self> {
        Ok(Self {
            tracing: tracing.try_into().map_err(unfit(TRACING))?,
            lost: lost.try_into().map_err(unfit(LOST_RECORDS))?,
        })
    }

    /// Which packets are traced.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn get(&self) -> Result<Tracing> {
        let tracing = self.tracing.get(&0, 0).map_err(unfit(TRACING))?;
        Ok(tracing.0)
    }

    /// Sets which packets are traced from now on.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn set(&mut self, tracing: Tracing) -> Result<()> {
        let set = self.tracing.set(0, Plain(tracing), 0);
        set.map_err(unfit(TRACING))
    }

    /// How many records found no room in the ring since the program was loaded.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn lost(&self) -> Result<u64> {
        let lost = self.lost.get(&0, 0).map_err(unfit(LOST_RECORDS))?;
        Ok(lost.iter().sum())
    }
}

fn unfit(name: &'static str) -> impl Fn(MapError) -> Error {
    move |source| Error::Map {
        name,
        source: Box::new(source),
    }
}
