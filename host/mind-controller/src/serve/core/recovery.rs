//! A controller that takes over from another: the books from records, the directory from the maps, and the agents,
//! which come back by themselves.
//!
//! The data plane goes on all the while. Until all agents are back, or have had time enough, nothing is changed and
//! requests wait; then the maps become what the books say, blades that did not come back are gone, and regions that
//! were held for a change are reset. See [`takeover`](mind_controller::takeover) for what was half done.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering,
    time::Duration,
};

use mind_api::{Errno, Failure, Reply, message::BladeKind};
use mind_connection::endpoint::Peer as Caller;
use mind_common::{
    addr::{BLOCK_SHIFT, PAGE_SHIFT, PAGES_PER_BLOCK, Va, WINDOW_BASE, WINDOW_SIZE},
    directory::{Prior, State, Word},
    id::{BladeId, BladeSet, DomainId, MAX_BLADES},
    table::Peer,
};
use mind_controller::{
    directory::{Entry, Regions, Slot, Table},
    registry::Blade,
    takeover::{Found, FoundSlot, Takeover},
};
use mind_dataplane::attach;
use mind_machines::controller::procedure::Change;

use super::{
    super::session::{Registered, Session},
    Core,
    blades::{life_of, peer_of, slice_of},
    broken, index,
    regions::Patience,
    steps::permission_of,
};

/// How long agents have to come back: they try at least once a second.
pub(in crate::serve) const GRACE: Duration = Duration::from_secs(10);

impl Core {
    /// Who has not come back yet.
    pub(super) fn awaited(&self) -> Vec<String> {
        let registry = self.policy.registry();
        let blade = |(kind, number): &(BladeKind, u8)| registry.blade(*kind, *number);
        let blades = self.awaited.iter().filter_map(blade);
        blades.map(|blade| blade.name.clone()).collect()
    }

    /// A blade's agent is back.
    pub(super) async fn resume(
        &mut self,
        session: &Session,
        life: Registered,
    ) -> Result<Reply, Failure> {
        let Registered {
            kind,
            number,
            incarnation,
        } = life;
        let is_its = |blade: &&Blade| {
            let from = matches!(session.peer, Caller::Network(from) if from.ip() == blade.address);
            from && blade.incarnation == incarnation && blade.connected
        };
        let blade = self.policy.registry().blade(kind, number).filter(is_its);
        let name = match blade {
            Some(blade) if self.awaited.contains(&(kind, number)) => blade.name.clone(),
            _ => {
                let message = format!(
                    "life {incarnation} of {kind:?} blade {number}, at {}, is not one of ours, or is over",
                    session.peer
                );
                return Err(Failure::new(Errno::ESRCH, message));
            }
        };
        self.awaited.remove(&(kind, number));
        self.agents.insert((kind, number), session.agent.clone());
        *session.registered.lock().await = Some(life);
        tracing::info!(name, ?life, "a blade is back");
        self.tell_of_awaited();
        Ok(Reply::Registered {
            number,
            incarnation,
            switch: self.address,
            window_base: WINDOW_BASE,
            window_size: WINDOW_SIZE,
        })
    }

    /// An agent that is not back registers anew: the life that it had is over.
    pub(in crate::serve) fn will_not_resume(
        &mut self,
        kind: BladeKind,
        address: std::net::Ipv4Addr,
    ) {
        let blades = self.policy.registry().blades(kind);
        let its = blades.filter(|blade| blade.address == address);
        let numbers: Vec<_> = its.map(|blade| blade.number).collect();
        for number in numbers {
            self.awaited.remove(&(kind, number));
        }
        self.tell_of_awaited();
    }

    fn tell_of_awaited(&self) {
        self.is_awaited.send_replace(!self.awaited.is_empty());
    }

    /// Brings maps, blades and books together. Those agents that have not come back are not waited for any longer.
    pub(in crate::serve) async fn recover(&mut self) {
        for name in self.awaited() {
            tracing::warn!(name, "a blade did not come back");
        }
        self.awaited.clear();
        if let Err(failure) = self.reconcile().await {
            tracing::error!(%failure, "maps and books do not agree; see `mind-ctl check`");
        }
        self.bury().await;
        self.keep(None);
        self.is_recovered.send_replace(true);
        self.note_complete();
        let status = self.policy.status();
        tracing::info!(
            blades = status.blades.iter().filter(|blade| blade.connected).count(),
            domains = status.domains.len(),
            slots = status.slots_used,
            "recovered"
        );
    }

    async fn reconcile(&mut self) -> Result<(), Failure> {
        let found = self.found().map_err(|error| broken(&error))?;
        let takeover = self.policy.take_over(&found);
        self.change_maps(&takeover)?;
        self.reconcile_tables().map_err(|error| broken(&error))?;

        let lives: Vec<_> = self.absent(BladeKind::Compute).map(life_of).collect();
        let memories: Vec<_> = self
            .absent(BladeKind::Memory)
            .map(|blade| (blade.number, blade.incarnation))
            .collect();
        // They are mourned as those of whoever had them.
        let mut orphans = BTreeSet::new();
        for life in lives {
            orphans.append(&mut self.depart(life));
        }
        for (number, incarnation) in memories {
            self.lose_memory(number, incarnation).await;
        }

        let held: Vec<_> = {
            let directory = self.switch.directory();
            let is_locked = |entry: &Entry| {
                let slot = directory.slot(index(entry));
                slot.is_ok_and(|slot| is_for_a_change(slot.word()))
                    && !orphans.contains(&entry.slot)
            };
            let entries = self.policy.directory().all().map(|(_, entry)| entry);
            entries.filter(is_locked).collect()
        };
        let reset = Regions::of_words(Change::Reset, held);
        self.change(&reset, Patience::Full, None).await.map(|_| ())
    }

    /// Blades whose agents did not come back.
    fn absent(&self, kind: BladeKind) -> impl Iterator<Item = &Blade> {
        let blades = self.policy.registry().blades(kind);
        blades.filter(move |blade| !self.agents.contains_key(&(kind, blade.number)))
    }

    /// What the maps say.
    fn found(&mut self) -> mind_dataplane::Result<Found> {
        let directory = self.switch.directory();
        let mut slots = Vec::new();
        for number in 1..u32::try_from(directory.slots()).unwrap_or(u32::MAX) {
            let slot = directory.slot(number)?;
            let word = slot.word();
            if word.state() == State::Free {
                continue;
            }
            match slot.region() {
                Some(region) => slots.push(FoundSlot {
                    entry: Entry {
                        slot: Slot(number - 1),
                        region,
                    },
                    is_locked: is_for_a_change(word),
                }),
                None => self.leave(Slot(number - 1))?,
            }
        }
        let blocks = self.switch.blocks()?.into_iter();
        Ok(Found {
            slots,
            blocks: blocks.map(|(block, table)| (block, Table(table))).collect(),
        })
    }

    /// The slot is nobody's.
    fn leave(&self, slot: Slot) -> mind_dataplane::Result<()> {
        let slot = self.switch.directory().slot(slot.0 + 1)?;
        loop {
            let word = slot.word();
            let free = word.settled(State::Free, BladeSet::EMPTY);
            if word.state() == State::Free || slot.swap_word(word, free).is_ok() {
                return Ok(());
            }
        }
    }

    fn change_maps(&mut self, takeover: &Takeover) -> Result<(), Failure> {
        let broken = |error: mind_dataplane::Error| broken(&error);
        for entry in &takeover.cover {
            let slot = self.switch.directory().slot(index(entry));
            slot.map_err(broken)?.set_region(entry.region);
        }
        for entry in &takeover.open {
            let nobody = BladeSet::EMPTY;
            self.open(entry, Word::default().settled(State::Invalid, nobody))?;
        }
        let mut pages: BTreeMap<u64, u32> = BTreeMap::new();
        for entry in &takeover.entries {
            for page in entry.region.pages() {
                pages.insert(page.0, index(entry));
            }
        }
        for (block, table) in &takeover.blocks {
            let first = block << BLOCK_SHIFT;
            for page in (0..PAGES_PER_BLOCK as u64).map(|page| Va(first + (page << PAGE_SHIFT))) {
                let expected = pages.get(&page.0).copied().unwrap_or(0);
                let found = self
                    .switch
                    .directory()
                    .entry(table.0, page)
                    .map_err(broken)?;
                if found.load(Ordering::Acquire) != expected {
                    found.store(expected, Ordering::Release);
                }
            }
        }
        for (block, table) in &takeover.publish {
            let first = Va(block << BLOCK_SHIFT);
            self.switch
                .set_block(first, Some(table.0))
                .map_err(broken)?;
        }
        for block in &takeover.withdraw {
            self.switch
                .set_block(Va(block << BLOCK_SHIFT), None)
                .map_err(broken)?;
        }
        for slot in &takeover.strays {
            self.leave(*slot).map_err(broken)?;
        }
        Ok(())
    }

    /// All tables but the directory become what the books say.
    fn reconcile_tables(&mut self) -> mind_dataplane::Result<()> {
        self.reconcile_ports()?;
        let memories = self.policy.registry().blades(BladeKind::Memory);
        let slices: BTreeMap<_, _> = memories.map(|blade| slice_of(blade.number)).collect();
        let found: BTreeMap<_, _> = self.switch.translations()?.into_iter().collect();
        for (prefix, translation) in &slices {
            if found.get(prefix) != Some(translation) {
                self.switch.translate(*prefix, *translation)?;
            }
        }
        for prefix in found.keys().filter(|prefix| !slices.contains_key(prefix)) {
            self.switch.untranslate(*prefix)?;
        }

        let domains = self.policy.registry().domains().iter();
        let placed = domains.map(|(number, domain)| {
            let on = domain.processes.iter();
            let blades = on.map(|(blade, _)| BladeId::from_low_bits((*blade).into()));
            (*number, blades.collect::<BladeSet>())
        });
        self.placed = placed.filter(|(_, blades)| !blades.is_empty()).collect();
        let found = self.switch.placements()?.into_iter();
        let found: BTreeMap<_, _> = found.map(|(domain, blades)| (domain.0, blades)).collect();
        let domains: BTreeSet<_> = found.keys().chain(self.placed.keys()).copied().collect();
        for domain in domains {
            let blades = self.placed.get(&domain).copied().unwrap_or_default();
            if found.get(&domain).copied().unwrap_or_default() != blades {
                self.switch.place(DomainId(domain), blades)?;
            }
        }

        let entries = self.policy.protection().flat_map(|(domain, entries)| {
            let of_domain = move |(prefix, class)| ((domain, prefix), permission_of(class));
            entries.into_iter().map(of_domain)
        });
        let wanted: BTreeMap<_, _> = entries.collect();
        let found = self.switch.protections()?.into_iter();
        let key = |(domain, prefix, permission): (DomainId, _, _)| ((domain.0, prefix), permission);
        let found: BTreeMap<_, _> = found.map(key).collect();
        // As in any change of them: first what is new, then what is not wanted any more.
        for ((domain, prefix), permission) in &wanted {
            if found.get(&(*domain, *prefix)) != Some(permission) {
                self.switch
                    .protect(DomainId(*domain), *prefix, *permission)?;
            }
        }
        for (domain, prefix) in found.keys().filter(|key| !wanted.contains_key(key)) {
            self.switch.unprotect(DomainId(*domain), *prefix)?;
        }
        Ok(())
    }

    /// Who is behind which port, and where.
    fn reconcile_ports(&mut self) -> mind_dataplane::Result<()> {
        for interface in self.ports.clone() {
            let Ok(ifindex) = attach::index_of(&interface) else {
                continue;
            };
            let found = self.switch.port(ifindex)?;
            let expected = self.port_entry(&interface, found.flags);
            if found != expected {
                self.switch.set_port(ifindex, expected)?;
            }
        }
        for number in 0..MAX_BLADES as u8 {
            for kind in [BladeKind::Compute, BladeKind::Memory] {
                let known = self.policy.registry().blade(kind, number);
                let peer = known
                    .filter(|blade| blade.connected)
                    .map_or_else(Peer::default, |blade| peer_of(kind, blade));
                let compute = BladeId::from_low_bits(number.into());
                match kind {
                    BladeKind::Compute if self.switch.compute(compute)? != peer => {
                        self.switch.set_compute(compute, peer)?;
                    }
                    BladeKind::Memory if self.switch.memory(number)? != peer => {
                        self.switch.set_memory(number, peer)?;
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// Whether a word is held for a change, and not because writes in it are lost.
fn is_for_a_change(word: Word) -> bool {
    word.state() == State::Locked && word.prior() != Some(Prior::Lost)
}
