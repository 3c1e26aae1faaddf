//! Lanes: word `n` of every page is the `n`-th thread's, which alone writes it and knows what it must be. All pages
//! are wanted by everybody all the time (M->M, M->S, S->M), and no write may be lost. Half of the steps write without
//! having read, so that pages are acquired from those who share them.

use std::sync::atomic::Ordering;

use anyhow::{Result, ensure};
use mind_e2e::area::{Area, WORDS};

use super::{Turn, must_be, wrong};

/// Every so many steps, look at a neighbour's word first.
const LOOK: u64 = 3;

pub(super) fn run(area: Area, turn: &mut Turn<'_>) -> Result<()> {
    ensure!(turn.of <= WORDS, "{} threads have no lane each", turn.of);
    let own = turn.number;
    let neighbour = (own + 1) % turn.of;
    let mut mine = vec![0; area.pages()];
    let mut theirs = vec![0; area.pages()];
    while turn.goes_on() {
        let page = turn.random.usize(..area.pages());
        let word = area.word(page, own);
        if turn.steps.is_multiple_of(LOOK) {
            let found = area.word(page, neighbour).load(Ordering::Relaxed);
            if neighbour != own && found < theirs[page] {
                let expected = format!("{} or more", theirs[page]);
                return Err(wrong(area, page, neighbour, found, &expected));
            }
            theirs[page] = found;
        }
        if turn.steps.is_multiple_of(2) {
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
