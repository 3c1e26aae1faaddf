//! Carries out what the policy decides: changes the data plane's tables, step by step, and tells blades what to do.
//!
//! One request at a time, so that the books and the tables agree between any two.
//!
//! * [`steps`]: the steps of a plan,
//! * [`regions`]: changes of regions under traffic,
//! * [`blades`]: who comes and goes, [`memory`]: what a memory blade takes along,
//! * [`recovery`]: a controller that takes over from another,
//! * [`status`]: what operators see, [`audit`]: whether books, tables and blades agree.

mod audit;
mod blades;
mod memory;
mod recovery;
mod regions;
mod status;
mod steps;

use std::{
    collections::{BTreeSet, HashMap},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use anyhow::Result;
use mind_api::{Errno, Failure, Reply, Request, message::{BladeKind, RegionChange}};
use mind_connection::endpoint::Peer;
use mind_common::{
    addr::{PAGE_SIZE, Va},
    directory::machine::may_write_back,
    id::{BladeId, BladeSet},
};
use mind_controller::{
    directory::{Entry, Regions, Step},
    policy::{GivenUp, Plan, Policy},
    registry::{Blade, Member},
};
use mind_dataplane::Switch;
use mind_machines::controller::procedure::Change;
use tokio::sync::watch;

use super::{
    Args,
    agent::Agent,
    copier::Copied,
    metrics::Events,
    session::{Registered, Session},
    store::{Asked, Store},
    tracer::Tracer,
};
use blades::Departed;
pub(super) use recovery::GRACE;
use regions::{Patience, all_changed, unchangeable};

/// The controller.
pub(super) struct Core {
    policy: Policy,
    switch: Switch,
    agents: HashMap<(BladeKind, u8), Agent>,
    placed: HashMap<u32, BladeSet>,
    bridge: String,
    ports: Vec<String>,
    /// Where the data plane is pinned.
    pins: PathBuf,
    /// Whether a blade is ready behind every port.
    is_complete: watch::Sender<bool>,
    /// What the copier counts.
    copied: Arc<Copied>,
    /// Tells operators what becomes of packets.
    tracer: Arc<Tracer>,
    /// What Prometheus is told.
    events: Arc<Events>,
    address: std::net::Ipv4Addr,
    began: Instant,
    /// Compute blades that are gone and not buried yet.
    departed: Vec<Departed>,
    /// What outlives this controller.
    store: Store,
    /// Blades that this controller took over and that are not back yet.
    awaited: BTreeSet<(BladeKind, u8)>,
    /// Whether there are such.
    is_awaited: watch::Sender<bool>,
    /// Whether maps, blades and books agree, so that requests can be carried out.
    is_recovered: watch::Sender<bool>,
    /// Points to pass until the controller ends at once, for tests; 0 for never.
    fuse: AtomicU64,
}

fn broken(error: &dyn std::fmt::Display) -> Failure {
    Failure::new(Errno::EIO, error.to_string())
}

/// Whether a request is carried out once only, however often it is made: its answer is kept.
fn changes_books(request: &Request) -> bool {
    matches!(
        request,
        Request::EnterProcess { .. }
            | Request::ExitProcess { .. }
            | Request::Map { .. }
            | Request::Unmap { .. }
            | Request::Protect { .. }
            | Request::OpenArea { .. }
            | Request::UnlinkArea { .. }
            | Request::ReportLoss { .. }
    )
}

fn member(blade: BladeId, pid: i32) -> Member {
    Member {
        blade: blade.get(),
        pid,
    }
}

/// The policy counts slots from 0; in the table, 0 means that there is none.
fn index(entry: &Entry) -> u32 {
    entry.slot.0 + 1
}

impl Core {
    /// A controller of that data plane; with what there was before, `is_taken_over`, which takes
    /// [`recover`](Self::recover).
    pub(super) fn new(
        switch: Switch,
        args: &Args,
        address: std::net::Ipv4Addr,
        (copied, tracer): (Arc<Copied>, Arc<Tracer>),
        events: Arc<Events>,
        (store, is_taken_over): (Store, bool),
    ) -> Result<Self> {
        let directory = switch.directory();
        let slots = u32::try_from(directory.slots() - 1)?;
        let tables = u32::try_from(directory.tables())?;
        let policy = match is_taken_over {
            true => Policy::restore(slots, tables, store.records()?)?,
            false => Policy::new(slots, tables),
        };
        let known = [BladeKind::Compute, BladeKind::Memory]
            .into_iter()
            .flat_map(|kind| {
                policy
                    .registry()
                    .blades(kind)
                    .map(move |blade| (kind, blade))
            });
        let awaited: BTreeSet<_> = known
            .filter(|(_, blade)| blade.connected)
            .map(|(kind, blade)| (kind, blade.number))
            .collect();
        Ok(Self {
            store,
            is_awaited: watch::Sender::new(!awaited.is_empty()),
            awaited,
            is_recovered: watch::Sender::new(!is_taken_over),
            fuse: AtomicU64::new(args.die_at),
            policy,
            switch,
            agents: HashMap::new(),
            placed: HashMap::new(),
            bridge: args.bridge.clone(),
            ports: args.ports.clone(),
            pins: args.pin.clone(),
            is_complete: watch::Sender::new(false),
            copied,
            tracer,
            events,
            address,
            began: Instant::now(),
            departed: Vec::new(),
        })
    }

    /// What Prometheus is told.
    pub(super) fn events(&self) -> Arc<Events> {
        Arc::clone(&self.events)
    }

    /// Tells when requests can be carried out.
    pub(super) fn is_recovered(&self) -> watch::Receiver<bool> {
        self.is_recovered.subscribe()
    }

    /// Tells when all blades are back that were there before this controller.
    pub(super) fn is_awaited(&self) -> watch::Receiver<bool> {
        self.is_awaited.subscribe()
    }

    /// Does what is asked on a session, under the number `id`; answers to requests of numbers below `answered` are not
    /// waited for any more.
    pub(super) async fn request(
        &mut self,
        session: &Session,
        (id, answered): (u64, u64),
        request: Request,
    ) -> Result<Reply, Failure> {
        let by = *session.registered.lock().await;
        let by = by.filter(|_| changes_books(&request));
        if let Some(by) = by
            && let Some(answer) = self.store.answer(by, id).map_err(|error| broken(&error))?
        {
            return answer;
        }
        let answer = self.answer(session, request).await;
        // It may have shown that blades are gone.
        self.bury().await;
        self.note_complete();
        let asked = by.map(|by| Asked {
            by,
            id,
            answered,
            answer: &answer,
        });
        self.keep(asked);
        answer
    }

    /// Keeps what has changed in the books, and the answer that a request is about to get.
    fn keep(&mut self, asked: Option<Asked<'_>>) {
        let changes = self.policy.take_records();
        if changes.is_empty() && asked.is_none() {
            return;
        }
        self.pass();
        if let Err(error) = self.store.keep(&changes, asked.as_ref()) {
            tracing::error!(
                error = format!("{error:#}"),
                "a controller that comes after this one will not know all"
            );
            self.policy.touch(changes.into_iter().map(|(key, _)| key));
        }
        self.pass();
    }

    /// A point at which a test may have the controller end at once, as by SIGKILL.
    fn pass(&self) {
        if self.fuse.load(Ordering::Relaxed) > 0 && self.fuse.fetch_sub(1, Ordering::Relaxed) == 1 {
            let _ = rustix::process::kill_process(
                rustix::process::getpid(),
                rustix::process::Signal::KILL,
            );
        }
    }

    async fn answer(&mut self, session: &Session, request: Request) -> Result<Reply, Failure> {
        match request {
            Request::Status => return Ok(Reply::Status(self.status())),
            Request::Register(registration) => return self.register(session, registration).await,
            Request::Resume {
                kind,
                number,
                incarnation,
            } => {
                let life = Registered {
                    kind,
                    number,
                    incarnation,
                };
                return self.resume(session, life).await;
            }
            Request::ChangeRegion { .. }
            | Request::ListVmas { .. }
            | Request::ListRegions { .. }
            | Request::ListCaches
            | Request::Check
            | Request::Trace(_) => return self.operate(session, request).await,
            _ => {}
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
            Request::Status
            | Request::Register(_)
            | Request::Resume { .. }
            | Request::AwaitBlades
            | Request::ChangeRegion { .. }
            | Request::ListVmas { .. }
            | Request::ListRegions { .. }
            | Request::ListCaches
            | Request::Check
            | Request::Trace(_)
            | Request::NextTraced => Err(broken(&"a request that was answered before")),
            Request::Sync { domain, va, length } => {
                self.policy.check_presence(caller, domain)?;
                self.sync(caller, Va(va), length).await
            }
            Request::ReportStuck { va } => self.report_stuck(Va(va)).await,
            Request::ReportLoss { va } => {
                self.note_refused(caller, Va(va));
                Ok(Reply::Done)
            }
            Request::EnterProcess {
                domain,
                pid,
                on_loss,
            } => {
                let plan = self.policy.enter_named(caller, &domain, pid, on_loss)?;
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
                // Memory that was mapped is the domain's, whatever its processes' numbers.
                self.mapped(member(caller, 0), domain, plan).await
            }
            Request::OpenArea {
                domain,
                pid,
                name,
                length,
                access,
                open,
            } => {
                let member = member(caller, pid);
                let plan = self
                    .policy
                    .open_area(member, domain, &name, length, access, open)?;
                self.mapped(member, domain, plan).await
            }
            Request::Unmap {
                domain,
                pid,
                va,
                length,
            } => {
                let member = member(caller, pid);
                let plan = self.policy.unmap(member, domain, Va(va), length)?;
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
                self.flush_or_expel(blades, va, va.saturating_add(length))
                    .await;
                Ok(Reply::Done)
            }
            Request::UnlinkArea { domain, name } => {
                let plan = self.policy.unlink_area(caller, domain, &name)?;
                self.carry_out(plan).await?;
                Ok(Reply::Done)
            }
        }
    }

    /// What only operators on the switch may ask for.
    async fn operate(&mut self, session: &Session, request: Request) -> Result<Reply, Failure> {
        let is_here = match session.peer {
            Peer::Local => true,
            Peer::Network(from) => from.ip() == self.address || from.ip().is_loopback(),
        };
        if !is_here {
            let message = "only an operator on the switch may ask for that";
            return Err(Failure::new(Errno::EACCES, message));
        }
        match request {
            Request::ChangeRegion { va, change } => self.change_region(Va(va), change).await,
            Request::ListVmas { from } => Ok(self.list_vmas(Va(from))),
            Request::ListRegions {
                from,
                to,
                order,
                limit,
            } => self.list_regions(from..to, order, limit),
            Request::ListCaches => Ok(self.list_caches().await),
            Request::Check => self.check().await.map(Reply::Checked),
            Request::Trace(filter) => self.trace(session, &filter),
            _ => Err(broken(&"a request that is no operator's")),
        }
    }

    async fn mapped(
        &mut self,
        caller: Member,
        domain: u32,
        plan: Plan<mind_controller::policy::Mapped>,
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

    /// Carries steps out, in order.
    async fn steps(&mut self, steps: &[Step], given_up: Vec<GivenUp>) -> Result<(), Failure> {
        for step in steps {
            self.pass();
            self.step(step).await?;
        }
        self.pass();
        self.policy.finish(given_up);
        Ok(())
    }

    /// A blade gives up what it owns of a range. Regions that others have meanwhile were written back for that. What is
    /// lost cannot be synced.
    async fn sync(&mut self, caller: BladeId, va: Va, length: u64) -> Result<Reply, Failure> {
        if !va.is_in_window(length) {
            let message = format!("{length} bytes at {va} are not in the window");
            return Err(Failure::new(Errno::EINVAL, message));
        }
        if self.has_lost(va, length) {
            let message = format!(
                "part of {length} bytes at {va} is lost; see `mind-ctl status` on the switch"
            );
            return Err(Failure::new(Errno::EIO, message));
        }
        let entries = self.policy.directory().entries_over(va, length);
        let owned: Vec<_> = {
            let directory = self.switch.directory();
            let is_owned = |entry: &Entry| {
                let slot = directory.slot(index(entry));
                slot.is_ok_and(|slot| may_write_back(slot.word(), caller))
            };
            entries.into_iter().filter(is_owned).collect()
        };
        let reset = Regions::of_words(Change::Reset, owned);
        self.change(&reset, Patience::Full, None).await?;
        Ok(Reply::Done)
    }

    /// A blade says that a request of its for a page does not complete.
    async fn report_stuck(&mut self, va: Va) -> Result<Reply, Failure> {
        let Some(entry) = self.policy.directory().at(va) else {
            return Ok(Reply::Done);
        };
        let reset = Regions::of_words(Change::Reset, [entry]);
        let outcomes = self.change(&reset, Patience::Stuck, None).await?;
        if all_changed(&outcomes) {
            tracing::warn!(region = %entry.region, "a region that stays busy is reset");
        }
        Ok(Reply::Done)
    }

    /// Memory refused what a blade had to write back. What is lost with its memory blade was noted before.
    fn note_refused(&mut self, caller: BladeId, va: Va) {
        if self.has_lost(va, PAGE_SIZE as u64) {
            return;
        }
        let region = self.policy.directory().at(va).map(|entry| entry.region);
        let name = |blade: &Blade| blade.name.clone();
        let registry = self.policy.registry();
        let blade = registry
            .blade(BladeKind::Compute, caller.get())
            .map_or_else(|| caller.to_string(), name);
        let noted = region.and_then(|region| self.policy.note_loss(region, &blade));
        if let Some((domain, vma)) = noted {
            tracing::error!(
                page = %va, domain, vma = %vma.va(), area = vma.area, blade,
                "memory refused a write-back; what was written is lost"
            );
        }
    }

    /// An operator wants a region changed.
    async fn change_region(&mut self, va: Va, change: RegionChange) -> Result<Reply, Failure> {
        let regions = self
            .policy
            .change_region(va, change)?
            .ok_or_else(|| unchangeable(va))?;
        let outcomes = self.change(&regions, Patience::Full, None).await;
        let changed = outcomes.as_deref().is_ok_and(all_changed);
        self.policy.changed(&regions, changed);
        outcomes?;
        let entry = self.policy.directory().at(va);
        let region = entry
            .map(|entry| entry.region)
            .ok_or_else(|| unchangeable(va))?;
        Ok(Reply::Region {
            va: region.base().0,
            length: region.size(),
            changed,
        })
    }

    /// Tells when a blade is ready behind every port.
    pub(super) fn is_complete(&self) -> watch::Receiver<bool> {
        self.is_complete.subscribe()
    }

    fn note_complete(&self) {
        let is_complete = *self.is_recovered.borrow()
            && self
                .ports
                .iter()
                .all(|port| self.blade_behind(port).is_some());
        self.is_complete.send_replace(is_complete);
    }

    /// Nanoseconds since the controller began.
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
