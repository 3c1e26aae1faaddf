//! Faults while the cache is full: threads access memory four times as large as the cache, every
//! other access a store, so that almost every fault evicts, and many evictions write back.

use anyhow::{Result, ensure};
use mind_common::addr::PAGE_SIZE;
use serde::Serialize;

use crate::system::{
    blades::{Blades, CACHE},
    task::{Access, Answer, Task},
};

/// Bytes that the threads access.
const ROAMED: u64 = 4 * CACHE;
const PAGES: u64 = ROAMED / PAGE_SIZE as u64;

/// Faults per second that took a request to memory, by threads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Evicting {
    /// One thread.
    pub(super) t1: f64,
    /// Eight threads.
    pub(super) t8: f64,
}

/// Measures both, each for `millis`.
pub(super) fn measure(blades: &mut Blades, millis: u64) -> Result<Evicting> {
    let first = blades.map(ROAMED)?;
    // From here on the cache is full, and of dirty pages.
    blades.worker(0).times(&Task::Touch {
        first,
        stride: PAGE_SIZE as u64,
        count: PAGES as usize,
        access: Access::Write,
    })?;
    let evicting = Evicting {
        t1: rate(blades, first, 1, millis)?,
        t8: rate(blades, first, 8, millis)?,
    };
    blades.unmap()?;
    Ok(evicting)
}

fn rate(blades: &mut Blades, first: u64, threads: u64, millis: u64) -> Result<f64> {
    let before = blades.report(0)?;
    let worker = blades.worker(0);
    let task = Task::RandomAccess {
        first,
        pages: PAGES,
        threads,
        millis,
    };
    let nanos = match worker.ask(&task)? {
        Answer::Roamed { nanos } => nanos,
        other => return Err(worker.unexpected(&other)),
    };
    let after = blades.report(0)?;
    let missed = (after.faults - after.hits) - (before.faults - before.hits);
    let evicted = after.evictions - before.evictions;
    let written = after.write_backs - before.write_backs;
    ensure!(
        evicted * 2 > missed && written * 4 > missed,
        "{missed} faults of {threads} threads must evict, and evicted {evicted} pages and wrote \
         {written} back"
    );
    Ok(missed as f64 * 1e9 / nanos as f64)
}
