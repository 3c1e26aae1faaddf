//! Protection domains, their processes, vmas and named areas.
//!
//! A domain lives as long as a process of it does. Its vmas and areas belong to the domain, not to the process that made
//! them, since all of its processes see one address space; they go with its last process at the latest.

use std::collections::{BTreeMap, BTreeSet};

use mind_api::{
    errno::{Errno, Failure},
    message::OnLoss,
};
use mind_common::{
    addr::Va,
    id::{BladeId, BladeSet},
    permission::PermissionClass,
};
use serde::{Deserialize, Serialize};

use super::{
    memory::Piece,
    protection::{Protection, Range},
};

/// Longest name of a domain or an area, in bytes, as of a file.
pub const MAX_NAME: usize = 255;

/// The highest number of a domain: as many as the switch has entries for where domains are placed.
pub const MAX_DOMAIN: u32 = u16::MAX as u32;

/// A process of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Process {
    /// The compute blade that it runs on.
    pub blade: u8,
    /// Its number there.
    pub pid: i32,
}

/// Which processes use a vma.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Users {
    /// The domain: a process mapped it, and any process may unmap it.
    Domain,
    /// Those that opened it, an area, and how often each has it open.
    Openers(Vec<(Process, u32)>),
}

impl Users {
    /// How many uses there are.
    pub fn count(&self) -> u32 {
        match self {
            Self::Domain => 1,
            Self::Openers(openers) => openers.iter().map(|(_, count)| count).sum(),
        }
    }

    /// The processes that have it open, of an area.
    pub fn openers(&self) -> impl Iterator<Item = Process> {
        let openers = match self {
            Self::Domain => &[][..],
            Self::Openers(openers) => openers,
        };
        openers.iter().map(|(process, _)| *process)
    }

    /// A process opens the area once more.
    pub fn open(&mut self, process: Process) {
        let Self::Openers(openers) = self else {
            return;
        };
        match openers.iter_mut().find(|(other, _)| *other == process) {
            Some((_, count)) => *count += 1,
            None => openers.push((process, 1)),
        }
    }

    /// A process gives up one use; whether it had one.
    pub fn close(&mut self, process: Process) -> bool {
        let Self::Openers(openers) = self else {
            return true;
        };
        let Some((_, count)) = openers.iter_mut().find(|(other, _)| *other == process) else {
            return false;
        };
        *count -= 1;
        openers.retain(|(_, count)| *count > 0);
        true
    }

    /// A process has ended.
    pub fn forget(&mut self, process: Process) {
        if let Self::Openers(openers) = self {
            openers.retain(|(other, _)| *other != process);
        }
    }
}

/// Writes that are lost, or memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lost {
    /// In how many regions; one that was hit again counts again.
    pub regions: u64,
    /// The first address of the last of them.
    pub last: u64,
    /// The name of the blade with which they were lost.
    pub blade: String,
}

/// A mapped range of a domain.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Vma {
    /// The domain.
    pub domain: u32,
    /// Its addresses and their memory, whole granules, by address. There is at least one, and each begins where the one
    /// before it ends.
    pub pieces: Vec<Piece>,
    /// Bytes that are mapped, whole pages.
    pub length: u64,
    /// Which processes use it.
    pub users: Users,
    /// The area that it is, while that has a name.
    pub area: Option<String>,
    /// What was written into it and is lost.
    pub lost: Option<Lost>,
    /// Whether it is being unmapped: no domain may do anything with it any more.
    pub is_closing: bool,
}

impl Vma {
    /// Its first address.
    pub fn va(&self) -> Va {
        Va(self.pieces.first().map_or(0, |piece| piece.va))
    }

    /// The address after its last.
    pub fn end(&self) -> u64 {
        self.va().0 + self.length
    }

    /// The address after its memory's last, which may be behind its last page: regions end there.
    pub fn memory_end(&self) -> Va {
        Va(self.pieces.last().map_or(0, |piece| piece.end()))
    }

    /// The piece that has an address of it.
    pub fn piece_at(&self, va: Va) -> Option<Piece> {
        let after = self.pieces.partition_point(|piece| piece.va <= va.0);
        let piece = self.pieces.get(after.checked_sub(1)?)?;
        piece.contains(va).then_some(*piece)
    }

    /// The ranges of it that a memory blade keeps, first address and the address after the last, by address.
    pub fn kept_by(&self, memory: u8) -> impl Iterator<Item = (u64, u64)> {
        let end = self.end();
        let its = self.pieces.iter();
        let its = its.filter(move |piece| piece.extent.blade == memory);
        let ranges = its.map(move |piece| (piece.va, piece.end().min(end)));
        ranges.filter(|(from, to)| from < to)
    }

    /// Numbers of the memory blades that keep it.
    pub fn memories(&self) -> BTreeSet<u8> {
        let blades = self.pieces.iter().map(|piece| piece.extent.blade);
        blades.collect()
    }
}

/// A protection domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Domain {
    /// Its name.
    pub name: String,
    /// Its processes.
    pub processes: BTreeSet<Process>,
    /// What its readers see when writes are lost.
    pub on_loss: OnLoss,
    /// First addresses of its vmas; each is a record of its own.
    #[serde(skip)]
    pub vmas: BTreeSet<u64>,
    /// First addresses of its named areas.
    #[serde(skip)]
    pub areas: BTreeMap<String, u64>,
    /// Which processes have an area open, and its first address.
    #[serde(skip)]
    pub opened: BTreeSet<(Process, u64)>,
    /// What it may do with its vmas.
    #[serde(skip)]
    pub protection: Protection,
    /// Its vmas that are not closing.
    #[serde(skip)]
    pub open: Open,
}

/// The vmas of a domain that are not closing, in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Open {
    /// How many there are.
    pub vmas: u32,
    /// Their bytes.
    pub bytes: u64,
}

impl Open {
    fn add(&mut self, vma: &Vma) {
        if !vma.is_closing {
            self.vmas += 1;
            self.bytes += vma.length;
        }
    }

    fn take(&mut self, vma: &Vma) {
        if !vma.is_closing {
            self.vmas -= 1;
            self.bytes -= vma.length;
        }
    }
}

impl Domain {
    /// The blades on which processes of it run: where it is placed.
    pub fn blades(&self) -> BladeSet {
        let blades = self.processes.iter().map(|process| process.blade.into());
        blades.map(BladeId::from_low_bits).collect()
    }

    /// What is recorded of it: not what follows from the records of its vmas, of which there may be many.
    pub fn recorded(&self) -> Self {
        Self {
            name: self.name.clone(),
            processes: self.processes.clone(),
            on_loss: self.on_loss,
            ..Self::default()
        }
    }

    /// Whether a process of it runs on the blade.
    pub fn is_on(&self, blade: BladeId) -> bool {
        let first = Process {
            blade: blade.get(),
            pid: i32::MIN,
        };
        let next = self.processes.range(first..).next();
        next.is_some_and(|process| process.blade == blade.get())
    }
}

/// All domains and vmas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Domains {
    domains: BTreeMap<u32, Domain>,
    names: BTreeMap<String, u32>,
    vmas: BTreeMap<u64, Vma>,
    /// Memory blades and the first addresses of vmas that they keep, or part of which they do.
    kept: BTreeSet<(u8, u64)>,
    /// The number that the last new domain got.
    last: u32,
}

impl Domains {
    /// Domains of number `from` and above, by number.
    pub fn from(&self, from: u32) -> impl Iterator<Item = (u32, &Domain)> {
        let domains = self.domains.range(from..);
        domains.map(|(number, domain)| (*number, domain))
    }

    /// All domains, by number.
    pub fn all(&self) -> impl Iterator<Item = (u32, &Domain)> {
        self.domains
            .iter()
            .map(|(number, domain)| (*number, domain))
    }

    /// A domain.
    pub fn get(&self, number: u32) -> Option<&Domain> {
        self.domains.get(&number)
    }

    /// A domain, to be changed in everything but its name and vmas.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut Domain> {
        self.domains.get_mut(&number)
    }

    /// The number that the last new domain got.
    pub fn last(&self) -> u32 {
        self.last
    }

    /// All vmas at `from` and above, by address.
    pub fn vmas_from(&self, from: Va) -> impl Iterator<Item = &Vma> {
        self.vmas.range(from.0..).map(|(_, vma)| vma)
    }

    /// The vma that begins at `va`.
    pub fn vma(&self, va: Va) -> Option<&Vma> {
        self.vmas.get(&va.0)
    }

    /// The vma that begins at `va`, to be changed in everything but its domain, place, name, users, and whether it is
    /// closing.
    pub fn vma_mut(&mut self, va: Va) -> Option<&mut Vma> {
        self.vmas.get_mut(&va.0)
    }

    /// A process opens an area once more.
    pub fn add_user(&mut self, va: Va, process: Process) {
        if let Some(vma) = self.vmas.get_mut(&va.0) {
            vma.users.open(process);
        }
        self.note_user(va, process);
    }

    /// A process gives up one use of a vma; whether it had one.
    pub fn remove_user(&mut self, va: Va, process: Process) -> bool {
        let vma = self.vmas.get_mut(&va.0);
        let had_one = vma.is_some_and(|vma| vma.users.close(process));
        self.note_user(va, process);
        had_one
    }

    /// A process does not use a vma any more.
    pub fn forget_user(&mut self, va: Va, process: Process) {
        if let Some(vma) = self.vmas.get_mut(&va.0) {
            vma.users.forget(process);
        }
        self.note_user(va, process);
    }

    /// Whether a process has an area open is found by the process from now on.
    fn note_user(&mut self, va: Va, process: Process) {
        let Some(vma) = self.vmas.get(&va.0) else {
            return;
        };
        if let Some(domain) = self.domains.get_mut(&vma.domain) {
            match vma.users.openers().any(|opener| opener == process) {
                true => domain.opened.insert((process, va.0)),
                false => domain.opened.remove(&(process, va.0)),
            };
        }
    }

    /// The first vmas of a domain from an address on that a process has open, or all, by address.
    pub fn used(&self, domain: u32, by: Option<Process>, from: Va, most: usize) -> Vec<Va> {
        let Some(domain) = self.domains.get(&domain) else {
            return Vec::new();
        };
        match by {
            None => domain
                .vmas
                .range(from.0..)
                .take(most)
                .copied()
                .map(Va)
                .collect(),
            Some(process) => {
                let its = domain.opened.range((process, from.0)..=(process, u64::MAX));
                its.take(most).map(|(_, va)| Va(*va)).collect()
            }
        }
    }

    /// Processes that run on the blade with their domains, from that number of a process in a domain on.
    pub fn processes_on(
        &self,
        blade: BladeId,
        (first, pid): (u32, i32),
    ) -> impl Iterator<Item = (u32, Process)> {
        let process = move |pid| Process {
            blade: blade.get(),
            pid,
        };
        let domains = self.domains.range(first..);
        domains.flat_map(move |(number, domain)| {
            let from = if *number == first { pid } else { i32::MIN };
            let its = domain.processes.range(process(from)..=process(i32::MAX));
            its.map(move |process| (*number, *process))
        })
    }

    /// Domains without processes that have vmas which are not closing, and processes that have areas open of domains in
    /// which they are not.
    pub fn left_behind(&self) -> Vec<(u32, Option<Process>)> {
        let mut left = Vec::new();
        for (number, domain) in &self.domains {
            if domain.processes.is_empty() {
                let mut vmas = domain.vmas.iter().filter_map(|va| self.vmas.get(va));
                left.extend(vmas.any(|vma| !vma.is_closing).then_some((*number, None)));
                continue;
            }
            let openers: BTreeSet<_> = domain.opened.iter().map(|(process, _)| *process).collect();
            let gone = openers.difference(&domain.processes);
            left.extend(gone.map(|process| (*number, Some(*process))));
        }
        left
    }

    /// The vma that begins at `va` is closing from now on.
    pub fn close_vma(&mut self, va: Va) -> Option<&Vma> {
        let vma = self.vmas.get_mut(&va.0)?;
        if let Some(domain) = self.domains.get_mut(&vma.domain) {
            domain.open.take(vma);
        }
        vma.is_closing = true;
        Some(vma)
    }

    /// The vma that an address is in.
    pub fn vma_at(&self, va: Va) -> Option<&Vma> {
        let (_, vma) = self.vmas.range(..=va.0).next_back()?;
        (va.0 < vma.end()).then_some(vma)
    }

    /// The vma in whose memory an address is: also behind the vma's last page, where its last region may lie in part.
    pub fn vma_with(&self, va: Va) -> Option<&Vma> {
        let (_, vma) = self.vmas.range(..=va.0).next_back()?;
        (va < vma.memory_end()).then_some(vma)
    }

    /// What the domain may do with a vma of it, from its first address to its last.
    pub fn rights(&self, vma: &Vma) -> Vec<Range> {
        let domain = self.domains.get(&vma.domain);
        domain.map_or_else(Vec::new, |domain| {
            domain.protection.over(vma.va().0, vma.end())
        })
    }

    /// The ranges of a vma that are lost, first address and the address after the last, by address.
    pub fn lost_ranges(&self, vma: &Vma) -> impl Iterator<Item = (u64, u64)> {
        let rights = self.rights(vma).into_iter();
        let lost = rights.filter(|(_, _, class)| *class == PermissionClass::Lost);
        lost.map(|(from, to, _)| (from, to))
    }

    /// Whether something of a range of a domain is lost.
    pub fn is_lost(&self, domain: u32, from: u64, to: u64) -> bool {
        let mut classes = self.classes(domain, from, to);
        classes.any(|class| class == PermissionClass::Lost)
    }

    /// Whether all of a range of a domain is lost.
    pub fn is_all_lost(&self, domain: u32, from: u64, to: u64) -> bool {
        let mut classes = self.classes(domain, from, to);
        classes.all(|class| class == PermissionClass::Lost)
    }

    /// What a domain may do with a range of it.
    fn classes(&self, domain: u32, from: u64, to: u64) -> impl Iterator<Item = PermissionClass> {
        let domain = self.domains.get(&domain);
        let rights = domain.map_or_else(Vec::new, |domain| domain.protection.over(from, to));
        rights.into_iter().map(|(_, _, class)| class)
    }

    /// Whether all of the range is mapped in the domain.
    pub fn covers(&self, domain: u32, start: u64, end: u64) -> bool {
        let mut next = start;
        while next < end {
            match self.vma_at(Va(next)) {
                Some(vma) if vma.domain == domain && !vma.is_closing => next = vma.end(),
                _ => return false,
            }
        }
        true
    }

    /// The number of the domain called `name`, and whether it is new. Numbers are given in turn, so that the last
    /// packets of a domain that has ended are not taken for those of a new one.
    ///
    /// # Errors
    ///
    /// `EINVAL`: no name, or the domain has chosen otherwise. `ENAMETOOLONG`. `ENOSPC`: all numbers are taken.
    pub fn named(&mut self, name: &str, on_loss: Option<OnLoss>) -> Result<(u32, bool), Failure> {
        check_name("a domain", name)?;
        if let Some(number) = self.names.get(name) {
            let chosen = self
                .domains
                .get(number)
                .map_or_else(OnLoss::default, |domain| domain.on_loss);
            if let Some(wanted) = on_loss
                && wanted != chosen
            {
                let message = format!(
                    "domain `{name}` has chosen {chosen:?} for when writes are lost, not {wanted:?}"
                );
                return Err(Failure::new(Errno::EINVAL, message));
            }
            return Ok((*number, false));
        }
        let after = |number: u32| if number == MAX_DOMAIN { 1 } else { number + 1 };
        let mut number = after(self.last);
        while self.domains.contains_key(&number) {
            if number == self.last {
                let message = format!("there are {MAX_DOMAIN} domains already");
                return Err(Failure::new(Errno::ENOSPC, message));
            }
            number = after(number);
        }
        self.last = number;
        let domain = Domain {
            name: name.to_owned(),
            on_loss: on_loss.unwrap_or_default(),
            ..Domain::default()
        };
        self.names.insert(name.to_owned(), number);
        self.domains.insert(number, domain);
        Ok((number, true))
    }

    /// Whether a process of the domain runs on the blade.
    ///
    /// # Errors
    ///
    /// `ESRCH`: none does.
    pub fn check_presence(&self, blade: BladeId, number: u32) -> Result<&Domain, Failure> {
        let domain = self
            .domains
            .get(&number)
            .filter(|domain| domain.is_on(blade));
        domain.ok_or_else(|| {
            let message = format!("no process of domain {number} runs on {blade}");
            Failure::new(Errno::ESRCH, message)
        })
    }

    /// Puts a domain back that was recorded, or a new one. Its vmas, put back before it or after it, stay.
    pub fn put(&mut self, number: u32, domain: Domain) {
        if !domain.processes.is_empty() {
            self.names.insert(domain.name.clone(), number);
        }
        let known = self.domains.remove(&number).unwrap_or_default();
        let domain = Domain {
            vmas: known.vmas,
            areas: known.areas,
            opened: known.opened,
            protection: known.protection,
            open: known.open,
            ..domain
        };
        self.domains.insert(number, domain);
    }

    /// The domain has ended: another one may have its name.
    pub fn retire(&mut self, number: u32) {
        if let Some(domain) = self.domains.get(&number)
            && self.names.get(&domain.name) == Some(&number)
        {
            self.names.remove(&domain.name);
        }
    }

    /// Goes on counting domains from there.
    pub fn set_last(&mut self, number: u32) {
        self.last = number;
    }

    /// Forgets what was lost of vmas, for a model checker: only operators are told.
    #[cfg(feature = "model")]
    pub fn forget_losses(&mut self) {
        self.vmas.values_mut().for_each(|vma| vma.lost = None);
    }

    /// Adds a vma.
    pub fn put_vma(&mut self, vma: Vma) {
        self.take_vma(vma.va());
        let domain = self.domains.entry(vma.domain).or_default();
        domain.vmas.insert(vma.va().0);
        domain.open.add(&vma);
        if let Some(name) = &vma.area {
            domain.areas.insert(name.clone(), vma.va().0);
        }
        let openers = vma.users.openers();
        domain
            .opened
            .extend(openers.map(|process| (process, vma.va().0)));
        let memories = vma.memories().into_iter();
        self.kept
            .extend(memories.map(|memory| (memory, vma.va().0)));
        self.vmas.insert(vma.va().0, vma);
    }

    /// The first addresses of vmas at `from` and above that a memory blade keeps, or part of which it does.
    pub fn kept_by(&self, memory: u8, from: Va) -> impl Iterator<Item = Va> {
        let its = self.kept.range((memory, from.0)..=(memory, u64::MAX));
        its.map(|(_, va)| Va(*va))
    }

    /// Takes a vma away.
    pub fn take_vma(&mut self, va: Va) -> Option<Vma> {
        let vma = self.vmas.remove(&va.0)?;
        for memory in vma.memories() {
            self.kept.remove(&(memory, va.0));
        }
        if let Some(domain) = self.domains.get_mut(&vma.domain) {
            domain.vmas.remove(&va.0);
            domain.open.take(&vma);
            if let Some(name) = &vma.area {
                domain.areas.remove(name);
            }
            for process in vma.users.openers() {
                domain.opened.remove(&(process, va.0));
            }
        }
        Some(vma)
    }

    /// Takes the name of an area away; where it is.
    pub fn take_name(&mut self, number: u32, name: &str) -> Option<Va> {
        let va = self.domains.get_mut(&number)?.areas.remove(name)?;
        if let Some(vma) = self.vmas.get_mut(&va) {
            vma.area = None;
        }
        Some(Va(va))
    }

    /// Forgets a domain that has neither processes nor vmas; whether it was one.
    pub fn forget_if_empty(&mut self, number: u32) -> bool {
        let is_empty = |domain: &Domain| domain.processes.is_empty() && domain.vmas.is_empty();
        if !self.domains.get(&number).is_some_and(is_empty) {
            return false;
        }
        self.retire(number);
        self.domains.remove(&number);
        true
    }
}

/// Refuses a name that cannot be one.
///
/// # Errors
///
/// `EINVAL`: it is empty. `ENAMETOOLONG`.
pub fn check_name(what: &str, name: &str) -> Result<(), Failure> {
    if name.is_empty() {
        return Err(Failure::new(
            Errno::EINVAL,
            format!("{what}'s name is empty"),
        ));
    }
    if name.len() > MAX_NAME {
        let message = format!("{what}'s name has {} bytes; at most {MAX_NAME}", name.len());
        return Err(Failure::new(Errno::ENAMETOOLONG, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use mind_common::addr::WINDOW_BASE;

    use super::{super::memory::Extent, *};

    fn blade(number: u8) -> BladeId {
        BladeId::from_low_bits(number.into())
    }

    #[test]
    fn a_domain_is_known_by_its_name_and_numbers_are_given_in_turn() {
        let mut domains = Domains::default();
        assert_eq!(domains.named("a", None), Ok((1, true)));
        assert_eq!(domains.named("b", Some(OnLoss::Fail)), Ok((2, true)));
        assert_eq!(
            domains.named("a", Some(OnLoss::LastWritten)),
            Ok((1, false))
        );
        assert_eq!(
            domains
                .named("b", Some(OnLoss::LastWritten))
                .unwrap_err()
                .errno,
            Errno::EINVAL
        );
        assert!(domains.forget_if_empty(1));
        assert_eq!(domains.named("c", None), Ok((3, true)));
        assert_eq!(domains.named("", None).unwrap_err().errno, Errno::EINVAL);
        let long = "x".repeat(MAX_NAME + 1);
        assert_eq!(
            domains.named(&long, None).unwrap_err().errno,
            Errno::ENAMETOOLONG
        );
    }

    #[test]
    fn a_domain_is_placed_where_its_processes_run() {
        let mut domain = Domain::default();
        let process = |blade, pid| Process { blade, pid };
        domain
            .processes
            .extend([process(0, 7), process(0, -1), process(2, 1)]);
        assert!(domain.is_on(blade(0)) && !domain.is_on(blade(1)) && domain.is_on(blade(2)));
        assert_eq!(domain.blades(), [blade(0), blade(2)].into_iter().collect());
        domain.processes.remove(&process(0, 7));
        assert!(domain.is_on(blade(0)));
        domain.processes.remove(&process(0, -1));
        assert!(!domain.is_on(blade(0)));
    }

    #[test]
    fn a_vma_is_found_by_each_of_its_addresses() {
        let mut domains = Domains::default();
        let vma = |offset, length| Vma {
            domain: 1,
            pieces: vec![Piece {
                va: WINDOW_BASE + offset,
                extent: Extent {
                    blade: 0,
                    offset,
                    length: 0x4000,
                },
            }],
            length,
            users: Users::Domain,
            area: None,
            lost: None,
            is_closing: false,
        };
        domains.put_vma(vma(0, 0x4000));
        domains.put_vma(vma(0x4000, 0x1000));
        let first = vma(0, 0).va().0;
        let found = |offset| {
            domains
                .vma_at(Va(first + offset))
                .map(|vma| vma.va().0 - WINDOW_BASE)
        };
        assert_eq!(
            [0, 0x3fff, 0x4000, 0x4fff].map(found),
            [Some(0), Some(0), Some(0x4000), Some(0x4000)]
        );
        assert_eq!(found(0x5000), None);
        assert!(domains.covers(1, first, first + 0x5000));
        assert!(!domains.covers(1, first, first + 0x5001) && !domains.covers(2, first, first + 1));
    }
}
