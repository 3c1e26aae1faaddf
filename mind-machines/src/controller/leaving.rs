//! Processes leave their domains, and vmas that nothing uses any more go.
//!
//! That a process is not in its domain any more is decided, recorded and answered at once. What it gives up by that, a
//! domain's last process all vmas, is marked as closing and recorded part by part, and other operations come between
//! the parts; nothing uses it meanwhile, since a domain without processes is placed on no blade. A controller that
//! takes over goes on: it finds vmas of domains without processes, and areas open by processes not in their domain.
//!
//! Vmas that are closing are freed one after the other in each domain.

use std::collections::{BTreeSet, VecDeque};

use mind_common::addr::Va;

use super::{
    Controller, OperationId,
    books::{blades::Incarnation, domains::Process, records, tables},
    operation::{Claim, GivingUp, Operation, Otherwise, Task, Thing, Waits},
};

impl Controller {
    /// The vma is closing, and is freed when those of its domain are that were closed before. The entries of tables
    /// that change.
    pub(super) fn close(&mut self, va: Va) -> VecDeque<tables::Key> {
        let keys = self.disallow(va);
        self.free_later(va);
        keys
    }

    /// Frees a vma that is closing, after those of its domain that are to be freed already.
    pub(super) fn free_later(&mut self, va: Va) {
        let Some(domain) = self.books.domains.vma(va).map(|vma| vma.domain) else {
            return;
        };
        match self.freeing.get_mut(&domain) {
            Some(waiting) => {
                waiting.insert(va.0);
            }
            None => {
                self.freeing.insert(domain, [va.0].into());
                self.free_next(domain);
            }
        }
    }

    /// Frees the next vma of a domain that is to be freed. An operation of its own does so: it claims what it frees.
    pub(super) fn free_next(&mut self, domain: u32) {
        while let Some(va) = self.freeing.get_mut(&domain).and_then(BTreeSet::pop_first) {
            if let Some(vma) = self.books.domains.vma(Va(va)) {
                let (va, end) = (vma.va(), vma.memory_end());
                let tasks = vec![
                    Task::FreeNext(domain),
                    Task::Unmapped(va),
                    Task::FreeRegions(va, end),
                ];
                // Regions may reach behind the vma's last page.
                self.begin(Claim::range(va, end.0 - va.0), None, tasks);
                return;
            }
        }
        self.freeing.remove(&domain);
    }

    /// A process is in the domain no more. The entries of tables that change, and what is to be given up after that.
    pub(super) fn leave(
        &mut self,
        domain: u32,
        process: Process,
    ) -> (VecDeque<tables::Key>, Option<GivingUp>) {
        let mut keys: VecDeque<_> = [tables::Key::Placement(domain)].into();
        let Some(left) = self.books.domains.get_mut(domain) else {
            return (keys, None);
        };
        left.processes.remove(&process);
        let ends = left.processes.is_empty();
        self.books.touch(records::Key::Domain(domain));
        if ends {
            self.books.domains.retire(domain);
        }
        let (more, rest) = self.give_up_some(GivingUp {
            domain,
            by: (!ends).then_some(process),
            from: Va(0),
        });
        keys.extend(more);
        if self.books.domains.forget_if_empty(domain) {
            self.books.touch(records::Key::Domain(domain));
        }
        (keys, rest)
    }

    /// As much is given up as is at once. The entries of tables that change, and the rest, if there is any.
    fn give_up_some(&mut self, giving: GivingUp) -> (VecDeque<tables::Key>, Option<GivingUp>) {
        let GivingUp { domain, by, from } = giving;
        let most = self.config.batch.max(1);
        let mut vmas = self.books.domains.used(domain, by, from, most + 1);
        let rest = (vmas.len() > most).then(|| vmas.pop()).flatten();
        let rest = rest.map(|from| GivingUp { from, ..giving });
        let mut keys = VecDeque::new();
        for va in vmas {
            if let Some(process) = by {
                self.books.domains.forget_user(va, process);
                self.books.touch(records::Key::Vma(va.0));
            }
            let vma = self.books.domains.vma(va).filter(|vma| !vma.is_closing);
            let goes = |vma: &super::books::domains::Vma| {
                by.is_none() || vma.area.is_none() && vma.users.count() == 0
            };
            if vma.is_some_and(goes) {
                keys.extend(self.close(va));
            }
        }
        (keys, rest)
    }

    /// The next part of what is given up goes.
    pub(super) fn give_up(&mut self, id: OperationId, operation: &mut Operation, giving: GivingUp) {
        self.hold(id);
        let (keys, rest) = self.give_up_some(giving);
        operation.tasks.extend(rest.map(Task::GiveUp));
        operation.first([
            Task::Install(keys, Otherwise::Report),
            Task::Keep,
            Task::Release,
        ]);
    }

    /// A process of a blade that is gone leaves its domain.
    pub(super) fn exit(
        &mut self,
        id: OperationId,
        operation: &mut Operation,
        domain: u32,
        process: Process,
    ) {
        self.hold(id);
        let known = self.books.domains.get(domain);
        if !known.is_some_and(|domain| domain.processes.contains(&process)) {
            return;
        }
        let (keys, rest) = self.leave(domain, process);
        operation.tasks.extend(rest.map(Task::GiveUp));
        operation.first([
            Task::Install(keys, Otherwise::Report),
            Task::Keep,
            Task::Release,
        ]);
    }

    /// The processes of a compute blade that is gone leave their domains, some at once.
    pub(super) fn exits(
        &mut self,
        operation: &mut Operation,
        incarnation: Incarnation,
        from: (u32, i32),
    ) {
        let most = self.config.batch.max(1);
        let blade = incarnation.connection().blade;
        let its = self.books.domains.processes_on(blade, from);
        let mut its: Vec<_> = its.take(most + 1).collect();
        let next = (its.len() > most).then(|| its.pop()).flatten();
        let begin = |(domain, process)| {
            let claim = Claim::thing(Thing::Process(process));
            self.begin(claim, None, vec![Task::Exit(domain, process)])
        };
        let its = its.into_iter().filter(|_| !seeded!(ProcessesKept));
        let exits = its.map(begin).collect();
        if let Some((domain, process)) = next {
            operation.waits = Waits::Operations(exits);
            let next = Task::Exits(incarnation, (domain, process.pid));
            operation.tasks.push(next);
        }
    }

    /// Vmas that were being given up or freed when the controller died that this one follows are so now.
    pub(super) fn go_on_leaving(&mut self) {
        for (domain, by) in self.books.domains.left_behind() {
            let claim = by.map_or_else(Claim::default, |by| Claim::thing(Thing::Process(by)));
            let from = Va(0);
            let task = Task::GiveUp(GivingUp { domain, by, from });
            self.begin(claim, None, vec![task]);
        }
        let vmas = self.books.domains.vmas_from(Va(0));
        let closing: Vec<_> = vmas
            .filter(|vma| vma.is_closing && !seeded!(ClosingNotResumed))
            .map(super::books::domains::Vma::va)
            .collect();
        for va in closing {
            self.free_later(va);
        }
    }
}
