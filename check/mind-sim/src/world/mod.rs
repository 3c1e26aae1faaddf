//! The whole system and its clock: the next event is taken from one queue and given to the machine
//! that it concerns.
//!
//! * [`agent`], [`incarnation`], [`program`], [`thread`]: compute blades and what runs on them; [`scripted`] and
//!   [`store_buffer`]: threads with scripts,
//! * [`host`], [`mapped`]: the state of a blade, and of the mapped areas,
//! * [`network`], [`queue`]: cables and the clock,
//! * [`disturb`], [`triggers`], [`flaws`]: disturbances, effects that follow events, and machines broken on purpose,
//! * [`checker`], [`quiet`]: the checks at every load and at the end.

mod agent;
pub(crate) mod checker;
mod disturb;
mod flaws;
pub(crate) mod host;
mod incarnation;
pub(crate) mod mapped;
pub(crate) mod network;
mod program;
pub(crate) mod queue;
mod quiet;
pub(crate) mod scripted;
mod store_buffer;
pub(crate) mod thread;
mod triggers;

use crate::trace::Direction;
use std::collections::BTreeMap;

use mind_common::{
    addr::{PAGE_SHIFT, Prefix, SLICE_SHIFT, Va, WINDOW_BASE},
    directory::Word,
    id::{BladeId, Connection, DomainId},
    table::Translation,
};
use mind_machines::{
    Node,
    compute::Access,
    controller::{Ask, Command, Controller, Input, Link, Patience, Progress, Request},
    datagram::{Body, Datagram, PageRequest},
    memory::Memory,
    switch::{Port, Switch},
};

use crate::{
    Failure, Outcome,
    coverage::{Coverage, Happening, Kind, Pair},
    plan::{Disturbance, Image, Load, Mapping, Plan, blade, generator},
    trace::{Log, What},
    world::checker::Checker,
    world::host::Machine,
    world::mapped::{Mapped, request},
    world::network::Network,
    world::queue::Queue,
    world::scripted::{Barriers, ScriptedThread},
    world::thread::Thread,
    world::triggers::Kept,
};

/// After the faults stop, programs have finished within this, in nanoseconds. The longest that any of
/// 96,000 seeds takes is 4.12 s: requests that began before are given up after 5 s.
const RECOVERY: u64 = 6_000_000_000;
/// After the faults stop, the run has ended within this, scripts and timers too, in nanoseconds.
const PATIENCE: u64 = 30_000_000_000;
/// How long a step of the controller takes at least, in nanoseconds.
const STEP: u64 = 200;

pub use checker::Wrong;

pub(crate) enum Event {
    /// A packet arrives at the switch, from a host.
    Up(Node, Datagram<Image>),
    /// A packet arrives at a host.
    Down(Node, Datagram<Image>),
    /// A thread goes on, unless it has gone on since.
    Run(usize, u64),
    /// A store of a thread leaves its store buffer.
    Drain(usize),
    /// The daemon of that incarnation receives a thread's fault.
    Fault(usize, Connection, PageRequest, Access),
    /// A blade's timer is due.
    Poll(BladeId),
    /// The controller takes a step.
    Step,
    /// A command of the controller arrives.
    Command(Link, Command),
    /// The controller receives an input.
    ControllerInput(Input),
    /// A blade begins an incarnation.
    Begin(BladeId),
    /// The port has its program in TC again.
    Repaired(Node),
    /// A daemon learns that a thread of its host has ended.
    Left(DomainId, u32, Connection),
    /// A thread that is started again enters its domain.
    Enters(u32, Connection),
    /// An incarnation finds out that its connection to the controller is lost.
    ControllerLost(Connection),
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
    pub(crate) memories: BTreeMap<u8, Memory<Image>>,
    pub(crate) controller: Controller,
    pub(crate) machines: BTreeMap<BladeId, Machine>,
    pub(crate) threads: Vec<Thread>,
    /// The threads with scripts, which come first.
    pub(crate) scripted: Vec<ScriptedThread<'a>>,
    pub(crate) barriers: Barriers,
    /// The run goes on when memory is wrong, as long as it can; the caller checks.
    pub(crate) persists: bool,
    pub(crate) checker: Checker,
    pub(crate) mapped: Mapped,
    pub(crate) log: Log,
    /// When the last message on a connection arrives, to and from the controller.
    pub(crate) sent: BTreeMap<(Link, bool), u64>,
    /// When the controller's next step is, if it is scheduled.
    step_at: Option<u64>,
    /// When the last thread finished so far.
    pub(crate) finished_at: u64,
    pub(crate) failure: Option<Failure>,
    pub(crate) coverage: Coverage,
    pub(crate) kept: Kept,
    /// The words before a step of the controller's.
    words: Vec<Word>,
}

fn threads(plan: &Plan) -> Vec<Thread> {
    let mut seeds = generator(plan.seed, 3);
    let programs = plan.programs.iter();
    let threads = programs.map(|program| Thread::new(program, seeds.u64(..)));
    threads.collect()
}

impl<'a> World<'a> {
    pub(crate) fn new(plan: &'a Plan, is_traced: bool) -> Self {
        let slots = plan.areas.len() * 3 + 8;
        let mut switch = Switch::new(slots);
        let tables = switch.tables_mut();
        for memory in 0..plan.memories {
            let base = Va(WINDOW_BASE + (u64::from(memory) << SLICE_SHIFT));
            let slice = Prefix {
                base,
                shift: SLICE_SHIFT,
            };
            tables.ports.insert(Node::Memory(memory), Port::Memory);
            tables.memory.insert(memory);
            let translation = Translation::new(memory, base, 0);
            tables.translation.insert(slice, translation);
        }
        let memory_pages = (plan.areas.len() as u64 + 1) << 9;
        let machines = (0..plan.blades).map(|number| (blade(number), Machine::default()));
        let mut world = Self {
            plan,
            calm_at: plan.calm_at(),
            queue: Queue::new(),
            random: generator(plan.seed, 2),
            network: Network::new(plan.seed, plan.network_faults),
            switch,
            memories: (0..plan.memories)
                .map(|memory| (memory, Memory::new(memory_pages)))
                .collect(),
            controller: Controller::new(Patience::default(), slots, 0..plan.memories),
            machines: machines.collect(),
            threads: threads(plan),
            scripted: Vec::new(),
            barriers: Barriers::new(),
            persists: false,
            checker: Checker::default(),
            mapped: Mapped::default(),
            log: Log::new(is_traced),
            sent: BTreeMap::new(),
            step_at: None,
            finished_at: 0,
            failure: None,
            coverage: Coverage::default(),
            kept: Kept::new(),
            words: Vec::new(),
        };
        world.begin();
        world
    }

    /// Memory is mapped, blades register, and disturbances are scheduled.
    fn begin(&mut self) {
        for area in self.plan.areas.iter().filter(|area| area.is_mapped) {
            let map = request(area, Mapping::Map);
            self.controller.handle(Input::Ask(Ask::of_nobody(map)));
        }
        self.step_after(0);
        for number in 0..self.plan.blades {
            let delay = self.random.u64(0..200_000);
            self.queue.after(delay, Event::Begin(blade(number)));
        }
        for (number, (at, _)) in self.plan.disturbances.iter().enumerate() {
            self.queue.at(*at, Event::Disturb(number));
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
        match event {
            Event::Up(node, packet) => self.at_switch(node, packet),
            Event::Down(Node::Compute(blade), packet) => self.at_blade(blade, packet),
            Event::Down(Node::Memory(memory), packet) => self.at_memory(memory, packet),
            Event::Run(thread, turn) => self.run_thread(thread, turn),
            Event::Drain(thread) => self.drain(thread),
            Event::Fault(thread, connection, page, access) => {
                self.fault(thread, connection, page, access)
            }
            Event::Poll(blade) => self.poll(blade),
            Event::Step => self.step(),
            Event::Command(link, command) => self.command_arrived(link, command),
            Event::ControllerInput(input) => {
                self.record(What::Input(input));
                self.controller.handle(input);
                self.step_after(0);
            }
            Event::Begin(blade) => {
                self.receive_from_controller(Ask::of_nobody(Request::Register(blade)))
            }
            Event::Repaired(node) => {
                self.switch.tables_mut().without_tc.remove(&node);
            }
            Event::Left(domain, entry, connection) => self.left(domain, entry, connection),
            Event::Enters(ticket, connection) => self.enter(ticket, connection),
            Event::ControllerLost(connection) => self.controller_lost(connection),
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

    fn at_switch(&mut self, from: Node, packet: Datagram<Image>) {
        let before = self.word_of(&packet);
        let word = before.map(|(_, word)| word);
        let handled = self.switch.handle(from, packet);
        self.break_switch(from);
        let happening = Happening::of_packet(&packet, handled.verdict);
        if let Some((word, happening)) = word.zip(happening) {
            let pair = Pair::Word(Kind::of(word), happening);
            self.happened(pair, None);
        }
        self.record(What::Switched(from, packet, handled.verdict));
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
    fn changed(&mut self, slot: usize, before: Word) {
        let slot = &self.switch.slots()[slot];
        if let Some(region) = slot.region.filter(|_| slot.word != before) {
            let word = What::Word(region, before, slot.word);
            self.record(word);
        }
    }

    /// The slot of the page that a compute blade's packet names, and its word.
    fn word_of(&self, packet: &Datagram<Image>) -> Option<(usize, Word)> {
        let page = match packet.body {
            Body::Request { page, .. } | Body::Write { page, .. } => page.page,
            Body::Answer { invalidation, .. } | Body::Forward { invalidation, .. } => {
                invalidation.page
            }
            _ => return None,
        };
        let slot = self.switch.tables().slot(page)?;
        let word = self.switch.slots().get(slot)?.word;
        Some((slot, word))
    }

    fn at_memory(&mut self, number: u8, mut packet: Datagram<Image>) {
        let node = Node::Memory(number);
        self.record(What::Arrived(node, packet));
        self.break_memory(number, &mut packet);
        let Some(memory) = self.memories.get_mut(&number) else {
            return;
        };
        let (_, answer) = memory.handle(packet);
        if let Some(answer) = answer {
            self.send(node, answer);
        }
    }

    /// The content of a page in memory.
    pub(crate) fn in_memory(&self, page: Va) -> Image {
        let kept = self.switch.tables().location(page);
        let memory = kept.and_then(|kept| {
            let memory = self.memories.get(&u8::try_from(kept.blade).ok()?)?;
            Some(memory.page(kept.offset.0 >> PAGE_SHIFT).data)
        });
        memory.unwrap_or_default()
    }

    // The controller.

    pub(crate) fn step_after(&mut self, delay: u64) {
        let most = self.load().controller.max(STEP);
        let at = self.queue.now() + delay + self.random.u64(STEP..=most);
        self.step_at(at);
    }

    fn step_at(&mut self, at: u64) {
        if self.step_at.is_none_or(|already| at < already) {
            self.step_at = Some(at);
            self.queue.at(at, Event::Step);
        }
    }

    fn step(&mut self) {
        let now = self.queue.now();
        // It may have been scheduled anew since.
        if self.step_at.is_none_or(|at| at > now) {
            return;
        }
        self.step_at = None;
        let mut out = Vec::new();
        self.words.clear();
        let words = self.switch.slots().iter().map(|slot| slot.word);
        self.words.extend(words);
        let progress = self.controller.step(now, &mut self.switch, &mut out);
        self.count_changes();
        self.mapped
            .notice(self.plan, self.switch.tables(), self.queue.now());
        self.notice_cuts();
        for (link, command) in out {
            self.send_command(link, command);
        }
        match progress {
            Progress::Acted => self.step_after(0),
            Progress::Waits { until } => self.step_at(until.max(now + 1)),
            // It goes on with the next input.
            Progress::Awaits | Progress::Idle => {}
        }
    }

    fn count_changes(&mut self) {
        let both = self.words.iter().zip(self.switch.slots());
        let pairs = both.filter_map(|(before, slot)| {
            let happening = Happening::of_change(*before, slot.word)?;
            Some(Pair::Word(Kind::of(*before), happening))
        });
        let pairs: Vec<_> = pairs.collect();
        for pair in pairs {
            self.happened(pair, None);
        }
        for slot in 0..self.words.len() {
            self.changed(slot, self.words[slot]);
        }
    }
}
