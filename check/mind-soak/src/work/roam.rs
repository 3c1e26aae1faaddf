//! Roam: one page of each of many more regions than the switch has slots. Regions lose their slot when another one is
//! touched, and get one again when they are. As in the lanes, only the `n`-th thread writes word `n` of a page, and
//! knows what it must be; each goes through all regions, and begins at another.

use std::sync::atomic::Ordering;

use anyhow::{Result, ensure};
use mind_e2e::area::{Area, WORDS};

use super::{WorkThread, must_be};
use crate::layout::REGION;

/// From one region to the next: a prime, and so, unless it divides their number, a way through all of them.
const STRIDE: usize = 7919;

/// The page of a region that is used: its last one.
const fn page(region: usize) -> usize {
    region * REGION + REGION - 1
}

pub(super) fn run(area: Area, thread: &mut WorkThread<'_>) -> Result<()> {
    ensure!(
        thread.of <= WORDS,
        "{} threads have no word each",
        thread.of
    );
    let own = thread.number;
    let regions = area.pages() / REGION;
    let mut mine = vec![0; regions];
    let mut region = regions / thread.of * own;
    while thread.goes_on() {
        region = (region + STRIDE) % regions;
        let word = area.word(page(region), own);
        if thread.random.bool() {
            let found = word.load(Ordering::Relaxed);
            must_be(area, page(region), own, found, mine[region])?;
        }
        mine[region] += 1;
        word.store(mine[region], Ordering::Relaxed);
    }
    Ok(())
}

/// What all threads have counted together.
pub(super) fn sum(area: Area) -> u64 {
    (0..area.pages() / REGION)
        .flat_map(|region| area.page(page(region)))
        .map(|word| word.load(Ordering::Relaxed))
        .sum()
}
