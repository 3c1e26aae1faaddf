//! How the controller is driven: what it wants done to the switch is done one act at a time, as an action of the model;
//! what no packet can tell from other times is done at once.

use std::sync::Arc;

use mind_api::{
    errno::{Errno, Failure},
    message::{BladeKind, Command, OnLoss, RegionChange, Registration, Reply, Report, Request},
};
use mind_common::{
    addr::Region,
    directory::{State, Word},
    id::{BladeSet, Connection},
};
use mind_machines::{
    Node,
    controller::{Act, Config, Input, Output, Seen, Session, books::tables::Key},
    switch::port_of,
};

use crate::{
    property::Violation,
    setting::Setting,
    world::{DOMAIN, Host, World, page},
};

/// The session of an operator.
const OPERATOR: Session = Session(1 << 32);
/// The session of the memory blade's agent. Those of compute blades have the number of their connection.
pub const OF_MEMORY: Session = Session(1 << 33);
/// The number of an order that the controller does not wait for any more.
pub const OVER: u64 = u64::MAX - 1;
/// The number of the request by which the last process of a blade enters its domain.
const LAST_ENTRY: u64 = 2;
/// The process that each domain has on each blade.
const PID: i32 = 1;

/// A message of the controller's to an agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// It is registered.
    Registered,
    /// An order, with its number.
    Order(u64, Command),
}

/// Time stands still: a region that has to change is taken at once, a split or a merge of a busy one is left, and an
/// order is overdue when an action says so.
pub fn config(setting: &Setting) -> Config {
    Config {
        full: 0,
        optional: 0,
        stuck: 0,
        pause: 0,
        flush: 1,
        flush_page: 0,
        report: 1,
        sweep: 1,
        ..Config::new([0; 4].into(), setting.slots as u32 + 1)
    }
}

/// The connection of the compute blade whose agent has this session.
pub fn connection(session: Session) -> Option<Connection> {
    Connection::from_qp(u32::try_from(session.0).ok()?)
}

fn session(connection: Connection) -> Session {
    Session(connection.to_qp().into())
}

/// Whether a packet can tell when it is done.
const fn is_seen(act: &Act) -> bool {
    !matches!(
        act,
        Act::Keep { .. } | Act::Find { .. } | Act::LookForUses { .. } | Act::LookIntoBlocks { .. }
    )
}

impl World {
    /// Hands the controller something.
    pub(crate) fn tell(&mut self, input: Input) {
        Arc::make_mut(&mut self.controller).handle(0, input);
    }

    /// The region has a slot, as if a blade had touched it; of the setting's order.
    pub(crate) fn touch(&mut self) {
        let slot = match self.switch.execute(&Act::TakeSlot) {
            Some(Seen::Slot(Some(slot))) => slot,
            _ => return,
        };
        let Some(region) = Region::containing(page(0), self.setting.order) else {
            return;
        };
        let word = Word::default().settled(State::Invalid, BladeSet::EMPTY);
        for act in [
            Act::Open { slot, region, word },
            Act::Assign {
                region,
                slot: Some(slot),
            },
        ] {
            self.switch.execute(&act);
        }
    }

    /// A blade's agent registers, on a session of its own.
    pub(crate) fn register(&mut self, node: Node) {
        let (kind, number, pages) = match node {
            Node::Compute(blade) => (BladeKind::Compute, blade.get(), 1),
            // One granule.
            Node::Memory(number) => (BladeKind::Memory, number, 4),
        };
        let session = match node {
            Node::Compute(blade) => {
                let known = self.controller.books().blades.get(kind, number);
                let latest = known.map_or(0, |blade| blade.incarnation.incarnation);
                let incarnation = latest.wrapping_add(1);
                session(Connection { blade, incarnation })
            }
            Node::Memory(_) => OF_MEMORY,
        };
        let host = port_of(node).0.to_be_bytes();
        self.tell(Input::Register {
            session,
            id: 0,
            registration: Registration {
                kind,
                name: node.to_string(),
                address: host.into(),
                mac: [0, 0, host[0], host[1], host[2], host[3]],
                pages,
            },
            port: port_of(node),
        });
    }

    /// An agent asks for something.
    pub(crate) fn request(&mut self, of: Connection, id: u64, body: Request) {
        self.tell(Input::Request {
            session: session(of),
            id,
            answered: 0,
            body,
        });
    }

    /// An operator wants the region changed.
    pub(crate) fn operate(&mut self, change: RegionChange) {
        let va = page(0).0;
        self.tell(Input::Request {
            session: OPERATOR,
            id: 0,
            answered: 0,
            body: Request::ChangeRegion { va, change },
        });
    }

    /// The connection of a compute blade's agent breaks.
    pub(crate) fn disconnect(&mut self, of: Connection) {
        self.links.retain(|(to, _)| *to != session(of));
        self.tell(Input::Closed(session(of)));
    }

    /// The orders that may be overdue: those to compute blades.
    pub fn orders(&self) -> impl Iterator<Item = u64> {
        let orders = self.controller.orders();
        orders
            .filter(|(_, to)| to.kind == BladeKind::Compute)
            .map(|(order, _)| order)
    }

    /// An order was not carried out in time.
    pub(crate) fn overdue(&mut self, order: u64) {
        let result = Err(Failure::new(Errno::EIO, String::new()));
        self.tell(Input::Report { order, result });
    }

    /// An order is carried out.
    pub(crate) fn report(&mut self, order: u64) {
        self.reports(order, Report::Done);
    }

    fn reports(&mut self, order: u64, report: Report) {
        let result = Ok(report);
        self.tell(Input::Report { order, result });
    }

    /// What the controller wants done to the switch next, if it does not wait.
    pub fn wanted(&self) -> Option<&Act> {
        match self.controller.prepared() {
            Some(Output::Act { act, .. }) => Some(act),
            _ => None,
        }
    }

    /// What the controller wants done to the switch is done.
    pub(crate) fn control(&mut self) {
        if let Some(output) = Arc::make_mut(&mut self.controller).poll(0) {
            self.output(output);
        }
    }

    /// The controller goes on until it wants something done that a packet can tell, or waits.
    pub(crate) fn advance(&mut self) {
        loop {
            Arc::make_mut(&mut self.controller).prepare(0);
            if self.controller.prepared().is_none() || self.wanted().is_some_and(is_seen) {
                return;
            }
            self.control();
        }
    }

    fn output(&mut self, output: Output) {
        match output {
            Output::Act { operation, act } => {
                // Records are for a controller that follows, and none does.
                let result = self.switch.execute(&act).unwrap_or(Seen::Done(Ok(())));
                self.tell(Input::Done { operation, result });
                if let Act::Install {
                    key: Key::Protection(domain, _),
                    ..
                } = act
                    && domain == DOMAIN.0
                {
                    self.rights_changed();
                }
            }
            // The model's packets are not held up in the switch.
            Output::WaitForPackets { operation } => {
                let result = Seen::Done(Ok(()));
                self.tell(Input::Done { operation, result });
            }
            Output::Order {
                session,
                order,
                command,
                ..
            } => self.links.push((session, Message::Order(order, command))),
            Output::Reply { session, body, .. } if session == OPERATOR => {
                // Whether it was changed is seen in the directory.
                let _: Result<Reply, Failure> = body;
            }
            Output::Reply {
                session, id, body, ..
            } => self.replied(session, id, body),
            Output::Event(_) | Output::KeepSoon { .. } => {}
        }
    }

    fn replied(&mut self, session: Session, id: u64, body: Result<Reply, Failure>) {
        match body {
            Ok(Reply::Registered {
                number,
                incarnation,
                ..
            }) => {
                let expected = connection(session).is_none_or(|expected| {
                    (expected.blade.get(), expected.incarnation) == (number, incarnation)
                });
                if !expected {
                    self.violate(Violation::Failed);
                }
                self.links.push((session, Message::Registered));
            }
            Ok(Reply::Entered { .. }) if id == LAST_ENTRY => {
                if let Some(host) = connection(session).and_then(|of| self.host_mut(of)) {
                    host.is_ready = true;
                }
            }
            Ok(_) => self.answered(id, true),
            Err(_) => {
                // A program whose blade is gone may ask in vain.
                if connection(session).is_some_and(|asker| self.accepts(asker)) {
                    self.violate(Violation::Failed);
                }
                self.answered(id, false);
            }
        }
    }

    /// The oldest message to a session arrives.
    pub(crate) fn hear(&mut self, session: Session) {
        let Some(at) = self.links.iter().position(|(to, _)| *to == session) else {
            return;
        };
        let (_, message) = self.links.remove(at);
        match connection(session) {
            Some(connection) => self.hear_at_blade(connection, message),
            None => self.hear_at_memory(message),
        }
    }

    fn hear_at_memory(&mut self, message: Message) {
        let Message::Order(order, command) = message else {
            return;
        };
        match command {
            Command::ZeroPages { first, count } => {
                self.zero(first, count);
                return self.reports(order, Report::Zeroed { pages: count });
            }
            Command::FencePages { first, count } => self.memory.fence(first, count),
            Command::FenceBlade { qp } => {
                if let Some(ended) = Connection::from_qp(qp) {
                    self.memory.fence_blade(ended);
                }
            }
            Command::Leave
            | Command::FlushRange { .. }
            | Command::Identify
            | Command::CountCache => {}
        }
        self.report(order);
    }

    fn hear_at_blade(&mut self, connection: Connection, message: Message) {
        let number = usize::from(connection.blade.get());
        if message == Message::Registered {
            self.hosts[number] = Some(Host::new(connection, &self.setting));
            for (id, domain) in [(1, "d"), (LAST_ENTRY, "s")] {
                let enter = Request::EnterProcess {
                    domain: domain.to_owned(),
                    pid: PID,
                    on_loss: Some(OnLoss::LastWritten),
                };
                self.request(connection, id, enter);
            }
            return;
        }
        if self.host_mut(connection).is_none() {
            return;
        }
        match message {
            Message::Order(order, Command::FlushRange { va, length }) => {
                let range = va..va + length;
                self.with(number, None, |blade, out| {
                    blade.flush(0, range, None, order, out);
                });
            }
            Message::Order(_, Command::Leave) => self.hosts[number] = None,
            _ => {}
        }
    }

    /// The blade with that connection, if it is there.
    fn host_mut(&mut self, of: Connection) -> Option<&mut Host> {
        let host = self.hosts.get_mut(usize::from(of.blade.get()))?.as_mut();
        host.filter(|host| host.blade.connection() == of)
    }

    /// Runs the controller, and all agents, to the end.
    pub(crate) fn settle(&mut self) {
        loop {
            self.advance();
            if self.wanted().is_some() {
                self.control();
            } else if let Some((session, _)) = self.links.first() {
                self.hear(*session);
            } else {
                return;
            }
        }
    }

    /// The compute blade whose program asks for memory: the first of those that are ready.
    pub(crate) fn asker(&self) -> Option<Connection> {
        let hosts = self.hosts.iter().flatten();
        let mut ready = hosts
            .filter(|host| host.is_ready)
            .map(|host| host.blade.connection());
        ready.find(|of| self.accepts(*of))
    }
}
