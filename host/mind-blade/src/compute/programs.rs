//! The programs on this blade, by domain: which faults wait for which page, and installing and
//! removing a page in all programs of a domain.

use std::{collections::BTreeMap, sync::Arc};

use mind_common::{
    addr::{PAGE_SIZE, Page, Va},
    id::DomainId,
};
use mind_machines::{compute::Access, datagram::PageRequest};
use mind_userfault::{Backing, Fault, Kind, Outcome, Userfault};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// A program's number on this blade; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ProgramId(pub(crate) u64);

struct Program {
    userfault: Userfault,
    domain: DomainId,
}

struct Domain {
    backing: Arc<Backing>,
    programs: Vec<ProgramId>,
}

/// A program with threads that wait for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    pub(super) program: ProgramId,
    pub(super) kind: Kind,
    pub(super) access: Access,
}

/// The programs that wait for one page: hardly ever more than a few.
type Waiters = SmallVec<[Waiter; 4]>;

/// All programs.
#[derive(Default)]
pub(super) struct Programs {
    programs: BTreeMap<ProgramId, Program>,
    domains: FxHashMap<DomainId, Domain>,
    waiters: FxHashMap<Va, Waiters>,
    /// Programs that turned out to be gone.
    gone: Vec<ProgramId>,
    /// Programs that wait for a page for which this host has no memory.
    starved: Vec<(ProgramId, Va)>,
    /// Faults that were read while another operation was retried.
    early: Vec<(ProgramId, Fault)>,
}

impl Programs {
    /// Adds a program, with the memory of its domain.
    pub(super) fn attach(
        &mut self,
        id: ProgramId,
        domain: DomainId,
        userfault: Userfault,
        backing: Arc<Backing>,
    ) {
        self.domains
            .entry(domain)
            .or_insert_with(|| Domain {
                backing,
                programs: Vec::new(),
            })
            .programs
            .push(id);
        self.programs.insert(id, Program { userfault, domain });
    }

    /// Removes a program. `Some` with its domain if it was the domain's last.
    pub(super) fn detach(&mut self, id: ProgramId) -> Option<DomainId> {
        let program = self.programs.remove(&id)?;
        let domain = self.domains.get_mut(&program.domain)?;
        domain.programs.retain(|other| *other != id);
        for waiters in self.waiters.values_mut() {
            waiters.retain(|waiter| waiter.program != id);
        }
        domain.programs.is_empty().then_some(program.domain)
    }

    /// Removes a domain without programs, and its memory.
    pub(super) fn forget(&mut self, domain: DomainId) {
        if self
            .domains
            .get(&domain)
            .is_some_and(|d| d.programs.is_empty())
        {
            self.domains.remove(&domain);
        }
    }

    /// A program's descriptor.
    pub(super) fn userfault(&self, id: ProgramId) -> Option<&Userfault> {
        self.programs.get(&id).map(|program| &program.userfault)
    }

    /// Reads the faults of a program.
    pub(super) fn read_faults(&mut self, id: ProgramId, faults: &mut Vec<(ProgramId, Fault)>) {
        faults.append(&mut self.early);
        let Some(program) = self.programs.get(&id) else {
            return;
        };
        read(program, id, faults);
    }

    /// Takes the faults that were read while another operation was retried.
    pub(super) fn take_early(&mut self, faults: &mut Vec<(ProgramId, Fault)>) {
        faults.append(&mut self.early);
    }

    /// Programs that turned out to be gone since the last call.
    pub(super) fn take_gone(&mut self) -> Vec<ProgramId> {
        std::mem::take(&mut self.gone)
    }

    /// The programs that waited, since the last call, for a page for which this host has no memory.
    pub(super) fn take_starved(&mut self) -> Vec<(ProgramId, Va)> {
        std::mem::take(&mut self.starved)
    }

    /// Notes that a thread waits; returns for what, in the program's domain.
    pub(super) fn wait(&mut self, id: ProgramId, fault: &Fault) -> Option<(PageRequest, Access)> {
        let domain = self.programs.get(&id)?.domain;
        let access = if fault.write {
            Access::Write
        } else {
            Access::Read
        };
        let waiters = self.waiters.entry(fault.page).or_default();
        let waiter = Waiter {
            program: id,
            kind: fault.kind,
            access,
        };
        if !waiters.contains(&waiter) {
            waiters.push(waiter);
        }
        let page = PageRequest {
            page: fault.page,
            domain,
        };
        Some((page, access))
    }

    /// Takes the waiters of a page in its domain.
    pub(super) fn take_waiters(&mut self, page: PageRequest) -> Waiters {
        let Some(mut all) = self.waiters.remove(&page.page) else {
            return Waiters::new();
        };
        let is_ours = |waiter: &Waiter| {
            let program = self.programs.get(&waiter.program);
            program.is_some_and(|program| program.domain == page.domain)
        };
        let others: Waiters = all.iter().copied().filter(|w| !is_ours(w)).collect();
        if !others.is_empty() {
            all.retain(|waiter| !others.contains(waiter));
            self.waiters.insert(page.page, others);
        }
        all
    }

    /// Installs a page in the domain's memory, and wakes the threads that wait for it.
    pub(super) fn install(&mut self, page: PageRequest, data: &Page, writable: bool) {
        let mut waiting = programs_of(&self.take_waiters(page)).into_iter();
        let mut installed = false;
        for Waiting { id, .. } in waiting.by_ref() {
            let outcome = self.resolve(id, |u| u.copy(page.page, data, writable));
            match outcome {
                Outcome::Done => installed = true,
                // Another writer put a page there, with unknown bytes. Only a bug of this agent can
                // do that, so it is an error.
                Outcome::Exists => {
                    tracing::error!(page = %page.page, "a page that should be missing is in memory already");
                    self.drop_page(page);
                    if self.resolve(id, |u| u.copy(page.page, data, writable)) == Outcome::Done {
                        installed = true;
                    }
                    self.wake(id, page.page);
                }
                Outcome::NoMemory => self.starved.push((id, page.page)),
                Outcome::Gone | Outcome::Unmapped | Outcome::NoPage | Outcome::Again => {}
            }
            if installed {
                break;
            }
        }
        if !installed
            && let Some(domain) = self.domains.get(&page.domain)
            && let Err(error) = domain.backing.write(page.page, data)
        {
            tracing::error!(page = %page.page, %error, "a page could not be stored");
        }
        for waiting in waiting {
            self.let_go_on(waiting, page.page, writable);
        }
    }

    /// Wakes the threads that wait for a page that is in the domain's memory.
    pub(super) fn map(&mut self, page: PageRequest, writable: bool) {
        for waiting in programs_of(&self.take_waiters(page)) {
            self.let_go_on(waiting, page.page, writable);
        }
    }

    fn let_go_on(&mut self, Waiting { id, is_mapped }: Waiting, page: Va, writable: bool) {
        // Where the page has been taken from the program since, its threads fault again.
        if is_mapped && writable && self.resolve(id, |u| u.unprotect(page)) == Outcome::Done {
            return;
        }
        let outcome = match self.resolve(id, |u| u.map(page, writable)) {
            Outcome::Exists if writable => self.resolve(id, |u| u.unprotect(page)),
            Outcome::Exists => {
                self.wake(id, page);
                Outcome::Done
            }
            // A program of the domain punched it out itself (MADV_REMOVE). That reads zeros, as
            // it does of any shared memory.
            Outcome::NoPage => {
                tracing::warn!(%page, "a program removed a page from its domain's memory");
                self.resolve(id, |u| u.copy(page, &[0; PAGE_SIZE], writable))
            }
            outcome => outcome,
        };
        if outcome == Outcome::NoMemory {
            self.starved.push((id, page));
        }
    }

    /// Wakes a program's threads that wait for a page, so that they fault again.
    pub(super) fn wake(&mut self, id: ProgramId, page: Va) {
        let _ = self.resolve(id, |u| u.wake(page.0..page.0 + PAGE_SIZE as u64));
    }

    /// Takes the permission to write a page from every program of its domain.
    pub(super) fn protect(&mut self, page: PageRequest) {
        let Some(domain) = self.domains.get(&page.domain) else {
            return;
        };
        for id in domain.programs.clone() {
            // Until it succeeds: writes after the page has been given away would be lost.
            while self.resolve(id, |u| u.protect(page.page)) == Outcome::NoMemory {
                std::thread::yield_now();
            }
        }
    }

    /// Takes a page from every program of its domain.
    pub(super) fn drop_page(&mut self, page: PageRequest) {
        if let Some(domain) = self.domains.get(&page.domain)
            && let Err(error) = domain.backing.remove(page.page)
        {
            tracing::error!(page = %page.page, %error, "a page could not be removed");
        }
    }

    /// Reads a page from its domain's memory.
    pub(super) fn read(&self, page: PageRequest, into: &mut Page) {
        match self.domains.get(&page.domain) {
            Some(domain) => {
                if let Err(error) = domain.backing.read(page.page, into) {
                    tracing::error!(page = %page.page, %error, "a page cannot be read");
                }
            }
            None => tracing::error!(page = %page.page, "a page to be sent has no domain"),
        }
    }

    /// Changes a program's mapping; repeats until it succeeds. While the program moves a mapping,
    /// every call returns "try again" until the message about that has been read.
    fn resolve(&mut self, id: ProgramId, act: impl Fn(&Userfault) -> Outcome) -> Outcome {
        let Some(program) = self.programs.get(&id) else {
            return Outcome::Gone;
        };
        loop {
            match act(&program.userfault) {
                Outcome::Again => {
                    read(program, id, &mut self.early);
                    std::thread::yield_now();
                }
                Outcome::Gone => {
                    self.gone.push(id);
                    return Outcome::Gone;
                }
                outcome => return outcome,
            }
        }
    }
}

fn read(program: &Program, id: ProgramId, faults: &mut Vec<(ProgramId, Fault)>) {
    let read = program.userfault.read(|fault| faults.push((id, fault)));
    if let Err(error) = read {
        tracing::warn!(program = id.0, %error, "cannot read a program's faults");
    }
}

/// A program with threads that wait for a page.
struct Waiting {
    id: ProgramId,
    /// Whether it has the page, and lacks the permission to write.
    is_mapped: bool,
}

/// The programs of waiters, each once, in order.
fn programs_of(waiters: &[Waiter]) -> SmallVec<[Waiting; 4]> {
    let mut programs = SmallVec::<[Waiting; 4]>::new();
    for waiter in waiters {
        let is_mapped = waiter.kind == Kind::Protected;
        match programs
            .iter_mut()
            .find(|waiting| waiting.id == waiter.program)
        {
            Some(waiting) => waiting.is_mapped |= is_mapped,
            None => programs.push(Waiting {
                id: waiter.program,
                is_mapped,
            }),
        }
    }
    programs
}
