//! What operators see: the books, and what only the data plane knows.

use std::ops::Range;

use mind_api::{
    Errno, Failure, Reply,
    message::BladeKind,
    operator::{
        AccessRange, BladeStatus, DomainStatus, FanOut, LossStatus, PortStatus, RegionOrder,
        RegionStatus, Status, VmaStatus,
    },
};
use mind_common::{
    addr::{PAGE_SIZE, Va, WINDOW_BASE, WINDOW_SIZE},
    directory::Prior,
    id::BladeId,
    table::FreeKind,
};
use mind_dataplane::SlotHandle;
use mind_machines::controller::{
    Entry,
    books::{
        blades::{Blade, Port},
        domains::{Domain, Vma},
    },
};

use super::Driver;

/// Vmas in one answer; each takes about 300 bytes, and more where many ranges of it differ.
const MOST_VMAS: usize = 500;
/// Regions in one answer; each takes at most about 500 bytes.
const MOST_REGIONS: usize = 1_000;

impl Driver {
    /// The state of the system.
    pub(super) fn status(&self) -> Status {
        let books = self.controller.books();
        let slots = self.tables.slots().saturating_sub(1);
        let left = self.tables.switch().directory().left(FreeKind::Slots);
        let used = slots.saturating_sub(u32::try_from(left).unwrap_or(u32::MAX));
        let awaited = self.controller.awaited();
        Status {
            blades: books
                .blades
                .all()
                .map(|blade| self.blade_status(blade))
                .collect(),
            domains: books
                .domains
                .all()
                .filter(|(_, domain)| !domain.processes.is_empty())
                .map(|(number, domain)| self.domain_status(number, domain))
                .collect(),
            slots_used: match self.controller.is_serving() {
                true => used,
                // Packets open none while slots are read.
                false => 0,
            },
            slots,
            ports: self.port_statuses(),
            copied: self.copied.status(),
            awaited: awaited
                .map(|blade| self.name_of(blade.kind, blade.number))
                .collect(),
        }
    }

    fn blade_status(&self, blade: &Blade) -> BladeStatus {
        let incarnation = blade.incarnation;
        let used = match incarnation.kind {
            BladeKind::Memory => {
                let slice = self.controller.books().memory.slice(incarnation.number);
                slice.map_or(0, |slice| slice.used())
            }
            BladeKind::Compute => 0,
        };
        BladeStatus {
            kind: incarnation.kind,
            number: incarnation.number,
            name: blade.name.clone(),
            address: blade.address,
            port: self.bridge.port(blade.port.0).map(str::to_owned),
            incarnation: incarnation.incarnation,
            connected: self.is_connected(incarnation),
            pages: blade.pages,
            allocated: used / PAGE_SIZE as u64,
        }
    }

    fn domain_status(&self, number: u32, domain: &Domain) -> DomainStatus {
        let books = self.controller.books();
        let vmas = domain.vmas.iter();
        let vmas = vmas.filter_map(|va| books.domains.vma(Va(*va)));
        let vmas: Vec<_> = vmas.filter(|vma| !vma.is_closing).collect();
        DomainStatus {
            domain: number,
            name: domain.name.clone(),
            processes: domain.processes.len() as u32,
            vmas: vmas.len() as u32,
            bytes: vmas.iter().map(|vma| vma.length).sum(),
            on_loss: domain.on_loss,
            losses: vmas.into_iter().filter_map(loss_of).collect(),
        }
    }

    fn port_statuses(&self) -> Vec<PortStatus> {
        let mut statuses = Vec::new();
        for (interface, ifindex) in self.bridge.ports() {
            let switch = self.tables.switch();
            let packets = match switch.packet_counters(*ifindex) {
                Ok(counters) => counters
                    .iter()
                    .map(|(verdict, count)| (verdict.name().to_owned(), count))
                    .collect(),
                Err(error) => {
                    tracing::warn!(interface, %error, "a port's counters cannot be read");
                    continue;
                }
            };
            let behind = self.controller.books().blades.behind(Port(*ifindex));
            let fan_out = match switch.port(*ifindex) {
                Ok(port) if port.fans_out() => FanOut::Switch,
                Ok(port) if port.hands_over() => FanOut::Controller,
                _ => FanOut::None,
            };
            statuses.push(PortStatus {
                interface: interface.clone(),
                ifindex: *ifindex,
                blade: behind.map(|blade| blade.name.clone()),
                fan_out,
                packets,
            });
        }
        statuses
    }

    /// Vmas at `from` and above, by address.
    pub(super) fn list_vmas(&self, from: Va) -> Reply {
        let books = self.controller.books();
        let regions = self.tables.all_regions(from, Va(WINDOW_BASE + WINDOW_SIZE));
        let mut vmas = Vec::new();
        let open = books.domains.vmas_from(from).filter(|vma| !vma.is_closing);
        for vma in open {
            if vmas.len() >= MOST_VMAS {
                let next = Some(vma.va().0);
                return Reply::Vmas { vmas, next };
            }
            vmas.push(self.vma_status(vma, &regions));
        }
        Reply::Vmas { vmas, next: None }
    }

    /// `regions` are those of its memory, by address, and maybe others.
    fn vma_status(&self, vma: &Vma, regions: &[Entry]) -> VmaStatus {
        let books = self.controller.books();
        let domain = books.domains.get(vma.domain);
        let memory = books.blades.get(BladeKind::Memory, vma.extent.blade);
        let access = books.domains.rights(vma).into_iter();
        let access = access.map(|(start, end, access)| AccessRange {
            va: start,
            length: end - start,
            access,
        });
        VmaStatus {
            va: vma.va().0,
            length: vma.length,
            domain: vma.domain,
            domain_name: domain.map_or_else(String::new, |domain| domain.name.clone()),
            memory: memory.map_or_else(String::new, |blade| blade.name.clone()),
            area: vma.area.clone(),
            users: vma.users.count(),
            access: access.collect(),
            regions: regions_in(regions, vma),
            lost: vma.lost.as_ref().map_or(0, |lost| lost.regions),
        }
    }

    /// Regions of a range, in an order.
    pub(super) fn list_regions(
        &self,
        range: Range<u64>,
        order: RegionOrder,
        limit: u32,
    ) -> Result<Reply, Failure> {
        let Range { start, end } = range;
        if start >= end {
            let message = format!("there are no addresses between {start:#x} and {end:#x}");
            return Err(Failure::new(Errno::EINVAL, message));
        }
        // Whatever is asked for, the window is where regions are.
        let start = start.max(WINDOW_BASE);
        let end = end.min(WINDOW_BASE + WINDOW_SIZE);
        let limit = usize::try_from(limit).map_or(MOST_REGIONS, |limit| limit.min(MOST_REGIONS));
        let directory = self.tables.switch().directory();
        let slot = |entry: &Entry| {
            let slot = directory.slot(entry.slot);
            slot.map_err(|error| Failure::new(Errno::EIO, error.to_string()))
        };
        let mut next = None;
        let entries = match order {
            RegionOrder::Address => {
                let mut entries = self.tables.all_regions(Va(start), Va(end));
                next = entries.get(limit).map(|entry| entry.region.base().0);
                entries.truncate(limit);
                entries
            }
            RegionOrder::Invalidations | RegionOrder::Accesses => {
                let mut keyed = self
                    .tables
                    .all_regions(Va(start), Va(end))
                    .into_iter()
                    .map(|entry| {
                        let slot = slot(&entry)?;
                        let count = match order {
                            RegionOrder::Accesses => slot.accesses(),
                            _ => slot.invalidations(),
                        };
                        Ok((count, entry))
                    })
                    .collect::<Result<Vec<_>, Failure>>()?;
                // The sort is stable: those of one count stay in the order of addresses.
                keyed.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
                keyed.truncate(limit);
                keyed.into_iter().map(|(_, entry)| entry).collect()
            }
        };
        let regions = entries
            .iter()
            .map(|entry| Ok(self.region_status(*entry, slot(entry)?)))
            .collect::<Result<_, Failure>>()?;
        Ok(Reply::Regions { regions, next })
    }

    fn region_status(&self, entry: Entry, slot: SlotHandle<'_>) -> RegionStatus {
        let name = |blade: BladeId| self.name_of(BladeKind::Compute, blade.get());
        let word = slot.word();
        let state = word.state();
        RegionStatus {
            va: entry.region.base().0,
            length: entry.region.size(),
            slot: entry.slot,
            state: match word.prior() {
                Some(Prior::Lost) => "lost",
                _ => state.name(),
            }
            .to_owned(),
            blades: word.blades().iter().map(name).collect(),
            requester: state.is_busy().then(|| name(word.requester())),
            episode: word.episode().get(),
            // As they are declared, 32 bits.
            accesses: slot.accesses() as u32,
            invalidations: slot.invalidations() as u32,
            dropped: slot.dropped() as u32,
            flushed: slot.flushed() as u32,
        }
    }
}

/// How many of the regions, which are in the order of addresses, are a vma's.
fn regions_in(regions: &[Entry], vma: &Vma) -> u32 {
    let before = |at: u64| regions.partition_point(|entry| entry.region.base().0 < at);
    u32::try_from(before(vma.end()) - before(vma.va().0)).unwrap_or(u32::MAX)
}

fn loss_of(vma: &Vma) -> Option<LossStatus> {
    let lost = vma.lost.as_ref()?;
    Some(LossStatus {
        va: vma.va().0,
        length: vma.length,
        area: vma.area.clone(),
        regions: lost.regions,
        last: lost.last,
        blade: lost.blade.clone(),
    })
}
