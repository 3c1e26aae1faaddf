//! Store buffers, one for each thread with a script: stores wait in it, and go into the blade's
//! cache one after the other, each at some time. A store whose page is not writable in the cache
//! waits for it.

use std::collections::VecDeque;

use mind_common::{addr::Va, id::BladeId, refusal::Refusal};
use mind_machines::{compute::Access, datagram::PageRequest};

use crate::{
    Failure, Flaw,
    trace::{Cell, What},
    world::{Event, World},
};

/// The binary logarithm of how long a store waits at most, in nanoseconds: from much less to much more
/// than a fault takes.
const LONGEST_WAIT: std::ops::RangeInclusive<u32> = 6..=19;

/// What the next store waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drain {
    /// There is none.
    Idle,
    /// Its time.
    Due,
    /// Its page.
    Waits(Va),
}

/// The stores of a thread that are not in the cache yet.
#[derive(Debug)]
pub(crate) struct StoreBuffer {
    stores: VecDeque<(Cell, u64)>,
    drain: Drain,
    random: fastrand::Rng,
}

impl StoreBuffer {
    pub(crate) const fn new(random: fastrand::Rng) -> Self {
        Self {
            stores: VecDeque::new(),
            drain: Drain::Idle,
            random,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.stores.is_empty()
    }

    /// The newest value of a word in the buffer, which its own thread loads.
    pub(crate) fn newest(&self, cell: Cell) -> Option<u64> {
        let mut stores = self.stores.iter().rev();
        let newest = stores.find(|(of, _)| *of == cell);
        newest.map(|(_, value)| *value)
    }

    /// Which store leaves next. Of two stores to one word the older one goes first, whatever the
    /// flaw.
    fn next(&mut self, is_unordered: bool) -> Option<usize> {
        if !is_unordered || self.stores.is_empty() {
            return (!self.stores.is_empty()).then_some(0);
        }
        let (cell, _) = self.stores[self.random.usize(..self.stores.len())];
        self.stores.iter().position(|(of, _)| *of == cell)
    }

    fn waits_for(&self, page: Va) -> bool {
        self.drain == Drain::Waits(page)
    }
}

impl World<'_> {
    /// A thread stores.
    pub(crate) fn buffer(&mut self, number: usize, cell: Cell, value: u64) {
        let buffer = &mut self.scripted[number].buffer;
        buffer.stores.push_back((cell, value));
        if buffer.drain == Drain::Idle {
            self.drain_later(number);
        }
    }

    fn drain_later(&mut self, number: usize) {
        let StoreBuffer { random, drain, .. } = &mut self.scripted[number].buffer;
        let longest = 1 << random.u32(LONGEST_WAIT);
        let delay = random.u64(..longest);
        *drain = Drain::Due;
        self.queue.after(delay, Event::Drain(number));
    }

    /// A store leaves the buffer, if it can.
    pub(crate) fn drain(&mut self, number: usize) {
        let is_unordered = self.has(Flaw::UnorderedStores);
        let buffer = &mut self.scripted[number].buffer;
        buffer.drain = Drain::Idle;
        let Some(index) = buffer.next(is_unordered) else {
            return;
        };
        let (cell, value) = buffer.stores[index];
        if self.find(number, cell, Access::Write).is_none() {
            self.scripted[number].buffer.drain = Drain::Waits(cell.page);
            self.fault_of(number, cell.page, Access::Write);
            return;
        }
        self.stored(number, cell, value);
        let buffer = &mut self.scripted[number].buffer;
        buffer.stores.remove(index);
        if buffer.is_empty() {
            self.drained(number);
        } else {
            self.drain_later(number);
        }
    }

    fn waiting_buffers(&self, blade: BladeId, page: PageRequest) -> Vec<usize> {
        let waits = |number: &usize| {
            self.plan.programs[*number].blade == blade
                && self.threads[*number].domain == Some(page.domain)
                && self.scripted[*number].buffer.waits_for(page.page)
        };
        (0..self.scripted.len()).filter(waits).collect()
    }

    /// Stores that wait for the page are tried again.
    pub(crate) fn wake_buffers(&mut self, blade: BladeId, page: PageRequest) {
        for number in self.waiting_buffers(blade, page) {
            self.drain_later(number);
        }
    }

    /// Stores to the page cannot be carried out now: a store has no result that could fail, so they
    /// are tried again.
    pub(crate) fn failed_buffers(&mut self, blade: BladeId, page: PageRequest, refusal: Refusal) {
        for number in self.waiting_buffers(blade, page) {
            self.record(What::Failed(number, page.page, refusal));
            if !self.may_fail(blade, page, refusal) {
                self.fail(Failure::Refusal(blade, page.page, refusal));
            }
            self.drain_later(number);
        }
    }
}
