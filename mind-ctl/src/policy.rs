//! The controller's decisions: each request changes the books here and yields a [`Plan`], the steps by which maps and
//! blades follow. Whoever carries the steps out says so with [`Policy::finish`]; only then is what a plan gave up
//! given to somebody else.
//!
//! A plan to map whose steps fail half way is undone by unmapping: every step of that may also be carried out where
//! its counterpart was not.

use std::collections::BTreeMap;

use mind_api::errno::{Errno, Failure};
use mind_api::message::{Access, BladeKind, BladeStatus, DomainStatus, Open, Registration, Status};
use mind_common::addr::{PAGE_SIZE, Va};
use mind_common::id::BladeId;

use crate::alloc::{AllocError, Allocator};
use crate::directory::{Directory, DirectoryFull, Step};
use crate::protect::{Class, Protection, diff};
use crate::registry::{Blade, MAX_NAME, Port, Presence, Registry, Vma};

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
    ) -> Result<Plan<u32>, Failure> {
        let domain = self.registry.domain_named(name)?;
        let entered = self.enter(blade, domain, pid);
        if entered.is_err() {
            self.registry.forget_if_empty(domain);
        }
        let plan = entered?;
        Ok(Plan::new(domain, plan.steps))
    }

    /// It no longer does. With its last process a domain gives up all that it has.
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
        if let Some(entry) = self.registry.domain_mut(domain)
            && entry.processes.is_empty()
        {
            entry.areas.clear();
            let vmas: Vec<_> = std::mem::take(&mut entry.vmas).into_values().collect();
            for vma in vmas {
                self.give_up(domain, vma, &mut plan);
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
        self.registry.domain_on(caller, domain)?;
        self.make(domain, length, access, None)
    }

    fn make(
        &mut self,
        domain: u32,
        length: u64,
        access: Access,
        area: Option<String>,
    ) -> Result<Plan<Mapped>, Failure> {
        let extent = self.allocator.allocate(length).map_err(from_alloc)?;
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
            users: 1,
            area,
        };
        entry.vmas.insert(va.0, vma);
        Ok(Plan::new(Mapped { va, length }, steps))
    }

    /// A whole vma is given up by one of its users; with the last one it goes, unless it is an area that has a name.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the range is no whole vma of the domain. `ESRCH`: as of [`map`](Self::map).
    pub fn unmap(
        &mut self,
        caller: BladeId,
        domain: u32,
        va: Va,
        length: u64,
    ) -> Result<Plan<()>, Failure> {
        let entry = self.registry.domain_on(caller, domain)?;
        let wanted = length.checked_next_multiple_of(PAGE);
        let vma = entry
            .vmas
            .get_mut(&va.0)
            .filter(|vma| Some(vma.length) == wanted && length > 0)
            .ok_or_else(|| {
                let message = format!("{length} bytes at {va} are no whole vma of domain {domain}");
                Failure::new(Errno::EINVAL, message)
            })?;
        vma.users = vma.users.saturating_sub(1);
        let goes = vma.users == 0 && vma.area.is_none();
        let mut plan = Plan::new((), Vec::new());
        if goes && let Some(vma) = entry.vmas.remove(&va.0) {
            self.give_up(domain, vma, &mut plan);
        }
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
        caller: BladeId,
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
        let entry = self.registry.domain_on(caller, domain)?;
        let known = entry.areas.get(name).and_then(|va| entry.vmas.get_mut(va));
        match (known, open) {
            (Some(_), Open::New) => Err(Failure::new(
                Errno::EEXIST,
                format!("domain {domain} has an area `{name}` already"),
            )),
            (Some(vma), Open::Existing | Open::OrCreate) if length <= vma.length => {
                vma.users += 1;
                let mapped = Mapped {
                    va: vma.va(),
                    length: vma.length,
                };
                Ok(Plan::new(mapped, Vec::new()))
            }
            (Some(vma), Open::Existing | Open::OrCreate) => Err(Failure::new(
                Errno::EINVAL,
                format!("area `{name}` has {} bytes, not {length}", vma.length),
            )),
            (None, Open::Existing) => Err(no_area(domain, name)),
            (None, Open::OrCreate | Open::New) => {
                self.make(domain, length, access, Some(name.to_owned()))
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
            if vma.users == 0
                && let Some(vma) = entry.vmas.remove(&va)
            {
                self.give_up(domain, vma, &mut plan);
            }
        }
        Ok(plan)
    }

    /// The steps of the plan have been carried out: what it gave up is free.
    pub fn finish(&mut self, given_up: Vec<GivenUp>) {
        for GivenUp(vma) in given_up {
            self.directory.forget(vma.va(), vma.length);
            self.allocator.free(vma.extent);
        }
    }

    /// What there is, for operators; but for the ports, which are the data plane's.
    pub fn status(&self) -> Status {
        let blades = [BladeKind::Compute, BladeKind::Memory]
            .into_iter()
            .flat_map(|kind| {
                self.registry.blades(kind).map(move |blade| {
                    let slice = match kind {
                        BladeKind::Memory => self.allocator.slice(blade.number),
                        BladeKind::Compute => None,
                    };
                    BladeStatus {
                        kind,
                        number: blade.number,
                        name: blade.name.clone(),
                        address: blade.address,
                        incarnation: blade.incarnation,
                        connected: blade.connected,
                        pages: blade.pages,
                        allocated: slice.map_or(0, |slice| slice.used() / PAGE),
                    }
                })
            });
        let domains = self
            .registry
            .domains()
            .iter()
            .map(|(domain, entry)| DomainStatus {
                domain: *domain,
                name: entry.name.clone(),
                processes: entry.processes.len() as u32,
                vmas: entry.vmas.len() as u32,
                bytes: entry.vmas.values().map(|vma| vma.length).sum(),
            });
        Status {
            blades: blades.collect(),
            domains: domains.collect(),
            slots_used: self.directory.used(),
            slots: self.directory.capacity(),
            ports: Vec::new(),
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
        let changes = diff(&old, &new).into_iter();
        steps.extend(changes.map(|change| Step::Protect { domain, change }));
    }

    /// Nobody has the vma any more: first nobody may touch it, then it is flushed, then its slots are freed.
    fn give_up<T>(&mut self, domain: u32, vma: Vma, plan: &mut Plan<T>) {
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
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const DOMAIN: u32 = 5;

    fn blade(number: u8) -> BladeId {
        BladeId::new(number).unwrap()
    }

    /// Two compute blades with a process of the domain each, and a memory blade of 64 pages.
    fn policy() -> Policy {
        let mut policy = Policy::new(64, 4);
        for (port, kind) in [
            (1, BladeKind::Compute),
            (2, BladeKind::Compute),
            (3, BladeKind::Memory),
        ] {
            let registration = Registration {
                kind,
                name: format!("port {port}"),
                address: Ipv4Addr::new(198, 18, 0, port as u8),
                mac: [2, 0, 0, 0, 0, port as u8],
                pages: 64,
            };
            policy.register(Port(port), registration).unwrap();
        }
        for number in 0..2 {
            let plan = policy.enter(blade(number), DOMAIN, 100).unwrap();
            assert_eq!(
                plan.steps,
                [Step::Grant {
                    domain: DOMAIN,
                    blade: blade(number)
                }]
            );
        }
        policy
    }

    fn position(steps: &[Step], test: impl Fn(&Step) -> bool) -> Option<usize> {
        steps.iter().position(test)
    }

    fn last_position(steps: &[Step], test: impl Fn(&Step) -> bool) -> Option<usize> {
        steps.iter().rposition(test)
    }

    #[test]
    fn memory_is_zeroed_and_known_to_the_directory_before_anybody_may_touch_it() {
        let mut policy = policy();
        let plan = policy
            .map(blade(0), DOMAIN, 5 * PAGE, Access::Write)
            .unwrap();
        assert_eq!(plan.result.length, 5 * PAGE);
        assert!(matches!(plan.steps[0], Step::Zero(extent) if extent.pages() == 8));
        let published = last_position(&plan.steps, |step| matches!(step, Step::Publish { .. }));
        let protected = position(&plan.steps, |step| matches!(step, Step::Protect { .. }));
        assert!(published.unwrap() < protected.unwrap());
        assert_eq!(policy.status().slots_used, 2);
    }

    #[test]
    fn nobody_may_touch_memory_before_it_is_flushed_and_it_is_free_only_after() {
        let mut policy = policy();
        let mapped = policy
            .map(blade(0), DOMAIN, 64 * PAGE, Access::Write)
            .unwrap()
            .result;
        let plan = policy
            .unmap(blade(1), DOMAIN, mapped.va, mapped.length)
            .unwrap();
        let protected = last_position(&plan.steps, |step| matches!(step, Step::Protect { .. }));
        let held = position(&plan.steps, |step| matches!(step, Step::Hold(_)));
        assert!(protected.unwrap() < held.unwrap());
        assert!(matches!(plan.steps.last(), Some(Step::Close(_))));
        let error = policy
            .map(blade(0), DOMAIN, PAGE, Access::Read)
            .unwrap_err();
        assert_eq!(error.errno, Errno::ENOMEM, "the steps are not done yet");
        policy.finish(plan.given_up);
        assert_eq!(policy.status().slots_used, 0);
        let again = policy
            .map(blade(0), DOMAIN, 64 * PAGE, Access::Read)
            .unwrap();
        assert_eq!(again.result, mapped);
    }

    #[test]
    fn errors_are_those_of_linux() {
        let mut policy = policy();
        let mapped = policy
            .map(blade(0), DOMAIN, 3 * PAGE, Access::Write)
            .unwrap()
            .result;
        let va = mapped.va;
        let inside = Va(va.0 + PAGE);
        let here = blade(0);
        let cases = [
            (
                policy.map(here, DOMAIN, 0, Access::Read).map(drop),
                Errno::EINVAL,
            ),
            (
                policy.map(here, DOMAIN, u64::MAX, Access::Read).map(drop),
                Errno::EFBIG,
            ),
            (
                policy.map(here, DOMAIN, 65 * PAGE, Access::Read).map(drop),
                Errno::ENOMEM,
            ),
            (
                policy.map(here, 6, PAGE, Access::Read).map(drop),
                Errno::ESRCH,
            ),
            (
                policy.unmap(here, DOMAIN, inside, PAGE).map(drop),
                Errno::EINVAL,
            ),
            (
                policy.unmap(here, DOMAIN, va, PAGE).map(drop),
                Errno::EINVAL,
            ),
            (
                policy.unmap(here, DOMAIN, va, u64::MAX).map(drop),
                Errno::EINVAL,
            ),
            (
                policy
                    .protect(here, DOMAIN, Va(va.0 + 1), PAGE, Access::Read)
                    .map(drop),
                Errno::EINVAL,
            ),
            (
                policy
                    .protect(here, DOMAIN, va, u64::MAX, Access::Read)
                    .map(drop),
                Errno::EINVAL,
            ),
            (
                policy
                    .protect(here, DOMAIN, va, 4 * PAGE, Access::Read)
                    .map(drop),
                Errno::ENOMEM,
            ),
            (
                policy.unlink_area(here, DOMAIN, "x").map(drop),
                Errno::ENOENT,
            ),
        ];
        for (number, (result, errno)) in cases.into_iter().enumerate() {
            assert_eq!(result.unwrap_err().errno, errno, "case {number}");
        }
        assert!(policy.unmap(here, DOMAIN, va, 3 * PAGE - 1).is_ok());
    }

    #[test]
    fn a_full_directory_gives_the_memory_back() {
        let mut policy = policy();
        policy.directory = Directory::new(1, 1);
        let error = policy
            .map(blade(0), DOMAIN, 8 * PAGE, Access::Read)
            .unwrap_err();
        assert_eq!(error.errno, Errno::ENOMEM);
        assert_eq!(policy.allocator.slice(0).unwrap().used(), 0);
    }

    #[test]
    fn part_of_a_vma_can_be_protected_and_nothing_changes_twice() {
        let mut policy = policy();
        let mapped = policy
            .map(blade(0), DOMAIN, 4 * PAGE, Access::Write)
            .unwrap()
            .result;
        let middle = Va(mapped.va.0 + PAGE);
        let plan = policy
            .protect(blade(1), DOMAIN, middle, PAGE, Access::None)
            .unwrap();
        assert!(
            plan.steps
                .iter()
                .all(|step| matches!(step, Step::Protect { .. }))
        );
        assert_eq!(
            plan.steps.len(),
            3,
            "two entries come, one goes: {:?}",
            plan.steps
        );
        let plan = policy
            .protect(blade(1), DOMAIN, middle, PAGE, Access::None)
            .unwrap();
        assert_eq!(plan.steps, []);
    }

    #[test]
    fn an_area_is_at_one_address_for_all_and_goes_with_its_name_and_its_last_user() {
        let mut policy = policy();
        let mut open = |number, length, open| {
            policy.open_area(blade(number), DOMAIN, "ranks", length, Access::Write, open)
        };
        assert_eq!(
            open(0, PAGE, Open::Existing).unwrap_err().errno,
            Errno::ENOENT
        );
        let made = open(0, 2 * PAGE, Open::New).unwrap();
        assert!(!made.steps.is_empty());
        assert_eq!(open(1, PAGE, Open::New).unwrap_err().errno, Errno::EEXIST);
        assert_eq!(
            open(1, 3 * PAGE, Open::OrCreate).unwrap_err().errno,
            Errno::EINVAL
        );
        let opened = open(1, 0, Open::OrCreate).unwrap();
        assert_eq!((opened.result, opened.steps), (made.result, vec![]));

        let Mapped { va, length } = made.result;
        let unmap = |policy: &mut Policy, number| {
            let plan = policy.unmap(blade(number), DOMAIN, va, length).unwrap();
            !plan.given_up.is_empty()
        };
        assert!(!unmap(&mut policy, 0));
        assert!(!unmap(&mut policy, 1), "it has its name");
        let plan = policy.unlink_area(blade(0), DOMAIN, "ranks").unwrap();
        assert_eq!(plan.given_up.len(), 1);
    }

    #[test]
    fn a_name_that_cannot_be_is_refused() {
        let mut policy = policy();
        let mut open = |name: &str| {
            let plan = policy.open_area(blade(0), DOMAIN, name, PAGE, Access::Read, Open::New);
            plan.map(drop).map_err(|failure| failure.errno)
        };
        assert_eq!(open(""), Err(Errno::EINVAL));
        assert_eq!(open(&"x".repeat(256)), Err(Errno::ENAMETOOLONG));
        assert_eq!(open(&"x".repeat(255)), Ok(()));
    }

    #[test]
    fn the_processes_of_a_lost_blade_are_gone_and_those_of_others_stay() {
        let mut policy = policy();
        policy.enter(blade(0), 6, 7).unwrap().steps.clear();
        let map = policy.map(blade(0), 6, PAGE, Access::Write).unwrap();
        assert_eq!(map.result.length, PAGE);
        let plan = policy.evict(blade(0));
        assert_eq!(plan.given_up.len(), 1, "domain 6 was on that blade only");
        let domains = policy.status().domains;
        assert_eq!(domains.len(), 1);
        assert_eq!((domains[0].domain, domains[0].processes), (DOMAIN, 1));
    }

    #[test]
    fn a_domain_gives_everything_up_with_its_last_process() {
        let mut policy = policy();
        let map = policy.map(blade(0), DOMAIN, PAGE, Access::Write).unwrap();
        let area = policy
            .open_area(blade(0), DOMAIN, "x", PAGE, Access::Read, Open::New)
            .unwrap();
        assert_ne!(map.result, area.result);
        let plan = policy.exit(blade(0), DOMAIN, 100).unwrap();
        assert_eq!(
            plan.steps,
            [Step::Revoke {
                domain: DOMAIN,
                blade: blade(0)
            }]
        );
        let plan = policy.exit(blade(1), DOMAIN, 100).unwrap();
        assert_eq!(plan.given_up.len(), 2);
        policy.finish(plan.given_up);
        let status = policy.status();
        assert_eq!((status.domains.len(), status.slots_used), (0, 0));
        assert!(policy.protection.is_empty());
        assert!(status.blades.iter().all(|blade| blade.allocated == 0));
    }
}
