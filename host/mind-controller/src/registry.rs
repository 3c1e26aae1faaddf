//! Who is there: blades and their lives, domains, processes, vmas, named areas. State and its changes; what they mean
//! for memory and maps is [`policy`](crate::policy)'s to say.
//!
//! A blade is the port of the switch that it is behind, whatever it says of itself: it keeps its number when it comes
//! back, with a new incarnation, so that packets of its earlier life are told from those of the new one.
//!
//! A domain lives as long as a process of it does. Its vmas and areas belong to the domain, not to the process that
//! made them, since all of its processes see one address space; they go with its last process at the latest.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use mind_api::errno::{Errno, Failure};
use mind_api::message::{BladeKind, OnLoss, Registration};
use mind_common::addr::Va;
use mind_common::id::{BladeId, MAX_BLADES};

use crate::alloc::Extent;
use crate::records::Key;

/// Longest name of an area, in bytes, as of a file.
pub const MAX_NAME: usize = 255;

/// A port of the switch: the index of its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Port(pub u32);

/// A blade that is here or has been.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blade {
    /// Its number among the blades of its kind.
    pub number: u8,
    /// What makes it the same blade when it comes back.
    pub port: Port,
    /// Its name, for people.
    pub name: String,
    /// The address of its interface.
    pub address: Ipv4Addr,
    /// The Ethernet address of its interface.
    pub mac: [u8; 6],
    /// Pages that it offers or caches at most.
    pub pages: u64,
    /// Which life of it this is.
    pub incarnation: u16,
    /// Whether its agent's connection is there.
    pub connected: bool,
}

/// A mapped range of a domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vma {
    /// Its memory, whole granules.
    pub extent: Extent,
    /// Bytes that are mapped, whole pages.
    pub length: u64,
    /// Which processes use it.
    pub users: Users,
    /// The area that it is, while that has a name.
    pub area: Option<String>,
    /// What was written into it and is gone.
    pub lost: Option<Lost>,
}

/// A process of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Member {
    /// The compute blade that it runs on.
    pub blade: u8,
    /// Its number there.
    pub pid: i32,
}

/// Which processes use a vma.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Users {
    /// The domain: a process mapped it, and any process may unmap it.
    Domain,
    /// Those that opened it, an area, and how often each has it open.
    Openers(Vec<(Member, u32)>),
}

impl Users {
    /// How many uses there are.
    pub fn count(&self) -> u32 {
        match self {
            Self::Domain => 1,
            Self::Openers(openers) => openers.iter().map(|(_, count)| count).sum(),
        }
    }

    /// A process opens the area once more.
    pub fn open(&mut self, member: Member) {
        let Self::Openers(openers) = self else {
            return;
        };
        match openers.iter_mut().find(|(other, _)| *other == member) {
            Some((_, count)) => *count += 1,
            None => openers.push((member, 1)),
        }
    }

    /// A process gives up one use; whether it had one.
    pub fn close(&mut self, member: Member) -> bool {
        let Self::Openers(openers) = self else {
            return true;
        };
        let Some((_, count)) = openers.iter_mut().find(|(other, _)| *other == member) else {
            return false;
        };
        *count -= 1;
        openers.retain(|(_, count)| *count > 0);
        true
    }

    /// A process has ended; whether it had the area open.
    pub fn forget(&mut self, member: Member) -> bool {
        let Self::Openers(openers) = self else {
            return false;
        };
        let before = openers.len();
        openers.retain(|(other, _)| *other != member);
        openers.len() < before
    }
}

/// Writes that were lost with a blade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// In how many regions; one that was hit again counts again.
    pub regions: u64,
    /// Where the last one begins.
    #[serde(with = "crate::records::address")]
    pub last: Va,
    /// The name of the blade that took it along.
    pub blade: String,
}

impl Vma {
    /// Its first address.
    pub fn va(&self) -> Va {
        self.extent.va()
    }

    /// The address after its last.
    pub fn end(&self) -> u64 {
        self.va().0 + self.length
    }
}

/// A protection domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Domain {
    /// Its name; empty if it has none.
    pub name: String,
    /// Its processes: blade and number on it.
    pub processes: BTreeSet<(u8, i32)>,
    /// Its vmas, by address; each is a record of its own.
    #[serde(skip)]
    pub vmas: BTreeMap<u64, Vma>,
    /// Addresses of its named areas.
    pub areas: BTreeMap<String, u64>,
    /// What its readers see when writes are lost.
    pub on_loss: OnLoss,
}

impl Domain {
    /// Whether a process of it runs on the blade.
    pub fn is_on(&self, blade: BladeId) -> bool {
        self.processes
            .iter()
            .any(|(other, _)| *other == blade.get())
    }

    /// Whether all of the range is mapped.
    pub fn covers(&self, start: u64, end: u64) -> bool {
        let mut next = start;
        for vma in self.vmas.values() {
            if vma.va().0 <= next && next < vma.end() {
                next = vma.end();
            }
        }
        next >= end
    }
}

/// What became of a process's coming or going.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The domain was, or still is, on that blade.
    Same,
    /// It is the domain's first or was its last process on that blade.
    Changed,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    compute: BTreeMap<u8, Blade>,
    memory: BTreeMap<u8, Blade>,
    domains: BTreeMap<u32, Domain>,
    last_domain: u32,
    /// What has changed since it was last taken down.
    touched: BTreeSet<Key>,
}

/// The highest number of a domain: as many as the switch has grants for.
pub const MAX_DOMAIN: u32 = u16::MAX as u32;

impl Registry {
    /// The blades of a kind, by number.
    pub fn blades(&self, kind: BladeKind) -> impl Iterator<Item = &Blade> {
        self.of(kind).values()
    }

    /// A blade.
    pub fn blade(&self, kind: BladeKind, number: u8) -> Option<&Blade> {
        self.of(kind).get(&number)
    }

    fn of(&self, kind: BladeKind) -> &BTreeMap<u8, Blade> {
        match kind {
            BladeKind::Compute => &self.compute,
            BladeKind::Memory => &self.memory,
        }
    }

    /// The domains, by number.
    pub fn domains(&self) -> &BTreeMap<u32, Domain> {
        &self.domains
    }

    /// A blade that is behind `port` registers.
    ///
    /// # Errors
    ///
    /// `EEXIST`: the port is a blade of the other kind; or a connected blade has the port with another address, or the
    /// address at another port. `ENOSPC`: all numbers are taken. `EINVAL`: it has no pages, or, coming back, other
    /// memory than it had.
    pub fn register(&mut self, port: Port, registration: Registration) -> Result<&Blade, Failure> {
        let Registration {
            kind,
            name,
            address,
            mac,
            pages,
        } = registration;
        let other = match kind {
            BladeKind::Compute => &self.memory,
            BladeKind::Memory => &self.compute,
        };
        if let Some(blade) = other.values().find(|blade| blade.port == port) {
            let message = format!("port {} is already that of {}", port.0, blade.name);
            return Err(Failure::new(Errno::EEXIST, message));
        }
        let contradicts =
            |blade: &&Blade| blade.connected && (blade.port == port) != (blade.address == address);
        let mut known = self.compute.values().chain(self.memory.values());
        if let Some(blade) = known.find(contradicts) {
            let message = format!(
                "{name} registers from {address} at port {}; {} is connected from {} at port {}",
                port.0, blade.name, blade.address, blade.port.0
            );
            return Err(Failure::new(Errno::EEXIST, message));
        }
        if pages == 0 {
            return Err(Failure::new(Errno::EINVAL, format!("{name} has no pages")));
        }
        let blades = match kind {
            BladeKind::Compute => &mut self.compute,
            BladeKind::Memory => &mut self.memory,
        };
        let known = blades.values().find(|blade| blade.port == port);
        if let Some(blade) = known
            && kind == BladeKind::Memory
            && blade.pages != pages
        {
            let message = format!(
                "{name} had {} pages and comes back with {pages}",
                blade.pages
            );
            return Err(Failure::new(Errno::EINVAL, message));
        }
        let (number, incarnation) = match known {
            Some(blade) => (blade.number, blade.incarnation.wrapping_add(1)),
            None => {
                let free = (0..MAX_BLADES as u8).find(|number| !blades.contains_key(number));
                let number = free.ok_or_else(|| {
                    let message = format!("there are {MAX_BLADES} blades of that kind already");
                    Failure::new(Errno::ENOSPC, message)
                })?;
                (number, 1)
            }
        };
        let blade = Blade {
            number,
            port,
            name,
            address,
            mac,
            pages,
            incarnation,
            connected: true,
        };
        blades.insert(number, blade);
        self.touched.insert(Key::Blade(kind, number));
        Ok(&blades[&number])
    }

    /// The connection of that life of a blade is gone. An older life's means nothing.
    pub fn disconnect(&mut self, kind: BladeKind, number: u8, incarnation: u16) {
        let blades = match kind {
            BladeKind::Compute => &mut self.compute,
            BladeKind::Memory => &mut self.memory,
        };
        if let Some(blade) = blades.get_mut(&number)
            && blade.incarnation == incarnation
        {
            blade.connected = false;
            self.touched.insert(Key::Blade(kind, number));
        }
    }

    /// A process of `domain` runs on the blade from now on.
    ///
    /// # Errors
    ///
    /// `ENODEV`: there is no such blade now. `EEXIST`: that process is known.
    pub fn enter(&mut self, blade: BladeId, domain: u32, pid: i32) -> Result<Presence, Failure> {
        if !self
            .compute
            .get(&blade.get())
            .is_some_and(|blade| blade.connected)
        {
            let message = format!("compute blade {blade} is not connected");
            return Err(Failure::new(Errno::ENODEV, message));
        }
        self.touched.insert(Key::Domain(domain));
        let entry = self.domains.entry(domain).or_default();
        let presence = if entry.is_on(blade) {
            Presence::Same
        } else {
            Presence::Changed
        };
        if !entry.processes.insert((blade.get(), pid)) {
            let message = format!("process {pid} of {blade} is in domain {domain} already");
            return Err(Failure::new(Errno::EEXIST, message));
        }
        Ok(presence)
    }

    /// It no longer does.
    ///
    /// # Errors
    ///
    /// `ESRCH`: that process is not known.
    pub fn exit(&mut self, blade: BladeId, domain: u32, pid: i32) -> Result<Presence, Failure> {
        let entry = self.domains.get_mut(&domain);
        let removed = entry.filter(|entry| entry.processes.contains(&(blade.get(), pid)));
        let Some(entry) = removed else {
            let message = format!("process {pid} of {blade} is not in domain {domain}");
            return Err(Failure::new(Errno::ESRCH, message));
        };
        entry.processes.remove(&(blade.get(), pid));
        self.touched.insert(Key::Domain(domain));
        Ok(if entry.is_on(blade) {
            Presence::Same
        } else {
            Presence::Changed
        })
    }

    /// The number of the domain of that name, which is made if there is none, with that choice. Numbers are given in
    /// turn, so that the last packets of a domain that has ended are not taken for those of a new one.
    ///
    /// # Errors
    ///
    /// `EINVAL`: no name, or the domain has chosen otherwise. `ENAMETOOLONG`. `ENOSPC`: all numbers are taken.
    pub fn domain_named(&mut self, name: &str, on_loss: Option<OnLoss>) -> Result<u32, Failure> {
        if name.is_empty() {
            return Err(Failure::new(Errno::EINVAL, "a domain's name is empty"));
        }
        if name.len() > MAX_NAME {
            let message = format!(
                "a domain's name has {} bytes; at most {MAX_NAME}",
                name.len()
            );
            return Err(Failure::new(Errno::ENAMETOOLONG, message));
        }
        let known = self.domains.iter().find(|(_, entry)| entry.name == name);
        if let Some((number, entry)) = known {
            if let Some(wanted) = on_loss
                && wanted != entry.on_loss
            {
                let message = format!(
                    "domain `{name}` has chosen {:?} for when writes are lost, not {wanted:?}",
                    entry.on_loss
                );
                return Err(Failure::new(Errno::EINVAL, message));
            }
            return Ok(*number);
        }
        let after = |number: u32| if number == MAX_DOMAIN { 1 } else { number + 1 };
        let mut number = after(self.last_domain);
        while self.domains.contains_key(&number) {
            if number == self.last_domain {
                let message = format!("there are {MAX_DOMAIN} domains already");
                return Err(Failure::new(Errno::ENOSPC, message));
            }
            number = after(number);
        }
        self.last_domain = number;
        let domain = Domain {
            name: name.to_owned(),
            on_loss: on_loss.unwrap_or_default(),
            ..Domain::default()
        };
        self.domains.insert(number, domain);
        self.touched.extend([Key::LastDomain, Key::Domain(number)]);
        Ok(number)
    }

    /// The domain, if a process of it runs on the blade.
    ///
    /// # Errors
    ///
    /// `ESRCH`: none does.
    pub fn domain_on(&mut self, blade: BladeId, domain: u32) -> Result<&mut Domain, Failure> {
        self.check_presence(blade, domain)?;
        self.domain_mut(domain).ok_or_else(|| nobody(blade, domain))
    }

    /// Whether a process of the domain runs on the blade.
    ///
    /// # Errors
    ///
    /// `ESRCH`: none does.
    pub fn check_presence(&self, blade: BladeId, domain: u32) -> Result<(), Failure> {
        let entry = self.domains.get(&domain);
        match entry.is_some_and(|entry| entry.is_on(blade)) {
            true => Ok(()),
            false => Err(nobody(blade, domain)),
        }
    }

    /// The domain and the vma that an address is in.
    pub fn vma_at(&self, va: Va) -> Option<(u32, &Vma)> {
        self.domains.iter().find_map(|(number, domain)| {
            let (_, vma) = domain.vmas.range(..=va.0).next_back()?;
            (va.0 < vma.end()).then_some((*number, vma))
        })
    }

    /// The domain, wherever it is.
    pub fn domain_mut(&mut self, domain: u32) -> Option<&mut Domain> {
        let entry = self.domains.get_mut(&domain)?;
        self.touched.insert(Key::Domain(domain));
        Some(entry)
    }

    /// A vma changes, comes or goes: it is to be taken down.
    pub fn touch(&mut self, key: Key) {
        self.touched.insert(key);
    }

    /// What has changed since this was last asked.
    pub fn take_touched(&mut self) -> BTreeSet<Key> {
        std::mem::take(&mut self.touched)
    }

    /// The number that the last new domain got.
    pub fn last_domain(&self) -> u32 {
        self.last_domain
    }

    /// Puts a blade back that was taken down.
    pub fn restore_blade(&mut self, kind: BladeKind, blade: Blade) {
        let blades = match kind {
            BladeKind::Compute => &mut self.compute,
            BladeKind::Memory => &mut self.memory,
        };
        blades.insert(blade.number, blade);
    }

    /// Puts a domain back that was taken down. Its vmas, put back before it or after it, stay.
    pub fn restore_domain(&mut self, number: u32, domain: Domain) {
        let vmas = self.domains.remove(&number).unwrap_or_default().vmas;
        self.domains.insert(number, Domain { vmas, ..domain });
    }

    /// Puts a vma back that was taken down.
    pub fn restore_vma(&mut self, domain: u32, vma: Vma) {
        let entry = self.domains.entry(domain).or_default();
        entry.vmas.insert(vma.va().0, vma);
    }

    /// Goes on counting domains from there.
    pub fn restore_last_domain(&mut self, number: u32) {
        self.last_domain = number;
    }

    /// Forgets a domain that has neither processes nor vmas.
    pub fn forget_if_empty(&mut self, domain: u32) {
        let empty = |entry: &Domain| entry.processes.is_empty() && entry.vmas.is_empty();
        if self.domains.get(&domain).is_some_and(empty) {
            self.domains.remove(&domain);
            self.touched.insert(Key::Domain(domain));
        }
    }
}

fn nobody(blade: BladeId, domain: u32) -> Failure {
    let message = format!("no process of domain {domain} runs on {blade}");
    Failure::new(Errno::ESRCH, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The registration of the blade behind that port.
    fn registration(port: u32, kind: BladeKind, pages: u64) -> (Port, Registration) {
        let registration = Registration {
            kind,
            name: "blade".into(),
            address: Ipv4Addr::new(198, 18, 1, port as u8),
            mac: [2, 0, 0, 0, 0, port as u8],
            pages,
        };
        (Port(port), registration)
    }

    fn register(
        registry: &mut Registry,
        (port, registration): (Port, Registration),
    ) -> Result<&Blade, Failure> {
        registry.register(port, registration)
    }

    fn blade(number: u8) -> BladeId {
        BladeId::new(number).unwrap()
    }

    #[test]
    fn a_blade_is_its_port_and_counts_its_lives() {
        let mut registry = Registry::default();
        let mut incarnation = |port| {
            let blade = register(&mut registry, registration(port, BladeKind::Compute, 16));
            let blade = blade.unwrap();
            (blade.number, blade.incarnation)
        };
        assert_eq!(incarnation(7), (0, 1));
        assert_eq!(incarnation(9), (1, 1));
        assert_eq!(incarnation(7), (0, 2));
    }

    #[test]
    fn a_port_is_of_one_kind() {
        let mut registry = Registry::default();
        register(&mut registry, registration(7, BladeKind::Compute, 16)).unwrap();
        let error = register(&mut registry, registration(7, BladeKind::Memory, 16)).unwrap_err();
        assert_eq!(error.errno, Errno::EEXIST);
    }

    #[test]
    fn port_and_address_of_a_connected_blade_belong_together() {
        let mut registry = Registry::default();
        let compute = |port| registration(port, BladeKind::Compute, 16);
        register(&mut registry, compute(7)).unwrap();
        let (_, mine) = compute(9);
        let claims_the_port = registry.register(Port(7), mine).unwrap_err();
        assert_eq!(claims_the_port.errno, Errno::EEXIST);
        let (_, others) = compute(7);
        let claims_the_address = registry.register(Port(9), others).unwrap_err();
        assert_eq!(claims_the_address.errno, Errno::EEXIST);
        registry.disconnect(BladeKind::Compute, 0, 1);
        let (_, moved) = compute(9);
        assert_eq!(registry.register(Port(7), moved).unwrap().incarnation, 2);
    }

    #[test]
    fn a_memory_blade_that_comes_back_with_other_memory_is_refused() {
        let mut registry = Registry::default();
        register(&mut registry, registration(7, BladeKind::Memory, 16)).unwrap();
        assert!(register(&mut registry, registration(7, BladeKind::Memory, 16)).is_ok());
        let error = register(&mut registry, registration(7, BladeKind::Memory, 8)).unwrap_err();
        assert_eq!(error.errno, Errno::EINVAL);
    }

    #[test]
    fn the_thirty_third_blade_is_refused() {
        let mut registry = Registry::default();
        for port in 0..32 {
            register(&mut registry, registration(port, BladeKind::Compute, 1)).unwrap();
        }
        let error = register(&mut registry, registration(32, BladeKind::Compute, 1)).unwrap_err();
        assert_eq!(error.errno, Errno::ENOSPC);
    }

    #[test]
    fn the_end_of_an_earlier_life_does_not_end_this_one() {
        let mut registry = Registry::default();
        register(&mut registry, registration(7, BladeKind::Compute, 1)).unwrap();
        register(&mut registry, registration(7, BladeKind::Compute, 1)).unwrap();
        registry.disconnect(BladeKind::Compute, 0, 1);
        assert!(registry.blade(BladeKind::Compute, 0).unwrap().connected);
        registry.disconnect(BladeKind::Compute, 0, 2);
        assert!(!registry.blade(BladeKind::Compute, 0).unwrap().connected);
    }

    #[test]
    fn a_domain_is_known_by_its_name_and_numbers_are_given_in_turn() {
        let mut registry = Registry::default();
        assert_eq!(registry.domain_named("a", None), Ok(1));
        assert_eq!(registry.domain_named("b", Some(OnLoss::Fail)), Ok(2));
        assert_eq!(registry.domain_named("a", Some(OnLoss::LastWritten)), Ok(1));
        registry.forget_if_empty(1);
        assert_eq!(registry.domain_named("c", None), Ok(3));
        assert_eq!(
            registry.domain_named("", None).unwrap_err().errno,
            Errno::EINVAL
        );
        let long = "x".repeat(MAX_NAME + 1);
        assert_eq!(
            registry.domain_named(&long, None).unwrap_err().errno,
            Errno::ENAMETOOLONG
        );
    }

    #[test]
    fn a_domain_is_on_a_blade_from_its_first_process_to_its_last() {
        let mut registry = Registry::default();
        assert_eq!(
            registry.enter(blade(0), 5, 1).unwrap_err().errno,
            Errno::ENODEV
        );
        register(&mut registry, registration(7, BladeKind::Compute, 1)).unwrap();
        assert_eq!(registry.enter(blade(0), 5, 1), Ok(Presence::Changed));
        assert_eq!(registry.enter(blade(0), 5, 2), Ok(Presence::Same));
        assert_eq!(
            registry.enter(blade(0), 5, 2).unwrap_err().errno,
            Errno::EEXIST
        );
        assert_eq!(registry.exit(blade(0), 5, 1), Ok(Presence::Same));
        assert!(registry.domain_on(blade(0), 5).is_ok());
        assert_eq!(registry.exit(blade(0), 5, 2), Ok(Presence::Changed));
        assert_eq!(
            registry.exit(blade(0), 5, 2).unwrap_err().errno,
            Errno::ESRCH
        );
        assert_eq!(
            registry.domain_on(blade(0), 5).unwrap_err().errno,
            Errno::ESRCH
        );
        registry.forget_if_empty(5);
        assert!(registry.domains().is_empty());
    }
}
