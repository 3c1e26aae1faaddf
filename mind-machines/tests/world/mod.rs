//! A small world for tests: compute blades with threads, a switch, memory, and a network that
//! delays, loses and repeats. All of it from one seed; every datagram is real bytes.
//!
//! It checks as it goes: whoever writes is alone with the page, whoever reads gets what was
//! written last.

use std::collections::{BTreeMap, BTreeSet};

use mind_common::{
    addr::{PAGE_SIZE, Region, Va, WINDOW_BASE},
    directory::{
        Answer, AnswerVerdict, Order, Origin, Path, Queue, Request, RequestVerdict, State, Supply,
        Want, Word, admit,
        machine::{may_write_back, on_answer},
    },
    id::{BladeId, BladeSet, Connection, DomainId},
    memory::{Store, on_write},
    serial::{Episode, Seq, Version},
    wire::{
        Invalidation, Message, Refusal, Syndrome,
        message::{Envelope, Page, PageRequest, parse},
    },
};
use mind_machines::compute::{Access, Action, Blade, Config, Counters, Outgoing};

pub const DOMAIN: DomainId = DomainId(7);

/// What the network does, in parts of 1000, and how long it takes, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    pub loss: u32,
    pub duplication: u32,
    pub longest_delay: u64,
}

/// A network that loses and repeats nothing.
pub const GOOD: Faults = Faults {
    loss: 0,
    duplication: 0,
    longest_delay: 3_000,
};

/// How long half of the operations may take on a good network, what faults left under way included:
/// 5 s of virtual time, in nanoseconds. The longest of 3,000 runs took 0.23 s.
pub const GOOD_LIMIT: u64 = 5_000_000_000;

#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub seed: u64,
    pub blades: u8,
    pub pages: u64,
    pub region_order: u8,
    pub capacity: usize,
    pub threads: usize,
    pub operations: usize,
    /// Of three accesses, how many are writes.
    pub writes: u32,
    pub faults: Faults,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Node {
    Blade(u8),
    /// From this blade or from memory.
    Switch(Option<u8>),
    Memory,
}

enum Event {
    Datagram(Node, Vec<u8>),
    Run(u8, usize),
    Poll(u8),
}

#[derive(Clone, Copy)]
struct Copy {
    value: u64,
    writable: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Thread {
    Ready,
    Blocked(Va, Access),
    Done,
}

struct Host {
    blade: Blade,
    cache: BTreeMap<Va, Copy>,
    threads: Vec<Thread>,
    left: Vec<usize>,
    poll_at: Option<u64>,
    /// Faults that took a request and are over.
    served: u64,
}

struct Slot {
    word: Word,
    origin: Origin,
    queue: Queue,
}

pub struct World {
    setup: Setup,
    random: fastrand::Rng,
    now: u64,
    /// Since when the network is good: nothing is lost, repeated or very late.
    good_since: Option<u64>,
    events: BTreeMap<(u64, u64), Event>,
    sent: u64,
    hosts: Vec<Host>,
    slots: BTreeMap<Va, Slot>,
    memory: BTreeMap<Va, (Version, u64)>,
    /// What was written last.
    truth: BTreeMap<Va, u64>,
    pub paths: BTreeSet<Path>,
    pub failures: Vec<String>,
}

fn bytes_of(value: u64) -> Page {
    let mut page = [0; PAGE_SIZE];
    page[..8].copy_from_slice(&value.to_le_bytes());
    page[PAGE_SIZE - 8..].copy_from_slice(&value.to_le_bytes());
    page
}

fn value_of(page: &Page) -> u64 {
    let word = |at| u64::from_le_bytes(page[at..at + 8].try_into().expect("8 bytes are a word"));
    assert_eq!(word(0), word(PAGE_SIZE - 8), "a page is torn");
    word(0)
}

fn connection(blade: u8) -> Connection {
    Connection {
        blade: BladeId::new(blade).expect("a world has few blades"),
        incarnation: 3,
    }
}

impl World {
    pub fn new(setup: Setup) -> Self {
        let hosts = (0..setup.blades)
            .map(|number| Host {
                blade: Blade::new(Config {
                    // Long, so that a thread gets its turn; a world has no real clock.
                    deadline: 3_600_000_000_000,
                    ..Config::new(connection(number), setup.capacity)
                }),
                cache: BTreeMap::new(),
                threads: vec![Thread::Ready; setup.threads],
                left: vec![setup.operations; setup.threads],
                poll_at: None,
                served: 0,
            })
            .collect();
        let mut world = Self {
            setup,
            random: fastrand::Rng::with_seed(setup.seed),
            now: 1,
            good_since: None,
            events: BTreeMap::new(),
            sent: 0,
            hosts,
            slots: BTreeMap::new(),
            memory: BTreeMap::new(),
            truth: BTreeMap::new(),
            paths: BTreeSet::new(),
            failures: Vec::new(),
        };
        for blade in 0..setup.blades {
            for thread in 0..setup.threads {
                world.run_later(blade, thread);
            }
        }
        world
    }

    pub fn counters(&self) -> Vec<Counters> {
        self.hosts
            .iter()
            .map(|host| host.blade.counters())
            .collect()
    }

    /// How many faults that took a request are over, by blade.
    pub fn served(&self) -> Vec<u64> {
        self.hosts.iter().map(|host| host.served).collect()
    }

    /// Runs until everybody is done. Faults stop when half of the operations are begun, for which
    /// there are `time_limit` nanoseconds of virtual time; from then on everything must complete
    /// within [`GOOD_LIMIT`]. Returns the virtual time it took, in nanoseconds.
    ///
    /// # Errors
    ///
    /// What went wrong first.
    pub fn run(&mut self, time_limit: u64) -> Result<u64, String> {
        while self
            .hosts
            .iter()
            .any(|h| h.threads.iter().any(|t| *t != Thread::Done))
        {
            let Some(((at, _), event)) = self.events.pop_first() else {
                return Err(format!("nothing happens any more:\n{}", self.describe()));
            };
            self.now = self.now.max(at);
            if self.good_since.is_none() && self.is_half_done() {
                self.good_since = Some(self.now);
            }
            let until = self
                .good_since
                .map_or(time_limit, |since| since + GOOD_LIMIT);
            if self.now > until {
                return Err(format!("does not complete:\n{}", self.describe()));
            }
            match event {
                Event::Datagram(Node::Blade(blade), bytes) => self.at_blade(blade, &bytes),
                Event::Datagram(Node::Switch(from), bytes) => self.at_switch(from, &bytes),
                Event::Datagram(Node::Memory, bytes) => self.at_memory(&bytes),
                Event::Run(blade, thread) => self.run_thread(blade, thread),
                Event::Poll(blade) => {
                    if self.hosts[blade as usize]
                        .poll_at
                        .is_some_and(|at| at <= self.now)
                    {
                        self.hosts[blade as usize].poll_at = None;
                        let mut actions = Vec::new();
                        self.hosts[blade as usize]
                            .blade
                            .poll(self.now, &mut actions);
                        self.carry_out(blade, &actions, None);
                    }
                }
            }
            if let Some(failure) = self.failures.first() {
                return Err(failure.clone());
            }
        }
        Ok(self.now)
    }

    /// Whether half of all operations are begun.
    fn is_half_done(&self) -> bool {
        let left: usize = self.hosts.iter().flat_map(|host| &host.left).sum();
        let all = self.setup.blades as usize * self.setup.threads * self.setup.operations;
        2 * left <= all
    }

    fn describe(&self) -> String {
        use std::fmt::Write as _;
        let mut text = String::new();
        for (base, slot) in &self.slots {
            let _ = writeln!(text, "{base} {:?} {:?}", slot.word, slot.origin);
        }
        for (number, host) in self.hosts.iter().enumerate() {
            let _ = writeln!(text, "c{number}: {:?}", host.blade);
        }
        text
    }

    fn at(&mut self, delay: u64, event: Event) {
        self.sent += 1;
        self.events.insert((self.now + delay, self.sent), event);
    }

    fn run_later(&mut self, blade: u8, thread: usize) {
        let delay = self.random.u64(100..8_000);
        self.at(delay, Event::Run(blade, thread));
    }

    fn post(&mut self, to: Node, envelope: Envelope, message: &Message<'_>) {
        let mut bytes = vec![0; message.len()];
        message
            .emit_into(&envelope, &mut bytes)
            .expect("the buffer is as long as the message");
        let faults = match self.good_since {
            None => self.setup.faults,
            Some(_) => GOOD,
        };
        let copies = if self.random.u32(0..1000) < faults.duplication {
            1 + self.random.usize(1..3)
        } else {
            1
        };
        for _ in 0..copies {
            if self.random.u32(0..1000) < faults.loss {
                continue;
            }
            // Mostly quick, sometimes very late.
            let longest = if self.random.u32(0..10) == 0 {
                faults.longest_delay
            } else {
                faults.longest_delay.min(5_000)
            };
            let delay = self.random.u64(500..=longest.max(501));
            self.at(delay, Event::Datagram(to, bytes.clone()));
        }
    }

    // The compute blades.

    fn run_thread(&mut self, blade: u8, thread: usize) {
        let host = &mut self.hosts[blade as usize];
        let (page, access) = match host.threads[thread] {
            Thread::Done => return,
            Thread::Blocked(page, access) => (page, access),
            Thread::Ready => {
                if host.left[thread] == 0 {
                    host.threads[thread] = Thread::Done;
                    return;
                }
                host.left[thread] -= 1;
                let number = self.random.u64(0..self.setup.pages);
                let access = if self.random.u32(0..3) < self.setup.writes {
                    Access::Write
                } else {
                    Access::Read
                };
                (Va(WINDOW_BASE + number * PAGE_SIZE as u64), access)
            }
        };
        let host = &mut self.hosts[blade as usize];
        match (host.cache.get(&page).copied(), access) {
            (Some(copy), Access::Read) => {
                host.threads[thread] = Thread::Ready;
                let truth = self.truth.get(&page).copied().unwrap_or(0);
                if copy.value != truth {
                    self.failures.push(format!(
                        "c{blade} reads {} of {page}, written last was {truth}",
                        copy.value
                    ));
                }
                self.run_later(blade, thread);
            }
            (Some(copy), Access::Write) if copy.writable => {
                host.threads[thread] = Thread::Ready;
                self.sent += 1;
                let value = self.sent;
                host.cache.insert(page, Copy { value, ..copy });
                self.truth.insert(page, value);
                for (other, host) in self.hosts.iter().enumerate() {
                    if other != blade as usize && host.cache.contains_key(&page) {
                        self.failures
                            .push(format!("c{blade} writes {page} while c{other} has a copy"));
                    }
                }
                self.run_later(blade, thread);
            }
            _ => {
                host.threads[thread] = Thread::Blocked(page, access);
                let mut actions = Vec::new();
                let page = PageRequest {
                    page,
                    domain: DOMAIN,
                };
                host.blade.fault(self.now, page, access, &mut actions);
                self.carry_out(blade, &actions, None);
            }
        }
    }

    fn at_blade(&mut self, blade: u8, bytes: &[u8]) {
        let (envelope, message) = parse(bytes).expect("the world sends messages");
        let data = match message {
            Message::ReadResponse { data, .. } | Message::Forward { data, .. } => Some(data),
            _ => None,
        };
        let mut actions = Vec::new();
        let host = &mut self.hosts[blade as usize];
        host.blade
            .receive(self.now, &envelope, &message, &mut actions);
        self.carry_out(blade, &actions, data);
    }

    fn wake(&mut self, blade: u8, page: Va) {
        for thread in 0..self.setup.threads {
            if matches!(self.hosts[blade as usize].threads[thread], Thread::Blocked(p, _) if p == page)
            {
                self.run_later(blade, thread);
            }
        }
    }

    fn carry_out(&mut self, blade: u8, actions: &[Action], data: Option<&Page>) {
        for action in actions {
            let host = &mut self.hosts[blade as usize];
            match *action {
                Action::Install { page, writable } => {
                    let value = value_of(data.expect("what installs a page carries it"));
                    host.cache.insert(page.page, Copy { value, writable });
                    self.wake(blade, page.page);
                }
                Action::Map { page, writable } => {
                    let copy = host
                        .cache
                        .get_mut(&page.page)
                        .expect("a mapped page is here");
                    copy.writable |= writable;
                    self.wake(blade, page.page);
                }
                Action::Protect { page } => {
                    let copy = host.cache.get_mut(&page.page);
                    copy.expect("a protected page is here").writable = false;
                }
                Action::Drop { page } => {
                    host.cache
                        .remove(&page.page)
                        .expect("a dropped page was here");
                }
                Action::Send { envelope, message } => {
                    let of = |page: PageRequest| {
                        let copy = host.cache.get(&page.page).expect("a sent page is here");
                        assert!(!copy.writable, "a page is sent while it may change");
                        bytes_of(copy.value)
                    };
                    let data;
                    let message = match message {
                        Outgoing::Request { want, page } => match want {
                            Want::Read => Message::Read(page),
                            Want::Acquire => Message::Acquire(page),
                            Want::Upgrade => Message::Upgrade(page),
                        },
                        Outgoing::WriteBack { page, version } => {
                            data = of(page);
                            Message::Write {
                                request: page,
                                version,
                                data: &data,
                            }
                        }
                        Outgoing::Answer {
                            invalidation,
                            toll,
                            fetch,
                        } => {
                            if fetch {
                                Message::InvalidateAckFetch { invalidation, toll }
                            } else {
                                Message::InvalidateAck { invalidation, toll }
                            }
                        }
                        Outgoing::Forward {
                            invalidation,
                            toll,
                            page,
                            version,
                        } => {
                            data = of(page);
                            Message::Forward {
                                invalidation,
                                toll,
                                version,
                                data: &data,
                            }
                        }
                    };
                    self.post(Node::Switch(Some(blade)), envelope, &message);
                }
                // The controller of this world does nothing.
                Action::Appeal { .. } => {}
                Action::Served { path, .. } => {
                    host.served += 1;
                    self.paths.extend(path);
                }
                Action::Fail { .. } | Action::Lost { .. } => {
                    self.failures.push(format!("c{blade}: {action:?}"));
                }
                Action::Flushed { .. } => unreachable!("nobody flushes here"),
                Action::Stepped { .. } => unreachable!("nobody watches here"),
            }
        }
        let host = &mut self.hosts[blade as usize];
        let (used, capacity) = host.blade.room();
        assert!(
            used <= capacity && host.cache.len() <= used,
            "the cache is too full"
        );
        if let Some(at) = host.blade.next_deadline()
            && host.poll_at.is_none_or(|already| at < already)
        {
            host.poll_at = Some(at);
            let delay = at.saturating_sub(self.now);
            self.at(delay, Event::Poll(blade));
        }
    }

    // The switch.

    fn slot(&mut self, page: Va) -> (Region, &mut Slot) {
        let region = Region::containing(page, self.setup.region_order).expect("a valid order");
        let slot = self.slots.entry(region.base()).or_insert(Slot {
            word: Word::new(
                State::Invalid,
                BladeId::from_low_bits(0),
                Episode::default(),
                BladeSet::EMPTY,
            ),
            origin: Origin::default(),
            queue: Queue::default(),
        });
        (region, slot)
    }

    fn at_switch(&mut self, from: Option<u8>, bytes: &[u8]) {
        let (envelope, message) = parse(bytes).expect("the world sends messages");
        let Some(from) = from else {
            // Memory answers whom the queue pair names.
            let to = Connection::from_qp(envelope.qp).expect("memory echoes a connection");
            return self.post(Node::Blade(to.blade.get()), envelope, &message);
        };
        let from = BladeId::new(from).expect("a world has few blades");
        match message {
            Message::Read(page) => self.on_request(from, envelope, Want::Read, page),
            Message::Acquire(page) => self.on_request(from, envelope, Want::Acquire, page),
            Message::Upgrade(page) => self.on_request(from, envelope, Want::Upgrade, page),
            Message::Write { request, .. } => {
                let (_, slot) = self.slot(request.page);
                if may_write_back(slot.word, from) {
                    self.post(Node::Memory, envelope, &message);
                } else {
                    self.refuse(from, envelope, Refusal::Stale);
                }
            }
            Message::InvalidateAck { invalidation, .. } => {
                self.on_answer(from, envelope, invalidation, Supply::Grant, &message);
            }
            Message::InvalidateAckFetch { invalidation, .. } => {
                self.on_answer(from, envelope, invalidation, Supply::Fetch, &message);
            }
            Message::Forward { invalidation, .. } => {
                self.on_answer(from, envelope, invalidation, Supply::Forward, &message);
            }
            other => unreachable!("no blade sends {:?}", other.opcode()),
        }
    }

    fn refuse(&mut self, to: BladeId, envelope: Envelope, refusal: Refusal) {
        let message = Message::Acknowledge {
            syndrome: Syndrome::Refused(refusal),
            version: Version::default(),
        };
        self.post(Node::Blade(to.get()), envelope, &message);
    }

    fn on_request(&mut self, from: BladeId, envelope: Envelope, want: Want, page: PageRequest) {
        let request = Request {
            from,
            want,
            repeated: envelope.attempt > 0,
        };
        let (region, slot) = self.slot(page.page);
        let before = slot.word;
        let transition = admit(before, slot.queue, request);
        (slot.word, slot.queue) = (transition.next, transition.queue);
        let marked = Envelope {
            attempt: Path::between(before, transition.next) as u8,
            ..envelope
        };
        match transition.verdict {
            RequestVerdict::Fetch => self.post(Node::Memory, marked, &Message::Read(page)),
            RequestVerdict::Grant => {
                let message = Message::Acknowledge {
                    syndrome: Syndrome::Ack,
                    version: Version::default(),
                };
                self.post(Node::Blade(from.get()), marked, &message);
            }
            RequestVerdict::Refuse(refusal) => self.refuse(from, envelope, refusal),
            RequestVerdict::Invalidate(order) => {
                let (seq, wanted) = if order.repeated {
                    match slot.origin.of(order.episode, region) {
                        Some(origin) => origin,
                        None => return self.refuse(from, envelope, Refusal::Busy),
                    }
                } else {
                    let origin = Origin::new(order.episode, envelope.seq, page.page);
                    if origin.replaces(slot.origin) {
                        slot.origin = origin;
                    }
                    (envelope.seq, page.page)
                };
                self.fan_out(order, region, seq, wanted);
            }
        }
    }

    fn fan_out(&mut self, order: Order, region: Region, seq: Seq, page: Va) {
        let invalidation = Invalidation {
            page,
            region,
            slot: number(region),
            episode: order.episode,
            requester: order.requester,
            target: order.target,
            supply: order.supply,
        };
        for blade in order.blades.iter() {
            let envelope = Envelope {
                qp: connection(blade.get()).to_qp(),
                seq,
                attempt: 0,
            };
            let message = Message::Invalidate(invalidation);
            self.post(Node::Blade(blade.get()), envelope, &message);
        }
    }

    fn on_answer(
        &mut self,
        from: BladeId,
        envelope: Envelope,
        invalidation: Invalidation,
        supply: Supply,
        message: &Message<'_>,
    ) {
        let answer = Answer {
            from,
            requester: invalidation.requester,
            slot: invalidation.slot,
            episode: invalidation.episode,
        };
        let (region, slot) = self.slot(invalidation.page);
        let before = slot.word;
        let transition = on_answer(number(region), before, answer);
        slot.word = transition.next;
        if transition.verdict != AnswerVerdict::Complete {
            return;
        }
        let requester = invalidation.requester.get();
        let envelope = Envelope {
            qp: connection(requester).to_qp(),
            seq: envelope.seq,
            attempt: Path::between(before, transition.next) as u8,
        };
        match supply {
            Supply::Grant => {
                let message = Message::Acknowledge {
                    syndrome: Syndrome::Ack,
                    version: Version::default(),
                };
                self.post(Node::Blade(requester), envelope, &message);
            }
            Supply::Fetch => {
                let page = PageRequest {
                    page: invalidation.page,
                    domain: DOMAIN,
                };
                self.post(Node::Memory, envelope, &Message::Read(page));
            }
            Supply::Forward => self.post(Node::Blade(requester), envelope, message),
        }
    }

    // The memory blade.

    fn at_memory(&mut self, bytes: &[u8]) {
        let (envelope, message) = parse(bytes).expect("the world sends messages");
        match message {
            Message::Read(page) => {
                let (version, value) = self.memory.get(&page.page).copied().unwrap_or_default();
                let data = bytes_of(value);
                let message = Message::ReadResponse {
                    version,
                    data: &data,
                };
                self.post(Node::Switch(None), envelope, &message);
            }
            Message::Write {
                request,
                version,
                data,
            } => {
                let stored = self.memory.entry(request.page).or_default();
                let syndrome = match on_write(stored.0, version) {
                    Store::Accept => {
                        *stored = (version, value_of(data));
                        Syndrome::Ack
                    }
                    Store::Duplicate => Syndrome::Ack,
                    Store::Stale => Syndrome::Refused(Refusal::Stale),
                };
                let message = Message::Acknowledge { syndrome, version };
                self.post(Node::Switch(None), envelope, &message);
            }
            other => unreachable!("no switch sends memory {:?}", other.opcode()),
        }
    }
}

/// The number of a region's slot, which never changes here.
fn number(region: Region) -> u32 {
    (region.base().0 >> 12) as u32
}
