//! Tickets: words to which every thread adds 1 atomically. Each ticket is drawn once, so those that a thread draws from
//! a word get larger, and in the end the words add up to all that were drawn.

use std::sync::atomic::Ordering;

use anyhow::Result;
use mind_e2e::area::{Area, WORDS};

use super::{WorkThread, wrong};

/// Words of each page that are in use.
const USED: usize = 4;

pub(super) fn run(area: Area, thread: &mut WorkThread<'_>) -> Result<()> {
    // The least that the next ticket of each word can be.
    let mut least = vec![[0; USED]; area.pages()];
    while thread.goes_on() {
        let page = thread.random.usize(..area.pages());
        let place = thread.random.usize(..USED);
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
