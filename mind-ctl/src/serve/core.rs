//! Carries out what the policy decides: changes the data plane's tables, step by step, and tells blades what to do.
//!
//! One request at a time, so that the books and the tables agree between any two.

use std::{
    collections::{BTreeSet, HashMap},
    time::{Duration, Instant},
};

use anyhow::Result;
use mind_api::{
    Command, Errno, Failure, Reply, Request,
    message::{BladeKind, PortStatus, Registration, Status},
};
use mind_common::{
    addr::{PAGE_SIZE, Prefix, SLICE_SHIFT, Va, WINDOW_BASE, WINDOW_SIZE},
    directory::{
        Origin, State, Word,
        machine::{Loss, hold, on_loss, release, seize},
    },
    id::{BladeId, BladeSet, Connection, DomainId},
    serial::Seq,
    table::{
        MAY_READ, MAY_WRITE, PEER_PRESENT, Peer, Permission, Port as PortEntry, Slot, Translation,
    },
};
use mind_ctl::{
    directory::{Entry, Step},
    policy::{GivenUp, Plan, Policy},
    protect::{Change, Class},
    registry::Port,
};
use mind_dataplane::{Switch, attach};

use super::{
    Args,
    agent::Agent,
    fdb,
    session::{Registered, Session},
};

/// How long a region may stay busy before the controller takes it (paper, section 4.4).
const BUSY_LIMIT: Duration = Duration::from_secs(2);
/// How long to look away from a word that is busy.
const BUSY_PAUSE: Duration = Duration::from_micros(200);

/// The controller.
pub(super) struct Core {
    policy: Policy,
    switch: Switch,
    agents: HashMap<(BladeKind, u8), Agent>,
    placed: HashMap<u32, BladeSet>,
    bridge: String,
    ports: Vec<String>,
    address: std::net::Ipv4Addr,
}

fn broken(error: &dyn std::fmt::Display) -> Failure {
    Failure::new(Errno::EIO, error.to_string())
}

/// The policy counts slots from 0; in the table, 0 means that there is none.
fn index(entry: &Entry) -> u32 {
    entry.slot.0 + 1
}

impl Core {
    pub(super) fn new(switch: Switch, args: &Args, address: std::net::Ipv4Addr) -> Result<Self> {
        let directory = switch.directory();
        let slots = u32::try_from(directory.slots() - 1)?;
        let tables = u32::try_from(directory.tables())?;
        Ok(Self {
            policy: Policy::new(slots, tables),
            switch,
            agents: HashMap::new(),
            placed: HashMap::new(),
            bridge: args.bridge.clone(),
            ports: args.ports.clone(),
            address,
        })
    }

    /// Does what is asked on a session.
    pub(super) async fn request(
        &mut self,
        session: &Session,
        request: Request,
    ) -> Result<Reply, Failure> {
        if let Request::Status = request {
            return Ok(Reply::Status(self.status()));
        }
        if let Request::Register(registration) = request {
            return self.register(session, registration).await;
        }
        let caller = match *session.registered.lock().await {
            Some(Registered {
                kind: BladeKind::Compute,
                number,
                ..
            }) => BladeId::new(number),
            _ => None,
        };
        let Some(caller) = caller else {
            let message = "only the agent of a compute blade may ask for that";
            return Err(Failure::new(Errno::EACCES, message));
        };
        match request {
            Request::Status | Request::Register(_) => Err(broken(&"asked twice")),
            Request::EnterProcess { domain, pid } => {
                let plan = self.policy.enter_named(caller, &domain, pid)?;
                let domain = self.carry_out(plan).await?;
                Ok(Reply::Entered { domain })
            }
            Request::ExitProcess { domain, pid } => {
                let plan = self.policy.exit(caller, domain, pid)?;
                self.carry_out(plan).await?;
                Ok(Reply::Done)
            }
            Request::Map {
                domain,
                length,
                access,
            } => {
                let plan = self.policy.map(caller, domain, length, access)?;
                self.mapped(caller, domain, plan).await
            }
            Request::OpenArea {
                domain,
                name,
                length,
                access,
                open,
            } => {
                let plan = self
                    .policy
                    .open_area(caller, domain, &name, length, access, open)?;
                self.mapped(caller, domain, plan).await
            }
            Request::Unmap { domain, va, length } => {
                let plan = self.policy.unmap(caller, domain, Va(va), length)?;
                self.carry_out(plan).await?;
                Ok(Reply::Done)
            }
            Request::Protect {
                domain,
                va,
                length,
                access,
            } => {
                let plan = self
                    .policy
                    .protect(caller, domain, Va(va), length, access)?;
                self.carry_out(plan).await?;
                // Copies that blades have follow the new permission when they are fetched anew.
                let length = length.next_multiple_of(PAGE_SIZE as u64);
                let blades = self.placed.get(&domain).copied().unwrap_or_default();
                self.flush(blades, va, va.saturating_add(length)).await?;
                Ok(Reply::Done)
            }
            Request::UnlinkArea { domain, name } => {
                let plan = self.policy.unlink_area(caller, domain, &name)?;
                self.carry_out(plan).await?;
                Ok(Reply::Done)
            }
        }
    }

    async fn mapped(
        &mut self,
        caller: BladeId,
        domain: u32,
        plan: Plan<mind_ctl::policy::Mapped>,
    ) -> Result<Reply, Failure> {
        let range = plan.result;
        match self.carry_out(plan).await {
            Ok(mapped) => Ok(Reply::Mapped {
                va: mapped.va.0,
                length: mapped.length,
            }),
            Err(failure) => {
                // Half done is not done: back to what was.
                let undo = self.policy.unmap(caller, domain, range.va, range.length)?;
                self.carry_out(undo).await?;
                Err(failure)
            }
        }
    }

    async fn carry_out<T>(&mut self, plan: Plan<T>) -> Result<T, Failure> {
        let Plan {
            result,
            steps,
            given_up,
        } = plan;
        self.steps(&steps, given_up).await?;
        Ok(result)
    }

    async fn steps(&mut self, steps: &[Step], given_up: Vec<GivenUp>) -> Result<(), Failure> {
        let mut rest = steps;
        while let Some((step, after)) = rest.split_first() {
            if let Step::Flush(_) = step {
                // Those of a vma come in a row, and a blade flushes them at once.
                let count = rest
                    .iter()
                    .take_while(|step| matches!(step, Step::Flush(_)))
                    .count();
                let (flushes, after) = rest.split_at(count);
                self.flush_regions(flushes).await?;
                rest = after;
                continue;
            }
            self.step(step).await?;
            rest = after;
        }
        self.policy.finish(given_up);
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Result<(), Failure> {
        match step {
            Step::Zero(extent) => {
                let agent = self.agent(BladeKind::Memory, extent.blade)?;
                agent
                    .order(Command::ZeroPages {
                        first: extent.first_page(),
                        count: extent.pages(),
                    })
                    .await
            }
            Step::Open(entry) => self.open(entry),
            Step::Fill { table, entry } => self
                .switch
                .directory()
                .assign(table.0, entry.region, index(entry))
                .map_err(|error| broken(&error)),
            Step::Publish { block, table } => self
                .switch
                .set_block(first_of(*block), Some(table.0))
                .map_err(|error| broken(&error)),
            Step::Withdraw { block, .. } => self
                .switch
                .set_block(first_of(*block), None)
                .map_err(|error| broken(&error)),
            Step::Clear { table, entry } => self
                .switch
                .directory()
                .assign(table.0, entry.region, 0)
                .map_err(|error| broken(&error)),
            Step::Grant { domain, blade } => self.place(*domain, |blades| blades.with(*blade)),
            Step::Revoke { domain, blade } => self.place(*domain, |blades| blades.without(*blade)),
            Step::Protect { domain, change } => self.protect(*domain, change),
            Step::Hold(entry) => self.hold(entry).await,
            Step::Flush(_) => self.flush_regions(std::slice::from_ref(step)).await,
            Step::Close(entry) => self.close(entry),
        }
    }

    fn place(
        &mut self,
        domain: u32,
        change: impl FnOnce(BladeSet) -> BladeSet,
    ) -> Result<(), Failure> {
        let blades = change(self.placed.get(&domain).copied().unwrap_or_default());
        self.switch
            .place(DomainId(domain), blades)
            .map_err(|error| broken(&error))?;
        if blades.is_empty() {
            self.placed.remove(&domain);
        } else {
            self.placed.insert(domain, blades);
        }
        Ok(())
    }

    fn protect(&mut self, domain: u32, change: &Change) -> Result<(), Failure> {
        let domain = DomainId(domain);
        let result = match change {
            Change::Set(prefix, class) => {
                let bits = match class {
                    Class::Read => MAY_READ,
                    Class::Write => MAY_READ | MAY_WRITE,
                };
                self.switch.protect(domain, *prefix, Permission { bits })
            }
            Change::Remove(prefix) => self.switch.unprotect(domain, *prefix).map(|_| ()),
        };
        result.map_err(|error| match error {
            mind_dataplane::Error::Limit { .. } => Failure::new(Errno::ENOMEM, error.to_string()),
            error => broken(&error),
        })
    }

    // The directory.

    fn open(&mut self, entry: &Entry) -> Result<(), Failure> {
        let directory = self.switch.directory();
        let slot = directory
            .slot(index(entry))
            .map_err(|error| broken(&error))?;
        let episode = slot.word().episode().next();
        let word = Word::new(
            State::Invalid,
            BladeId::from_low_bits(0),
            episode,
            BladeSet::EMPTY,
        );
        let mut fresh = Slot::new(word, entry.region);
        // Of this episode, so that those to come replace it.
        fresh.origin = Origin::new(episode, Seq::default(), entry.region.base()).raw();
        slot.reset(fresh);
        Ok(())
    }

    async fn hold(&mut self, entry: &Entry) -> Result<(), Failure> {
        let began = Instant::now();
        let everybody = self.compute_blades();
        loop {
            {
                let directory = self.switch.directory();
                let slot = directory
                    .slot(index(entry))
                    .map_err(|error| broken(&error))?;
                let word = slot.word();
                match word.state() {
                    State::Held | State::Free => return Ok(()),
                    _ => {}
                }
                let taken = if began.elapsed() < BUSY_LIMIT {
                    hold(word)
                } else {
                    tracing::warn!(region = %entry.region, ?word, "a region that stays busy is reset");
                    seize(word, everybody)
                };
                if let Some(next) = taken
                    && slot.swap_word(word, next).is_ok()
                {
                    return Ok(());
                }
            }
            // It is busy: the answers of blades make it otherwise, of which nobody tells us.
            tokio::time::sleep(BUSY_PAUSE).await;
        }
    }

    /// Has every blade that holds part of these regions write it back and drop it.
    async fn flush_regions(&mut self, flushes: &[Step]) -> Result<(), Failure> {
        let mut blades = BladeSet::EMPTY;
        let (mut start, mut end) = (u64::MAX, 0);
        for step in flushes {
            let Step::Flush(entry) = step else { continue };
            let directory = self.switch.directory();
            let slot = directory
                .slot(index(entry))
                .map_err(|error| broken(&error))?;
            let word = slot.word();
            if word.state() == State::Held {
                blades = word.blades().iter().fold(blades, BladeSet::with);
                start = start.min(entry.region.base().0);
                end = end.max(entry.region.base().0 + entry.region.size());
            }
        }
        self.flush(blades, start, end).await
    }

    /// Has these blades write back and drop what they have of a range.
    async fn flush(&mut self, blades: BladeSet, start: u64, end: u64) -> Result<(), Failure> {
        if start >= end {
            return Ok(());
        }
        let orders = blades.iter().filter_map(|blade| {
            let agent = self.agents.get(&(BladeKind::Compute, blade.get()))?.clone();
            let command = Command::FlushRange {
                va: start,
                length: end - start,
            };
            Some(async move { agent.order(command).await })
        });
        for result in futures_util::future::join_all(orders).await {
            // A blade that is gone has nothing left to flush; its loss is dealt with by itself.
            if let Err(failure) = result {
                tracing::warn!(%failure, "a blade did not flush");
            }
        }
        Ok(())
    }

    fn close(&mut self, entry: &Entry) -> Result<(), Failure> {
        let directory = self.switch.directory();
        let slot = directory
            .slot(index(entry))
            .map_err(|error| broken(&error))?;
        loop {
            let word = slot.word();
            let Some(next) = release(word, State::Free, BladeSet::EMPTY) else {
                // Free already.
                return Ok(());
            };
            if slot.swap_word(word, next).is_ok() {
                return Ok(());
            }
        }
    }

    // Blades.

    fn agent(&self, kind: BladeKind, number: u8) -> Result<Agent, Failure> {
        self.agents.get(&(kind, number)).cloned().ok_or_else(|| {
            let message = format!("{kind:?} blade {number} is not connected");
            Failure::new(Errno::EIO, message)
        })
    }

    fn compute_blades(&self) -> BladeSet {
        self.agents
            .keys()
            .filter(|(kind, _)| *kind == BladeKind::Compute)
            .filter_map(|(_, number)| BladeId::new(*number))
            .collect()
    }

    async fn register(
        &mut self,
        session: &Session,
        registration: Registration,
    ) -> Result<Reply, Failure> {
        let (kind, address, mac) = (registration.kind, registration.address, registration.mac);
        if session.peer.ip() != address {
            let message = format!(
                "{} says it is {address}, and calls from {}",
                registration.name,
                session.peer.ip()
            );
            return Err(Failure::new(Errno::EINVAL, message));
        }
        let interface = fdb::port_of(&self.bridge, &self.ports, mac)
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
        if kind == BladeKind::Compute && blade.incarnation > 1 {
            self.forget(blade.number).await;
        }
        let flags = self
            .switch
            .port(ifindex)
            .map_err(|error| broken(&error))?
            .flags;
        let mut peer = Peer {
            ipv4: address.octets(),
            mac,
            flags: PEER_PRESENT,
            ifindex,
            connection: 0,
        };
        let port = match kind {
            BladeKind::Compute => {
                let connection = Connection {
                    blade: BladeId::from_low_bits(blade.number.into()),
                    incarnation: blade.incarnation,
                };
                peer.connection = connection.to_qp();
                self.switch
                    .set_compute(connection.blade, peer)
                    .map_err(|error| broken(&error))?;
                PortEntry::compute(connection)
            }
            BladeKind::Memory => {
                self.switch
                    .set_memory(blade.number, peer)
                    .map_err(|error| broken(&error))?;
                let base = Va(WINDOW_BASE + (u64::from(blade.number) << SLICE_SHIFT));
                let slice = Prefix {
                    base,
                    shift: SLICE_SHIFT,
                };
                self.switch
                    .translate(slice, Translation::new(blade.number, base, 0))
                    .map_err(|error| broken(&error))?;
                PortEntry::memory(blade.number)
            }
        };
        self.switch
            .set_port(ifindex, PortEntry { flags, ..port })
            .map_err(|error| broken(&error))?;
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
    pub(super) async fn lost(&mut self, registered: Registered) {
        let Registered {
            kind,
            number,
            incarnation,
        } = registered;
        let current = self
            .policy
            .registry()
            .blade(kind, number)
            .is_some_and(|blade| blade.incarnation == incarnation);
        if !current {
            return;
        }
        self.policy.disconnect(kind, number, incarnation);
        self.agents.remove(&(kind, number));
        if kind == BladeKind::Compute {
            self.forget(number).await;
        } else if let Err(error) = self.switch.set_memory(number, Peer::default()) {
            tracing::error!(%error, "a memory blade that is gone is still asked");
        }
    }

    /// A compute blade's life is over: it is not listened to, its copies are gone, and so are its processes.
    async fn forget(&mut self, number: u8) {
        let Some(blade) = BladeId::new(number) else {
            return;
        };
        if let Err(error) = self.silence(blade) {
            tracing::error!(%error, "a blade that is gone is still listened to");
        }
        let mut lost = BTreeSet::new();
        for entry in self
            .policy
            .directory()
            .entries(Va(WINDOW_BASE), WINDOW_SIZE)
        {
            let directory = self.switch.directory();
            let Ok(slot) = directory.slot(index(&entry)) else {
                continue;
            };
            loop {
                let word = slot.word();
                let Some(step) = on_loss(word, blade) else {
                    break;
                };
                if slot.swap_word(word, step.next).is_ok() {
                    if step.verdict == Loss::Writes {
                        lost.insert(entry.region);
                    }
                    break;
                }
            }
        }
        if !lost.is_empty() {
            tracing::error!(
                %blade, regions = lost.len(), first = ?lost.first().map(ToString::to_string),
                "what the blade wrote into these regions since it last wrote back is lost"
            );
        }
        let plan = self.policy.evict(blade);
        if let Err(failure) = self.carry_out(plan).await {
            tracing::error!(%failure, "what a blade left behind is not all gone");
        }
    }

    fn silence(&mut self, blade: BladeId) -> mind_dataplane::Result<()> {
        for interface in &self.ports {
            let ifindex = attach::index_of(interface)?;
            let port = self.switch.port(ifindex)?;
            let is_its = port.kind() == mind_common::table::PortKind::Compute
                && port.number == u32::from(blade.get());
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

    fn status(&self) -> Status {
        let mut status = self.policy.status();
        for interface in &self.ports {
            let Ok(ifindex) = attach::index_of(interface) else {
                continue;
            };
            let packets = match self.switch.tally(ifindex) {
                Ok(tally) => tally
                    .iter()
                    .map(|(verdict, count)| (verdict.name().to_owned(), count))
                    .collect(),
                Err(error) => {
                    tracing::warn!(interface, %error, "a port's counters cannot be read");
                    continue;
                }
            };
            let blade = [BladeKind::Compute, BladeKind::Memory]
                .into_iter()
                .flat_map(|kind| self.policy.registry().blades(kind))
                .find(|blade| blade.port == Port(ifindex))
                .map(|blade| blade.name.clone());
            status.ports.push(PortStatus {
                interface: interface.clone(),
                blade,
                packets,
            });
        }
        status
    }
}

/// The first address of a block.
fn first_of(block: u64) -> Va {
    Va(block << mind_common::addr::BLOCK_SHIFT)
}
