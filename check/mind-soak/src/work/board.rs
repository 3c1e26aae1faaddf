//! The board: each page has one writer, and every thread reads. By the time its writer changes a page, all blades share
//! it, so the upgrade invalidates three of them at once.
//!
//! A page begins with its version, odd while it is being written. A reader that finds the same even version before and
//! after reading the rest must have read that version's contents, and no page goes back to an earlier one. Stores are
//! seen in the order in which they are made, as on x86 (TSO).

use std::sync::atomic::{Ordering, compiler_fence, fence};

use anyhow::Result;
use mind_e2e::area::{Area, WORDS};

use super::{WorkThread, must_be, pattern, wrong};
use crate::layout::REGION;

/// The word that holds the version.
const VERSION: usize = 0;
/// Every so many steps, write; read else.
const WRITE: u64 = 8;

/// The words that are written and read: the first one behind the version, the last one, and some between.
fn words() -> impl Iterator<Item = usize> {
    (1..WORDS).step_by(30)
}

pub(super) fn run(area: Area, thread: &mut WorkThread<'_>) -> Result<()> {
    let regions = area.pages() / REGION;
    let own: Vec<_> = (0..regions)
        .filter(|region| region % thread.of == thread.number)
        .flat_map(|region| region * REGION..(region + 1) * REGION)
        .collect();
    let mut seen = vec![0; area.pages()];
    let mut written = 0;
    while thread.goes_on() {
        if thread.steps.is_multiple_of(WRITE) && !own.is_empty() {
            let page = own[thread.random.usize(..own.len())];
            let before = seen[page];
            read(area, page, before, true)?;
            write(area, page, before + 1);
            seen[page] = before + 1;
            written += 1;
        } else {
            let page = thread.random.usize(..area.pages());
            let is_own = own.contains(&page);
            if let Some(version) = read(area, page, seen[page], is_own)? {
                seen[page] = version;
            }
        }
    }
    thread.reads = thread.steps - written;
    thread.steps = written;
    Ok(())
}

fn write(area: Area, page: usize, version: u64) {
    area.word(page, VERSION)
        .store(2 * version - 1, Ordering::Relaxed);
    fence(Ordering::Release);
    for word in words() {
        area.word(page, word)
            .store(pattern(page, word, version), Ordering::Relaxed);
    }
    area.word(page, VERSION)
        .store(2 * version, Ordering::Release);
}

/// Reads a page of version `least` or later; returns its version, unless it is being written.
fn read(area: Area, page: usize, least: u64, is_own: bool) -> Result<Option<u64>> {
    let version = || area.word(page, VERSION).load(Ordering::Acquire);
    let begin = version();
    let contents: Vec<_> = words()
        .map(|word| (word, area.word(page, word).load(Ordering::Relaxed)))
        .collect();
    fence(Ordering::Acquire);
    compiler_fence(Ordering::SeqCst);
    let end = version();
    if begin < 2 * least || end < begin || (is_own && begin != 2 * least) {
        let expected = format!("{:#x}{}", 2 * least, if is_own { "" } else { " or more" });
        return Err(wrong(area, page, VERSION, begin.min(end), &expected));
    }
    if begin != end || begin % 2 == 1 {
        return Ok(None);
    }
    for (word, found) in contents {
        must_be(area, page, word, found, pattern(page, word, begin / 2))?;
    }
    Ok(Some(begin / 2))
}

/// Checks all pages, which are not written now; returns the sum of all versions.
pub(super) fn check(area: Area) -> Result<u64> {
    let mut sum = 0;
    for page in 0..area.pages() {
        match read(area, page, 0, false)? {
            Some(version) => sum += version,
            None => {
                let found = area.word(page, VERSION).load(Ordering::Relaxed);
                return Err(wrong(area, page, VERSION, found, "an even number"));
            }
        }
    }
    Ok(sum)
}
