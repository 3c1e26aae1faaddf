//! What operations of all kinds do: they begin, hold others off, have acts done, order agents to do something and hear
//! what came of it, install entries of tables, keep records, and answer.

use std::collections::VecDeque;

use mind_api::{
    errno::{Errno, Failure},
    message::{Command, Report},
};

use super::{
    Act, Controller, Event, OperationId, Order, Output, Seen,
    books::{Answer, blades::Incarnation, tables},
    operation::{Asker, Claim, Operation, Otherwise, Task, Waits},
    phase::Incident,
};

impl Controller {
    /// Begins an operation.
    pub(super) fn begin(
        &mut self,
        claim: Claim,
        asker: Option<Asker>,
        tasks: Vec<Task>,
    ) -> OperationId {
        self.next_operation += 1;
        let id = OperationId(self.next_operation);
        let operation = Operation::new(claim, asker, tasks);
        self.index.begin(id, &operation);
        self.operations.insert(id, operation);
        id
    }

    /// No other operation may come between this one's tasks, until its [`Task::Release`].
    pub(super) fn hold(&mut self, id: OperationId) {
        debug_assert!(self.exclusive.is_none_or(|other| other == id));
        self.exclusive = Some(id);
    }

    pub(super) fn release(&mut self, id: OperationId) {
        if self.exclusive == Some(id) {
            self.exclusive = None;
        }
    }

    /// Has something done at once; `task` goes on when it is.
    pub(super) fn act(&mut self, id: OperationId, operation: &mut Operation, act: Act, task: Task) {
        operation.waits = Waits::Seen;
        operation.tasks.push(task);
        self.outbox.push_back(Output::Act { operation: id, act });
    }

    /// Orders an agent to do something; what it answers is told to the operation, at once if the agent is not connected.
    pub(super) fn order(
        &mut self,
        id: OperationId,
        operation: &mut Operation,
        to: Incarnation,
        command: Command,
        until: Option<u64>,
    ) {
        let Some(session) = self.session(to) else {
            operation.heard.push((to, Err(self.not_connected(to))));
            return;
        };
        self.next_order += 1;
        let order = self.next_order;
        let waiting = Order {
            operation: id,
            to,
            until,
        };
        self.index.ordered(order, &waiting);
        self.orders.insert(order, waiting);
        self.outbox.push_back(Output::Order {
            operation: id,
            session,
            order,
            command,
        });
    }

    pub(super) fn not_connected(&self, to: Incarnation) -> Failure {
        let message = format!("the agent of {} is not connected", self.name_of(to));
        Failure::new(Errno::EIO, message)
    }

    /// An order is answered. An answer that nothing waits for is ignored.
    pub(super) fn reported(
        &mut self,
        number: u64,
        result: Result<Report, Failure>,
        incident: Incident,
    ) {
        let Some(order) = self.orders.remove(&number) else {
            return;
        };
        self.index.answered(number, &order);
        self.meets(order.operation, incident);
        if let Some(operation) = self.operations.get_mut(&order.operation) {
            operation.heard.push((order.to, result));
        }
    }

    /// What was waited for until now has come, or has failed.
    pub(super) fn expire(&mut self, now: u64) {
        while let Some(number) = self.index.expire(now) {
            let to = self.orders.get(&number).map(|order| order.to);
            let name = to.map_or_else(|| "an agent".to_owned(), |to| self.name_of(to));
            let message = format!("{name} did not do in time what it was told to");
            let failure = Failure::new(Errno::EIO, message);
            self.reported(number, Err(failure), Incident::TooLate);
        }
    }

    /// All orders to an agent have failed.
    pub(super) fn fail_orders(&mut self, to: Incarnation) {
        for number in self.index.orders_to(to) {
            let failure = self.not_connected(to);
            self.reported(number, Err(failure), Incident::CutOff);
        }
    }

    pub(super) fn event(&mut self, event: Event) {
        self.outbox.push_back(Output::Event(event));
    }

    pub(super) fn install(
        &mut self,
        id: OperationId,
        operation: &mut Operation,
        mut keys: VecDeque<tables::Key>,
        otherwise: Otherwise,
    ) {
        self.hold(id);
        if let Some(Seen::Done(result)) = operation.seen.take() {
            let Some(key) = keys.pop_front() else {
                return;
            };
            match (result, self.books.wanted(key)) {
                (Ok(()), Some(value)) => {
                    self.installed.insert(key, value);
                }
                (Ok(()), None) => {
                    self.installed.remove(&key);
                }
                (Err(failure), _) => return self.not_installed(operation, failure, otherwise),
            }
        } else {
            // What is new goes in before anything comes out: no page is without its class in between.
            let is_new = |key: &tables::Key| self.books.wanted(*key).is_some();
            let (new, old): (Vec<_>, Vec<_>) = keys.into_iter().partition(is_new);
            keys = new.into_iter().chain(old).collect();
        }
        while let Some(key) = keys.front().copied() {
            let value = self.books.wanted(key);
            if value != self.installed.get(&key).copied() {
                return self.act(
                    id,
                    operation,
                    Act::Install { key, value },
                    Task::Install(keys, otherwise),
                );
            }
            keys.pop_front();
        }
    }

    pub(super) fn keep(&mut self, id: OperationId, operation: &mut Operation) {
        self.hold(id);
        match operation.seen.take() {
            Some(Seen::Done(Ok(()))) => {}
            Some(Seen::Done(Err(failure))) => {
                let what = "recording what a controller that follows this one must know";
                self.event(Event::Failed { what, failure });
            }
            Some(_) | None => {
                if let Some(changes) = self.books.take_changes() {
                    self.act(id, operation, Act::Keep { changes }, Task::Keep);
                }
            }
        }
    }

    /// What has changed need not be kept before others may know of it: a controller that follows does it again.
    pub(super) fn keep_soon(&mut self) {
        let changes = self.books.take_changes_for_later();
        if !changes.is_empty() {
            self.outbox.push_back(Output::KeepSoon { changes });
        }
    }

    pub(super) fn reply(&mut self, id: OperationId, operation: &mut Operation, body: Answer) {
        if let Some(asker) = operation.asker.take() {
            self.outbox.push_back(Output::Reply {
                operation: id,
                session: asker.session,
                id: asker.id,
                body,
            });
        }
    }
}
