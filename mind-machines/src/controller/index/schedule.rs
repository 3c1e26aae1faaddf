//! Which operation may go on: each is where what it waits for finds it, so that none is looked at in vain.
//!
//! An operation that has what it claims goes on when what it [waits](Waits) for is over. One that conflicts with an
//! earlier one follows the latest of those, and when that ends, the latest of those that are left.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use super::{
    super::{
        OperationId, Order,
        operation::{Operation, Thing, Waits},
    },
    claims::Claims,
};

/// What any number of operations wait for together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Condition {
    /// See [`Waits::Fences`].
    Fenced,
    /// See [`Waits::Zeroed`].
    Zeroed,
    /// See [`Waits::Blades`].
    Back,
}

/// Where an operation is that is not being worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// It may go on.
    Ready,
    /// What comes of its act is not known.
    Seen,
    /// Orders of it are not answered.
    Orders,
    /// It goes on at a time.
    Until(u64),
    /// It is looked at again when that one ends.
    After(OperationId),
    /// It goes on when this is so, or at a time.
    Awaiting(Condition, Option<u64>),
}

/// What is due at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// An operation may go on.
    Operation(OperationId),
    /// An order has failed.
    Order(u64),
}

/// Where all operations are.
#[derive(Clone, Debug, Default)]
pub(super) struct Schedule {
    claims: Claims,
    /// Operations under way, also that which is being worked on.
    under_way: BTreeSet<OperationId>,
    places: BTreeMap<OperationId, Place>,
    ready: BTreeSet<OperationId>,
    awaiting: BTreeMap<Condition, BTreeSet<OperationId>>,
    timers: BTreeSet<(u64, Timer)>,
    /// Which operations are looked at again when one ends.
    followers: BTreeMap<OperationId, BTreeSet<OperationId>>,
    /// How many orders of an operation are not answered, if any.
    unanswered: BTreeMap<OperationId, usize>,
}

impl Schedule {
    /// An operation begins, after all others.
    pub(super) fn begin(&mut self, id: OperationId, operation: &Operation) {
        self.under_way.insert(id);
        self.claims.insert(id, &operation.claim);
        self.place(id, operation);
    }

    /// An operation is being worked on.
    pub(super) fn take(&mut self, id: OperationId) {
        match self.places.remove(&id) {
            None | Some(Place::Seen | Place::Orders) => {}
            Some(Place::Ready) => {
                self.ready.remove(&id);
            }
            Some(Place::Until(until)) => {
                self.timers.remove(&(until, Timer::Operation(id)));
            }
            Some(Place::After(other)) => remove_from(&mut self.followers, other, id),
            Some(Place::Awaiting(condition, until)) => {
                remove_from(&mut self.awaiting, condition, id);
                if let Some(until) = until {
                    self.timers.remove(&(until, Timer::Operation(id)));
                }
            }
        }
    }

    /// An operation waits from now on for what it says.
    pub(super) fn place(&mut self, id: OperationId, operation: &Operation) {
        let place = self.place_of(id, operation);
        match place {
            Place::Seen | Place::Orders => {}
            Place::Ready => {
                self.ready.insert(id);
            }
            Place::Until(until) => {
                self.timers.insert((until, Timer::Operation(id)));
            }
            Place::After(other) => {
                self.followers.entry(other).or_default().insert(id);
            }
            Place::Awaiting(condition, until) => {
                self.awaiting.entry(condition).or_default().insert(id);
                if let Some(until) = until {
                    self.timers.insert((until, Timer::Operation(id)));
                }
            }
        }
        self.places.insert(id, place);
    }

    fn place_of(&self, id: OperationId, operation: &Operation) -> Place {
        if !operation.is_admitted
            && let Some(other) = self.claims.latest_before(id, &operation.claim)
        {
            return Place::After(other);
        }
        match &operation.waits {
            Waits::Nothing => Place::Ready,
            Waits::Seen => Place::Seen,
            Waits::Orders if self.unanswered.contains_key(&id) => Place::Orders,
            Waits::Orders => Place::Ready,
            Waits::Until(until) => Place::Until(*until),
            Waits::Operations(others) => {
                let mut latest = others.iter().rev();
                let other = latest.find(|other| self.under_way.contains(other));
                other.map_or(Place::Ready, |other| Place::After(*other))
            }
            Waits::Fences => Place::Awaiting(Condition::Fenced, None),
            Waits::Zeroed => Place::Awaiting(Condition::Zeroed, None),
            Waits::Blades(until) => Place::Awaiting(Condition::Back, Some(*until)),
        }
    }

    fn make_ready(&mut self, id: OperationId) {
        self.take(id);
        self.ready.insert(id);
        self.places.insert(id, Place::Ready);
    }

    /// What came of an operation's act is known.
    pub(super) fn seen(&mut self, id: OperationId) {
        if self.places.get(&id) == Some(&Place::Seen) {
            self.make_ready(id);
        }
    }

    /// An operation is over; those that it kept waiting are among `others`.
    pub(super) fn end(
        &mut self,
        id: OperationId,
        operation: &Operation,
        others: &BTreeMap<OperationId, Operation>,
    ) {
        self.take(id);
        self.under_way.remove(&id);
        self.claims.remove(id, &operation.claim);
        self.unanswered.remove(&id);
        for follower in self.followers.remove(&id).unwrap_or_default() {
            self.places.remove(&follower);
            if let Some(operation) = others.get(&follower) {
                self.place(follower, operation);
            }
        }
    }

    /// An operation gives an order.
    pub(super) fn ordered(&mut self, number: u64, order: &Order) {
        *self.unanswered.entry(order.operation).or_default() += 1;
        if let Some(until) = order.until {
            self.timers.insert((until, Timer::Order(number)));
        }
    }

    /// An order is answered.
    pub(super) fn answered(&mut self, number: u64, order: &Order) {
        if let Some(until) = order.until {
            self.timers.remove(&(until, Timer::Order(number)));
        }
        let id = order.operation;
        if let Some(count) = self.unanswered.get_mut(&id) {
            *count -= 1;
            if *count == 0 {
                self.unanswered.remove(&id);
                if self.places.get(&id) == Some(&Place::Orders) {
                    self.make_ready(id);
                }
            }
        }
    }

    /// Operations that wait for a time that has come may go on. An order that was not answered in time, if any is left.
    pub(super) fn expire(&mut self, now: u64) -> Option<u64> {
        while let Some((until, timer)) = self.timers.first().copied()
            && until <= now
        {
            match timer {
                Timer::Operation(id) => self.make_ready(id),
                Timer::Order(number) => return Some(number),
            }
        }
        None
    }

    /// When something is due next.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.timers.first().map(|(until, _)| *until)
    }

    /// The first operation after `latest` that may go on, and if there is none, the first of all.
    pub(super) fn next(
        &self,
        latest: OperationId,
        is_so: impl Fn(Condition) -> bool,
    ) -> Option<OperationId> {
        let first = |from: OperationId| {
            let awaiting = self.awaiting.iter();
            let awaiting = awaiting.filter(|(condition, _)| is_so(**condition));
            let sets = awaiting.map(|(_, ids)| ids).chain([&self.ready]);
            sets.filter_map(|ids| ids.range(from..).next())
                .min()
                .copied()
        };
        first(OperationId(latest.0 + 1)).or_else(|| first(OperationId(0)))
    }

    /// The operations that claim any of these addresses, from the first to the one before `end`.
    pub(super) fn claiming(&self, start: u64, end: u64) -> BTreeSet<OperationId> {
        self.claims.of(start, end)
    }

    /// The operations that claim any of these things.
    pub(super) fn claiming_any(&self, things: RangeInclusive<Thing>) -> BTreeSet<OperationId> {
        self.claims.of_any(things)
    }

    /// Whether nothing is under way, and nothing remembered of what was.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.claims.is_empty()
            && self.under_way.is_empty()
            && self.places.is_empty()
            && self.ready.is_empty()
            && self.awaiting.is_empty()
            && self.timers.is_empty()
            && self.followers.is_empty()
            && self.unanswered.is_empty()
    }
}

/// Takes an operation out of one of the sets, which goes if nothing is left in it.
fn remove_from<Key: Ord>(
    sets: &mut BTreeMap<Key, BTreeSet<OperationId>>,
    key: Key,
    id: OperationId,
) {
    if let Some(ids) = sets.get_mut(&key) {
        ids.remove(&id);
        if ids.is_empty() {
            sets.remove(&key);
        }
    }
}
