//! Blades join, and are fenced when they have gone or do not do as they are told.
//!
//! A compute blade that is fenced is not listened to any more; no word names it; what it had is free for others once
//! memory refuses what it may still have sent. Writes of its own that memory did not have are lost. A memory blade that
//! is fenced takes what it kept along: its regions are lost, and every access to them fails.

use std::collections::{BTreeSet, VecDeque};

use mind_api::{
    errno::Failure,
    message::{BladeKind, Command, Registration},
};
use mind_common::{addr::Va, permission::PermissionClass};

use super::{
    Act, Controller, Departed, Entry, Event, OperationId, Output, Seen, Session, Stage,
    books::{
        PAGE,
        blades::{Incarnation, Port, slice_of},
        domains::Domain,
        records, tables,
    },
    index::Errand,
    operation::{Claim, Finding, Losing, Operation, Otherwise, Purpose, Task, Waits},
    phase::Incident,
};

impl Controller {
    /// The blade behind a port joins. An earlier incarnation of it is fenced first.
    pub(super) fn join(
        &mut self,
        id: OperationId,
        operation: &mut Operation,
        port: Port,
        registration: Registration,
    ) {
        let earlier = self
            .books
            .blades
            .behind(port)
            .map(|blade| blade.incarnation);
        if let Some(earlier) = earlier.filter(|earlier| earlier.kind == registration.kind) {
            let fencing = self.begin_fencing(earlier, None);
            // Processes of the earlier one would pass for those of this one.
            let ending = self.index.of_errand(Errand::End(earlier));
            let exits = match earlier.kind {
                BladeKind::Compute => self.index.of_processes(earlier.number),
                BladeKind::Memory => BTreeSet::new(),
            };
            let others = fencing.into_iter().chain(ending).chain(exits);
            let others: BTreeSet<_> = others.collect();
            if !others.is_empty() && !seeded!(JoinedEarly) {
                operation.waits = Waits::Operations(others);
                return operation
                    .tasks
                    .push(Task::Join(port, Box::new(registration)));
            }
        }
        self.hold(id);
        let blade = match self.books.blades.next(port, registration) {
            Ok(blade) => blade,
            Err(failure) => return operation.first([Task::Reply(Err(failure)), Task::Release]),
        };
        let incarnation = blade.incarnation;
        let Incarnation { kind, number, .. } = incarnation;
        if kind == BladeKind::Memory {
            self.books
                .memory
                .add(number, blade.pages.saturating_mul(PAGE));
            // What was freed of the one before it is zeroed as ever: packets may have found slots for it meanwhile.
            self.begin_zeroing(number);
        }
        self.books.blades.put(blade);
        self.books.blades.set_here(incarnation, true);
        self.books.touch(records::Key::Blade(kind, number));
        if let Some(asker) = &operation.asker {
            self.sessions.insert(incarnation, asker.session);
        }
        let keys = match kind {
            BladeKind::Compute => vec![
                tables::Key::Compute(incarnation.connection().blade),
                tables::Key::Port(port),
            ],
            BladeKind::Memory => vec![
                tables::Key::Memory(number),
                tables::Key::Translation(slice_of(number).0),
                tables::Key::Port(port),
            ],
        };
        let reply = self.welcome(incarnation);
        self.event(Event::Joined(incarnation));
        operation.first([
            Task::Install(keys.into(), Otherwise::Report),
            Task::Keep,
            Task::Reply(Ok(reply)),
            Task::Release,
        ]);
    }

    /// An agent is back whose controller has died.
    pub(super) fn resumes(&mut self, session: Session, id: u64, incarnation: Incarnation) {
        let is_awaited = match &mut self.stage {
            Stage::Serving => false,
            Stage::TakingOver(awaited) => awaited.remove(&incarnation),
        };
        let body = if is_awaited {
            self.sessions.insert(incarnation, session);
            self.event(Event::Resumed(incarnation));
            Ok(self.welcome(incarnation))
        } else {
            let message = format!(
                "incarnation {} of {:?} blade {} is not one that this controller knows, or is over",
                incarnation.incarnation, incarnation.kind, incarnation.number
            );
            Err(Failure::new(mind_api::errno::Errno::ESRCH, message))
        };
        let operation = OperationId(0);
        self.outbox.push_back(Output::Reply {
            operation,
            session,
            id,
            body,
        });
    }

    /// A session has ended: the blade whose agent it was is gone.
    pub(super) fn closed(&mut self, session: Session) {
        for id in self.index.of_session(session) {
            self.meets(id, Incident::NotAwaited);
            // No session gets the answer; an agent that comes back asks again.
            if let Some(operation) = self.operations.get_mut(&id) {
                operation.asker = None;
                self.index.note(id, operation);
            }
        }
        if let Some(incarnation) = self.agent(session) {
            self.sessions.remove(incarnation);
            self.fail_orders(incarnation);
            if self.is_serving() {
                self.begin_fencing(incarnation, None);
            }
        }
    }

    /// Fences an incarnation of a blade: the operation that does so; none if it is not here any more.
    pub(super) fn begin_fencing(
        &mut self,
        incarnation: Incarnation,
        why: Option<Failure>,
    ) -> Option<OperationId> {
        let fencing = self.index.of_errand(Errand::Fence(incarnation));
        if fencing.is_some() {
            return fencing;
        }
        let blade = self.books.blades.here(incarnation)?;
        let name = blade.name.clone();
        self.event(Event::Fenced {
            incarnation,
            name,
            why,
        });
        Some(self.begin(Claim::default(), None, vec![Task::Fence(incarnation)]))
    }

    /// Deals with what a blade leaves that is fenced.
    pub(super) fn begin_departure(&mut self, incarnation: Incarnation) -> OperationId {
        let mut tasks = self.departure(incarnation);
        tasks.reverse();
        self.begin(Claim::default(), None, tasks)
    }

    /// What is to be done about what a blade leaves of which the records say that it is gone, in this order. Words are
    /// swept only when no packet is in the switch that found the blade in the tables: it could still put the blade into a
    /// word. Nothing is written to memory that is gone before the blades get to know that it is lost.
    fn departure(&mut self, incarnation: Incarnation) -> Vec<Task> {
        match incarnation.kind {
            BladeKind::Compute => {
                self.departed.push(Departed {
                    incarnation,
                    is_forgotten: false,
                });
                let forget = Task::Forget(incarnation, 1, Vec::new());
                vec![Task::WaitForPackets, forget]
            }
            BladeKind::Memory => vec![
                Task::Lose(incarnation, Losing::Vmas(Va(0))),
                self.taking_out(incarnation),
                Task::Release,
                Task::WaitForPackets,
                Task::Lose(incarnation, Losing::Regions(1)),
            ],
        }
    }

    /// The tables are not to name a blade any more that is gone.
    fn taking_out(&self, incarnation: Incarnation) -> Task {
        let Incarnation { kind, number, .. } = incarnation;
        let own = match kind {
            BladeKind::Compute => tables::Key::Compute(incarnation.connection().blade),
            BladeKind::Memory => tables::Key::Memory(number),
        };
        let blade = self.books.blades.get(kind, number);
        let port = blade.map(|blade| tables::Key::Port(blade.port));
        let is_left =
            |key: &tables::Key| kind == BladeKind::Compute && seeded!(PortLeftOpen) && *key != own;
        let keys = port.into_iter().chain([own]);
        let keys = keys.filter(|key| !is_left(key)).collect();
        Task::Install(keys, Otherwise::Report)
    }

    /// A blade is not listened to any more, and that is recorded; its agent is told to end.
    pub(super) fn fence(
        &mut self,
        id: OperationId,
        operation: &mut Operation,
        incarnation: Incarnation,
    ) {
        self.hold(id);
        if !self.books.blades.set_here(incarnation, false) {
            return self.release(id);
        }
        if !seeded!(DepartureNotRecorded) {
            let Incarnation { kind, number, .. } = incarnation;
            self.books.touch(records::Key::Blade(kind, number));
        }
        self.dismiss(id, incarnation);
        self.forget_all_answers(incarnation);
        let first = match incarnation.kind {
            BladeKind::Memory if seeded!(LostAfterGone) => Some(self.taking_out(incarnation)),
            BladeKind::Compute => Some(self.taking_out(incarnation)),
            BladeKind::Memory => None,
        };
        let tasks = first.into_iter().chain([Task::Keep, Task::Release]);
        let tasks: Vec<_> = tasks.chain(self.departure(incarnation)).collect();
        operation.first(tasks);
    }

    /// The agent is told to end, if it can be told, and nothing more is expected of it.
    fn dismiss(&mut self, id: OperationId, incarnation: Incarnation) {
        if let Some(session) = self.sessions.remove(incarnation) {
            self.outbox.push_back(Output::Order {
                operation: id,
                session,
                order: 0,
                command: Command::Leave,
            });
        }
        self.fail_orders(incarnation);
    }

    /// An incarnation that is over asks for nothing again.
    fn forget_all_answers(&mut self, incarnation: Incarnation) {
        let kept = self
            .books
            .answers
            .range((incarnation, 0)..=(incarnation, u64::MAX));
        let kept: Vec<_> = kept.map(|((_, id), _)| *id).collect();
        for id in kept {
            self.books.answers.remove(&(incarnation, id));
            self.books.touch(records::Key::Answer(incarnation, id));
        }
    }

    /// Words forget a compute blade that is gone.
    pub(super) fn forget(
        &mut self,
        id: OperationId,
        operation: &mut Operation,
        incarnation: Incarnation,
        from: u32,
        mut lost: Vec<Entry>,
    ) {
        let blade = incarnation.connection().blade;
        let most = self.config.sweep;
        let next = match operation.seen.take() {
            Some(Seen::Swept { lost: more, next }) => {
                for entry in &more {
                    self.tell_of_loss(operation, *entry, incarnation);
                }
                lost.extend(more);
                next
            }
            _ => Some(from),
        };
        if let Some(from) = next.filter(|_| !seeded!(NotForgotten)) {
            let act = Act::Forget { blade, from, most };
            return self.act(id, operation, act, Task::Forget(incarnation, from, lost));
        }
        let departed = self
            .departed
            .iter_mut()
            .find(|departed| departed.incarnation == incarnation);
        if let Some(departed) = departed {
            departed.is_forgotten = true;
        }
        let tasks = vec![
            Task::EndProcesses(incarnation, lost.clone()),
            Task::FenceOperations(incarnation, lost),
        ];
        self.begin(Claim::default(), None, tasks);
    }

    /// Writes into a region were lost when its word forgot a blade: a change of it that is under way gets to know.
    fn tell_of_loss(&mut self, own: &mut Operation, entry: Entry, with: Incarnation) {
        let start = entry.region.base().0;
        // A change claims what it changes, or some of that.
        for id in self.index.claiming(start, start + entry.region.size()) {
            if let Some(operation) = self.operations.get_mut(&id)
                && operation.lose_writes(entry.slot, with)
            {
                return;
            }
        }
        own.lose_writes(entry.slot, with);
    }

    /// A change of a region found that writes into it are lost with a blade, before the blade's own operation did.
    pub(super) fn note_lost_write(&mut self, with: Incarnation, entry: Option<Entry>) {
        let forgetting = self.index.of_errand(Errand::Fence(with));
        let operation = forgetting.and_then(|id| self.operations.get_mut(&id));
        for task in operation
            .into_iter()
            .flat_map(|operation| &mut operation.tasks)
        {
            if let Task::Forget(_, _, lost) = task {
                lost.extend(entry);
            }
        }
    }

    /// Memory blades refuse what a compute blade may still have sent to be carried out.
    pub(super) fn fence_operations(
        &mut self,
        id: OperationId,
        operation: &mut Operation,
        incarnation: Incarnation,
        _lost: Vec<Entry>,
    ) {
        let qp = incarnation.connection().to_qp();
        for memory in self.memories() {
            self.order(id, operation, memory, Command::FenceBlade { qp }, None);
        }
        operation.waits = Waits::Orders;
    }

    /// What a compute blade leaves behind: processes that are gone, and regions of which writes are lost.
    pub(super) fn end_processes(
        &mut self,
        operation: &mut Operation,
        incarnation: Incarnation,
        lost: Vec<Entry>,
    ) {
        for (_, result) in std::mem::take(&mut operation.heard) {
            if let Err(failure) = result {
                let what = "telling a memory blade of a compute blade that is gone";
                self.event(Event::Failed { what, failure });
            }
        }
        self.departed
            .retain(|departed| departed.incarnation != incarnation);
        let mut lost = lost.into();
        self.begin_marking(incarnation, &mut lost);
        if !lost.is_empty() {
            let task = Task::MarkLost(incarnation, lost);
            self.begin(Claim::default(), None, vec![task]);
        }
        operation
            .tasks
            .push(Task::Exits(incarnation, (0, i32::MIN)));
    }

    /// Writes into some regions are lost with a compute blade: as many are marked as are changed at once.
    pub(super) fn mark_lost(
        &mut self,
        operation: &mut Operation,
        with: Incarnation,
        mut lost: VecDeque<Entry>,
    ) {
        let marking = self.begin_marking(with, &mut lost);
        if !lost.is_empty() {
            operation.waits = Waits::Operations(marking);
            operation.tasks.push(Task::MarkLost(with, lost));
        }
    }

    /// Marks the first regions as lost, each by an operation of its own, and takes them out.
    fn begin_marking(
        &mut self,
        with: Incarnation,
        lost: &mut VecDeque<Entry>,
    ) -> BTreeSet<OperationId> {
        let count = self.config.batch.max(1).min(lost.len());
        let first: Vec<_> = lost.drain(..count).collect();
        let begin = |entry: Entry| {
            let finding = Finding {
                va: entry.region.base(),
                purpose: Purpose::MarkLost(with),
                entry: None,
            };
            let claim = Claim::block(entry.region.base());
            self.begin(claim, None, vec![Task::FindRegion(finding)])
        };
        first.into_iter().map(begin).collect()
    }

    /// What a memory blade kept that is gone is lost: every access fails until it is unmapped.
    pub(super) fn lose(
        &mut self,
        id: OperationId,
        operation: &mut Operation,
        incarnation: Incarnation,
        losing: Losing,
    ) {
        match losing {
            Losing::Vmas(from) => self.lose_vmas(id, operation, incarnation, from),
            Losing::Regions(from) => self.lose_regions(id, operation, incarnation, from),
        }
    }

    /// No access is allowed any more to what a memory blade that is gone keeps of vmas, of some at once.
    fn lose_vmas(
        &mut self,
        id: OperationId,
        operation: &mut Operation,
        incarnation: Incarnation,
        from: Va,
    ) {
        let (vmas, next) = self.some_kept_by(incarnation.number, from);
        let mut keys = VecDeque::new();
        let mut are_some_lost = false;
        for va in vmas {
            if let Some(its) = self.lose_vma(va, incarnation) {
                are_some_lost = true;
                keys.extend(its);
            }
        }
        if let Some(next) = next {
            let task = Task::Lose(incarnation, Losing::Vmas(next));
            operation.tasks.push(task);
        }
        if are_some_lost {
            self.hold(id);
            operation.first([
                Task::Install(keys, Otherwise::Report),
                Task::Keep,
                Task::Release,
            ]);
        }
    }

    /// The same, of all memory blades that are gone, in the books of a controller that takes over: its tables are to say
    /// so when they name those blades no more.
    pub(super) fn lose_what_is_left(&mut self) {
        let gone = self.books.blades.of(BladeKind::Memory);
        let gone = gone.filter(|blade| !blade.is_here);
        let gone: Vec<_> = gone.map(|blade| blade.incarnation).collect();
        for incarnation in gone {
            let vmas = self.books.domains.kept_by(incarnation.number, Va(0));
            for va in vmas.collect::<Vec<_>>() {
                self.lose_vma(va, incarnation);
            }
        }
    }

    /// What a memory blade that is gone keeps of a vma is lost: the entries of the table that change. None if it is
    /// known to be lost, or the vma is closing.
    fn lose_vma(&mut self, va: Va, incarnation: Incarnation) -> Option<Vec<tables::Key>> {
        let domains = &self.books.domains;
        let vma = domains.vma(va).filter(|vma| !vma.is_closing)?;
        let domain = vma.domain;
        let kept = vma.kept_by(incarnation.number);
        let lost = kept.filter(|(from, to)| !domains.is_all_lost(domain, *from, *to));
        let lost: Vec<_> = lost.collect();
        if lost.is_empty() {
            return None;
        }
        let blade = self.name_of(incarnation);
        let mut keys = Vec::new();
        for (from, to) in lost {
            if !seeded!(LostStaysAllowed) {
                keys.extend(self.allow(domain, Va(from), to - from, PermissionClass::Lost));
            }
            self.note_loss(Va(from), &blade);
        }
        self.event(Event::VmaLost { domain, va, blade });
        Some(keys)
    }

    /// The first vmas at `from` and above that a memory blade keeps, or part of which it does, as many as are dealt with
    /// at once; the first of the others.
    fn some_kept_by(&self, memory: u8, from: Va) -> (Vec<Va>, Option<Va>) {
        let most = self.config.batch.max(1);
        let vmas = self.books.domains.kept_by(memory, from);
        let mut vmas: Vec<_> = vmas.take(most + 1).collect();
        let next = (vmas.len() > most).then(|| vmas.pop()).flatten();
        (vmas, next)
    }

    /// The words of a memory blade's regions say that they are lost; then blades drop what they have of them.
    fn lose_regions(
        &mut self,
        id: OperationId,
        operation: &mut Operation,
        incarnation: Incarnation,
        from: u32,
    ) {
        let next = match operation.seen.take() {
            Some(Seen::Swept { next, .. }) => next,
            _ => Some(from),
        };
        if let Some(from) = next {
            let act = Act::Lose {
                kept: self.books.kept_by(incarnation.number),
                from,
                most: self.config.sweep,
            };
            let task = Task::Lose(incarnation, Losing::Regions(from));
            return self.act(id, operation, act, task);
        }
        let task = Task::FlushLost(incarnation.number, Va(0));
        operation.tasks.push(task);
    }

    /// Blades drop what they have of vmas that are lost with a memory blade, of some at once: accesses that would hit
    /// fail, too.
    pub(super) fn flush_lost(&mut self, operation: &mut Operation, number: u8, from: Va) {
        let (vmas, next) = self.some_kept_by(number, from);
        let vmas = vmas.iter().filter_map(|va| self.books.domains.vma(*va));
        let flushes = vmas.filter(|vma| !vma.is_closing).flat_map(|vma| {
            let domain = self.books.domains.get(vma.domain);
            let blades = domain.map(Domain::blades).unwrap_or_default();
            let its = vma.kept_by(number);
            its.map(move |(from, to)| Task::Flush(blades, from, to))
        });
        let flushes: Vec<_> = flushes.collect();
        let begin = |flush| self.begin(Claim::default(), None, vec![flush]);
        let flushing = flushes.into_iter().map(begin).collect();
        if let Some(next) = next {
            operation.waits = Waits::Operations(flushing);
            operation.tasks.push(Task::FlushLost(number, next));
        }
    }
}
