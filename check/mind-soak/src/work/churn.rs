//! Churn: memory is allocated, found to be zeros, written, made read-only, found as written, freed. A new allocation
//! gets memory that was just freed.

use std::sync::atomic::Ordering;

use anyhow::Result;
use mind_client::{Access, Process};
use mind_e2e::area::{Area, PAGE, WORDS};

use super::{WorkThread, must_be, pattern};

/// Most pages of an allocation.
const MOST: usize = 12;

fn words() -> impl Iterator<Item = usize> {
    (0..WORDS).step_by(73)
}

pub(super) fn run(process: &Process, thread: &mut WorkThread<'_>) -> Result<()> {
    while thread.goes_on() {
        let pages = thread.random.usize(1..=MOST);
        let memory = process.map((pages * PAGE) as u64, Access::Write)?;
        let area = Area::new(memory);
        let version = thread.steps;
        holds(area, 0)?;
        for page in 0..area.pages() {
            for word in words() {
                area.word(page, word)
                    .store(pattern(page, word, version), Ordering::Relaxed);
            }
        }
        process.protect(memory, Access::Read)?;
        holds(area, version)?;
        process.unmap(memory)?;
    }
    Ok(())
}

fn holds(area: Area, version: u64) -> Result<()> {
    for page in 0..area.pages() {
        for word in words() {
            let found = area.word(page, word).load(Ordering::Relaxed);
            must_be(area, page, word, found, pattern(page, word, version))?;
        }
    }
    Ok(())
}
