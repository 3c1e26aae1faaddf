//! Lists of regions in another order than by address: all regions are looked at, some at a time between other work, and
//! the first of them kept.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use mind_api::{Errno, Failure, operator::RegionOrder};
use mind_common::addr::Va;
use mind_machines::controller::{Entry, Session};

use super::part::ENTRIES;

/// Lists that may be made at a time.
const SCANS: usize = 16;

/// What puts a region before others: its count; of equal ones, the lower address.
type Rank = (u64, Reverse<Entry>);

/// A list that is being made.
pub(super) struct Scan {
    asker: (Session, u64),
    order: RegionOrder,
    next: Va,
    to: Va,
    most: usize,
    /// The first of those that were looked at, the last of them on top.
    first: BinaryHeap<Reverse<Rank>>,
}

impl Scan {
    /// A list of at most so many of the regions in a range, for the request `asker`.
    pub(super) fn new(
        asker: (Session, u64),
        (next, to): (Va, Va),
        order: RegionOrder,
        limit: u32,
    ) -> Self {
        Self {
            asker,
            order,
            next,
            to,
            most: usize::try_from(limit).map_or(ENTRIES, |limit| limit.min(ENTRIES)),
            first: BinaryHeap::new(),
        }
    }

    /// The request.
    pub(super) fn asker(&self) -> (Session, u64) {
        self.asker
    }

    /// By which count.
    pub(super) fn order(&self) -> RegionOrder {
        self.order
    }

    /// What is still to be looked at.
    pub(super) fn left(&self) -> (Va, Va) {
        (self.next, self.to)
    }

    /// Goes on from there.
    pub(super) fn go_on(&mut self, next: Va) {
        self.next = next;
    }

    /// A region with its count.
    pub(super) fn note(&mut self, count: u64, entry: Entry) {
        self.first.push(Reverse((count, Reverse(entry))));
        if self.first.len() > self.most {
            self.first.pop();
        }
    }

    /// The list.
    pub(super) fn first(self) -> impl Iterator<Item = Entry> {
        let ranked = self.first.into_sorted_vec().into_iter();
        ranked.map(|Reverse((_, Reverse(entry)))| entry)
    }
}

/// Lists that are being made, by turns.
#[derive(Default)]
pub(super) struct Scans(VecDeque<Scan>);

impl Scans {
    /// One more.
    ///
    /// # Errors
    ///
    /// `EBUSY`: there are as many as there may be.
    pub(super) fn begin(&mut self, scan: Scan) -> Result<(), Failure> {
        if self.0.len() >= SCANS {
            let message = format!(
                "the controller is sorting regions for {SCANS} requests, as many as it takes: ask again later"
            );
            return Err(Failure::new(Errno::EBUSY, message));
        }
        self.0.push_back(scan);
        Ok(())
    }

    /// The next one to work on.
    pub(super) fn next(&mut self) -> Option<Scan> {
        self.0.pop_front()
    }

    /// Others are worked on before it.
    pub(super) fn put_back(&mut self, scan: Scan) {
        self.0.push_back(scan);
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What a connection that has ended waits for is not made.
    pub(super) fn closed(&mut self, session: Session) {
        self.0.retain(|scan| scan.asker.0 != session);
    }
}

#[cfg(test)]
mod tests {
    use mind_common::addr::{Region, WINDOW_BASE};

    use super::*;

    fn entry(number: u64) -> Entry {
        let region = Region::containing(Va(WINDOW_BASE + number * 0x4000), 2);
        Entry {
            region: region.expect("it is in the window"),
            slot: number as u32,
        }
    }

    fn scan(session: u64, limit: u32) -> Scan {
        let range = (Va(WINDOW_BASE), Va(WINDOW_BASE + (1 << 30)));
        Scan::new((Session(session), 1), range, RegionOrder::Accesses, limit)
    }

    #[test]
    fn the_highest_counts_come_first_and_of_equal_ones_the_lowest_addresses() {
        let counts = [3, 7, 7, 0, 9, 7, 1];
        let mut scan = scan(1, 4);
        for (number, count) in (1..).zip(counts) {
            scan.note(count, entry(number));
        }
        let slots: Vec<_> = scan.first().map(|entry| entry.slot).collect();
        assert_eq!(slots, [5, 2, 3, 6]);
    }

    #[test]
    fn more_lists_than_may_be_made_are_refused_and_the_others_take_turns() {
        let mut scans = Scans::default();
        for session in 0..SCANS as u64 {
            scans.begin(scan(session, 1)).expect("there is room");
        }
        let failure = scans.begin(scan(99, 1)).expect_err("there is none");
        assert_eq!(failure.errno, Errno::EBUSY);
        assert!(failure.message.contains("16"), "{failure}");
        let first = scans.next().expect("the first");
        scans.put_back(first);
        scans.closed(Session(1));
        let next = scans.next().map(|scan| scan.asker());
        assert_eq!(next, Some((Session(2), 1)));
        scans.begin(scan(99, 1)).expect("there is room again");
    }
}
