//! Room in the cache: pages that wait for it, and which page is evicted.

use std::vec::Vec;

use super::{Action, Blade, Timer};
use crate::compute::page::{Event, Phase};
use mind_common::addr::Va;

impl Blade {
    const fn free(&self) -> usize {
        self.config.capacity.saturating_sub(self.used)
    }

    /// Makes the request that threads wait for, if it may be made and there is room; otherwise
    /// queues the page.
    pub(super) fn begin_if_possible(&mut self, now: u64, page: Va, out: &mut Vec<Action>) {
        let free = self.free();
        let Some(entry) = self.pages.get_mut(&page) else {
            return;
        };
        if entry.page.phase != Phase::Absent || entry.page.answering || entry.starved {
            return;
        }
        let Some(access) = entry.page.waiting else {
            if entry.seq.is_none() && entry.page.owed.is_none() {
                self.pages.remove(&page);
            }
            return;
        };
        if free > 0 {
            self.apply(now, page, Event::Fault(access), out);
        } else {
            entry.starved = true;
            self.starved.push_back(page);
            self.counters.starved += 1;
        }
    }

    /// Evicts until there is room for the waiting pages and the reserve.
    fn make_room(&mut self, now: u64, out: &mut Vec<Action>) {
        let wanted = self
            .starved
            .len()
            .saturating_add(self.config.reserve)
            .min(self.config.capacity);
        while self.free() + self.evicting < wanted {
            let pages = &self.pages;
            let resident_until = |page: Va| {
                pages
                    .get(&page)
                    .filter(|entry| {
                        matches!(entry.page.phase, Phase::Shared | Phase::Modified)
                            && entry.page.owed.is_none()
                    })
                    .map(|entry| entry.resident_until)
            };
            let victim = self
                .order
                .victim(|page| resident_until(page).is_some_and(|at| at <= now));
            let Some(victim) = victim else {
                // All pages have requests or invalidations under way, whose end calls this again;
                // or their residency is not over.
                if !self.starved.is_empty()
                    && let Some(at) = self
                        .pages
                        .keys()
                        .filter_map(|page| resident_until(*page))
                        .min()
                {
                    self.set_room_timer(at);
                }
                return;
            };
            self.counters.evictions += 1;
            self.apply(now, victim, Event::Evict, out);
            self.begin_if_possible(now, victim, out);
        }
    }

    fn set_room_timer(&mut self, at: u64) {
        if let Some(before) = self.room_at.replace(at) {
            self.timers.remove(&(before, Timer::Room));
        }
        self.timers.insert((at, Timer::Room));
    }

    pub(super) fn account(&mut self, before: Phase, after: Phase) {
        self.used += usize::from(after.takes_room());
        self.used -= usize::from(before.takes_room());
        let evicting = |phase| usize::from(phase == Phase::Cleaning { evicting: true });
        self.evicting += evicting(after);
        self.evicting -= evicting(before);
    }

    /// Does what has become possible.
    pub(super) fn settle(&mut self, now: u64, out: &mut Vec<Action>) {
        loop {
            if self.answer_one(now, out) || self.decide_one(now, out) {
                continue;
            }
            self.make_room(now, out);
            if self.free() == 0 {
                return;
            }
            let Some(page) = self.starved.pop_front() else {
                return;
            };
            if let Some(entry) = self.pages.get_mut(&page) {
                entry.starved = false;
                self.begin_if_possible(now, page, out);
            }
        }
    }
}
