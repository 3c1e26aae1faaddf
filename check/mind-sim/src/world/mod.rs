//! The whole system and its clock: the next event is taken from one queue and given to the machine
//! that it concerns.
//!
//! * [`compute`], [`incarnation`], [`program`], [`thread`]: compute blades and what runs on them; [`scripted`] and
//!   [`store_buffer`]: threads with scripts,
//! * [`controller`], [`takeover`], [`connection`], [`agent`]: the controller, and those that it has to do with,
//! * [`memory`]: memory blades,
//! * [`host`], [`mapped`]: the state of a blade, and of the mapped areas,
//! * [`network`], [`held`], [`queue`]: cables, packets that are held up in the switch, and the clock,
//! * [`disturb`], [`triggers`], [`flaws`]: disturbances, effects that follow events, and machines broken on purpose,
//! * [`checker`], [`promises`], [`quiet`]: the checks at every load, at every answer and denial, and at rest.

mod agent;
pub(crate) mod checker;
mod compute;
mod connection;
mod controller;
mod disturb;
mod flaws;
mod held;
pub(crate) mod host;
mod incarnation;
pub(crate) mod mapped;
mod memory;
pub(crate) mod network;
mod program;
mod promises;
pub(crate) mod queue;
mod quiet;
pub(crate) mod scripted;
mod store_buffer;
mod takeover;
pub(crate) mod thread;
mod triggers;

use crate::trace::Direction;
use std::collections::BTreeMap;

use mind_common::{
    addr::{INITIAL_REGION_ORDER, Region, Va},
    directory::Word,
    id::{BladeId, Connection as QueuePair, DomainId},
};
use mind_machines::{
    Node,
    compute::Access,
    controller::{
        Config, Controller, Input, Session,
        books::{
            blades::Incarnation,
            records::{Change, Key, Record},
        },
    },
    datagram::{Body, Datagram, PageRequest},
    memory::Memory,
    splitting,
    switch::{Switch, View},
};

use crate::{
    Failure, Outcome,
    coverage::{Coverage, Happening, Kind, Pair},
    plan::{Disturbance, GRACE, Image, Load, Mapping, Plan, blade, generator},
    trace::{Log, What},
    world::agent::{Agent, Purpose},
    world::checker::Checker,
    world::connection::{Connection, Message},
    world::disturb::KEEPER,
    world::held::Held,
    world::host::Machine,
    world::mapped::Mapped,
    world::network::Network,
    world::promises::Promises,
    world::queue::Queue,
    world::scripted::{Barriers, ScriptedThread},
    world::takeover::Death,
    world::thread::Thread,
    world::triggers::Kept,
};

/// After the faults stop, programs have finished within this, in nanoseconds. The longest that any of
/// 96,000 seeds takes is 4.12 s: requests that began before are given up after 5 s.
const RECOVERY: u64 = 6_000_000_000;
/// After the faults stop, the run has ended within this, scripts and timers too, in nanoseconds.
const PATIENCE: u64 = 30_000_000_000;
pub use checker::Wrong;

pub(crate) enum Event {
    /// A packet arrives at the switch, from a host.
    Up(Node, Datagram<Image>),
    /// A packet goes on that was held up in the switch.
    HeldUp(u64),
    /// A packet arrives at a host.
    Down(Node, Datagram<Image>),
    /// A thread goes on, unless it has gone on since.
    Run(usize, u64),
    /// A store of a thread leaves its store buffer.
    Drain(usize),
    /// The daemon of that incarnation receives a thread's fault.
    Fault(usize, QueuePair, PageRequest, Access),
    /// A blade's timer is due.
    Poll(BladeId),
    /// The controller takes a step.
    Step,
    /// A message of an agent arrives at the controller, or one of an operator.
    ToController(Session, Input),
    /// A message of the controller arrives at an agent.
    ToAgent(Session, Message),
    /// The controller finds out that a connection has ended.
    Closed(Session),
    /// An agent finds out that its connection is lost.
    SessionLost(Session),
    /// The agent of that incarnation of a blade connects again.
    Reconnect(Node, Incarnation),
    /// The controller dies, if it is the one after so many deaths.
    Die(u64),
    /// Another controller takes over.
    TakeOver,
    /// A host's daemon begins.
    Begin(Node),
    /// The port has its program in TC again.
    Repaired(Node),
    /// A daemon learns that a process on its host has ended, which was in that domain.
    Left(DomainId, i32, QueuePair),
    /// A thread that was started so often enters its domain.
    Enters(usize, i32, QueuePair),
    /// An epoch is over.
    Epoch(u64),
    /// One of the plan's disturbances.
    Disturb(usize),
    /// A disturbance that follows an event.
    Follow(Disturbance),
}

/// The system.
pub(crate) struct World<'a> {
    pub(crate) plan: &'a Plan,
    /// When the last fault or disturbance is over.
    pub(crate) calm_at: u64,
    pub(crate) queue: Queue<Event>,
    pub(crate) random: fastrand::Rng,
    pub(crate) network: Network,
    pub(crate) switch: Switch,
    pub(crate) held: Held,
    /// Pages that were falsely invalidated in this epoch, by region.
    pub(crate) invalidated: BTreeMap<Region, u32>,
    /// What the memory blades that are up keep.
    pub(crate) memories: BTreeMap<u8, Memory<Image>>,
    /// Until when memory blades do not listen.
    pub(crate) absent_until: BTreeMap<u8, u64>,
    /// Until when agents of compute blades cannot do what they are told.
    pub(crate) unable_until: BTreeMap<BladeId, u64>,
    /// Pages of each memory blade.
    pub(crate) memory_pages: u64,
    pub(crate) config: Config,
    pub(crate) controller: Controller,
    /// Whether there is no controller.
    pub(crate) is_down: bool,
    /// How the controller dies, if it does.
    pub(crate) death: Option<Death>,
    /// Controllers that have died.
    pub(crate) deaths: u64,
    /// The blade whose agent comes back too late.
    pub(crate) late: Option<BladeId>,
    /// What the controller has had kept.
    pub(crate) records: BTreeMap<Key, Record>,
    /// What it wants kept before that which it has kept next.
    pub(crate) kept_soon: Vec<Vec<Change>>,
    /// The agents that are up.
    pub(crate) agents: BTreeMap<Node, Agent>,
    pub(crate) connections: BTreeMap<Session, Connection>,
    /// Requests of operators so far.
    pub(crate) operations: u64,
    /// Which of the plan's domains has which number.
    pub(crate) domains: BTreeMap<DomainId, usize>,
    /// The numbers of the plan's domains, for the program that maps areas for others.
    pub(crate) kept: BTreeMap<usize, DomainId>,
    /// Writes that the controller has reported as lost: from which address on, and how many bytes.
    pub(crate) lost: Vec<(Va, u64)>,
    /// What of vmas the controller has reported as lost with a memory blade, in the same way.
    pub(crate) lost_ranges: BTreeMap<Va, u64>,
    pub(crate) machines: BTreeMap<BladeId, Machine>,
    pub(crate) threads: Vec<Thread>,
    /// The threads with scripts, which come first.
    pub(crate) scripted: Vec<ScriptedThread<'a>>,
    pub(crate) barriers: Barriers,
    /// The run goes on when memory is wrong, as long as it can; the caller checks.
    pub(crate) persists: bool,
    pub(crate) checker: Checker,
    pub(crate) mapped: Mapped,
    pub(crate) promises: Promises,
    pub(crate) log: Log,
    /// Whether blades join and areas are mapped, which takes no time.
    pub(crate) is_starting: bool,
    /// When threads enter their domains at first.
    pub(crate) beginning: Vec<(u64, usize, QueuePair)>,
    /// When the controller's next step is, if it is scheduled.
    step_at: Option<u64>,
    /// When the last thread finished so far.
    pub(crate) finished_at: u64,
    pub(crate) failure: Option<Failure>,
    pub(crate) coverage: Coverage,
    pub(crate) kept_packets: Kept,
    /// The words before an act of the controller's that changes some.
    words: Vec<Word>,
}

fn threads(plan: &Plan) -> Vec<Thread> {
    let mut seeds = generator(plan.seed, 3);
    let programs = plan.programs.iter();
    let threads = programs.map(|program| Thread::new(program, seeds.u64(..)));
    threads.collect()
}

/// The controller's configuration, with so many slots beside the one that is never used: it changes few slots and
/// regions at once, so that packets come between any two; in some runs it waits for agents less long than for regions.
fn config(plan: &Plan, slots: usize) -> Config {
    let usual = Config::new([198, 18, 0, 1].into(), number_of(slots));
    let mut random = generator(plan.seed, 6);
    let batch = random.usize(1..=2);
    let is_impatient = random.bool();
    Config {
        sweep: 4,
        batch,
        zero: 8 << 12,
        flush: if is_impatient {
            usual.stuck / 2
        } else {
            usual.flush
        },
        report: if is_impatient {
            usual.stuck / 2
        } else {
            usual.report
        },
        grace: GRACE,
        memory_grace: GRACE,
        splitting: plan.epoch.map(|_| splitting::Config {
            quiet: 2,
            most_quiet: 8,
            changes: 4,
            ..splitting::Config::default()
        }),
        is_watched: true,
        ..usual
    }
}

/// Tables of the index, in some runs: fewer than blocks of the areas.
const FEW_TABLES: usize = 2;

/// How many slots there are at least and at most: so few that regions have to do without, or enough for the regions of
/// all areas, most of them split once.
fn slots_between(plan: &Plan) -> (usize, usize) {
    let pages = plan.memory_pages() as usize;
    ((pages / 6).max(8), pages / 2 + 8)
}

/// How many there are at first.
fn slots(plan: &Plan) -> usize {
    let (least, most) = slots_between(plan);
    match generator(plan.seed, 5).u8(0..4) {
        0 => least,
        _ => most,
    }
}

/// One more than there are slots: the number that the first one in the real table would have is never used.
const fn number_of(slots: usize) -> u32 {
    slots as u32 + 1
}

impl<'a> World<'a> {
    pub(crate) fn new(plan: &'a Plan, is_traced: bool) -> Self {
        let slots = slots(plan);
        let mut switch = Switch::new(slots);
        if generator(plan.seed, 7).u8(0..4) == 0 {
            switch.limit_tables(FEW_TABLES);
        }
        let pages = plan.memory_pages();
        let memory_pages = match plan.memories > 1 && generator(plan.seed, 8).bool() {
            // Vmas are put together of what several blades have.
            true => (pages * 3 / 4).next_multiple_of(1 << INITIAL_REGION_ORDER),
            false => pages * 3 / 2,
        };
        let computes = 0..=plan.blades;
        let machines = computes.map(|number| (blade(number), Machine::default()));
        let mut world = Self {
            plan,
            calm_at: plan.calm_at(),
            queue: Queue::new(),
            random: generator(plan.seed, 2),
            network: Network::new(plan.seed, plan.network_faults),
            switch,
            held: Held::default(),
            invalidated: BTreeMap::new(),
            memories: BTreeMap::new(),
            absent_until: BTreeMap::new(),
            unable_until: BTreeMap::new(),
            memory_pages,
            config: config(plan, slots),
            controller: Controller::new(config(plan, slots)),
            is_down: false,
            death: None,
            deaths: 0,
            late: None,
            records: BTreeMap::new(),
            kept_soon: Vec::new(),
            agents: BTreeMap::new(),
            connections: BTreeMap::new(),
            operations: 0,
            domains: BTreeMap::new(),
            kept: BTreeMap::new(),
            lost: Vec::new(),
            lost_ranges: BTreeMap::new(),
            machines: machines.collect(),
            threads: threads(plan),
            scripted: Vec::new(),
            barriers: Barriers::new(),
            persists: false,
            checker: Checker::default(),
            mapped: Mapped::new(plan.areas.len()),
            promises: Promises::default(),
            log: Log::new(is_traced),
            is_starting: true,
            beginning: Vec::new(),
            step_at: None,
            finished_at: 0,
            failure: None,
            coverage: Coverage::default(),
            kept_packets: Kept::new(),
            words: Vec::new(),
        };
        world.start();
        world
    }

    /// Blades join, in the order of their numbers, and areas are mapped, all at once; then threads begin, and
    /// disturbances are scheduled.
    fn start(&mut self) {
        let memories = (0..self.plan.memories).map(Node::Memory);
        let computes = (0..=self.plan.blades).map(|number| Node::Compute(blade(number)));
        for node in memories.chain(computes) {
            self.begin(node);
            self.settle();
        }
        for domain in 0..self.plan.domains.len() {
            let request = self.entry(domain, KEEPER);
            self.ask(self.keeper(), request, Purpose::Keeps(domain));
            self.settle();
        }
        for (number, area) in self.plan.areas.iter().enumerate() {
            if area.is_mapped {
                self.keep_mapped(Mapping::Map, number);
                self.settle();
            }
        }
        self.is_starting = false;
        for (delay, thread, connection) in std::mem::take(&mut self.beginning) {
            let enters = Event::Enters(thread, 0, connection);
            self.queue.after(delay, enters);
        }
        if let Some(epoch) = self.plan.epoch {
            self.queue.after(epoch, Event::Epoch(epoch));
        }
        for (number, (at, _)) in self.plan.disturbances.iter().enumerate() {
            self.queue.at(*at, Event::Disturb(number));
        }
    }

    /// Handles all events: at the start, they take no time.
    fn settle(&mut self) {
        while let Some(event) = self.queue.pop() {
            self.happens(event);
        }
    }

    /// Runs until no event is left.
    pub(crate) fn run(mut self) -> Outcome {
        let limit = self.calm_at + PATIENCE;
        // The length of scripts is unknown.
        let mut recovers = self.scripted.is_empty();
        let mut events = 0;
        while self.failure.is_none() {
            let Some(event) = self.queue.pop() else {
                self.check_quiet();
                break;
            };
            events += 1;
            let now = self.queue.now();
            let is_due = recovers && now > self.calm_at + RECOVERY;
            recovers &= !is_due;
            if now > limit || is_due && !self.unfinished().is_empty() {
                self.fail(Failure::Endless(self.unfinished()));
                break;
            }
            self.happens(event);
        }
        Outcome {
            hash: self.log.hash(),
            events,
            virtual_nanos: self.finished_at,
            recovery_nanos: self.finished_at.saturating_sub(self.calm_at),
            failure: self.failure,
            coverage: self.coverage,
            records: self.log.into_records(),
        }
    }

    fn happens(&mut self, event: Event) {
        let Some(event) = self.unless_hung(event) else {
            return;
        };
        self.comes(event);
        for (phase, incident) in self.controller.take_incidents() {
            self.happened(Pair::Operation(phase, incident), None);
        }
    }

    fn comes(&mut self, event: Event) {
        match event {
            Event::Up(node, packet) => self.at_switch(node, packet),
            Event::HeldUp(number) => self.goes_on(number),
            Event::Down(Node::Compute(blade), packet) => self.at_blade(blade, packet),
            Event::Down(Node::Memory(memory), packet) => self.at_memory(memory, packet),
            Event::Run(thread, turn) => self.run_thread(thread, turn),
            Event::Drain(thread) => self.drain(thread),
            Event::Fault(thread, connection, page, access) => {
                self.fault(thread, connection, page, access)
            }
            Event::Poll(blade) => self.poll(blade),
            Event::Step => self.step(),
            Event::ToController(session, input) => self.arrived_at_controller(session, input),
            Event::ToAgent(session, message) => self.message_arrived(session, message),
            Event::Closed(session) => self.closed(session),
            Event::SessionLost(session) => self.session_lost(session),
            Event::Reconnect(node, incarnation) => self.reconnect(node, incarnation),
            Event::Die(deaths) => self.die_at_last(deaths),
            Event::TakeOver => self.take_over(),
            Event::Begin(node) => self.begin(node),
            Event::Repaired(node) => {
                self.switch.tables_mut().without_tc.remove(&node);
            }
            Event::Left(domain, pid, connection) => self.left(domain, pid, connection),
            Event::Enters(thread, start, connection) => self.enter(thread, start, connection),
            Event::Epoch(length) => self.epoch(length),
            Event::Follow(disturbance) => self.disturb(disturbance),
            Event::Disturb(number) => self.disturb(self.plan.disturbances[number].1),
        }
    }

    /// Notes the first failure.
    pub(crate) fn fail(&mut self, failure: Failure) {
        if self.persists && !failure.is_end() {
            return;
        }
        self.failure.get_or_insert(failure);
    }

    pub(crate) fn record(&mut self, what: What) {
        self.log.push(self.queue.now(), what);
    }

    /// The delays of daemons and controller now.
    pub(crate) fn load(&self) -> Load {
        if self.queue.now() < self.calm_at {
            self.plan.load
        } else {
            Load::default()
        }
    }

    /// How late a daemon handles its timers this time, in nanoseconds.
    pub(crate) fn tardiness(&mut self) -> u64 {
        let most = self.load().timers;
        self.random.u64(0..=most)
    }

    // Packets.

    /// A host sends a packet to the switch.
    pub(crate) fn send(&mut self, node: Node, packet: Datagram<Image>) {
        let delays = self.network.delays(self.queue.now(), node, Direction::Up);
        self.record(What::Sent(node, packet, delays.len()));
        self.keep(node, Direction::Up, &packet);
        for delay in delays {
            self.queue.after(delay, Event::Up(node, packet));
        }
    }

    /// The switch handles a packet: one that comes in now, or one that came in when the tables were as in `view`.
    fn pass(&mut self, from: Node, packet: Datagram<Image>, view: Option<&View>) {
        let before = self.word_of(&packet, view);
        // What is held up may meet words that no other packet does.
        let word = before.map(|(_, word)| word).filter(|_| view.is_none());
        let handled = match view {
            None => self.switch.handle(from, packet),
            Some(view) => self.switch.handle_late(view, from, packet),
        };
        self.break_switch(from);
        if let Some((region, pages)) = handled.invalidated {
            *self.invalidated.entry(region).or_default() += u32::from(pages);
        }
        let happening = Happening::of_packet(&packet, handled.verdict);
        if let Some((word, happening)) = word.zip(happening) {
            let pair = Pair::Word(Kind::of(word), happening);
            self.happened(pair, None);
        }
        self.record(What::Switched(from, packet, handled.verdict));
        if self.switch.tells_of_shortage() {
            self.tell_controller(Input::Short);
        }
        // A region that was just touched first had no slot before, which is as if it were free.
        let before = before.or_else(|| Some((self.word_of(&packet, None)?.0, Word::default())));
        if let Some((slot, before)) = before {
            self.changed(slot, before);
        }
        for (node, packet) in handled.sent {
            self.keep(node, Direction::Down, &packet);
            let delays = self.network.delays(self.queue.now(), node, Direction::Down);
            self.record(What::Forwarded(node, packet, delays.len()));
            for delay in delays {
                self.queue.after(delay, Event::Down(node, packet));
            }
        }
    }

    /// Notes a change of a word.
    pub(crate) fn changed(&mut self, slot: usize, before: Word) {
        let slot = &self.switch.slots()[slot];
        if let Some(region) = slot.region.filter(|_| slot.word != before) {
            let word = What::Word(region, before, slot.word);
            self.record(word);
        }
    }

    /// The slot of the page that a compute blade's packet names, as the tables say or said, and its word.
    fn word_of(&self, packet: &Datagram<Image>, view: Option<&View>) -> Option<(usize, Word)> {
        let page = match packet.body {
            Body::Request { page, .. } | Body::Write { page, .. } => page.page,
            Body::Answer { invalidation, .. } | Body::Forward { invalidation, .. } => {
                invalidation.page
            }
            _ => return None,
        };
        let tables = view.map_or_else(|| self.switch.tables(), View::tables);
        let slot = tables.slot(page)?;
        let word = self.switch.slots().get(slot)?.word;
        Some((slot, word))
    }
}
