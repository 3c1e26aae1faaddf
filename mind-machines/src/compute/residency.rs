//! How long a page stays on a blade before it is given away.
//!
//! A thread whose page has just come must get to use it once, or two blades that want the same
//! page pass it to and fro and neither moves. The hold is short at first and grows while the same
//! page keeps coming back as soon as it is gone, so that a fought-over page is passed around less
//! often and used more in between.

use std::collections::{BTreeMap, VecDeque};

use mind_common::addr::Va;

/// Pages whose past is remembered.
const REMEMBERED: usize = 1024;

/// The bounds of a hold, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// The hold of a page that nobody fights over.
    pub least: u64,
    /// The longest.
    pub most: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Past {
    hold: u64,
    given: u64,
}

/// What pages went through.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Residency {
    bounds: Bounds,
    past: BTreeMap<Va, Past>,
    order: VecDeque<Va>,
}

impl Residency {
    /// Remembers nothing yet.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            past: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }

    /// How long to keep a page that comes at `now`.
    pub fn on_install(&mut self, page: Va, now: u64) -> u64 {
        let Bounds { least, most } = self.bounds;
        match self.past.get_mut(&page) {
            None => least,
            Some(past) => {
                let away = now.saturating_sub(past.given);
                past.hold = if away < past.hold.saturating_mul(4) {
                    past.hold.saturating_mul(2).min(most)
                } else {
                    least
                };
                past.hold
            }
        }
    }

    /// The page was given away because somebody else wanted it.
    pub fn on_given(&mut self, page: Va, now: u64) {
        if let Some(past) = self.past.get_mut(&page) {
            past.given = now;
            return;
        }
        if self.order.len() == REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.past.remove(&oldest);
        }
        self.order.push_back(page);
        let hold = self.bounds.least;
        self.past.insert(page, Past { hold, given: now });
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
    fn a_page_that_comes_back_at_once_is_held_longer_up_to_a_limit() {
        let mut residency = Residency::new(BOUNDS);
        let mut now = 0;
        let mut seen = Vec::new();
        for _ in 0..6 {
            let hold = residency.on_install(PAGE, now);
            seen.push(hold);
            now += hold;
            residency.on_given(PAGE, now);
            now += 1;
        }
        assert_eq!(seen, [10, 20, 40, 80, 100, 100]);
        // After a while nobody fights over it any more.
        assert_eq!(residency.on_install(PAGE, now + 10_000), 10);
    }

    #[test]
    fn the_past_is_bounded() {
        let mut residency = Residency::new(BOUNDS);
        for n in 0..10 * REMEMBERED as u64 {
            residency.on_given(Va(n << 12), n);
        }
        assert_eq!(residency.past.len(), REMEMBERED);
        assert_eq!(residency.order.len(), REMEMBERED);
    }
}
