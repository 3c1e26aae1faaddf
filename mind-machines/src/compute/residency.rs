//! Residency: how long a page stays on a blade, at least, before the blade gives it away.
//!
//! A thread that has just got its page must be able to use it once, or two blades that want the same page pass it back
//! and forth and neither makes progress. The residency is short at first and doubles while the page comes back soon
//! after it was given away, so that a contended page moves less often and is used more in between.

use std::collections::{BTreeMap, VecDeque};

use mind_common::addr::Va;

/// Pages whose residency is kept.
const KNOWN_PAGES: usize = 1024;

/// Bounds of a page's residency, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// The residency of a page that is not contended.
    pub least: u64,
    /// The longest.
    pub most: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Past {
    residency: u64,
    given: u64,
}

/// The residencies of the contended pages of late.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Residency {
    bounds: Bounds,
    past: BTreeMap<Va, Past>,
    order: VecDeque<Va>,
}

impl Residency {
    /// No page is contended yet.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            past: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }

    /// The residency of a page that comes at `now`, in nanoseconds.
    pub fn on_install(&mut self, page: Va, now: u64) -> u64 {
        let Bounds { least, most } = self.bounds;
        match self.past.get_mut(&page) {
            None => least,
            Some(past) => {
                let away = now.saturating_sub(past.given);
                past.residency = if away < past.residency.saturating_mul(4) {
                    past.residency.saturating_mul(2).min(most)
                } else {
                    least
                };
                past.residency
            }
        }
    }

    /// The page was given away because another blade wanted it.
    pub fn on_given(&mut self, page: Va, now: u64) {
        if let Some(past) = self.past.get_mut(&page) {
            past.given = now;
            return;
        }
        if self.order.len() == KNOWN_PAGES
            && let Some(oldest) = self.order.pop_front()
        {
            self.past.remove(&oldest);
        }
        self.order.push_back(page);
        let residency = self.bounds.least;
        self.past.insert(
            page,
            Past {
                residency,
                given: now,
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        least: 10,
        most: 100,
    };
    const PAGE: Va = Va(0x1000);

    #[test]
    fn a_page_that_comes_back_at_once_stays_longer_up_to_a_limit() {
        let mut residency = Residency::new(BOUNDS);
        let mut now = 0;
        let mut seen = Vec::new();
        for _ in 0..6 {
            let kept_for = residency.on_install(PAGE, now);
            seen.push(kept_for);
            now += kept_for;
            residency.on_given(PAGE, now);
            now += 1;
        }
        assert_eq!(seen, [10, 20, 40, 80, 100, 100]);
        // A page that stayed away for long is not contended any more.
        assert_eq!(residency.on_install(PAGE, now + 10_000), 10);
    }

    #[test]
    fn the_number_of_known_pages_is_bounded() {
        let mut residency = Residency::new(BOUNDS);
        for n in 0..10 * KNOWN_PAGES as u64 {
            residency.on_given(Va(n << 12), n);
        }
        assert_eq!(residency.past.len(), KNOWN_PAGES);
        assert_eq!(residency.order.len(), KNOWN_PAGES);
    }
}
