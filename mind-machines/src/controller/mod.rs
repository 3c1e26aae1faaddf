//! The controller: a machine without I/O that knows no clock, no socket and no map.
//!
//! Requests, answers of agents and what tables and words say come in ([`Input`]); changes of tables and words, records
//! to keep, orders to agents and answers go out ([`Output`]), each with the operation that it belongs to. Whoever drives
//! it hands in what happens and carries out what it wants, one after the other, and comes back at its
//! [`deadline`](Controller::deadline). `mind-controller` drives it with sockets and maps, the simulator with a virtual
//! clock, the model with every order of events; it is the same machine, and the same inputs give the same outputs.
//!
//! Any number of operations are under way at a time. Two of them wait for each other only if they [claim] the same
//! addresses or blade: a blade that does not answer delays what needs it, and nothing else.
//!
//! * [`interface`]: what goes in and comes out,
//! * [`books`]: what the controller knows, and what tables should hold because of that,
//! * `config`: how patient it is, and how much it does at once,
//! * `operation`: operations, their tasks and claims; `work`: what those of all kinds do; `index`: which of them may go
//!   on, and how they are found,
//! * [`phase`]: what operations meet in which phase,
//! * `requests`: who asks for what, and gets which answer; `decide`: what a request means; `vmas`: what is mapped,
//! * [`procedure`]: what is done to the word of one region; `change`: the same, of several at once,
//! * `reclaim`: slots are taken back when few are left; `sizes`: regions are split and merged after each epoch,
//! * `leaving`: processes leave, vmas are closed and freed,
//! * `blades`: blades join, are fenced, and what is lost with them,
//! * `takeover`: a controller that follows another.
//!
//! # What is kept, and when
//!
//! Whatever changes in the books is recorded before it is answered, and before anything is done that cannot be undone:
//! a blade's departure before words forget it, the end of a vma before its regions are freed. That a process has left
//! its domain says what it gives up: the ends of those vmas are recorded later, part by part. Tables follow the books
//! before the record is written: a controller that dies in between is followed by one that finds entries which should
//! not be there, and takes them out. Only a new vma is recorded first, since blades may have copies of it as soon as the
//! tables allow it. No other operation comes between a decision, its tables and its record.
//!
//! [claim]: operation::Claim

mod blades;
pub mod books;
mod change;
mod config;
mod decide;
mod index;
pub mod interface;
mod leaving;
#[cfg(feature = "model")]
mod model;
mod operation;
pub mod phase;
pub mod procedure;
mod reclaim;
mod regions;
mod requests;
mod sessions;
mod sizes;
mod takeover;
mod vmas;
mod work;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use mind_api::errno::{Errno, Failure};
use mind_common::{addr::Region, id::BladeSet, table};

pub use config::Config;
pub use interface::{
    Act, Entry, Event, FoundSlot, Input, Left, OperationId, Output, Seen, Session, Use,
};

use books::{Books, blades::Incarnation, records, tables};
use index::{Condition, Index};
use operation::{Operation, Task, Waits};
use phase::{Incident, Phase};
use sessions::Sessions;

use crate::splitting::Splitting;

/// Writes that are lost, or memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lost {
    /// Of which region.
    pub region: Region,
    /// With which incarnation of a blade, if that is known.
    pub with: Option<Incarnation>,
}

/// An order that an agent has not answered yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Order {
    operation: OperationId,
    to: Incarnation,
    /// When it is too late for an answer, if ever.
    until: Option<u64>,
}

/// A compute blade that is gone, of which memory may still carry out operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Departed {
    incarnation: Incarnation,
    /// Whether no word names it any more.
    is_forgotten: bool,
}

/// Whether the controller carries requests out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
enum Stage {
    /// It does.
    #[default]
    Serving,
    /// It follows another one, and waits for these blades.
    TakingOver(BTreeSet<Incarnation>),
}

/// The controller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Controller {
    config: Config,
    books: Books,
    /// What the tables hold, as far as this controller has put it there or read it.
    installed: BTreeMap<tables::Key, tables::Value>,
    /// Memory that was freed, and that no packet can find any more, by its blade and first address.
    cleared: BTreeSet<(u8, u64)>,
    /// Which regions are split and merged.
    splitting: Option<Splitting>,
    /// The slot at which the next look for slots that can be done without begins.
    hand: u32,
    /// What slots had seen when they were last looked at for that, by slot; nothing while enough are left.
    uses: BTreeMap<u32, u32>,
    /// Vmas that are to be freed after the one that is being freed, by their domain.
    freeing: BTreeMap<u32, BTreeSet<u64>>,
    sessions: Sessions,
    stage: Stage,
    operations: BTreeMap<OperationId, Operation>,
    /// Finds operations and orders.
    index: Index,
    /// The operation between whose tasks no other may come.
    exclusive: Option<OperationId>,
    /// The operation that was worked on last.
    latest: OperationId,
    next_operation: u64,
    orders: BTreeMap<u64, Order>,
    next_order: u64,
    departed: Vec<Departed>,
    outbox: VecDeque<Output>,
    /// What operations have met; empty unless that is watched.
    incidents: Vec<(Phase, Incident)>,
    /// Requests that came while it took over; they are carried out when it has.
    backlog: VecDeque<Input>,
}

impl Controller {
    /// A controller of a data plane whose tables are empty and whose slots are all free.
    pub fn new(config: Config) -> Self {
        Self::restore(config, Books::default(), Stage::Serving)
    }

    /// A controller that follows another, of which these are the records. It takes over once its blades are back, or
    /// have had time enough from `now` on.
    pub fn take_over(
        config: Config,
        records: impl IntoIterator<Item = (records::Key, records::Record)>,
        now: u64,
    ) -> Self {
        let books = Books::restore(records);
        let here = books.blades.all().filter(|blade| blade.is_here);
        let awaited: BTreeSet<_> = here.map(|blade| blade.incarnation).collect();
        let mut controller = Self::restore(config, books, Stage::TakingOver(awaited));
        controller.begin_takeover(now);
        controller
    }

    fn restore(config: Config, books: Books, stage: Stage) -> Self {
        Self {
            config,
            books,
            installed: BTreeMap::new(),
            cleared: BTreeSet::new(),
            splitting: config.splitting.map(Splitting::new),
            hand: 1,
            uses: BTreeMap::new(),
            freeing: BTreeMap::new(),
            sessions: Sessions::default(),
            stage,
            operations: BTreeMap::new(),
            index: Index::default(),
            exclusive: None,
            latest: OperationId(0),
            next_operation: 0,
            orders: BTreeMap::new(),
            next_order: 0,
            departed: Vec::new(),
            outbox: VecDeque::new(),
            incidents: Vec::new(),
            backlog: VecDeque::new(),
        }
    }

    /// What it knows.
    pub fn books(&self) -> &Books {
        &self.books
    }

    /// The session of a blade's agent, if it is connected.
    pub fn session(&self, incarnation: Incarnation) -> Option<Session> {
        self.sessions.of(incarnation)
    }

    /// The blade of which that session is the agent's.
    pub fn agent(&self, session: Session) -> Option<Incarnation> {
        self.sessions.agent(session)
    }

    /// Blades that a controller which takes over waits for.
    pub fn awaited(&self) -> impl Iterator<Item = Incarnation> {
        let awaited = match &self.stage {
            Stage::Serving => None,
            Stage::TakingOver(awaited) => Some(awaited.iter().copied()),
        };
        awaited.into_iter().flatten()
    }

    /// Whether it carries requests out.
    pub fn is_serving(&self) -> bool {
        self.stage == Stage::Serving
    }

    /// Orders that are not answered yet, and whose they are.
    pub fn orders(&self) -> impl Iterator<Item = (u64, Incarnation)> {
        self.orders
            .iter()
            .map(|(number, order)| (*number, order.to))
    }

    /// Whether nothing is left to do.
    pub fn is_idle(&self) -> bool {
        self.operations.is_empty() && self.outbox.is_empty() && self.backlog.is_empty()
    }

    /// Whether as many outputs wait as may: they are to be asked for before anything else is handed in, but for what
    /// comes of an act.
    pub fn is_full(&self) -> bool {
        self.outbox.len() >= self.config.outputs
    }

    /// Takes something in, at `now`. What comes of it is said by [`poll`](Self::poll).
    pub fn handle(&mut self, now: u64, input: Input) {
        self.take(input);
        self.expire(now);
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Request { session, id, .. } if !self.is_serving() => {
                self.keep_for_later(session, id, input)
            }
            Input::Register {
                session,
                id,
                ref registration,
                ..
            } if !self.is_serving() => {
                self.will_not_resume(registration.kind, registration.address);
                self.keep_for_later(session, id, input);
            }
            Input::Request {
                session,
                id,
                answered,
                body,
            } => self.requested(session, id, answered, body),
            Input::Register {
                session,
                id,
                registration,
                port,
            } => self.registers(session, id, registration, port),
            Input::Resume {
                session,
                id,
                incarnation,
            } => self.resumes(session, id, incarnation),
            Input::Report { order, result } => {
                let incident = match result {
                    Ok(_) => Incident::CarriedOut,
                    Err(_) => Incident::NotCarriedOut,
                };
                self.reported(order, result, incident);
            }
            Input::Closed(session) => self.closed(session),
            Input::Short if !self.is_serving() => {}
            Input::Short => self.short(),
            Input::Epoch { .. } if !self.is_serving() => {}
            Input::Epoch { counts, used } => self.epoch(&counts, used),
            Input::Done {
                operation: id,
                result,
            } => {
                if let Some(operation) = self.operations.get_mut(&id)
                    && operation.waits == Waits::Seen
                {
                    let incident = match result {
                        Seen::Done(Err(_)) => Incident::NotDone,
                        _ => Incident::Done,
                    };
                    operation.seen = Some(result);
                    operation.waits = Waits::Nothing;
                    self.index.seen(id);
                    self.meets(id, incident);
                }
            }
        }
    }

    /// What is asked is looked at when it has taken over, if there is room for it until then.
    fn keep_for_later(&mut self, session: Session, id: u64, input: Input) {
        if self.backlog.len() < self.config.operations {
            return self.backlog.push_back(input);
        }
        let message = format!(
            "the controller is taking over from another one, and {} requests wait for that, which is as many as it takes: \
             ask again later",
            self.backlog.len()
        );
        self.answer_at_once(session, id, Err(Failure::new(Errno::EBUSY, message)));
    }

    /// It has taken over: requests are carried out from now on.
    fn serve(&mut self) {
        self.stage = Stage::Serving;
        self.event(Event::TakenOver);
        // The controller before this one may have been told.
        self.short();
        for input in std::mem::take(&mut self.backlog) {
            self.take(input);
        }
    }

    /// What it wants done next, at `now`; `None` while it waits for inputs or its [`deadline`](Self::deadline).
    pub fn poll(&mut self, now: u64) -> Option<Output> {
        loop {
            self.expire(now);
            if let Some(output) = self.outbox.pop_front() {
                return Some(output);
            }
            let id = self.next_ready()?;
            self.work(now, id);
        }
    }

    /// When to [`poll`](Self::poll) again though nothing has come in, in the caller's nanoseconds.
    pub fn deadline(&self) -> Option<u64> {
        self.index.deadline()
    }

    /// The operation to work on: the one between whose tasks no other may come, otherwise in turn.
    fn next_ready(&self) -> Option<OperationId> {
        if let Some(id) = self.exclusive {
            let operation = self.operations.get(&id)?;
            return (operation.waits == Waits::Nothing).then_some(id);
        }
        self.index.next(self.latest, |condition| match condition {
            Condition::Fenced => self.departed.is_empty(),
            Condition::Zeroed => !self.is_zeroing(),
            Condition::Back => self.awaited().next().is_none(),
        })
    }

    /// Whether memory that was freed is to be zeroed, of a blade that is here.
    fn is_zeroing(&self) -> bool {
        let mut memories = self.memories().into_iter();
        memories.any(|blade| self.books.unclean_of(blade.number).next().is_some())
    }

    /// Does the next thing of an operation.
    fn work(&mut self, now: u64, id: OperationId) {
        self.latest = id;
        let Some(mut operation) = self.operations.remove(&id) else {
            return;
        };
        self.index.take(id);
        self.goes_on(&operation);
        operation.is_admitted = true;
        operation.waits = Waits::Nothing;
        if let Some(task) = operation.tasks.pop() {
            self.perform(now, id, &mut operation, task);
        }
        if operation.tasks.is_empty() && operation.waits == Waits::Nothing {
            self.release(id);
            self.index.end(id, &operation, &self.operations);
        } else {
            self.index.put(id, &operation);
            self.operations.insert(id, operation);
        }
    }

    fn perform(&mut self, now: u64, id: OperationId, operation: &mut Operation, task: Task) {
        match task {
            Task::Decide(request) => self.decide(id, operation, *request),
            Task::Install(keys, otherwise) => self.install(id, operation, keys, otherwise),
            Task::Keep => self.keep(id, operation),
            Task::Reply(answer) => self.reply(id, operation, answer),
            Task::Finish(answer) => self.done(operation, answer),
            Task::Release => self.release(id),
            Task::WaitForPackets if seeded!(PacketsNotAwaited) => {}
            Task::WaitForPackets => self.wait_for_packets(id, operation),
            Task::Give(slots) => self.give(id, operation, slots),
            Task::Cleared(freed) => self.cleared(operation, freed),
            Task::Reclaim(reclaiming) => self.reclaim(now, id, operation, reclaiming),
            Task::Adapt(purposes) => self.adapt(operation, purposes),
            Task::Map(mapping) => self.map(id, operation, mapping),
            Task::Change(changing) => self.change(now, id, operation, changing),
            Task::FreeRegions(from, to) => self.free_regions(now, id, operation, from, to),
            Task::Unmapped(va) => self.unmapped(id, operation, va),
            Task::Flush(blades, from, to) => self.flush(now, id, operation, blades, from, to),
            Task::Sync(syncing) => self.sync(now, id, operation, syncing),
            Task::FindRegion(finding) => self.find_region(now, id, operation, finding),
            Task::Join(port, registration) => self.join(id, operation, port, *registration),
            Task::Fence(incarnation) => self.fence(id, operation, incarnation),
            Task::Forget(incarnation, from, lost) => {
                self.forget(id, operation, incarnation, from, lost)
            }
            Task::FenceOperations(incarnation, lost) => {
                self.fence_operations(id, operation, incarnation, lost)
            }
            Task::EndProcesses(incarnation, lost) => {
                self.end_processes(operation, incarnation, lost)
            }
            Task::Lose(incarnation, losing) => self.lose(id, operation, incarnation, losing),
            Task::Zero(blade, zeroing) => self.zero(now, id, operation, blade, zeroing),
            Task::Exit(domain, process) => self.exit(id, operation, domain, process),
            Task::Exits(incarnation, from) => self.exits(operation, incarnation, from),
            Task::MarkLost(incarnation, lost) => self.mark_lost(operation, incarnation, lost),
            Task::GiveUp(giving) => self.give_up(id, operation, giving),
            Task::FreeNext(domain) => self.free_next(domain),
            Task::FlushLost(memory, from) => self.flush_lost(operation, memory, from),
            Task::TakeOver(taking_over) => {
                self.proceed_with_takeover(now, id, operation, taking_over)
            }
            Task::Count(counting) => self.count(now, id, operation, counting),
        }
    }

    /// What a blade is called.
    fn name_of(&self, incarnation: Incarnation) -> String {
        let known = self.books.blades.get(incarnation.kind, incarnation.number);
        known.map_or_else(
            || format!("{:?} blade {}", incarnation.kind, incarnation.number),
            |blade| blade.name.clone(),
        )
    }

    /// The compute blades that are here.
    fn computes(&self) -> BladeSet {
        self.books.blades.computes()
    }

    /// The memory blades that are here.
    fn memories(&self) -> Vec<Incarnation> {
        let memories = self.books.blades.of(mind_api::message::BladeKind::Memory);
        memories
            .filter(|blade| blade.is_here)
            .map(|blade| blade.incarnation)
            .collect()
    }
}

/// What the switch's table says of a port behind which there is no blade.
pub const NO_PORT: table::Port = table::Port {
    kind: 0,
    flags: 0,
    number: 0,
    connection: 0,
};
