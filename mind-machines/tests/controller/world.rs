//! The controller with a switch and memory blades; agents of compute blades that do as they are told, unless they hang.

use std::collections::{BTreeMap, BTreeSet};

use mind_api::{
    errno::Failure,
    message::{Access, BladeKind, Command, OnLoss, Registration, Reply, Report, Request},
};
use mind_common::{
    addr::{Va, WINDOW_BASE},
    directory::{Prior, State, Want, Word},
    id::{BladeId, BladeSet, Connection, DomainId},
    serial::{Seq, Version},
    verdict::Verdict,
};
use mind_machines::{
    Node,
    agreement::disagreement,
    controller::{
        Act, Config, Controller, Event, Input, Output, Seen, Session,
        books::{
            Answer,
            blades::Incarnation,
            records::{Change, Key, Record},
        },
    },
    datagram::{Body, Datagram, Envelope, PageRequest},
    memory::Memory,
    splitting,
    switch::{Handled, Switch, port_of},
};

/// Slots of the directory, but for the first.
pub const SLOTS: usize = 160;
/// Epochs for which halves are quiet before they are merged.
pub const QUIET: u32 = 3;
/// Pages of each memory blade.
pub const PAGES: u64 = 256;

pub fn blade(number: u8) -> BladeId {
    BladeId::new(number).expect("a blade")
}

/// A compute blade's host.
pub fn host(number: u8) -> Node {
    Node::Compute(blade(number))
}

/// A word that no blade has, as [`World::word_at`] gives it: its state, the state before it was locked, and its blades.
pub const INVALID: (State, Option<Prior>, u32) = (State::Invalid, None, 0);

/// The address of a page of the first memory blade.
pub fn page(number: u64) -> Va {
    Va(WINDOW_BASE + (number << 12))
}

pub struct World {
    pub switch: Switch,
    pub memories: BTreeMap<u8, Memory<u64>>,
    pub controller: Controller,
    pub config: Config,
    pub now: u64,
    pub records: BTreeMap<Key, Record>,
    /// How often it has had records kept.
    pub kept: u64,
    /// What it wants recorded soon.
    pub kept_soon: Vec<Change>,
    /// Hosts whose agents do nothing.
    pub hang: BTreeSet<Node>,
    /// Hosts whose agents cannot do as they are told.
    pub fail: BTreeSet<Node>,
    /// Whose connection a session is.
    hosts: BTreeMap<Session, Node>,
    /// The blade that a host's agent was told that it is.
    known: BTreeMap<Node, Incarnation>,
    sessions: u64,
    requests: u64,
    pub replies: BTreeMap<u64, Answer>,
    /// Requests of agents that have no answer yet.
    asked: BTreeMap<u64, (Node, Request)>,
    /// Orders that agents that hang have not carried out.
    pub orders: Vec<(Session, u64, Command)>,
    pub left: Vec<Node>,
    pub flushed: Vec<Node>,
    pub events: Vec<Event>,
    /// The most records that were changed at once.
    pub longest_record: usize,
    /// Acts until the controller dies; none if it does not.
    pub acts_to_live: Option<usize>,
    /// The same of the one that takes over then.
    pub next_acts_to_live: Option<usize>,
}

fn keep(records: &mut BTreeMap<Key, Record>, changes: &[Change]) {
    for (key, record) in changes {
        match record {
            Some(record) => records.insert(*key, record.clone()),
            None => records.remove(key),
        };
    }
}

impl World {
    /// No blades yet.
    pub fn empty() -> Self {
        Self::with_slots(SLOTS)
    }

    /// The same, with so many slots.
    fn with_slots(slots: usize) -> Self {
        let config = Config {
            sweep: 7,
            batch: 4,
            zero: 0x8000,
            // A region that stays busy is looked at a few times only.
            pause: 500_000_000,
            splitting: Some(splitting::Config {
                quiet: QUIET,
                ..splitting::Config::default()
            }),
            ..Config::new([198, 18, 0, 1].into(), slots as u32 + 1)
        };
        Self {
            switch: Switch::new(slots),
            memories: BTreeMap::new(),
            controller: Controller::new(config),
            config,
            now: 1,
            records: BTreeMap::new(),
            kept: 0,
            kept_soon: Vec::new(),
            hang: BTreeSet::new(),
            fail: BTreeSet::new(),
            hosts: BTreeMap::new(),
            known: BTreeMap::new(),
            sessions: 0,
            requests: 0,
            replies: BTreeMap::new(),
            asked: BTreeMap::new(),
            orders: Vec::new(),
            left: Vec::new(),
            flushed: Vec::new(),
            events: Vec::new(),
            longest_record: 0,
            acts_to_live: None,
            next_acts_to_live: None,
        }
    }

    /// Three compute blades and two memory blades.
    pub fn new() -> Self {
        Self::empty().with_blades()
    }

    fn with_blades(mut self) -> Self {
        let world = &mut self;
        for number in 0..2 {
            world.register(Node::Memory(number));
            world.run();
        }
        for number in 0..3 {
            world.register(Node::Compute(blade(number)));
            world.run();
        }
        self
    }

    /// The same, with a process of domain 1 on each compute blade, and memory of that many pages.
    pub fn with_memory(pages: u64, on_loss: OnLoss) -> (Self, Va) {
        Self::with_memory_of(SLOTS, pages, on_loss)
    }

    /// The same, with so many slots.
    pub fn with_memory_of(slots: usize, pages: u64, on_loss: OnLoss) -> (Self, Va) {
        let mut world = Self::with_slots(slots).with_blades();
        for number in 0..3 {
            world.enter(number, "domain", on_loss);
        }
        let va = world.map(0, 1, pages);
        (world, va)
    }

    fn session(&mut self, host: Node) -> Session {
        self.sessions += 1;
        let session = Session(self.sessions);
        self.hosts.insert(session, host);
        session
    }

    fn request_id(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }

    fn registration(host: Node) -> Registration {
        let (kind, number) = match host {
            Node::Compute(blade) => (BladeKind::Compute, blade.get()),
            Node::Memory(number) => (BladeKind::Memory, number + 100),
        };
        Registration {
            kind,
            name: host.to_string(),
            address: [198, 18, 1, number].into(),
            mac: [2, 0, 0, 0, 0, number],
            pages: PAGES,
        }
    }

    /// A host's agent registers; a memory blade is empty then. The request's number.
    pub fn register(&mut self, host: Node) -> u64 {
        if let Node::Memory(number) = host {
            self.memories.insert(number, Memory::new(PAGES));
        }
        let (session, id) = (self.session(host), self.request_id());
        let input = Input::Register {
            session,
            id,
            registration: Self::registration(host),
            port: port_of(host),
        };
        self.controller.handle(self.now, input);
        id
    }

    pub fn incarnation(&self, host: Node) -> Incarnation {
        self.known[&host]
    }

    pub fn life(&self, number: u8) -> Connection {
        self.incarnation(Node::Compute(blade(number))).connection()
    }

    /// The session of a host's agent, if the controller has it.
    pub fn session_of(&self, host: Node) -> Option<Session> {
        let incarnation = self.known.get(&host)?;
        self.controller.session(*incarnation)
    }

    /// The connection of a host's agent breaks.
    pub fn cut(&mut self, host: Node) {
        if let Some(session) = self.session_of(host) {
            self.hosts.remove(&session);
            self.controller.handle(self.now, Input::Closed(session));
        }
    }

    /// A compute blade's agent asks for something. The request's number.
    pub fn ask(&mut self, number: u8, body: Request) -> u64 {
        let id = self.request_id();
        let host = Node::Compute(blade(number));
        self.asked.insert(id, (host, body.clone()));
        self.send_request(host, id, body);
        id
    }

    fn send_request(&mut self, host: Node, id: u64, body: Request) {
        if let Some(session) = self.session_of(host) {
            let answered = self.asked.keys().next().copied().unwrap_or(id);
            let input = Input::Request {
                session,
                id,
                answered,
                body,
            };
            self.controller.handle(self.now, input);
        }
    }

    /// A request that has its answer is made again, as if that had not arrived.
    pub fn ask_again(&mut self, number: u8, id: u64) {
        let body = Request::ExitProcess { domain: 0, pid: 0 };
        let host = Node::Compute(blade(number));
        self.asked.insert(id, (host, body.clone()));
        self.send_request(host, id, body);
    }

    /// The same, to its end; the answer.
    pub fn call(&mut self, number: u8, body: Request) -> Answer {
        let id = self.ask(number, body);
        self.run();
        self.replies[&id].clone()
    }

    /// An operator asks for something. The answer.
    pub fn operate(&mut self, body: Request) -> Answer {
        let id = self.begin_operating(body);
        self.run();
        self.replies[&id].clone()
    }

    /// A blade that waits for the region says that it is stuck.
    pub fn unstick(&mut self, va: Va) {
        self.ask(1, Request::ReportStuck { va: va.0 });
        self.run();
    }

    /// The same, not to its end. The request's number.
    pub fn begin_operating(&mut self, body: Request) -> u64 {
        let (session, id) = (Session(1 << 40), self.request_id());
        let input = Input::Request {
            session,
            id,
            answered: id,
            body,
        };
        self.controller.handle(self.now, input);
        id
    }

    pub fn enter(&mut self, number: u8, domain: &str, on_loss: OnLoss) -> u32 {
        let request = Request::EnterProcess {
            domain: domain.into(),
            pid: i32::from(number) + 10,
            on_loss: Some(on_loss),
        };
        match self.call(number, request) {
            Ok(Reply::Entered { domain }) => domain,
            other => panic!("{other:?}"),
        }
    }

    pub fn map(&mut self, number: u8, domain: u32, pages: u64) -> Va {
        let request = Request::Map {
            domain,
            length: pages << 12,
            access: Access::Write,
        };
        match self.call(number, request) {
            Ok(Reply::Mapped { va, .. }) => Va(va),
            other => panic!("{other:?}"),
        }
    }

    pub fn unmap(&mut self, number: u8, domain: u32, va: Va, pages: u64) -> Answer {
        let request = Request::Unmap {
            domain,
            pid: i32::from(number) + 10,
            va: va.0,
            length: pages << 12,
        };
        self.call(number, request)
    }

    /// Until nothing is left to do, or it waits for agents that hang for ever.
    pub fn run(&mut self) {
        for _ in 0..100_000 {
            if self.step() {
                continue;
            }
            match self.controller.deadline() {
                Some(until) => {
                    assert!(
                        until > self.now,
                        "it waits for what has been: {:?}",
                        self.controller
                    );
                    self.now = until;
                }
                None => return,
            }
        }
        panic!("it does not end: {:?}", self.controller);
    }

    /// The same, without time going on.
    pub fn run_now(&mut self) {
        for _ in 0..100_000 {
            if !self.step() {
                return;
            }
        }
        panic!("it does not end: {:?}", self.controller);
    }

    /// Lets the controller do one thing; whether it did.
    pub fn step(&mut self) -> bool {
        let Some(output) = self.controller.poll(self.now) else {
            return false;
        };
        match output {
            Output::Act { operation, act } => {
                if let Some(left) = &mut self.acts_to_live {
                    if *left == 0 {
                        self.acts_to_live = self.next_acts_to_live.take();
                        self.die();
                        return true;
                    }
                    *left -= 1;
                }
                let result = match &act {
                    Act::Keep { changes } => {
                        self.kept += 1;
                        self.longest_record = self.longest_record.max(changes.len());
                        keep(&mut self.records, &std::mem::take(&mut self.kept_soon));
                        keep(&mut self.records, changes);
                        Seen::Done(Ok(()))
                    }
                    act => self.switch.execute(act).expect("it is the switch's"),
                };
                self.controller
                    .handle(self.now, Input::Done { operation, result });
            }
            // Packets leave at once.
            Output::WaitForPackets { operation } => {
                let result = Seen::Done(Ok(()));
                self.controller
                    .handle(self.now, Input::Done { operation, result });
            }
            Output::Order {
                session,
                order,
                command,
                ..
            } => self.obey(session, order, command),
            Output::Reply {
                session, id, body, ..
            } => {
                if let (
                    Ok(Reply::Registered {
                        incarnation,
                        number,
                        ..
                    }),
                    Some(host),
                ) = (&body, self.hosts.get(&session))
                {
                    let kind = Self::registration(*host).kind;
                    let incarnation = Incarnation {
                        kind,
                        number: *number,
                        incarnation: *incarnation,
                    };
                    self.known.insert(*host, incarnation);
                }
                self.check_recorded(session, id);
                self.asked.remove(&id);
                self.replies.insert(id, body);
            }
            Output::KeepSoon { changes } => self.kept_soon.extend(changes),
            Output::Event(event) => self.events.push(event),
        }
        true
    }

    /// An answer that may be asked for again is recorded before it is given, or soon where what it says is recorded.
    fn check_recorded(&self, session: Session, id: u64) {
        let known = self
            .hosts
            .get(&session)
            .and_then(|host| self.known.get(host));
        if let Some(of) = known
            && self.controller.books().answers.contains_key(&(*of, id))
        {
            let key = Key::Answer(*of, id);
            assert!(
                self.records.contains_key(&key)
                    || self.kept_soon.iter().any(|(soon, _)| *soon == key),
                "{key} is given and not recorded"
            );
        }
    }

    fn obey(&mut self, session: Session, order: u64, command: Command) {
        let Some(host) = self.hosts.get(&session).copied() else {
            return;
        };
        if command == Command::Leave {
            self.left.push(host);
            return;
        }
        if self.hang.contains(&host) {
            self.orders.push((session, order, command));
            return;
        }
        if self.fail.contains(&host) {
            let message = "it cannot be done".to_owned();
            let result = Err(Failure::new(mind_api::errno::Errno::EIO, message));
            let input = Input::Report { order, result };
            return self.controller.handle(self.now, input);
        }
        let mut report = Report::Done;
        if let Node::Memory(number) = host
            && let Some(memory) = self.memories.get_mut(&number)
        {
            match command {
                Command::ZeroPages { first, count } => {
                    // Not all at once, as a blade does not that has other commands.
                    let pages = count.min(4);
                    memory.zero(first, pages);
                    report = Report::Zeroed { pages };
                }
                Command::FencePages { first, count } => memory.fence(first, count),
                Command::FenceBlade { qp } => {
                    memory.fence_blade(Connection::from_qp(qp).expect("a connection"))
                }
                _ => {}
            }
        }
        if matches!(command, Command::FlushRange { .. }) {
            self.flushed.push(host);
        }
        let result: Result<Report, Failure> = Ok(report);
        self.controller
            .handle(self.now, Input::Report { order, result });
    }

    /// The agents of a host do again what they are told.
    pub fn wake(&mut self, host: Node) {
        self.hang.remove(&host);
        for (session, order, command) in std::mem::take(&mut self.orders) {
            match self.hosts.get(&session) == Some(&host) {
                true => self.obey(session, order, command),
                false => self.orders.push((session, order, command)),
            }
        }
    }

    /// The controller dies, and another one takes over: agents come back and ask again for what they have no answer to.
    /// What was to be recorded soon is not.
    pub fn die(&mut self) {
        self.kept_soon.clear();
        self.controller = Controller::take_over(self.config, self.records.clone(), self.now);
        self.hosts.clear();
        self.orders.clear();
        let known: Vec<_> = self.known.clone().into_iter().collect();
        for (host, incarnation) in known {
            if self.hang.contains(&host) {
                continue;
            }
            self.resume(host, incarnation);
        }
        for (id, (host, body)) in self.asked.clone() {
            self.send_request(host, id, body);
        }
    }

    /// An agent comes back to the controller; the request's identifier.
    pub fn resume(&mut self, host: Node, incarnation: Incarnation) -> u64 {
        let (session, id) = (self.session(host), self.request_id());
        let input = Input::Resume {
            session,
            id,
            incarnation,
        };
        self.controller.handle(self.now, input);
        id
    }

    /// How often regions of a vma were lost.
    pub fn lost_regions(&self, va: Va) -> u64 {
        let vma = self.controller.books().domains.vma(va);
        vma.and_then(|vma| vma.lost.as_ref())
            .map_or(0, |lost| lost.regions)
    }

    // Packets.

    pub fn send(&mut self, life: Connection, body: Body<u64>) -> Handled<u64> {
        let envelope = Envelope {
            qp: life.to_qp(),
            seq: Seq::new(1),
            attempt: 0,
        };
        let port = Node::Compute(life.blade);
        let handled = self.switch.handle(port, Datagram { envelope, body });
        if self.switch.tells_of_shortage() {
            self.controller.handle(self.now, Input::Short);
        }
        handled
    }

    fn take_slot(&mut self) -> usize {
        match self.switch.execute(&Act::TakeSlot) {
            Some(Seen::Slot(Some(slot))) => slot as usize - 1,
            other => panic!("no slot is left: {other:?}"),
        }
    }

    /// A packet that was admitted before opens a slot for a page, to be read by blade 0.
    pub fn open_in_switch(&mut self, va: Va) {
        let index = self.take_slot();
        let region = mind_common::addr::Region::containing(va, 2).expect("a region");
        let word = Word::default().settled(State::Shared, BladeSet::only(blade(0)));
        self.switch.open(index, region, word);
        self.switch.assign(region, Some(index));
    }

    pub fn request(&mut self, from: u8, want: Want, page: Va) -> Verdict {
        let domain = DomainId(1);
        let page = PageRequest { page, domain };
        let life = self.life(from);
        self.send(life, Body::Request { want, page }).verdict
    }

    /// A write-back of a compute blade, up to memory.
    pub fn write_back(
        &mut self,
        life: Connection,
        page: Va,
        version: u32,
        data: u64,
    ) -> Option<Verdict> {
        let body = Body::Write {
            page: PageRequest {
                page,
                domain: DomainId(1),
            },
            version: Version::new(version),
            data,
        };
        let handled = self.send(life, body);
        let (to, packet) = handled.sent.first()?;
        let Node::Memory(number) = to else {
            return None;
        };
        Some(self.memories.get_mut(number)?.handle(*packet).0)
    }

    /// A region gets its slot, and no blade has it then.
    pub fn touch(&mut self, va: Va) {
        assert_eq!(self.request(0, Want::Read, va), Verdict::Fetch);
        let change = mind_api::message::RegionChange::Reset;
        let reset = Request::ChangeRegion { va: va.0, change };
        assert!(self.operate(reset).is_ok());
        self.flushed.clear();
    }

    pub fn in_memory(&self, page: Va) -> mind_machines::memory::Page<u64> {
        let kept = self.switch.tables().location(page).expect("it is kept");
        self.memories[&(kept.blade as u8)].page(kept.offset.0 >> 12)
    }

    pub fn word_at(&self, va: Va) -> (State, Option<Prior>, u32) {
        let slot = self.switch.tables().slot(va).expect("it has a slot");
        let word = self.switch.slots()[slot].word;
        (word.state(), word.prior(), word.blades().bits())
    }

    // What must be so whenever nothing is left to do.

    pub fn check(&self) {
        assert!(self.controller.is_idle(), "{:?}", self.controller);
        let wrong = disagreement(&self.controller, &self.switch);
        assert_eq!(wrong.map(|wrong| wrong.to_string()), None);
        let mut records = self.records.clone();
        keep(&mut records, &self.kept_soon);
        let restored = mind_machines::controller::books::Books::restore(records);
        assert_eq!(restored.domains, self.controller.books().domains);
        assert_eq!(restored.memory, self.controller.books().memory);
        assert_eq!(restored.blades, self.controller.books().blades);
        for (of, answer) in &self.controller.books().answers {
            assert_eq!(restored.answers.get(of), Some(answer));
        }
    }
}
