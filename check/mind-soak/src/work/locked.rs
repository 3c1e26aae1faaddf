//! Pages under a lock in the page itself: the thread that takes it finds every word as the last one left it, and writes
//! every word anew. A taken lock is skipped: no thread spins, and none waits for a thread that failed.

use std::sync::atomic::Ordering;

use anyhow::Result;
use mind_e2e::area::{Area, WORDS};

use super::{WorkThread, must_be, pattern};

/// 0: free.
const LOCK: usize = 0;
/// How often the page was written.
const VERSION: usize = 1;

pub(super) fn run(area: Area, thread: &mut WorkThread<'_>) -> Result<()> {
    let me = thread.number as u64 + 1;
    while thread.goes_on() {
        let page = thread.random.usize(..area.pages());
        let lock = area.word(page, LOCK);
        if lock
            .compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            thread.nothing_done();
            continue;
        }
        let version = area.word(page, VERSION).load(Ordering::Relaxed);
        contents(area, page, version)?;
        for word in VERSION + 1..WORDS {
            area.word(page, word)
                .store(pattern(page, word, version + 1), Ordering::Relaxed);
        }
        area.word(page, VERSION)
            .store(version + 1, Ordering::Relaxed);
        must_be(area, page, LOCK, lock.load(Ordering::Relaxed), me)?;
        lock.store(0, Ordering::Release);
    }
    Ok(())
}

fn contents(area: Area, page: usize, version: u64) -> Result<()> {
    for word in VERSION + 1..WORDS {
        let found = area.word(page, word).load(Ordering::Relaxed);
        must_be(area, page, word, found, pattern(page, word, version))?;
    }
    Ok(())
}

/// Checks all pages, which are not written now; returns how often all of them were written.
pub(super) fn check(area: Area) -> Result<u64> {
    let mut sum = 0;
    for page in 0..area.pages() {
        let word = |word| area.word(page, word).load(Ordering::Relaxed);
        must_be(area, page, LOCK, word(LOCK), 0)?;
        contents(area, page, word(VERSION))?;
        sum += word(VERSION);
    }
    Ok(sum)
}
