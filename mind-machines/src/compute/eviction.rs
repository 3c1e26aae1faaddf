//! Which page is evicted when the cache is full: 2Q (Johnson and Shasha, VLDB 1994).
//!
//! A blade sees faults only, never the accesses that hit, so LRU has no input, and FIFO evicts the
//! pages in use when a loop reads a large array. 2Q tells the two apart by what comes *back*: a
//! page that faults for the first time enters a short FIFO; one that faults again after it has left
//! that FIFO (its address is kept as a *ghost*) is used repeatedly, and enters the main queue. A
//! write fault on a cached page is a use, too, and moves it up.

use std::collections::{BTreeMap, VecDeque};

use mind_common::addr::Va;

/// Parts of the capacity, in percent, that first-time pages may take before they go first.
const RECENT_PERCENT: usize = 25;
/// Ghosts kept, in percent of the capacity.
const GHOST_PERCENT: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Queue {
    Recent,
    Frequent,
    Ghost,
}

/// The order in which pages leave.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TwoQueue {
    recent_limit: usize,
    ghost_limit: usize,
    clock: u64,
    places: BTreeMap<Va, (Queue, u64)>,
    recent: BTreeMap<u64, Va>,
    frequent: BTreeMap<u64, Va>,
    ghosts: VecDeque<(u64, Va)>,
}

impl TwoQueue {
    /// An order for a cache of `capacity` pages.
    pub fn new(capacity: usize) -> Self {
        Self {
            recent_limit: (capacity * RECENT_PERCENT / 100).max(1),
            ghost_limit: (capacity * GHOST_PERCENT / 100).max(1),
            clock: 0,
            places: BTreeMap::new(),
            recent: BTreeMap::new(),
            frequent: BTreeMap::new(),
            ghosts: VecDeque::new(),
        }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn put(&mut self, page: Va, queue: Queue) {
        let tick = self.tick();
        self.places.insert(page, (queue, tick));
        match queue {
            Queue::Recent => {
                self.recent.insert(tick, page);
            }
            Queue::Frequent => {
                self.frequent.insert(tick, page);
            }
            Queue::Ghost => {
                self.ghosts.push_back((tick, page));
                self.forget_old_ghosts();
            }
        }
    }

    fn forget_old_ghosts(&mut self) {
        while self.ghosts.len() > self.ghost_limit {
            let Some((tick, page)) = self.ghosts.pop_front() else {
                return;
            };
            // Not if it came back since.
            if self.places.get(&page) == Some(&(Queue::Ghost, tick)) {
                self.places.remove(&page);
            }
        }
    }

    /// A page is here now.
    pub fn insert(&mut self, page: Va) {
        match self.places.get(&page) {
            None => self.put(page, Queue::Recent),
            Some((Queue::Ghost, _)) => self.put(page, Queue::Frequent),
            Some((Queue::Recent | Queue::Frequent, _)) => self.touch(page),
        }
    }

    /// A page that is here was used.
    pub fn touch(&mut self, page: Va) {
        if let Some(&(Queue::Frequent, tick)) = self.places.get(&page) {
            self.frequent.remove(&tick);
            self.put(page, Queue::Frequent);
        }
    }

    /// A page is gone. If `evicted`, because its room was needed, it becomes a ghost.
    pub fn remove(&mut self, page: Va, evicted: bool) {
        match self.places.get(&page).copied() {
            Some((Queue::Recent, tick)) => {
                self.recent.remove(&tick);
                self.places.remove(&page);
                if evicted {
                    self.put(page, Queue::Ghost);
                }
            }
            Some((Queue::Frequent, tick)) => {
                self.frequent.remove(&tick);
                self.places.remove(&page);
            }
            Some((Queue::Ghost, _)) | None => {}
        }
    }

    /// Renumbers the queue positions in the same order; for a model checker.
    #[cfg(feature = "model")]
    pub fn renumber(&mut self) {
        let ghosts = core::mem::take(&mut self.ghosts);
        let is_one =
            |&(tick, page): &(u64, Va)| self.places.get(&page) == Some(&(Queue::Ghost, tick));
        let ghosts: VecDeque<_> = ghosts.into_iter().filter(is_one).collect();
        let recent = core::mem::take(&mut self.recent).into_values();
        let frequent = core::mem::take(&mut self.frequent).into_values();
        let queues = [
            (Queue::Recent, recent.collect::<VecDeque<_>>()),
            (Queue::Frequent, frequent.collect()),
            (
                Queue::Ghost,
                ghosts.into_iter().map(|(_, page)| page).collect(),
            ),
        ];
        self.clock = 0;
        for (queue, pages) in queues {
            pages.into_iter().for_each(|page| self.put(page, queue));
        }
    }

    /// The first page to evict of those that `may_go`.
    pub fn victim(&self, may_go: impl Fn(Va) -> bool) -> Option<Va> {
        let (first, second) = if self.recent.len() > self.recent_limit {
            (&self.recent, &self.frequent)
        } else {
            (&self.frequent, &self.recent)
        };
        first
            .values()
            .chain(second.values())
            .copied()
            .find(|page| may_go(*page))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(n: u64) -> Va {
        Va(n << 12)
    }

    /// Runs a sequence of uses through a cache of that size and counts the misses.
    fn misses(capacity: usize, uses: impl Iterator<Item = u64>) -> usize {
        let mut queue = TwoQueue::new(capacity);
        let mut cached = std::collections::BTreeSet::new();
        let mut misses = 0;
        for n in uses {
            if cached.contains(&n) {
                // A hit is invisible to the policy.
                continue;
            }
            misses += 1;
            if cached.len() == capacity {
                let victim = queue.victim(|_| true).expect("a full cache has a victim");
                assert!(cached.remove(&(victim.0 >> 12)), "the victim was cached");
                queue.remove(victim, true);
            }
            cached.insert(n);
            queue.insert(page(n));
        }
        misses
    }

    #[test]
    fn a_page_that_comes_back_outlives_a_scan() {
        let mut queue = TwoQueue::new(8);
        queue.insert(page(1));
        queue.remove(page(1), true);
        queue.insert(page(1));
        for n in 100..107 {
            queue.insert(page(n));
        }
        assert_eq!(queue.victim(|_| true), Some(page(100)));
    }

    #[test]
    fn a_hot_set_survives_scans_that_fifo_loses_it_to() {
        // 50 hot pages used between the steps of a long scan, in a cache of 100.
        let uses = || (0..20_000u64).map(|n| if n % 2 == 0 { (n / 2) % 50 } else { 1_000 + n });
        let mut fifo = VecDeque::new();
        let mut fifo_misses = 0;
        for n in uses() {
            if !fifo.contains(&n) {
                fifo_misses += 1;
                if fifo.len() == 100 {
                    fifo.pop_front();
                }
                fifo.push_back(n);
            }
        }
        let misses = misses(100, uses());
        assert!(misses * 10 < fifo_misses * 8, "{misses} of {fifo_misses}");
    }

    #[test]
    fn pages_that_may_not_go_are_passed_over() {
        let mut queue = TwoQueue::new(4);
        for n in 0..4 {
            queue.insert(page(n));
        }
        assert_eq!(queue.victim(|p| p == page(2)), Some(page(2)));
        assert_eq!(queue.victim(|_| false), None);
    }

    #[test]
    fn ghosts_are_bounded() {
        let mut queue = TwoQueue::new(10);
        for n in 0..1000 {
            queue.insert(page(n));
            queue.remove(page(n), true);
        }
        assert!(queue.places.len() <= 10);
        assert!(queue.ghosts.len() <= 10);
    }
}
