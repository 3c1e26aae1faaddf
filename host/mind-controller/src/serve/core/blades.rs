//! Blades come and go. One that is gone is not listened to any more; what it had is nobody's, what it
//! wrote and had not written back is mourned, and its processes leave their domains.

use std::collections::BTreeSet;

use mind_api::{Command, Errno, Failure, Reply, message::{BladeKind, Registration}};
use mind_connection::endpoint::Peer as Caller;
use mind_common::{
    addr::{Prefix, SLICE_SHIFT, Va, WINDOW_BASE, WINDOW_SIZE},
    directory::machine::{Loss, on_loss},
    id::{BladeId, BladeSet, Connection},
    table::{PEER_PRESENT, Peer, Port as PortEntry, PortKind, Translation},
};
use mind_controller::{
    directory::{Entry, Regions, Slot},
    registry::{Blade, Port},
};
use mind_dataplane::attach;
use mind_machines::controller::procedure::Change;

use super::{
    super::{
        agent::Agent,
        fdb,
        session::{Registered, Session},
    },
    Core, broken, index,
    regions::Patience,
};

/// A compute blade whose words are told, but not everybody else.
pub(super) struct Departed {
    /// Which life of which blade.
    life: Connection,
    /// Its name.
    name: String,
    /// Regions that it had written into.
    orphans: Vec<Entry>,
}

/// Which life of a compute blade it is.
pub(super) fn life_of(blade: &Blade) -> Connection {
    Connection {
        blade: BladeId::from_low_bits(blade.number.into()),
        incarnation: blade.incarnation,
    }
}

/// Where the switch's tables say that a blade is.
pub(super) fn peer_of(kind: BladeKind, blade: &Blade) -> Peer {
    Peer {
        ipv4: blade.address.octets(),
        mac: blade.mac,
        flags: PEER_PRESENT,
        ifindex: blade.port.0,
        connection: match kind {
            BladeKind::Compute => life_of(blade).to_qp(),
            BladeKind::Memory => 0,
        },
    }
}

/// What they say of its port, but for the flags.
fn port_of(kind: BladeKind, blade: &Blade) -> PortEntry {
    match kind {
        BladeKind::Compute => PortEntry::compute(life_of(blade)),
        BladeKind::Memory => PortEntry::memory(blade.number),
    }
}

/// The addresses that a memory blade keeps, and where.
pub(super) fn slice_of(number: u8) -> (Prefix, Translation) {
    let base = Va(WINDOW_BASE + (u64::from(number) << SLICE_SHIFT));
    let slice = Prefix {
        base,
        shift: SLICE_SHIFT,
    };
    (slice, Translation::new(number, base, 0))
}

impl Core {
    /// The blade that is, or was last, behind the interface `ifindex`.
    pub(super) fn blade_known_behind(&self, ifindex: u32) -> Option<(BladeKind, &Blade)> {
        let registry = self.policy.registry();
        [BladeKind::Compute, BladeKind::Memory]
            .into_iter()
            .flat_map(|kind| registry.blades(kind).map(move |blade| (kind, blade)))
            .find(|(_, blade)| blade.port == Port(ifindex))
    }

    /// The blade that is ready behind a port of the switch.
    pub(super) fn blade_behind(&self, interface: &str) -> Option<(BladeKind, &Blade)> {
        let ifindex = attach::index_of(interface).ok()?;
        self.blade_known_behind(ifindex)
            .filter(|(_, blade)| blade.connected)
    }

    /// What the switch's table of ports should say of a port with these flags.
    pub(super) fn port_entry(&self, interface: &str, flags: u32) -> PortEntry {
        let behind = self.blade_behind(interface);
        PortEntry {
            flags,
            ..behind.map_or_else(PortEntry::default, |(kind, blade)| port_of(kind, blade))
        }
    }

    pub(super) fn agent(&self, kind: BladeKind, number: u8) -> Result<Agent, Failure> {
        self.agents.get(&(kind, number)).cloned().ok_or_else(|| {
            let message = format!("{kind:?} blade {number} is not connected");
            Failure::new(Errno::EIO, message)
        })
    }

    pub(super) fn compute_blades(&self) -> BladeSet {
        self.agents
            .keys()
            .filter(|(kind, _)| *kind == BladeKind::Compute)
            .filter_map(|(_, number)| BladeId::new(*number))
            .collect()
    }

    pub(super) async fn register(
        &mut self,
        session: &Session,
        registration: Registration,
    ) -> Result<Reply, Failure> {
        let (kind, address) = (registration.kind, registration.address);
        if !matches!(session.peer, Caller::Network(from) if from.ip() == address) {
            let message = format!(
                "{} says it is {address}, and calls from {}",
                registration.name, session.peer
            );
            return Err(Failure::new(Errno::EINVAL, message));
        }
        let neighbour = fdb::neighbour_of(&self.bridge, address)
            .map_err(|error| Failure::new(Errno::ENODEV, format!("{error:#}")))?;
        if neighbour != registration.mac {
            let message = format!(
                "{} says its Ethernet address is {:02x?}, and {address} is at {neighbour:02x?}",
                registration.name, registration.mac
            );
            return Err(Failure::new(Errno::EINVAL, message));
        }
        let interface = fdb::port_of(&self.bridge, &self.ports, registration.mac)
            .map_err(|error| Failure::new(Errno::ENODEV, format!("{error:#}")))?
            .to_owned();
        let ifindex = attach::index_of(&interface).map_err(|error| broken(&error))?;
        let blade = self.policy.register(Port(ifindex), registration)?;
        let registered = Registered {
            kind,
            number: blade.number,
            incarnation: blade.incarnation,
        };
        // Nothing of an earlier life counts any more.
        let earlier = blade.incarnation.wrapping_sub(1);
        match kind {
            BladeKind::Compute if blade.incarnation > 1 => {
                self.depart(Connection {
                    incarnation: earlier,
                    ..life_of(&blade)
                });
                self.bury().await;
            }
            BladeKind::Memory if blade.incarnation > 1 => {
                self.lose_memory(blade.number, earlier).await;
            }
            BladeKind::Compute | BladeKind::Memory => {}
        }
        let flags = self
            .switch
            .port(ifindex)
            .map_err(|error| broken(&error))?
            .flags;
        let peer = peer_of(kind, &blade);
        match kind {
            BladeKind::Compute => self.switch.set_compute(life_of(&blade).blade, peer),
            BladeKind::Memory => {
                let (slice, translation) = slice_of(blade.number);
                self.switch
                    .set_memory(blade.number, peer)
                    .and_then(|()| self.switch.translate(slice, translation))
            }
        }
        .map_err(|error| broken(&error))?;
        let port = PortEntry {
            flags,
            ..port_of(kind, &blade)
        };
        self.pass();
        self.switch
            .set_port(ifindex, port)
            .map_err(|error| broken(&error))?;
        self.pass();
        self.agents
            .insert((kind, blade.number), session.agent.clone());
        *session.registered.lock().await = Some(registered);
        tracing::info!(name = blade.name, ?registered, interface, "a blade is here");
        Ok(Reply::Registered {
            number: blade.number,
            incarnation: blade.incarnation,
            switch: self.address,
            window_base: WINDOW_BASE,
            window_size: WINDOW_SIZE,
        })
    }

    /// A blade's connection is gone, and with it the blade.
    pub(in crate::serve) async fn lost(&mut self, registered: Registered) {
        let Registered {
            kind,
            number,
            incarnation,
        } = registered;
        // It may have come back, or been sent away, before its connection broke.
        let is_current = self
            .policy
            .registry()
            .blade(kind, number)
            .is_some_and(|blade| blade.incarnation == incarnation && blade.connected);
        if !is_current {
            return;
        }
        match kind {
            BladeKind::Compute => {
                self.depart(Connection {
                    blade: BladeId::from_low_bits(number.into()),
                    incarnation,
                });
                self.bury().await;
            }
            BladeKind::Memory => self.lose_memory(number, incarnation).await,
        }
        self.keep(None);
        self.note_complete();
    }

    /// A life of a compute blade is over, whether it knows or not: the switch does not listen to it, no word names it,
    /// its agent is told to end. Which slots it left to be mourned; [`bury`](Self::bury) does so.
    pub(super) fn depart(&mut self, life: Connection) -> BTreeSet<Slot> {
        let blade = life.blade;
        let key = (BladeKind::Compute, blade.get());
        if let Err(error) = self.silence(blade) {
            tracing::error!(%error, "a blade that is gone is still listened to");
        }
        if let Some(agent) = self.agents.remove(&key) {
            agent.dismiss();
        }
        let known = self.policy.registry().blade(key.0, key.1);
        let name = known.map_or_else(|| blade.to_string(), |blade| blade.name.clone());
        if known.is_some_and(|blade| blade.connected) {
            self.events.lost(key.0);
        }
        self.policy.disconnect(key.0, key.1, life.incarnation);
        let over = Registered {
            kind: key.0,
            number: key.1,
            incarnation: life.incarnation,
        };
        if let Err(error) = self.store.forget_answers(over) {
            tracing::warn!(%error, "answers that nobody waits for are kept");
        }
        // From here on its words forget it: it may not come back to another controller as if nothing had happened.
        self.keep(None);

        let entries = self
            .policy
            .directory()
            .entries(Va(WINDOW_BASE), WINDOW_SIZE);
        let is_orphan = |entry: &Entry| {
            let directory = self.switch.directory();
            let Ok(slot) = directory.slot(index(entry)) else {
                return false;
            };
            loop {
                let word = slot.word();
                let Some(step) = on_loss(word, blade) else {
                    return false;
                };
                if slot.swap_word(word, step.next).is_ok() {
                    self.pass();
                    return step.verdict == Loss::Writes;
                }
            }
        };
        let orphans: Vec<_> = entries.into_iter().filter(is_orphan).collect();
        let slots = orphans.iter().map(|entry| entry.slot).collect();
        self.departed.push(Departed {
            life,
            name,
            orphans,
        });
        slots
    }

    /// The rest of what the departure of blades entails. May find more that are gone.
    pub(super) async fn bury(&mut self) {
        while let Some(gone) = self.departed.pop() {
            let Departed {
                life,
                name,
                orphans,
            } = gone;
            self.fence_life(life).await;
            let mourning = Regions::of_words(Change::MarkLost, orphans);
            let patience = Patience::Full;
            if let Err(failure) = self.change(&mourning, patience, Some(&name)).await {
                tracing::error!(%failure, "regions of a blade that is gone stay out of reach");
            }
            let plan = self.policy.evict(life.blade);
            if let Err(failure) = self.carry_out(plan).await {
                tracing::error!(%failure, "what a blade left behind is not all gone");
            }
        }
    }

    /// Has memory refuse what lives that are gone, and not buried yet, may still have on their way to be operated.
    pub(super) async fn fence_departed(&self) {
        for gone in &self.departed {
            self.fence_life(gone.life).await;
        }
    }

    async fn fence_life(&self, life: Connection) {
        let qp = life.to_qp();
        let memories = self
            .agents
            .iter()
            .filter(|((kind, _), _)| *kind == BladeKind::Memory)
            .map(|(_, agent)| agent.clone());
        let fences =
            memories.map(|agent| async move { agent.order(Command::FenceBlade { qp }).await });
        for result in futures_util::future::join_all(fences).await {
            if let Err(failure) = result {
                tracing::error!(%failure, "a memory blade is not told of a blade that is gone");
            }
        }
    }

    fn silence(&mut self, blade: BladeId) -> mind_dataplane::Result<()> {
        for interface in &self.ports {
            let ifindex = attach::index_of(interface)?;
            let port = self.switch.port(ifindex)?;
            let is_its = port.kind() == PortKind::Compute && port.number == u32::from(blade.get());
            if is_its {
                // The flag stays: TC is still attached.
                let nobody = PortEntry {
                    flags: port.flags,
                    ..PortEntry::default()
                };
                self.switch.set_port(ifindex, nobody)?;
            }
        }
        self.switch.set_compute(blade, Peer::default())
    }
}
