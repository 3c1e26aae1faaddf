//! The controller's decisions: each request changes the books here and yields a [`Plan`], the steps by which maps and
//! blades follow. Whoever carries the steps out says so with [`Policy::finish`]; only then is what a plan gave up
//! given to somebody else.
//!
//! A plan to map whose steps fail half way is undone by unmapping: every step of that may also be carried out where
//! its counterpart was not.

mod keeping;
mod regions;
mod status;

use std::collections::BTreeMap;

use mind_api::errno::{Errno, Failure};
use mind_api::message::{Access, BladeKind, OnLoss, Open, Registration};
use mind_common::addr::{PAGE_SIZE, Va};
use mind_common::id::BladeId;

use crate::alloc::{AllocError, Allocator};
use crate::directory::{Directory, DirectoryFull, Step};
use crate::protect::{Class, Entries, Protection, diff};
use crate::records::Key;
use crate::registry::{Blade, MAX_NAME, Member, Port, Presence, Registry, Users, Vma};

const PAGE: u64 = PAGE_SIZE as u64;

/// What is to be done, in order, and what it is for.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the maps do not know of it yet"]
pub struct Plan<T> {
    /// What the caller gets when the steps are done.
    pub result: T,
    /// What is to be done first.
    pub steps: Vec<Step>,
    /// For [`Policy::finish`], when the steps are done.
    pub given_up: Vec<GivenUp>,
}

impl<T> Plan<T> {
    fn new(result: T, steps: Vec<Step>) -> Self {
        Self {
            result,
            steps,
            given_up: Vec::new(),
        }
    }
}

/// A vma that nobody has any more, but whose memory and slots are not free yet.
#[derive(Debug, PartialEq, Eq)]
pub struct GivenUp(Vma);

/// Where memory was mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Its first address.
    pub va: Va,
    /// Bytes, whole pages.
    pub length: u64,
}

/// The controller's books.
#[derive(Clone, Debug)]
pub struct Policy {
    registry: Registry,
    allocator: Allocator,
    directory: Directory,
    protection: BTreeMap<u32, Protection>,
}

impl Policy {
    /// Nobody is there yet; the directory has so many slots and block tables.
    pub fn new(slots: u32, tables: u32) -> Self {
        Self {
            registry: Registry::default(),
            allocator: Allocator::default(),
            directory: Directory::new(slots, tables),
            protection: BTreeMap::new(),
        }
    }

    /// Who is there.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// What the directory holds.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// What domains may do, entry by entry.
    pub fn protection(&self) -> impl Iterator<Item = (u32, Entries)> {
        self.protection
            .iter()
            .map(|(domain, protection)| (*domain, protection.entries()))
    }

    /// A blade behind `port` registers.
    ///
    /// # Errors
    ///
    /// See [`Registry::register`].
    pub fn register(&mut self, port: Port, registration: Registration) -> Result<Blade, Failure> {
        let kind = registration.kind;
        let blade = self.registry.register(port, registration)?.clone();
        if kind == BladeKind::Memory {
            self.allocator
                .add(blade.number, blade.pages.saturating_mul(PAGE));
        }
        Ok(blade)
    }

    /// The connection of that life of a blade is gone.
    pub fn disconnect(&mut self, kind: BladeKind, number: u8, incarnation: u16) {
        self.registry.disconnect(kind, number, incarnation);
    }

    /// A process of `domain` runs on the blade from now on.
    ///
    /// # Errors
    ///
    /// See [`Registry::enter`].
    pub fn enter(&mut self, blade: BladeId, domain: u32, pid: i32) -> Result<Plan<()>, Failure> {
        let steps = match self.registry.enter(blade, domain, pid)? {
            Presence::Same => Vec::new(),
            Presence::Changed => vec![Step::Grant { domain, blade }],
        };
        Ok(Plan::new((), steps))
    }

    /// A process of the domain of that name, which is made if there is none, runs on the blade from now on; results in
    /// the domain's number.
    ///
    /// # Errors
    ///
    /// See [`Registry::domain_named`] and [`Registry::enter`].
    pub fn enter_named(
        &mut self,
        blade: BladeId,
        name: &str,
        pid: i32,
        on_loss: Option<OnLoss>,
    ) -> Result<Plan<u32>, Failure> {
        let domain = self.registry.domain_named(name, on_loss)?;
        let entered = self.enter(blade, domain, pid);
        if entered.is_err() {
            self.registry.forget_if_empty(domain);
        }
        let plan = entered?;
        Ok(Plan::new(domain, plan.steps))
    }

    /// It no longer does, and has no area open any more. With its last process a domain gives up all that it has.
    ///
    /// # Errors
    ///
    /// See [`Registry::exit`].
    pub fn exit(&mut self, blade: BladeId, domain: u32, pid: i32) -> Result<Plan<()>, Failure> {
        let steps = match self.registry.exit(blade, domain, pid)? {
            Presence::Same => Vec::new(),
            Presence::Changed => vec![Step::Revoke { domain, blade }],
        };
        let mut plan = Plan::new((), steps);
        let member = Member {
            blade: blade.get(),
            pid,
        };
        if let Some(entry) = self.registry.domain_mut(domain) {
            let ends = entry.processes.is_empty();
            if ends {
                entry.areas.clear();
            }
            let mut closed = Vec::new();
            for (va, vma) in &mut entry.vmas {
                let had_open = vma.users.forget(member);
                let goes = ends || had_open && vma.area.is_none() && vma.users.count() == 0;
                if had_open || goes {
                    closed.push((*va, goes));
                }
            }
            for (va, goes) in closed {
                self.registry.touch(Key::Vma(domain, va));
                let entry = self.registry.domain_mut(domain).filter(|_| goes);
                if let Some(vma) = entry.and_then(|entry| entry.vmas.remove(&va)) {
                    self.give_up(domain, vma, &mut plan);
                }
            }
        }
        self.registry.forget_if_empty(domain);
        Ok(plan)
    }

    /// The blade will not come back as it was: all of its processes are gone.
    pub fn evict(&mut self, blade: BladeId) -> Plan<()> {
        let mut plan = Plan::new((), Vec::new());
        let domains = self.registry.domains().iter();
        let processes: Vec<_> = domains
            .flat_map(|(domain, entry)| {
                entry
                    .processes
                    .iter()
                    .map(move |process| (*domain, *process))
            })
            .filter(|(_, (number, _))| *number == blade.get())
            .collect();
        for (domain, (_, pid)) in processes {
            if let Ok(mut exit) = self.exit(blade, domain, pid) {
                plan.steps.append(&mut exit.steps);
                plan.given_up.append(&mut exit.given_up);
            }
        }
        plan
    }

    /// Whether a process of the domain runs on the blade.
    ///
    /// # Errors
    ///
    /// `ESRCH`: none does.
    pub fn check_presence(&self, blade: BladeId, domain: u32) -> Result<(), Failure> {
        self.registry.check_presence(blade, domain)
    }

    /// Zeroed memory for the domain.
    ///
    /// # Errors
    ///
    /// `EINVAL`: length 0. `ESRCH`: no process of the domain runs on the caller's blade. `EFBIG`, `ENOMEM`: not to be
    /// had.
    pub fn map(
        &mut self,
        caller: BladeId,
        domain: u32,
        length: u64,
        access: Access,
    ) -> Result<Plan<Mapped>, Failure> {
        self.registry.check_presence(caller, domain)?;
        self.make(domain, length, access, (Users::Domain, None))
    }

    fn make(
        &mut self,
        domain: u32,
        length: u64,
        access: Access,
        (users, area): (Users, Option<String>),
    ) -> Result<Plan<Mapped>, Failure> {
        let registry = &self.registry;
        let is_here = |number| {
            let blade = registry.blade(BladeKind::Memory, number);
            blade.is_some_and(|blade| blade.connected)
        };
        let extent = self
            .allocator
            .allocate(length, is_here)
            .map_err(from_alloc)?;
        let va = extent.va();
        // Not above the extent's length, which is a multiple of a page.
        let length = length.next_multiple_of(PAGE);
        let mut opening = match self.directory.open(va, length) {
            Ok(steps) => steps,
            Err(full) => {
                self.allocator.free(extent);
                return Err(from_directory(full));
            }
        };
        let mut steps = vec![Step::Zero(extent)];
        steps.append(&mut opening);
        self.change(domain, va, length, Class::of(access), &mut steps);
        let Some(entry) = self.registry.domain_mut(domain) else {
            unreachable!("the caller has looked the domain up");
        };
        if let Some(name) = &area {
            entry.areas.insert(name.clone(), va.0);
        }
        let vma = Vma {
            extent,
            length,
            users,
            area,
            lost: None,
        };
        entry.vmas.insert(va.0, vma);
        self.registry.touch(Key::Vma(domain, va.0));
        Ok(Plan::new(Mapped { va, length }, steps))
    }

    /// A whole vma is given up by a process that uses it; with its last user it goes, unless it is an area that has a
    /// name.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the range is no whole vma of the domain, or an area that the caller has not opened. `ESRCH`: as of
    /// [`map`](Self::map).
    pub fn unmap(
        &mut self,
        caller: Member,
        domain: u32,
        va: Va,
        length: u64,
    ) -> Result<Plan<()>, Failure> {
        let blade = BladeId::from_low_bits(caller.blade.into());
        let entry = self.registry.domain_on(blade, domain)?;
        let wanted = length.checked_next_multiple_of(PAGE);
        let vma = entry
            .vmas
            .get_mut(&va.0)
            .filter(|vma| Some(vma.length) == wanted && length > 0)
            .ok_or_else(|| {
                let message = format!("{length} bytes at {va} are no whole vma of domain {domain}");
                Failure::new(Errno::EINVAL, message)
            })?;
        if !vma.users.close(caller) {
            let message = format!(
                "process {} has not opened the area at {va} of domain {domain}",
                caller.pid
            );
            return Err(Failure::new(Errno::EINVAL, message));
        }
        let goes = match &vma.users {
            Users::Domain => true,
            Users::Openers(openers) => openers.is_empty() && vma.area.is_none(),
        };
        let mut plan = Plan::new((), Vec::new());
        if goes && let Some(vma) = entry.vmas.remove(&va.0) {
            self.give_up(domain, vma, &mut plan);
        }
        self.registry.touch(Key::Vma(domain, va.0));
        Ok(plan)
    }

    /// The domain may do something else with whole pages from now on.
    ///
    /// # Errors
    ///
    /// `EINVAL`: `va` is no page's address, or the range wraps. `ENOMEM`: part of it is not mapped. `ESRCH`: as of
    /// [`map`](Self::map).
    pub fn protect(
        &mut self,
        caller: BladeId,
        domain: u32,
        va: Va,
        length: u64,
        access: Access,
    ) -> Result<Plan<()>, Failure> {
        let entry = self.registry.domain_on(caller, domain)?;
        let rounded = length.checked_next_multiple_of(PAGE);
        let range = rounded.and_then(|length| Some((length, va.0.checked_add(length)?)));
        let Some((length, end)) = range.filter(|_| va.is_page_aligned()) else {
            let message = format!("{length} bytes at {va} are no whole pages");
            return Err(Failure::new(Errno::EINVAL, message));
        };
        if !entry.covers(va.0, end) {
            let message =
                format!("part of {length} bytes at {va} is not mapped in domain {domain}");
            return Err(Failure::new(Errno::ENOMEM, message));
        }
        let mut steps = Vec::new();
        self.change(domain, va, length, Class::of(access), &mut steps);
        Ok(Plan::new((), steps))
    }

    /// An area of the domain, by name.
    ///
    /// # Errors
    ///
    /// `EINVAL`: no name, or more bytes than the area has. `ENAMETOOLONG`. `ENOENT`, `EEXIST`: as `open` says. And
    /// those of [`map`](Self::map).
    pub fn open_area(
        &mut self,
        caller: Member,
        domain: u32,
        name: &str,
        length: u64,
        access: Access,
        open: Open,
    ) -> Result<Plan<Mapped>, Failure> {
        if name.is_empty() {
            return Err(Failure::new(Errno::EINVAL, "an area's name is empty"));
        }
        if name.len() > MAX_NAME {
            let message = format!(
                "an area's name has {} bytes; at most {MAX_NAME}",
                name.len()
            );
            return Err(Failure::new(Errno::ENAMETOOLONG, message));
        }
        let blade = BladeId::from_low_bits(caller.blade.into());
        let entry = self.registry.domain_on(blade, domain)?;
        let known = entry.areas.get(name).and_then(|va| entry.vmas.get_mut(va));
        match (known, open) {
            (Some(_), Open::New) => Err(Failure::new(
                Errno::EEXIST,
                format!("domain {domain} has an area `{name}` already"),
            )),
            (Some(vma), Open::Existing | Open::OrCreate) if length <= vma.length => {
                vma.users.open(caller);
                let mapped = Mapped {
                    va: vma.va(),
                    length: vma.length,
                };
                self.registry.touch(Key::Vma(domain, mapped.va.0));
                Ok(Plan::new(mapped, Vec::new()))
            }
            (Some(vma), Open::Existing | Open::OrCreate) => Err(Failure::new(
                Errno::EINVAL,
                format!("area `{name}` has {} bytes, not {length}", vma.length),
            )),
            (None, Open::Existing) => Err(no_area(domain, name)),
            (None, Open::OrCreate | Open::New) => {
                let users = Users::Openers(vec![(caller, 1)]);
                self.make(domain, length, access, (users, Some(name.to_owned())))
            }
        }
    }

    /// The name goes; the memory does with its last user.
    ///
    /// # Errors
    ///
    /// `ENOENT`: no such area. `ESRCH`: as of [`map`](Self::map).
    pub fn unlink_area(
        &mut self,
        caller: BladeId,
        domain: u32,
        name: &str,
    ) -> Result<Plan<()>, Failure> {
        let entry = self.registry.domain_on(caller, domain)?;
        let va = entry
            .areas
            .remove(name)
            .ok_or_else(|| no_area(domain, name))?;
        let mut plan = Plan::new((), Vec::new());
        if let Some(vma) = entry.vmas.get_mut(&va) {
            vma.area = None;
            if vma.users.count() == 0
                && let Some(vma) = entry.vmas.remove(&va)
            {
                self.give_up(domain, vma, &mut plan);
            }
        }
        self.registry.touch(Key::Vma(domain, va));
        Ok(plan)
    }

    /// The steps of the plan have been carried out: what it gave up is free.
    pub fn finish(&mut self, given_up: Vec<GivenUp>) {
        for GivenUp(vma) in given_up {
            self.directory.forget(vma.va(), vma.length);
            self.allocator.free(vma.extent);
        }
    }

    /// Changes the domain's protection, in the books and by steps.
    fn change(
        &mut self,
        domain: u32,
        va: Va,
        length: u64,
        class: Option<Class>,
        steps: &mut Vec<Step>,
    ) {
        let protection = self.protection.entry(domain).or_default();
        let old = protection.entries();
        protection.set(va, length, class);
        let new = protection.entries();
        if new.is_empty() {
            self.protection.remove(&domain);
        }
        self.registry.touch(Key::Protection(domain));
        let changes = diff(&old, &new).into_iter();
        steps.extend(changes.map(|change| Step::Protect { domain, change }));
    }

    /// Nobody has the vma any more: first nobody may touch it, then it is flushed, then its slots are freed.
    fn give_up<T>(&mut self, domain: u32, vma: Vma, plan: &mut Plan<T>) {
        self.registry.touch(Key::Vma(domain, vma.va().0));
        self.change(domain, vma.va(), vma.length, None, &mut plan.steps);
        plan.steps
            .append(&mut self.directory.close(vma.va(), vma.length));
        plan.given_up.push(GivenUp(vma));
    }
}

fn no_area(domain: u32, name: &str) -> Failure {
    Failure::new(
        Errno::ENOENT,
        format!("domain {domain} has no area `{name}`"),
    )
}

fn from_alloc(error: AllocError) -> Failure {
    let errno = match error {
        AllocError::Empty => Errno::EINVAL,
        AllocError::TooLong { .. } => Errno::EFBIG,
        AllocError::Full { .. } => Errno::ENOMEM,
    };
    Failure::new(errno, error.to_string())
}

fn from_directory(error: DirectoryFull) -> Failure {
    Failure::new(Errno::ENOMEM, error.to_string())
}

#[cfg(test)]
mod tests;
