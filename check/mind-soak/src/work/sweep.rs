//! The sweep: pages of one thread only, more than the cache holds. Pages are evicted and written back all the time, and
//! must come back as they went. Half of them are read before they are written (I->S, then an upgrade without an
//! invalidation), half are written at once (I->M).

use std::sync::atomic::Ordering;

use anyhow::Result;
use mind_e2e::area::{Area, WORDS};

use super::{WorkThread, must_be, pattern, wrong};
use crate::layout::REGION;

/// The word that holds how often the page was written.
const VERSION: usize = 0;

fn words() -> impl Iterator<Item = usize> {
    (1..WORDS).step_by(51)
}

pub(super) fn run(area: Area, thread: &mut WorkThread<'_>) -> Result<()> {
    // Whole regions, so that no region is written by two threads.
    let regions = area.pages() / REGION / thread.of;
    let first = thread.number * regions * REGION;
    let mut versions = vec![0; regions * REGION];
    while thread.goes_on() {
        let place = thread.random.usize(..versions.len());
        let (page, version) = (first + place, versions[place]);
        if thread.random.bool() {
            let found = area.word(page, VERSION).load(Ordering::Relaxed);
            must_be(area, page, VERSION, found, version)?;
            contents(area, page, version)?;
        }
        let version = version + 1;
        area.word(page, VERSION).store(version, Ordering::Relaxed);
        for word in words() {
            area.word(page, word)
                .store(pattern(page, word, version), Ordering::Relaxed);
        }
        versions[place] = version;
    }
    Ok(())
}

fn contents(area: Area, page: usize, version: u64) -> Result<()> {
    for word in words() {
        let found = area.word(page, word).load(Ordering::Relaxed);
        must_be(area, page, word, found, pattern(page, word, version))?;
    }
    Ok(())
}

/// Checks all pages, which are not written now; returns how often all of them were written.
pub(super) fn check(area: Area) -> Result<u64> {
    let mut sum: u64 = 0;
    for page in 0..area.pages() {
        let version = area.word(page, VERSION).load(Ordering::Relaxed);
        contents(area, page, version)?;
        sum = sum
            .checked_add(version)
            .ok_or_else(|| wrong(area, page, VERSION, version, "a small number"))?;
    }
    Ok(sum)
}
