//! Tickets: words to which everybody adds 1 atomically. Each ticket is drawn once, so those that a thread draws from a
//! word get larger, and in the end the words add up to all that were drawn.

use std::sync::atomic::Ordering;

use anyhow::Result;
use mind_e2e::area::{Area, WORDS};

use super::{Turn, wrong};

/// Words of each page that are in use.
const USED: usize = 4;

pub(super) fn run(area: Area, turn: &mut Turn<'_>) -> Result<()> {
    // The least that the next ticket of each word can be.
    let mut least = vec![[0; USED]; area.pages()];
    while turn.goes_on() {
        let page = turn.random.usize(..area.pages());
        let place = turn.random.usize(..USED);
        let word = place * (WORDS / USED);
        let ticket = area.word(page, word).fetch_add(1, Ordering::SeqCst);
        let least = &mut least[page][place];
        if ticket < *least {
            let expected = format!("{least} or more");
            return Err(wrong(area, page, word, ticket, &expected));
        }
        *least = ticket + 1;
    }
    Ok(())
}

/// All tickets that were drawn.
pub(super) fn sum(area: Area) -> u64 {
    (0..area.pages())
        .flat_map(|page| area.page(page))
        .map(|word| word.load(Ordering::Relaxed))
        .sum()
}
