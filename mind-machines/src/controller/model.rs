//! The controller for a model checker: numbers that only count up are renamed and what has no effect is removed, so
//! that states that behave alike compare equal.

use std::collections::{BTreeMap, BTreeSet};

use mind_api::errno::Failure;
use mind_common::{directory::Word, serial::Episode};

use super::{
    Act, Controller, OperationId, Output, Seen,
    index::Index,
    operation::Operation,
    operation::{Task, Waits},
};

impl Controller {
    /// Whether it is idle, and has done nothing since it was last [renumbered](Self::renumber).
    pub fn is_untouched(&self) -> bool {
        self.is_idle() && self.next_operation == 0
    }

    /// Works until there is something that it wants done, or it waits; [`prepared`](Self::prepared) is that then.
    pub fn prepare(&mut self, now: u64) {
        if let Some(output) = self.poll(now) {
            self.outbox.push_front(output);
        }
        self.forget_uses();
    }

    /// Forgets which slots were looked at: it says which regions are taken back first, not what may happen to them.
    fn forget_uses(&mut self) {
        self.uses.clear();
        self.hand = 1;
    }

    /// What [`poll`](Self::poll) will say, as far as that is known without more work.
    pub fn prepared(&self) -> Option<&Output> {
        self.outbox.front()
    }

    /// Whether operations wait for a time.
    pub fn waits_for_time(&self) -> bool {
        let mut operations = self.operations.values();
        operations.any(|operation| matches!(operation.waits, Waits::Until(_)))
    }

    /// The times have come that operations wait for; no order is late because of that.
    pub fn wake(&mut self) {
        for operation in self.operations.values_mut() {
            if matches!(operation.waits, Waits::Until(_)) {
                operation.waits = Waits::Nothing;
            }
        }
        self.index = Index::of(&self.operations, &self.orders);
    }

    /// Shows every word that it remembers, and the word of every episode that it remembers alone; `visit` may change
    /// episodes. Not words that slots are opened with: the episode of those is the slot's next one. Forgets how often
    /// slots were accessed, like [which were looked at](Self::prepare).
    pub fn visit_words(&mut self, visit: &mut impl FnMut(&mut Word)) {
        for operation in self.operations.values_mut() {
            match &mut operation.seen {
                Some(Seen::Word(word)) => visit(word),
                Some(Seen::Uses { found, .. }) => {
                    for used in found {
                        visit(&mut used.word);
                        used.accesses = 0;
                    }
                }
                _ => {}
            }
            for task in &mut operation.tasks {
                if let Task::Change(changing) = task {
                    changing.visit_words(visit);
                }
            }
        }
        for output in &mut self.outbox {
            match output {
                Output::Act {
                    act: Act::Swap { old, new, .. },
                    ..
                } => {
                    visit(old);
                    visit(new);
                }
                Output::Act {
                    act: Act::Open { word, .. },
                    ..
                } => *word = word.with_episode(Episode::default()),
                _ => {}
            }
        }
    }

    /// Removes what has no effect where no controller follows this one and no request is made twice: answers that were
    /// given, what is to be recorded, what was lost, and the words of failures.
    pub fn normalize(&mut self) {
        self.books.forget_history();
        self.forget_uses();
        for operation in self.operations.values_mut() {
            operation.lost.clear();
            for (_, result) in &mut operation.heard {
                if let Err(Failure { message, .. }) = result {
                    message.clear();
                }
            }
        }
    }

    /// Numbers operations and orders anew, in the order that they have. The new numbers of the orders, by the old ones.
    pub fn renumber(&mut self) -> BTreeMap<u64, u64> {
        let known: BTreeSet<_> = self.operations.keys().copied().collect();
        // The one that was worked on last may be over: what comes after it still comes first.
        let rank = |id: OperationId| OperationId(known.range(..=id).count() as u64);
        let operations = std::mem::take(&mut self.operations).into_iter();
        self.operations = operations
            .map(|(id, operation)| (rank(id), operation))
            .collect();
        for operation in self.operations.values_mut() {
            operation.rename(&known, &rank);
        }
        self.exclusive = self.exclusive.map(rank);
        self.latest = rank(self.latest);
        self.next_operation = known.len() as u64;
        for output in &mut self.outbox {
            if let Output::Act { operation, .. }
            | Output::WaitForPackets { operation }
            | Output::Order { operation, .. }
            | Output::Reply { operation, .. } = output
            {
                *operation = rank(*operation);
            }
        }
        let numbers: BTreeMap<_, _> = self.orders.keys().copied().zip(1..).collect();
        let orders = std::mem::take(&mut self.orders).into_iter();
        self.orders = orders
            .zip(1..)
            .map(|((_, mut order), number)| {
                order.operation = rank(order.operation);
                (number, order)
            })
            .collect();
        self.next_order = numbers.len() as u64;
        self.index = Index::of(&self.operations, &self.orders);
        numbers
    }
}

impl Operation {
    /// Renames the operations that it waits for; those that are over are not waited for.
    fn rename(
        &mut self,
        known: &BTreeSet<OperationId>,
        rank: &impl Fn(OperationId) -> OperationId,
    ) {
        let renamed = |others: &BTreeSet<OperationId>| {
            others.intersection(known).copied().map(rank).collect()
        };
        if let Waits::Operations(others) = &mut self.waits {
            *others = renamed(others);
        }
        for task in &mut self.tasks {
            if let Task::Change(changing) = task
                && let Some(fencing) = changing.fencing_mut()
            {
                *fencing = renamed(fencing);
            }
        }
    }
}
