//! What a request means: it changes the books, and yields the tasks by which tables, records and blades follow.

use std::collections::VecDeque;

use mind_api::{
    errno::{Errno, Failure},
    message::{BladeKind, Open, Reply, Request},
};
use mind_common::{addr::Va, id::BladeId};

use super::{
    Controller, Event, OperationId,
    books::{
        blades::Incarnation,
        domains::{Process, Vma, check_name},
        records, tables,
    },
    operation::{Finding, Operation, Purpose, Syncing, Task, Waits},
    requests::is_kept,
};

impl Controller {
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
                let from = Va(va);
                if !from.is_in_window(length) {
                    let message = format!("{length} bytes at {from} are not in the window");
                    return Err(Failure::new(Errno::EINVAL, message));
                }
                let to = Va(va + length);
                let syncing = Syncing {
                    blade: caller,
                    from,
                    to,
                    found: VecDeque::new(),
                    owned: Vec::new(),
                    is_lost: self.books.domains.is_lost(domain, from.0, to.0),
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
                let domain = vma.map_or(0, |vma| vma.domain);
                if self.books.domains.is_lost(domain, va, va + 1) {
                    // That was noted when a blade went.
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
