//! The queue of events, by time.

use std::{cmp::Reverse, collections::BinaryHeap};

/// A scheduled event. Of two that are due at the same time, the one that was scheduled first comes
/// first.
struct Due<E> {
    at: u64,
    number: u64,
    event: E,
}

impl<E> Due<E> {
    const fn key(&self) -> Reverse<(u64, u64)> {
        Reverse((self.at, self.number))
    }
}

impl<E> PartialEq for Due<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for Due<E> {}

impl<E> PartialOrd for Due<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Due<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// A clock, in nanoseconds, and the events to come.
pub(crate) struct Queue<E> {
    now: u64,
    count: u64,
    heap: BinaryHeap<Due<E>>,
}

impl<E> Queue<E> {
    /// Without events. The time is 1: 0 is before everything.
    pub(crate) const fn new() -> Self {
        Self {
            now: 1,
            count: 0,
            heap: BinaryHeap::new(),
        }
    }

    /// The current time.
    pub(crate) const fn now(&self) -> u64 {
        self.now
    }

    /// Events scheduled so far.
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// Schedules an event at a time; at once, if that has passed.
    pub(crate) fn at(&mut self, at: u64, event: E) {
        self.count += 1;
        self.heap.push(Due {
            at: at.max(self.now),
            number: self.count,
            event,
        });
    }

    /// Schedules an event after a delay.
    pub(crate) fn after(&mut self, delay: u64, event: E) {
        self.at(self.now.saturating_add(delay), event);
    }

    /// Takes the next event and moves the clock to its time.
    pub(crate) fn pop(&mut self) -> Option<E> {
        let due = self.heap.pop()?;
        self.now = due.at;
        Some(due.event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_first_comes_first_and_time_never_goes_back() {
        let mut queue = Queue::new();
        queue.at(30, 'c');
        queue.at(10, 'a');
        queue.at(10, 'b');
        assert_eq!((queue.pop(), queue.now()), (Some('a'), 10));
        queue.at(5, 'x');
        assert_eq!((queue.pop(), queue.now()), (Some('b'), 10));
        assert_eq!((queue.pop(), queue.now()), (Some('x'), 10));
        assert_eq!((queue.pop(), queue.now()), (Some('c'), 30));
        assert_eq!(queue.pop(), None);
    }
}
