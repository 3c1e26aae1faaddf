//! Pages of the window that the guard has altered so that an access ends in a signal, and when they become as they were.

use std::{
    collections::{BTreeSet, VecDeque},
    ops::Range,
    time::{Duration, Instant},
};

use mind_common::addr::{PAGE_SIZE, Va};
use mind_userfault::{Error, Window};

/// How long a page stays denied. The threads that waited for it get their SIGSEGV at once; an access that comes later
/// asks again, for what another blade's program has permitted is not told to this one.
pub(super) const DENIAL: Duration = Duration::from_millis(10);

/// The pages that are not as they were.
#[derive(Debug, Default)]
pub(super) struct Altered {
    /// Pages that are denied, and until when.
    denials: VecDeque<(Instant, Va)>,
    /// Pages that were given up, until the memory there changes.
    given_up: BTreeSet<Va>,
}

impl Altered {
    /// Denies a page from `now` on, as [`Window::deny`] does.
    pub(super) fn deny(
        &mut self,
        window: &Window,
        page: Va,
        readable: bool,
        now: Instant,
    ) -> Result<(), Error> {
        window.deny(page, readable)?;
        self.denials.retain(|(_, other)| *other != page);
        self.denials.push_back((now + DENIAL, page));
        Ok(())
    }

    /// Gives a page up.
    pub(super) fn give_up(&mut self, window: &Window, page: Va) -> Result<(), Error> {
        window.give_up(bytes(page))?;
        self.given_up.insert(page);
        Ok(())
    }

    /// When the next denial ends.
    pub(super) fn next_end(&self) -> Option<Instant> {
        self.denials.front().map(|(end, _)| *end)
    }

    /// Ends the denials whose time is over.
    pub(super) fn end_denials(&mut self, window: &Window, now: Instant) -> Result<(), Error> {
        while let Some((_, page)) = self.denials.pop_front_if(|(end, _)| *end <= now) {
            window.permit(page)?;
        }
        Ok(())
    }

    /// The memory of a range has changed: what is altered there becomes as it was.
    pub(super) fn restore(&mut self, window: &Window, range: Range<Va>) -> Result<(), Error> {
        let mut ended = Vec::new();
        self.denials.retain(|(_, page)| {
            let is_in = range.contains(page);
            ended.extend(is_in.then_some(*page));
            !is_in
        });
        for page in ended {
            window.permit(page)?;
        }
        let pages: Vec<_> = self.given_up.range(range).copied().collect();
        for page in pages {
            window.restore(bytes(page))?;
            self.given_up.remove(&page);
        }
        Ok(())
    }
}

fn bytes(page: Va) -> Range<u64> {
    page.0..page.0 + PAGE_SIZE as u64
}
