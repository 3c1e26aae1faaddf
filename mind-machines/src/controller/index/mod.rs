//! Finds operations by what they wait for, claim, answer and do, without looking at the others.
//!
//! All of it follows from the operations and orders under way: two controllers that have the same ones behave alike,
//! whatever their indices remember, so an index has no part in comparing them.
//!
//! * `schedule`: which operation may go on,
//! * `claims`: which operations conflict.

mod claims;
mod schedule;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{Hash, Hasher},
};

use super::{
    OperationId, Order, Session,
    books::{blades::Incarnation, domains::Process},
    operation::{Asker, Operation, Task, Thing},
};
pub(super) use schedule::Condition;
use schedule::Schedule;

/// What at most one operation does at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Errand {
    /// It fences an incarnation of a blade, and makes words forget it.
    Fence(Incarnation),
    /// It deals with what an incarnation of a compute blade leaves that no word names any more.
    End(Incarnation),
    /// It has a memory blade zero what was freed.
    Zero(u8),
    /// It takes slots back.
    Reclaim,
    /// It adapts sizes of regions to what an epoch was like.
    Adapt,
}

impl Errand {
    fn of(tasks: &[Task]) -> Option<Self> {
        tasks.iter().find_map(|task| match task {
            Task::Fence(of) | Task::Forget(of, ..) | Task::Lose(of, _) => Some(Self::Fence(*of)),
            Task::FenceOperations(of, _) | Task::EndProcesses(of, _) | Task::Exits(of, _) => {
                Some(Self::End(*of))
            }
            Task::Zero(blade, _) => Some(Self::Zero(*blade)),
            Task::Reclaim(_) => Some(Self::Reclaim),
            Task::Adapt(_) => Some(Self::Adapt),
            _ => None,
        })
    }
}

/// Who asked, as far as that is needed to find the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AskedBy {
    /// The agent of a blade; with the request's number.
    Agent(Incarnation, u64),
    /// A connection of which it is not known that it is an agent's.
    Session(Session),
}

impl AskedBy {
    fn of(asker: &Asker) -> Self {
        match asker.by {
            Some(by) => Self::Agent(by, asker.id),
            None => Self::Session(asker.session),
        }
    }
}

/// What an operation is found by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Known {
    asked_by: Option<AskedBy>,
    errand: Option<Errand>,
}

/// All operations under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    schedule: Schedule,
    known: BTreeMap<OperationId, Known>,
    by_request: BTreeMap<(Incarnation, u64), OperationId>,
    by_session: BTreeSet<(Session, OperationId)>,
    by_errand: BTreeMap<Errand, OperationId>,
    /// Orders that are not answered, by whose they are.
    orders: BTreeSet<(Incarnation, u64)>,
}

impl PartialEq for Index {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Index {}

impl Hash for Index {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Index {
    /// The index of these.
    #[cfg(any(test, feature = "model"))]
    pub(super) fn of(
        operations: &BTreeMap<OperationId, Operation>,
        orders: &BTreeMap<u64, Order>,
    ) -> Self {
        let mut index = Self::default();
        for (number, order) in orders {
            index.ordered(*number, order);
        }
        for (id, operation) in operations {
            index.begin(*id, operation);
        }
        for (id, operation) in operations {
            // What it waits for may be later than itself.
            index.take(*id);
            index.put(*id, operation);
        }
        index
    }

    /// An operation begins, after all others.
    pub(super) fn begin(&mut self, id: OperationId, operation: &Operation) {
        self.schedule.begin(id, operation);
        self.note(id, operation);
    }

    /// An operation is being worked on.
    pub(super) fn take(&mut self, id: OperationId) {
        self.schedule.take(id);
    }

    /// An operation was worked on, and goes on when what it waits for is over.
    pub(super) fn put(&mut self, id: OperationId, operation: &Operation) {
        self.schedule.place(id, operation);
        self.note(id, operation);
    }

    /// An operation is over; those that it kept waiting are among `others`.
    pub(super) fn end(
        &mut self,
        id: OperationId,
        operation: &Operation,
        others: &BTreeMap<OperationId, Operation>,
    ) {
        self.schedule.end(id, operation, others);
        self.become_known(id, Known::default());
    }

    /// An operation is found by what it is now.
    pub(super) fn note(&mut self, id: OperationId, operation: &Operation) {
        let known = Known {
            asked_by: operation.asker.as_ref().map(AskedBy::of),
            errand: Errand::of(&operation.tasks),
        };
        self.become_known(id, known);
    }

    fn become_known(&mut self, id: OperationId, known: Known) {
        let before = self.known.get(&id).copied().unwrap_or_default();
        if before == known {
            return;
        }
        match before.asked_by {
            Some(AskedBy::Agent(by, request)) => {
                self.by_request.remove(&(by, request));
            }
            Some(AskedBy::Session(session)) => {
                self.by_session.remove(&(session, id));
            }
            None => {}
        }
        if let Some(errand) = before.errand
            && self.by_errand.get(&errand) == Some(&id)
        {
            self.by_errand.remove(&errand);
        }
        match known.asked_by {
            Some(AskedBy::Agent(by, request)) => {
                self.by_request.insert((by, request), id);
            }
            Some(AskedBy::Session(session)) => {
                self.by_session.insert((session, id));
            }
            None => {}
        }
        if let Some(errand) = known.errand {
            self.by_errand.insert(errand, id);
        }
        match known == Known::default() {
            true => self.known.remove(&id),
            false => self.known.insert(id, known),
        };
    }

    /// What came of an operation's act is known.
    pub(super) fn seen(&mut self, id: OperationId) {
        self.schedule.seen(id);
    }

    /// An operation gives an order.
    pub(super) fn ordered(&mut self, number: u64, order: &Order) {
        self.schedule.ordered(number, order);
        self.orders.insert((order.to, number));
    }

    /// An order is answered.
    pub(super) fn answered(&mut self, number: u64, order: &Order) {
        self.schedule.answered(number, order);
        self.orders.remove(&(order.to, number));
    }

    /// Operations that wait for a time that has come may go on. An order that was not answered in time, if any is left.
    pub(super) fn expire(&mut self, now: u64) -> Option<u64> {
        self.schedule.expire(now)
    }

    /// When something is due next.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.schedule.deadline()
    }

    /// The first operation after `latest` that may go on, and if there is none, the first of all.
    pub(super) fn next(
        &self,
        latest: OperationId,
        is_so: impl Fn(Condition) -> bool,
    ) -> Option<OperationId> {
        self.schedule.next(latest, is_so)
    }

    /// The operations that claim any of these addresses, from the first to the one before `end`.
    pub(super) fn claiming(&self, start: u64, end: u64) -> BTreeSet<OperationId> {
        self.schedule.claiming(start, end)
    }

    /// How many operations are to answer a request.
    pub(super) fn asked(&self) -> usize {
        self.by_request.len() + self.by_session.len()
    }

    /// The operation that is to answer this request of a blade's agent.
    pub(super) fn of_request(&self, by: Incarnation, id: u64) -> Option<OperationId> {
        self.by_request.get(&(by, id)).copied()
    }

    /// The operations that are to answer requests of a connection that is not known to be an agent's.
    pub(super) fn of_session(&self, session: Session) -> Vec<OperationId> {
        let first = (session, OperationId(0));
        let its = self
            .by_session
            .range(first..)
            .take_while(|(other, _)| *other == session);
        its.map(|(_, id)| *id).collect()
    }

    /// The operation that does this.
    pub(super) fn of_errand(&self, errand: Errand) -> Option<OperationId> {
        self.by_errand.get(&errand).copied()
    }

    /// The operations that claim processes of a compute blade.
    pub(super) fn of_processes(&self, blade: u8) -> BTreeSet<OperationId> {
        let process = |pid| Thing::Process(Process { blade, pid });
        self.schedule
            .claiming_any(process(i32::MIN)..=process(i32::MAX))
    }

    /// The orders to a blade's agent that are not answered.
    pub(super) fn orders_to(&self, to: Incarnation) -> Vec<u64> {
        let its = self.orders.range((to, 0)..=(to, u64::MAX));
        its.map(|(_, number)| *number).collect()
    }

    /// Whether nothing is under way, and nothing remembered of what was.
    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.schedule.is_empty()
            && self.known.is_empty()
            && self.by_request.is_empty()
            && self.by_session.is_empty()
            && self.by_errand.is_empty()
            && self.orders.is_empty()
    }
}
