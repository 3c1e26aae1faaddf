//! Fairness: which of the blades that were refused because a region was busy is served next. It is
//! the one whose number comes next after the blade that was served last.
//!
//! Without a queue, the blade that was just served would win again: its retries are frequent at
//! first, and those of blades that have waited for long are backed off.
//!
//! The queue is a hint beside the word, updated without regard to other processors: a lost update
//! costs a blade its turn, nothing else. A blade that does not retry when it is its turn loses the
//! turn after a number of other requests were refused because of it: it may be gone, or not want
//! the page any more.

use super::machine::{Request, RequestVerdict, on_request};
use super::word::Word;
use crate::{
    id::{BladeId, BladeSet},
    refusal::Refusal,
};

const LAST_SHIFT: u32 = 32;
const PASSED_SHIFT: u32 = 40;
/// How many requests are refused for the sake of one turn, per waiting blade.
const PATIENCE: u32 = 4;

/// The blades that wait for a region, in 64 bits:
///
/// ```text
/// bit  63..40     36..32    31..0
///      passed 24  last 5    waiting
/// ```
///
/// `waiting` has one bit a blade; `last` is the blade that was served last; `passed` counts the
/// requests refused since then because it was not their blade's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct Queue(u64);

impl Queue {
    /// The queue that a slot stores as `raw`: every 64-bit value is one.
    #[inline(always)]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The queue as it stands in the slot.
    #[inline(always)]
    pub const fn raw(self) -> u64 {
        self.0
    }

    #[inline(always)]
    const fn new(waiting: u32, last: u32, passed: u32) -> Self {
        Self((passed as u64) << PASSED_SHIFT | (last as u64) << LAST_SHIFT | waiting as u64)
    }

    /// The blades that wait.
    #[inline(always)]
    pub const fn waiting(self) -> BladeSet {
        BladeSet::from_bits(self.0 as u32)
    }

    #[inline(always)]
    const fn last(self) -> u32 {
        BladeId::from_low_bits(self.0 >> LAST_SHIFT).get() as u32
    }

    #[inline(always)]
    const fn passed(self) -> u32 {
        (self.0 >> PASSED_SHIFT) as u32
    }

    /// Whether no waiting blade's turn comes before `blade`'s.
    #[inline(always)]
    const fn is_turn_of(self, blade: BladeId) -> bool {
        let first = self.last().wrapping_add(1);
        let in_turn = (self.0 as u32).rotate_right(first & 31);
        let place = (blade.get() as u32).wrapping_sub(first) & 31;
        in_turn & ((1 << place) - 1) == 0
    }

    /// `blade` was refused as "busy" and waits.
    #[inline(always)]
    #[must_use]
    const fn joined(self, blade: BladeId) -> Self {
        Self(self.0 | 1 << blade.get())
    }

    /// `blade` was refused because it is not its turn, and waits.
    #[inline(always)]
    #[must_use]
    const fn put_off(self, blade: BladeId) -> Self {
        let joined = self.joined(blade);
        let (waiting, passed) = (joined.waiting(), self.passed() + 1);
        if passed <= PATIENCE * waiting.len() {
            return Self::new(waiting.bits(), self.last(), passed);
        }
        let first = self.last().wrapping_add(1) & 31;
        let in_turn = waiting.bits().rotate_right(first);
        let others = (in_turn & in_turn.wrapping_sub(1)).rotate_left(first);
        Self::new(others, self.last(), 0)
    }

    /// `blade` waits no longer: its request was granted, or refused for good.
    #[inline(always)]
    #[must_use]
    const fn left(self, blade: BladeId) -> Self {
        Self(self.0 & !(1 << blade.get()))
    }

    /// An invalidation was begun for `blade`, which waits no longer and was served last.
    #[inline(always)]
    #[must_use]
    const fn served(self, blade: BladeId) -> Self {
        let waiting = self.waiting().without(blade);
        Self::new(waiting.bits(), blade.get() as u32, 0)
    }
}

/// The next word and queue, and what to do once the word is in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The word that takes the place of the one given.
    pub next: Word,
    /// The queue likewise.
    pub queue: Queue,
    /// What to do.
    pub verdict: RequestVerdict,
}

/// A request for a page of the region with this word and queue: as [`on_request`], but an
/// invalidation is begun only if it is the requester's turn; otherwise the request is refused as
/// busy.
#[inline(always)]
pub const fn admit(word: Word, queue: Queue, request: Request) -> Admission {
    let step = on_request(word, request);
    let from = request.from;
    let (next, queue, verdict) = match step.verdict {
        RequestVerdict::Invalidate(order) if order.repeated => {
            (step.next, queue.joined(from), step.verdict)
        }
        RequestVerdict::Invalidate(_) if !queue.is_turn_of(from) => {
            let refusal = RequestVerdict::Refuse(Refusal::Busy);
            (word, queue.put_off(from), refusal)
        }
        RequestVerdict::Invalidate(_) => (step.next, queue.served(from), step.verdict),
        RequestVerdict::Refuse(Refusal::Busy) => (step.next, queue.joined(from), step.verdict),
        RequestVerdict::Fetch | RequestVerdict::Grant | RequestVerdict::Refuse(_) => {
            (step.next, queue.left(from), step.verdict)
        }
    };
    Admission {
        next,
        queue,
        verdict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        directory::{State, Want},
        serial::Episode,
    };

    fn blade(number: u8) -> BladeId {
        BladeId::new(number).expect("tests use blades below 32")
    }

    fn owned(owner: u8) -> Word {
        Word::new(
            State::Modified,
            blade(0),
            Episode::new(7),
            BladeSet::only(blade(owner)),
        )
    }

    fn ask(word: Word, queue: Queue, from: u8) -> Admission {
        let request = Request {
            from: blade(from),
            want: Want::Acquire,
            repeated: false,
        };
        admit(word, queue, request)
    }

    const BUSY: RequestVerdict = RequestVerdict::Refuse(Refusal::Busy);

    #[test]
    fn waiting_blades_are_served_in_turn() {
        let mut queue = ask(owned(4), Queue::default(), 9).queue;
        let busy = ask(owned(4), Queue::default(), 9).next;
        for waiter in [4, 31, 9, 0, 12] {
            let step = ask(busy, queue, waiter);
            assert_eq!((step.next, step.verdict), (busy, BUSY));
            queue = step.queue;
        }
        // The owner is 9 now; it is refused as busy, like the others.
        let mut word = owned(9);
        for turn in [12, 31, 0, 4, 9] {
            for other in [0, 4, 9, 12, 31] {
                if other != turn && !word.blades().contains(blade(other)) {
                    let step = ask(word, queue, other);
                    assert_eq!(
                        (step.next, step.verdict),
                        (word, BUSY),
                        "{other} before {turn}"
                    );
                    assert!(step.queue.waiting().contains(blade(other)));
                }
            }
            let step = ask(word, queue, turn);
            assert_ne!(step.verdict, BUSY, "{turn}");
            assert!(!step.queue.waiting().contains(blade(turn)));
            (word, queue) = (owned(turn), step.queue);
        }
        assert_eq!(queue.waiting(), BladeSet::EMPTY);
    }

    #[test]
    fn a_blade_that_does_not_retry_loses_its_turn() {
        let word = owned(1);
        let mut queue = Queue::default().served(blade(1)).joined(blade(2));
        let mut tries = 0;
        while ask(word, queue, 3).verdict == BUSY {
            queue = ask(word, queue, 3).queue;
            tries += 1;
        }
        assert!((2..=2 * PATIENCE + 1).contains(&tries), "{tries}");
        assert_eq!(queue.waiting(), BladeSet::only(blade(3)));
    }

    #[test]
    fn a_request_that_needs_no_invalidation_does_not_wait() {
        let queue = Queue::default().joined(blade(2)).joined(blade(3));
        // The owner's own requests, and readers of what is shared.
        assert_eq!(ask(owned(2), queue, 2).queue, queue.left(blade(2)));
        let shared = owned(1).settled(State::Shared, BladeSet::only(blade(1)));
        let read = Request {
            from: blade(3),
            want: Want::Read,
            repeated: false,
        };
        let step = admit(shared, queue, read);
        assert_eq!(step.verdict, RequestVerdict::Fetch);
        assert_eq!(step.queue, queue.left(blade(3)));
    }

    #[test]
    fn a_repeated_request_repeats_the_invalidation_and_waits() {
        let busy = ask(owned(4), Queue::default(), 9).next;
        let request = Request {
            from: blade(5),
            want: Want::Read,
            repeated: true,
        };
        let step = admit(busy, Queue::default(), request);
        assert!(matches!(step.verdict, RequestVerdict::Invalidate(order) if order.repeated));
        assert_eq!(step.queue, Queue::default().joined(blade(5)));
    }

    #[test]
    fn a_turn_is_found_for_every_blade_wherever_the_last_one_was() {
        for last in 0..32 {
            for turn in 0..32 {
                let queue = Queue::default().served(blade(last)).joined(blade(turn));
                for from in 0..32 {
                    let distance = |to: u8| (to + 31 - last) % 32;
                    let expected = distance(from) <= distance(turn);
                    assert_eq!(
                        queue.is_turn_of(blade(from)),
                        expected,
                        "{last} {turn} {from}"
                    );
                }
            }
        }
    }
}
