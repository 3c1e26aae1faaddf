//! Lanes: only the `n`-th thread writes word `n` of every page, and knows what it must be. Every blade accesses all
//! pages all the time (M->M, M->S, S->M), and no write may be lost. Half of the steps write without having read, so
//! that pages are acquired from their sharers.

use std::sync::atomic::Ordering;

use anyhow::{Result, ensure};
use mind_e2e::area::{Area, WORDS};

use super::{WorkThread, must_be, wrong};

/// Every so many steps, read a neighbour's word first.
const CHECK_NEIGHBOUR: u64 = 3;

pub(super) fn run(area: Area, thread: &mut WorkThread<'_>) -> Result<()> {
    ensure!(
        thread.of <= WORDS,
        "{} threads have no lane each",
        thread.of
    );
    let own = thread.number;
    let neighbour = (own + 1) % thread.of;
    let mut mine = vec![0; area.pages()];
    let mut theirs = vec![0; area.pages()];
    while thread.goes_on() {
        let page = thread.random.usize(..area.pages());
        let word = area.word(page, own);
        if thread.steps.is_multiple_of(CHECK_NEIGHBOUR) {
            let found = area.word(page, neighbour).load(Ordering::Relaxed);
            if neighbour != own && found < theirs[page] {
                let expected = format!("{} or more", theirs[page]);
                return Err(wrong(area, page, neighbour, found, &expected));
            }
            theirs[page] = found;
        }
        if thread.steps.is_multiple_of(2) {
            must_be(area, page, own, word.load(Ordering::Relaxed), mine[page])?;
        }
        mine[page] += 1;
        word.store(mine[page], Ordering::Relaxed);
    }
    for (page, mine) in mine.into_iter().enumerate() {
        let found = area.word(page, own).load(Ordering::Relaxed);
        must_be(area, page, own, found, mine)?;
    }
    Ok(())
}

/// What all lanes have counted together.
pub(super) fn sum(area: Area) -> u64 {
    super::tickets::sum(area)
}
