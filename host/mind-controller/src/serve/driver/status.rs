//! What operators see that only the data plane knows: slots, ports, regions; and blades.

use std::ops::Range;

use mind_api::{
    Errno, Failure, Reply,
    message::BladeKind,
    operator::{BladeStatus, FanOut, PortStatus, RegionOrder, RegionStatus, Summary},
};
use mind_common::{
    addr::{PAGE_SIZE, Va, WINDOW_BASE, WINDOW_SIZE},
    directory::Prior,
    id::{BladeId, MAX_BLADES},
};
use mind_dataplane::SlotHandle;
use mind_machines::controller::{
    Entry, Session,
    books::blades::{Blade, Port},
};

use super::{Driver, part::Part, scan::Scan};

/// Regions that are looked at for one answer.
pub(super) const LOOKED_AT: usize = 1_024;

impl Driver {
    /// The system at a glance.
    pub(super) fn summary(&self) -> Summary {
        let slots = self.tables.slots().saturating_sub(1);
        let awaited = self.controller.awaited();
        Summary {
            slots_used: match self.controller.is_serving() {
                true => self.slots_used(),
                // Packets open none while slots are read.
                false => 0,
            },
            slots,
            splitting: self.splitting(),
            copied: self.copied.status(),
            awaited: awaited
                .map(|blade| self.name_of(blade.kind, blade.number))
                .collect(),
        }
    }

    /// Blades, compute before memory. The place of one is its number, after those of all compute blades for a memory
    /// blade.
    pub(super) fn list_blades(&self, from: u64, limit: u32) -> Reply {
        let mut part = Part::new(limit);
        for blade in self.controller.books().blades.all() {
            let first = match blade.incarnation.kind {
                BladeKind::Compute => 0,
                BladeKind::Memory => MAX_BLADES as u64,
            };
            let place = first + u64::from(blade.incarnation.number);
            if place < from {
                continue;
            }
            if part.is_full() {
                let (blades, next) = (part.entries(), Some(place));
                return Reply::Blades { blades, next };
            }
            part.push(self.blade_status(blade));
        }
        let (blades, next) = (part.entries(), None);
        Reply::Blades { blades, next }
    }

    /// The switch's ports. The place of one is its index.
    pub(super) fn list_ports(&self, from: u64, limit: u32) -> Reply {
        let mut part = Part::new(limit);
        for (place, (interface, ifindex)) in (0u64..).zip(self.bridge.ports()) {
            if place < from {
                continue;
            }
            if part.is_full() {
                let (ports, next) = (part.entries(), Some(place));
                return Reply::Ports { ports, next };
            }
            if let Some(status) = self.port_status(interface, *ifindex) {
                part.push(status);
            }
        }
        let (ports, next) = (part.entries(), None);
        Reply::Ports { ports, next }
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
            here: blade.is_here,
            pages: blade.pages,
            allocated: used / PAGE_SIZE as u64,
        }
    }

    fn port_status(&self, interface: &str, ifindex: u32) -> Option<PortStatus> {
        let switch = self.tables.switch();
        let packets = match switch.packet_counters(ifindex) {
            Ok(counters) => counters
                .iter()
                .map(|(verdict, count)| (verdict.name().to_owned(), count))
                .collect(),
            Err(error) => {
                tracing::warn!(interface, %error, "a port's counters cannot be read");
                return None;
            }
        };
        let behind = self.controller.books().blades.behind(Port(ifindex));
        let fan_out = match switch.port(ifindex) {
            Ok(port) if port.fans_out() => FanOut::Switch,
            Ok(port) if port.hands_over() => FanOut::Controller,
            _ => FanOut::None,
        };
        Some(PortStatus {
            interface: interface.to_owned(),
            ifindex,
            blade: behind.map(|blade| blade.name.clone()),
            fan_out,
            packets,
        })
    }

    /// Regions of a range, as many as may be looked at for one answer; and where to go on.
    pub(super) fn regions_of(&self, from: Va, to: Va, most: usize) -> (Vec<Entry>, Option<Va>) {
        self.tables.list(from, to, most.min(LOOKED_AT))
    }

    /// Regions of a range, in an order; by address at once, otherwise when all of the range was looked at, step by
    /// step.
    pub(super) fn list_regions(
        &mut self,
        (session, id): (Session, u64),
        range: Range<u64>,
        order: RegionOrder,
        limit: u32,
    ) {
        let Range { start, end } = range;
        if start >= end {
            let message = format!("there are no addresses between {start:#x} and {end:#x}");
            return self.answer(session, id, Err(Failure::new(Errno::EINVAL, message)));
        }
        // Whatever is asked for, the window is where regions are.
        let start = Va(start.max(WINDOW_BASE));
        let end = Va(end.min(WINDOW_BASE + WINDOW_SIZE));
        if order == RegionOrder::Address {
            let answer = self.regions_by_address(start, end, limit);
            return self.answer(session, id, answer);
        }
        let scan = Scan::new((session, id), (start, end), order, limit);
        if let Err(failure) = self.scans.begin(scan) {
            self.answer(session, id, Err(failure));
        }
    }

    fn regions_by_address(&self, from: Va, to: Va, limit: u32) -> Result<Reply, Failure> {
        let mut part = Part::new(limit);
        let (found, mut next) = self.regions_of(from, to, part.room());
        for entry in found {
            if part.is_full() {
                next = Some(entry.region.base());
                break;
            }
            part.push(self.region_status(entry)?);
        }
        let (regions, next) = (part.entries(), next.map(|va| va.0));
        Ok(Reply::Regions { regions, next })
    }

    fn slot(&self, entry: Entry) -> Result<SlotHandle<'_>, Failure> {
        let slot = self.tables.switch().directory().slot(entry.slot);
        slot.map_err(|error| Failure::new(Errno::EIO, error.to_string()))
    }

    /// Looks at some more regions for a list that waits for it; whether there are more such lists.
    pub(super) fn scan(&mut self) -> bool {
        let Some(mut scan) = self.scans.next() else {
            return false;
        };
        let (from, to) = scan.left();
        let (found, next) = self.regions_of(from, to, LOOKED_AT);
        let mut looked = Ok(());
        for entry in found {
            match self.slot(entry) {
                Ok(slot) => {
                    let count = match scan.order() {
                        RegionOrder::Accesses => slot.accesses(),
                        _ => slot.invalidations(),
                    };
                    scan.note(count, entry);
                }
                Err(failure) => looked = Err(failure),
            }
        }
        let ((session, id), answer) = match (looked, next) {
            (Err(failure), _) => (scan.asker(), Err(failure)),
            (Ok(()), Some(next)) => {
                scan.go_on(next);
                self.scans.put_back(scan);
                return true;
            }
            (Ok(()), None) => {
                let asker = scan.asker();
                (asker, self.first_of(scan))
            }
        };
        self.answer(session, id, answer);
        !self.scans.is_empty()
    }

    /// The answer to a list that has looked at all regions.
    fn first_of(&self, scan: Scan) -> Result<Reply, Failure> {
        let mut part = Part::new(u32::MAX);
        for entry in scan.first() {
            if part.is_full() {
                break;
            }
            part.push(self.region_status(entry)?);
        }
        let (regions, next) = (part.entries(), None);
        Ok(Reply::Regions { regions, next })
    }

    fn region_status(&self, entry: Entry) -> Result<RegionStatus, Failure> {
        let slot = self.slot(entry)?;
        let name = |blade: BladeId| self.name_of(BladeKind::Compute, blade.get());
        let word = slot.word();
        let state = word.state();
        Ok(RegionStatus {
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
        })
    }
}
