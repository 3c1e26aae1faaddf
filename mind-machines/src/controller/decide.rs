//! What a request means: it changes the books, and yields the tasks by which tables, records and blades follow.

use std::collections::VecDeque;

use mind_api::{
    errno::{Errno, Failure},
    message::{Access, BladeKind, Open, Registration, Reply, Request},
};
use mind_common::{
    addr::{PAGE_SHIFT, Va, WINDOW_BASE, WINDOW_SIZE},
    id::{BladeId, MAX_BLADES},
    permission::PermissionClass,
};

use super::{
    Controller, Event, OperationId, Session, Stage,
    books::{
        Answer, PAGE,
        blades::{Incarnation, Port},
        domains::{Process, Users, Vma, check_name},
        memory::{GRANULE, NoMemory},
        records, tables,
    },
    operation::{
        Asker, Claim, Finding, Mapping, Operation, Otherwise, Purpose, Syncing, Task, Thing, Waits,
    },
};

/// Whether a request is carried out once only, however often it is made: its answer is kept.
const fn is_kept(request: &Request) -> bool {
    matches!(
        request,
        Request::EnterProcess { .. }
            | Request::ExitProcess { .. }
            | Request::Map { .. }
            | Request::Unmap { .. }
            | Request::Protect { .. }
            | Request::OpenArea { .. }
            | Request::UnlinkArea { .. }
            | Request::ReportLoss { .. }
    )
}

impl Controller {
    /// Somebody asks for something.
    pub(super) fn requested(&mut self, session: Session, id: u64, answered: u64, body: Request) {
        let by = self.agent(session);
        if let Some(by) = by {
            self.forget_answers(by, answered);
            let operation = self.index.of_request(by, id);
            let operation = operation.and_then(|operation| self.operations.get_mut(&operation));
            if let Some(asker) = operation.and_then(|operation| operation.asker.as_mut()) {
                // It is asked for again, on another connection. Its answer may be kept already, and is not given yet.
                asker.session = session;
                return;
            }
            let answer = self.books.answers.get(&(by, id)).cloned();
            if let Some(answer) = answer.filter(|_| !seeded!(CarriedOutTwice)) {
                return self.answer_at_once(session, id, answer);
            }
        }
        if let Err(failure) = self.check_room(by, &body) {
            return self.answer_at_once(session, id, Err(failure));
        }
        let claim = Self::claim_of(by, &body);
        let asker = Asker { session, by, id };
        self.begin(claim, Some(asker), vec![Task::Decide(Box::new(body))]);
    }

    pub(super) fn answer_at_once(&mut self, session: Session, id: u64, body: Answer) {
        let operation = OperationId(0);
        self.outbox.push_back(super::Output::Reply {
            operation,
            session,
            id,
            body,
        });
    }

    /// Whether there is room for one more operation, and for its answer.
    fn check_room(&self, by: Option<Incarnation>, body: &Request) -> Result<(), Failure> {
        self.check_operations(0)?;
        if let Some(by) = by.filter(|_| is_kept(body)) {
            let kept = self.books.answers.range((by, 0)..=(by, u64::MAX)).count();
            if kept >= self.config.answers {
                let message = format!(
                    "{} has not said of {kept} answers that it got them, which is as many as are kept",
                    self.name_of(by)
                );
                return Err(Failure::new(Errno::EBUSY, message));
            }
        }
        Ok(())
    }

    /// Whether there is room for one more operation that answers something, where there may be `more` than usual.
    fn check_operations(&self, more: usize) -> Result<(), Failure> {
        let asked = self.index.asked();
        if asked < self.config.operations.saturating_add(more) {
            return Ok(());
        }
        let message = format!(
            "the controller has {asked} requests under way, which is as many as it takes: ask again later"
        );
        Err(Failure::new(Errno::EBUSY, message))
    }

    /// Answers to requests of lower numbers are not asked for any more.
    fn forget_answers(&mut self, by: Incarnation, answered: u64) {
        let old = self.books.answers.range((by, 0)..(by, answered));
        let old: Vec<_> = old.map(|(key, _)| *key).collect();
        for key in old {
            self.books.answers.remove(&key);
            self.books.touch(records::Key::Answer(key.0, key.1));
        }
    }

    /// What a request will touch.
    fn claim_of(by: Option<Incarnation>, request: &Request) -> Claim {
        match request {
            // A process that has left may still be giving up what it had when its number comes again.
            Request::EnterProcess { pid, .. } | Request::ExitProcess { pid, .. } => {
                let process = |by: Incarnation| Process {
                    blade: by.number,
                    pid: *pid,
                };
                let thing = by.map(|by| Thing::Process(process(by)));
                thing.map_or_else(Claim::default, Claim::thing)
            }
            Request::Unmap { .. } if seeded!(UnmapClaimsNothing) => Claim::default(),
            Request::ReportStuck { .. } | Request::ChangeRegion { .. }
                if seeded!(ClaimTooSmall) =>
            {
                Claim::default()
            }
            // Its regions end where its memory ends.
            Request::Unmap { va, length, .. } => {
                let length = length.checked_next_multiple_of(GRANULE);
                Claim::range(Va(*va), length.unwrap_or(u64::MAX))
            }
            Request::Protect { va, length, .. } => Claim::range(Va(*va), *length),
            Request::Sync { va, length, .. } => Claim::blocks(Va(*va), *length),
            Request::ReportStuck { va } | Request::ChangeRegion { va, .. } => Claim::block(Va(*va)),
            Request::OpenArea { domain, name, .. } | Request::UnlinkArea { domain, name } => {
                Claim::thing(Thing::Area(*domain, name.clone()))
            }
            _ => Claim::default(),
        }
    }

    /// Decides what the operation's request means.
    pub(super) fn decide(&mut self, id: OperationId, operation: &mut Operation, request: Request) {
        self.hold(id);
        let is_kept = is_kept(&request);
        if let Err(failure) = self.try_decide(operation, request, is_kept) {
            self.finish(operation, VecDeque::new(), Err(failure), is_kept);
        }
        if operation.waits != Waits::Nothing {
            self.release(id);
        }
    }

    /// The tables follow, what has changed is recorded together with the answer, and the asker gets it.
    fn finish(
        &mut self,
        operation: &mut Operation,
        keys: VecDeque<tables::Key>,
        answer: Answer,
        is_kept: bool,
    ) {
        if is_kept {
            self.keep_answer(operation, &answer);
        }
        operation.first([
            Task::Install(keys, Otherwise::Report),
            Task::Keep,
            Task::Reply(answer),
            Task::Release,
        ]);
    }

    /// The answer is recorded with whatever is recorded next; not that to a blade which is gone, as it does not ask again.
    pub(super) fn keep_answer(&mut self, operation: &Operation, answer: &Answer) {
        if let Some(asker) = &operation.asker
            && let Some(by) = asker.by.filter(|by| self.books.blades.here(*by).is_some())
        {
            self.books.answers.insert((by, asker.id), answer.clone());
            self.books.touch(records::Key::Answer(by, asker.id));
        }
    }

    /// The compute blade whose agent asks.
    fn caller(&self, operation: &Operation) -> Result<BladeId, Failure> {
        let by = operation.asker.as_ref().and_then(|asker| asker.by);
        match by {
            // It may have waited until its blade was gone, and what the blade left was dealt with.
            Some(by) if self.books.blades.here(by).is_none() => {
                let message = format!(
                    "incarnation {} of {} is over",
                    by.incarnation,
                    self.name_of(by)
                );
                Err(Failure::new(Errno::ESRCH, message))
            }
            Some(by) if by.kind == BladeKind::Compute => Ok(by.connection().blade),
            _ => {
                let message = "only the agent of a compute blade may ask for that";
                Err(Failure::new(Errno::EACCES, message))
            }
        }
    }

    fn try_decide(
        &mut self,
        operation: &mut Operation,
        request: Request,
        is_kept: bool,
    ) -> Result<(), Failure> {
        match request {
            Request::ChangeRegion { va, change } => {
                if self.books.domains.vma_at(Va(va)).is_none() {
                    let message = format!("nothing is mapped at {}", Va(va));
                    return Err(Failure::new(Errno::EFAULT, message));
                }
                operation.first([
                    Task::Release,
                    Task::FindRegion(Finding {
                        va: Va(va),
                        purpose: Purpose::Change(change),
                        entry: None,
                    }),
                ]);
                Ok(())
            }
            Request::ListCaches { from, limit } => {
                let counting = self.counting(from, limit);
                operation.first([Task::Release, Task::Count(counting)]);
                Ok(())
            }
            request => {
                let caller = self.caller(operation)?;
                self.decide_for(operation, caller, request, is_kept)
            }
        }
    }

    /// Decides what a compute blade's request means.
    fn decide_for(
        &mut self,
        operation: &mut Operation,
        caller: BladeId,
        request: Request,
        is_kept: bool,
    ) -> Result<(), Failure> {
        let process = |pid| Process {
            blade: caller.get(),
            pid,
        };
        match request {
            Request::EnterProcess {
                domain,
                pid,
                on_loss,
            } => {
                let (number, is_new) = self.books.domains.named(&domain, on_loss)?;
                let entered = self.books.domains.get_mut(number);
                if !entered.is_some_and(|domain| domain.processes.insert(process(pid))) {
                    let message =
                        format!("process {pid} of {caller} is in domain {number} already");
                    return Err(Failure::new(Errno::EEXIST, message));
                }
                self.books.touch(records::Key::Domain(number));
                if is_new {
                    self.books.touch(records::Key::LastDomain);
                }
                let keys = [tables::Key::Placement(number)].into();
                self.finish(
                    operation,
                    keys,
                    Ok(Reply::Entered { domain: number }),
                    is_kept,
                );
            }
            Request::ExitProcess { domain, pid } => {
                let process = process(pid);
                let entered = self.books.domains.get(domain);
                if !entered.is_some_and(|domain| domain.processes.contains(&process)) {
                    return Err(not_in_domain(domain, process));
                }
                let (keys, rest) = self.leave(domain, process);
                operation.tasks.extend(rest.map(Task::GiveUp));
                self.finish(operation, keys, Ok(Reply::Done), is_kept);
            }
            Request::Map {
                domain,
                length,
                access,
            } => {
                self.books.domains.check_presence(caller, domain)?;
                self.allocate(
                    operation,
                    (domain, length, access, None),
                    Request::Map {
                        domain,
                        length,
                        access,
                    },
                )?;
            }
            Request::OpenArea {
                domain,
                pid,
                name,
                length,
                access,
                open,
            } => {
                check_name("an area", &name)?;
                let known = self.books.domains.check_presence(caller, domain)?;
                if !known.processes.contains(&process(pid)) {
                    return Err(not_in_domain(domain, process(pid)));
                }
                let there = known.areas.get(&name);
                match (there.copied(), open) {
                    (Some(_), Open::New) => {
                        let message = format!("domain {domain} has an area `{name}` already");
                        return Err(Failure::new(Errno::EEXIST, message));
                    }
                    (Some(va), Open::Existing | Open::OrCreate) => {
                        let reply = self.open_area(Va(va), process(pid), &name, length)?;
                        self.finish(operation, VecDeque::new(), Ok(reply), is_kept);
                    }
                    (None, Open::Existing) => return Err(no_area(domain, &name)),
                    (None, Open::OrCreate | Open::New) => {
                        let area = Some((name.clone(), process(pid)));
                        let again = Request::OpenArea {
                            domain,
                            pid,
                            name,
                            length,
                            access,
                            open,
                        };
                        self.allocate(operation, (domain, length, access, area), again)?;
                    }
                }
            }
            Request::Unmap {
                domain,
                pid,
                va,
                length,
            } => {
                self.books.domains.check_presence(caller, domain)?;
                self.unmap(operation, domain, process(pid), Va(va), length)?;
            }
            Request::UnlinkArea { domain, name } => {
                self.books.domains.check_presence(caller, domain)?;
                let va = self.books.domains.take_name(domain, &name);
                let va = va.ok_or_else(|| no_area(domain, &name))?;
                self.books.touch(records::Key::Vma(va.0));
                let is_unused = |vma: &Vma| vma.users.count() == 0;
                let keys = match self.books.domains.vma(va).is_some_and(is_unused) {
                    true => self.close(va),
                    false => VecDeque::new(),
                };
                self.finish(operation, keys, Ok(Reply::Done), is_kept);
            }
            Request::Protect {
                domain,
                va,
                length,
                access,
            } => {
                self.books.domains.check_presence(caller, domain)?;
                self.protect(operation, domain, Va(va), length, access)?;
            }
            Request::Sync { domain, va, length } => {
                self.books.domains.check_presence(caller, domain)?;
                let (from, to) = self.check_sync(Va(va), length)?;
                let syncing = Syncing {
                    blade: caller,
                    from,
                    to,
                    found: VecDeque::new(),
                    owned: Vec::new(),
                };
                operation.first([
                    Task::Release,
                    Task::Sync(syncing),
                    Task::Reply(Ok(Reply::Done)),
                ]);
            }
            Request::ReportStuck { va } => {
                let finding = Finding {
                    va: Va(va),
                    purpose: Purpose::Unstick,
                    entry: None,
                };
                operation.first([
                    Task::Release,
                    Task::FindRegion(finding),
                    Task::Reply(Ok(Reply::Done)),
                ]);
            }
            Request::ReportLoss { va } => {
                let page = Va(va);
                let vma = self.books.domains.vma_at(page);
                if vma.is_some_and(|vma| vma.is_lost) {
                    // That was noted when its memory blade went.
                    self.finish(operation, VecDeque::new(), Ok(Reply::Done), is_kept);
                    return Ok(());
                }
                let blade = self.name_of(Incarnation {
                    kind: BladeKind::Compute,
                    number: caller.get(),
                    incarnation: 0,
                });
                let vma = self.note_loss(page, &blade);
                self.event(Event::Refused { page, vma, blade });
                self.finish(operation, VecDeque::new(), Ok(Reply::Done), is_kept);
            }
            request => {
                let message = format!("`{}` is no request of a blade's", request.name());
                return Err(Failure::new(Errno::ENOSYS, message));
            }
        }
        Ok(())
    }

    /// Finds memory for a new vma, or waits until some is zeroed.
    fn allocate(
        &mut self,
        operation: &mut Operation,
        (domain, length, access, area): (u32, u64, Access, Option<(String, Process)>),
        again: Request,
    ) -> Result<(), Failure> {
        if access == Access::Lost {
            let message = "memory cannot be mapped as lost".to_owned();
            return Err(Failure::new(Errno::EINVAL, message));
        }
        let blades = &self.books.blades;
        let extent = match self
            .books
            .memory
            .allocate(length, |number| blades.has_memory(number))
        {
            Ok(extent) => extent,
            Err(NoMemory::Zeroing { .. }) => {
                operation.waits = Waits::Zeroed;
                operation.tasks.push(Task::Decide(Box::new(again)));
                return Ok(());
            }
            Err(error) => {
                let errno = match error {
                    NoMemory::Empty => Errno::EINVAL,
                    NoMemory::TooLong { .. } => Errno::EFBIG,
                    NoMemory::Full { .. } | NoMemory::Zeroing { .. } => Errno::ENOMEM,
                };
                return Err(Failure::new(errno, error.to_string()));
            }
        };
        // Not above the extent's length, which is a multiple of a page.
        let length = length.next_multiple_of(PAGE);
        let mapping = Mapping {
            domain,
            extent,
            length,
            access,
            area,
        };
        operation.tasks.push(Task::Map(mapping));
        Ok(())
    }

    /// All is ready for a new vma.
    pub(super) fn map(&mut self, id: OperationId, operation: &mut Operation, mapping: Mapping) {
        self.hold(id);
        let Mapping {
            domain,
            extent,
            length,
            access,
            area,
        } = mapping;
        let va = extent.va();
        let (area, users) = match area {
            Some((name, process)) => (Some(name), Users::Openers(vec![(process, 1)])),
            None => (None, Users::Domain),
        };
        self.books.domains.put_vma(Vma {
            domain,
            extent,
            length,
            users,
            area,
            lost: None,
            is_lost: false,
            is_closing: false,
        });
        self.books.touch(records::Key::Vma(va.0));
        if self
            .books
            .domains
            .get(domain)
            .is_none_or(|domain| domain.processes.is_empty())
        {
            // The domain has ended meanwhile.
            let keys = self.close(va);
            let message = format!("domain {domain} has ended");
            let answer = Err(Failure::new(Errno::ESRCH, message));
            return self.finish(operation, keys, answer, true);
        }
        let keys = self.allow(domain, va, length, access);
        let answer = Ok(Reply::Mapped { va: va.0, length });
        self.keep_answer(operation, &answer);
        // Blades may have copies once the tables allow it: a controller that follows this one must know of the vma then.
        let mut tasks = [
            Task::Keep,
            Task::Install(keys, Otherwise::Unmap(va)),
            Task::Reply(answer),
            Task::Release,
        ];
        if seeded!(AnsweredBeforeRecord) {
            tasks.rotate_left(1);
            tasks.swap(2, 3);
        }
        if seeded!(AnsweredBeforeTables) {
            tasks.swap(1, 2);
        }
        operation.first(tasks);
    }

    /// A process opens an area that is there.
    fn open_area(
        &mut self,
        va: Va,
        process: Process,
        name: &str,
        length: u64,
    ) -> Result<Reply, Failure> {
        let vma = self.books.domains.vma(va);
        let vma = vma.ok_or_else(|| Failure::new(Errno::ENOENT, format!("no area `{name}`")))?;
        if length > vma.length {
            let message = format!("area `{name}` has {} bytes, not {length}", vma.length);
            return Err(Failure::new(Errno::EINVAL, message));
        }
        let length = vma.length;
        self.books.domains.add_user(va, process);
        self.books.touch(records::Key::Vma(va.0));
        Ok(Reply::Mapped { va: va.0, length })
    }

    /// A whole vma is given up by a process that uses it; with its last user it goes, unless it is an area that has a
    /// name.
    fn unmap(
        &mut self,
        operation: &mut Operation,
        domain: u32,
        process: Process,
        va: Va,
        length: u64,
    ) -> Result<(), Failure> {
        let wanted = length.checked_next_multiple_of(PAGE);
        let vma = self.books.domains.vma(va);
        let is_it = |vma: &&Vma| {
            vma.domain == domain && !vma.is_closing && Some(vma.length) == wanted && length > 0
        };
        let vma = vma.filter(is_it).ok_or_else(|| {
            let message = format!("{length} bytes at {va} are no whole vma of domain {domain}");
            Failure::new(Errno::EINVAL, message)
        })?;
        let end = vma.memory_end();
        if !self.books.domains.remove_user(va, process) {
            let message = format!(
                "process {} has not opened the area at {va} of domain {domain}",
                process.pid
            );
            return Err(Failure::new(Errno::EINVAL, message));
        }
        let goes = self
            .books
            .domains
            .vma(va)
            .is_some_and(|vma| match &vma.users {
                Users::Domain => true,
                Users::Openers(openers) => openers.is_empty() && vma.area.is_none(),
            });
        self.books.touch(records::Key::Vma(va.0));
        if !goes {
            self.finish(operation, VecDeque::new(), Ok(Reply::Done), true);
            return Ok(());
        }
        let keys = self.disallow(va);
        // From here on it happens, whether or not by this controller: one that follows has the same answer.
        self.keep_answer(operation, &Ok(Reply::Done));
        operation.first([
            Task::Install(keys, Otherwise::Report),
            Task::Keep,
            Task::Release,
            Task::FreeRegions(va, end),
            Task::Unmapped(va),
            Task::Reply(Ok(Reply::Done)),
        ]);
        Ok(())
    }

    /// The domain may do something else with whole pages from now on; blades fetch them anew.
    fn protect(
        &mut self,
        operation: &mut Operation,
        domain: u32,
        va: Va,
        length: u64,
        access: Access,
    ) -> Result<(), Failure> {
        let rounded = length.checked_next_multiple_of(PAGE);
        let range = rounded.and_then(|length| Some((length, va.0.checked_add(length)?)));
        let Some((length, end)) = range.filter(|_| va.is_page_aligned()) else {
            let message = format!("{length} bytes at {va} are no whole pages");
            return Err(Failure::new(Errno::EINVAL, message));
        };
        if !self.books.domains.covers(domain, va.0, end) {
            let message =
                format!("part of {length} bytes at {va} is not mapped in domain {domain}");
            return Err(Failure::new(Errno::ENOMEM, message));
        }
        if access == Access::Lost || self.is_lost(va, end) {
            let message = format!(
                "part of {length} bytes at {va} is lost; see `mind-ctl status` on the switch"
            );
            return Err(Failure::new(Errno::EIO, message));
        }
        let known = self.books.domains.get(domain);
        let before = known.map_or_else(Vec::new, |domain| domain.protection.over(va.0, end));
        let blades = known
            .filter(|_| !seeded!(ProtectedUnflushed))
            .map(super::books::domains::Domain::blades)
            .unwrap_or_default();
        let keys = self.allow(domain, va, length, access);
        operation.first([
            Task::Install(keys, Otherwise::Restore(domain, before)),
            Task::Keep,
            Task::Release,
            Task::Flush(blades, va.0, end),
            Task::Finish(Ok(Reply::Done)),
        ]);
        Ok(())
    }

    /// The request is done: its answer is recorded, and the asker gets it. If the controller dies before, the asker asks
    /// again, and everything is done again.
    pub(super) fn done(&mut self, id: OperationId, operation: &mut Operation, answer: Answer) {
        self.hold(id);
        self.finish(operation, VecDeque::new(), answer, true);
    }

    /// What is to be synced, if it can be.
    fn check_sync(&self, va: Va, length: u64) -> Result<(Va, Va), Failure> {
        if !va.is_in_window(length) {
            let message = format!("{length} bytes at {va} are not in the window");
            return Err(Failure::new(Errno::EINVAL, message));
        }
        let end = va.0 + length;
        if self.is_lost(va, end) {
            let message = format!(
                "part of {length} bytes at {va} is lost; see `mind-ctl status` on the switch"
            );
            return Err(Failure::new(Errno::EIO, message));
        }
        Ok((va, Va(end)))
    }

    /// Whether some vma of a range is lost with its memory blade.
    fn is_lost(&self, va: Va, end: u64) -> bool {
        let first = self.books.domains.vma_at(va).map_or(va, Vma::va);
        let vmas = self.books.domains.vmas_from(first);
        let mut vmas = vmas.take_while(|vma| vma.va().0 < end);
        vmas.any(|vma| vma.is_lost)
    }

    /// The domain may do that with pages of it from now on; the entries of the table that change.
    pub(super) fn allow(
        &mut self,
        domain: u32,
        va: Va,
        length: u64,
        class: PermissionClass,
    ) -> VecDeque<tables::Key> {
        let Some(known) = self.books.domains.get_mut(domain) else {
            return VecDeque::new();
        };
        let prefixes = known.protection.set(va, length, class);
        let end = va.0 + length;
        let first = self.books.domains.vma_at(va).map_or(va, Vma::va);
        let vmas = self
            .books
            .domains
            .vmas_from(first)
            .take_while(|vma| vma.va().0 < end);
        let vmas: Vec<_> = vmas.map(|vma| records::Key::Vma(vma.va().0)).collect();
        for vma in vmas {
            self.books.touch(vma);
        }
        let key = |prefix| tables::Key::Protection(domain, prefix);
        prefixes.into_iter().map(key).collect()
    }

    /// The vma is closing: its domain may do nothing with it any more.
    pub(super) fn disallow(&mut self, va: Va) -> VecDeque<tables::Key> {
        let Some(vma) = self.books.domains.close_vma(va) else {
            return VecDeque::new();
        };
        let (domain, length) = (vma.domain, vma.length);
        let area = vma.area.clone();
        if let Some(name) = area {
            self.books.domains.take_name(domain, &name);
        }
        self.allow(domain, va, length, PermissionClass::None)
    }

    /// A vma has no regions any more.
    pub(super) fn unmapped(&mut self, id: OperationId, operation: &mut Operation, va: Va) {
        self.hold(id);
        if let Some(vma) = self.books.domains.take_vma(va) {
            self.books.touch(records::Key::Vma(va.0));
            if self.books.domains.forget_if_empty(vma.domain) {
                self.books.touch(records::Key::Domain(vma.domain));
            }
            self.books.memory.free(vma.extent);
            if seeded!(ZeroingNotAwaited) {
                self.books.memory.zeroed(vma.extent);
            }
            self.books.unclean.insert(va.0, vma.extent);
            self.books.touch(records::Key::Unclean(va.0));
            self.begin_zeroing(vma.extent.blade);
        }
        operation.first([Task::Keep, Task::Release]);
    }

    /// A table does not take an entry: what was decided does not happen.
    pub(super) fn not_installed(
        &mut self,
        operation: &mut Operation,
        failure: Failure,
        otherwise: Otherwise,
    ) {
        let keys = match otherwise {
            Otherwise::Report => {
                let what = "changing the switch's tables; see `mind-ctl check`";
                return self.event(Event::Failed { what, failure });
            }
            Otherwise::Unmap(va) => self.close(va),
            Otherwise::Restore(domain, ranges) => {
                let mut keys = VecDeque::new();
                for (from, to, class) in ranges {
                    keys.extend(self.allow(domain, Va(from), to - from, class));
                }
                keys
            }
        };
        let answer = Err(failure);
        self.keep_answer(operation, &answer);
        // What was to come after the tables does not come.
        operation.tasks.clear();
        operation.first([
            Task::Install(keys, Otherwise::Report),
            Task::Keep,
            Task::Reply(answer),
            Task::Release,
        ]);
    }

    /// What was written to the page's region is lost, or memory is: the vma remembers it. The vma's domain and first
    /// address, if there is one.
    pub(super) fn note_loss(&mut self, page: Va, blade: &str) -> Option<(u32, Va)> {
        let va = self.books.domains.vma_with(page)?.va();
        let vma = self.books.domains.vma_mut(va)?;
        let regions = vma.lost.as_ref().map_or(0, |lost| lost.regions) + 1;
        vma.lost = Some(super::books::domains::Lost {
            regions,
            last: page.0,
            blade: blade.to_owned(),
        });
        let domain = vma.domain;
        self.books.touch(records::Key::Vma(va.0));
        Some((domain, va))
    }

    /// The answer to a blade that has joined, or is back.
    pub(super) fn welcome(&self, incarnation: Incarnation) -> Reply {
        Reply::Registered {
            number: incarnation.number,
            incarnation: incarnation.incarnation,
            switch: self.config.address,
            window_base: WINDOW_BASE,
            window_size: WINDOW_SIZE,
        }
    }

    // Registrations.

    /// A blade's agent registers.
    pub(super) fn registers(
        &mut self,
        session: Session,
        id: u64,
        registration: Registration,
        port: Port,
    ) {
        // There is room for every blade when requests have used theirs up.
        if let Err(failure) = self.check_operations(2 * MAX_BLADES) {
            return self.answer_at_once(session, id, Err(failure));
        }
        let asker = Asker {
            session,
            by: None,
            id,
        };
        self.begin(
            Claim::thing(Thing::Port(port)),
            Some(asker),
            vec![Task::Join(port, Box::new(registration))],
        );
    }

    /// An agent that was awaited, and registers anew, does not come back.
    pub(super) fn will_not_resume(&mut self, kind: BladeKind, address: std::net::Ipv4Addr) {
        let books = &self.books;
        let is_its = |incarnation: &Incarnation| {
            let blade = books.blades.get(incarnation.kind, incarnation.number);
            incarnation.kind == kind && blade.is_some_and(|blade| blade.address == address)
        };
        if let Stage::TakingOver(awaited) = &mut self.stage {
            awaited.retain(|incarnation| !is_its(incarnation));
        }
    }

    /// Pages of a range.
    pub(super) const fn pages(from: u64, to: u64) -> u64 {
        (to - from) >> PAGE_SHIFT
    }
}

fn no_area(domain: u32, name: &str) -> Failure {
    Failure::new(
        Errno::ENOENT,
        format!("domain {domain} has no area `{name}`"),
    )
}

fn not_in_domain(domain: u32, process: Process) -> Failure {
    let Process { blade, pid } = process;
    let message = format!("process {pid} of compute blade {blade} is not in domain {domain}");
    Failure::new(Errno::ESRCH, message)
}
