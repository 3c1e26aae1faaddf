//! Agents of blades, as the controller has to do with them: they register, ask for what programs want, and do as they
//! are told.

use std::collections::BTreeMap;

use mind_api::{
    errno::{Errno, Failure as Refused},
    message::{BladeKind, Command, Registration, Reply, Report, Request},
};
use mind_common::{
    addr::Va,
    id::{BladeId, Connection, DomainId},
};
use mind_machines::{
    Node,
    controller::{
        Input, Session,
        books::{Answer, blades::Incarnation},
    },
    switch::port_of,
};

use crate::{
    plan::Mapping,
    world::connection::Message,
    world::host::Flush,
    world::{Event, World},
};

/// After how long a daemon that was ended is started again, in nanoseconds.
pub(crate) const RESTART: u64 = 5_000_000;
/// After how long a request that was refused for now is made again, in nanoseconds.
const AGAIN: u64 = 1_000_000;

/// A daemon's side of its connection to the controller.
pub(crate) struct Agent {
    /// Its connection, if it has one.
    pub(crate) session: Option<Session>,
    /// The incarnation of its blade, once it is registered.
    pub(crate) incarnation: Option<Incarnation>,
    /// The number of its last request.
    last: u64,
    /// Requests without an answer.
    calls: BTreeMap<u64, Call>,
}

/// A thread in the state in which it asked for something: it may go on without waiting for the answer.
pub(crate) type Caller = (usize, u64);

/// A request, and what for.
struct Call {
    request: Request,
    purpose: Purpose,
}

/// What a request is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// The blade joins.
    Joins,
    /// A thread that was started so often enters its domain.
    Enters(usize, i32),
    /// The blade goes on as it was with another controller.
    Resumes,
    /// The program that maps areas for others enters the plan's domain.
    Keeps(usize),
    /// An area is mapped, unmapped or protected.
    Maps(Option<Caller>, Mapping, usize),
    /// A thread syncs.
    Syncs(Caller),
    /// Nothing depends on the answer.
    Tells,
}

impl Agent {
    fn new(session: Session) -> Self {
        Self {
            session: Some(session),
            incarnation: None,
            last: 0,
            calls: BTreeMap::new(),
        }
    }

    /// The number of a request that it makes now.
    pub(crate) fn begin_call(&mut self, request: Request, purpose: Purpose) -> u64 {
        self.last += 1;
        self.calls.insert(self.last, Call { request, purpose });
        self.last
    }

    /// Its connection is lost, and with it a request to resume: the next one begins with its own.
    pub(crate) fn lose_session(&mut self) {
        self.session = None;
        self.calls
            .retain(|_, call| !matches!(call.purpose, Purpose::Resumes));
    }

    /// The numbers of requests without an answer.
    pub(crate) fn waiting(&self) -> Vec<u64> {
        self.calls.keys().copied().collect()
    }
}

impl World<'_> {
    /// A daemon begins: it connects and registers. Without a controller it ends, and is started again.
    pub(crate) fn begin(&mut self, node: Node) {
        if self.is_down {
            return self.queue.after(RESTART, Event::Begin(node));
        }
        let session = self.connect(node);
        let mut agent = Agent::new(session);
        let registration = self.registration(node);
        let id = agent.begin_call(Request::Register(registration.clone()), Purpose::Joins);
        self.agents.insert(node, agent);
        let input = Input::Register {
            session,
            id,
            registration,
            port: port_of(node),
        };
        self.send_to_controller(session, input);
    }

    fn registration(&self, node: Node) -> Registration {
        let (kind, number, pages) = match node {
            Node::Compute(blade) => (BladeKind::Compute, blade.get(), self.plan.capacity as u64),
            Node::Memory(number) => (BladeKind::Memory, number + 100, self.memory_pages),
        };
        Registration {
            kind,
            name: node.to_string(),
            address: [198, 18, 1, number].into(),
            mac: [2, 0, 0, 0, 0, number],
            pages,
        }
    }

    /// A daemon's end, of which the controller learns after so long.
    pub(crate) fn end_agent(&mut self, node: Node, noticed: u64) {
        let Some(agent) = self.agents.remove(&node) else {
            return;
        };
        if let Some(session) = agent.session {
            self.queue.after(noticed, Event::Closed(session));
        }
        for call in agent.calls.into_values() {
            if let Purpose::Maps(_, mapping, area) = call.purpose {
                self.promises.unanswered(&call.request);
                self.mapped.answered(mapping, area, None);
            }
        }
    }

    /// An agent asks the controller for something.
    pub(crate) fn ask(&mut self, node: Node, request: Request, purpose: Purpose) {
        let Some(agent) = self.agents.get_mut(&node) else {
            return;
        };
        let id = agent.begin_call(request, purpose);
        self.send_call(node, id);
    }

    /// Sends a request that has no answer yet, if there is a connection.
    pub(crate) fn send_call(&mut self, node: Node, id: u64) {
        let Some(agent) = self.agents.get(&node) else {
            return;
        };
        if let Some((session, call)) = agent.session.zip(agent.calls.get(&id)) {
            let input = Input::Request {
                session,
                id,
                answered: agent.calls.keys().next().copied().unwrap_or(id),
                body: call.request.clone(),
            };
            self.send_to_controller(session, input);
        }
    }

    /// A message of the controller arrives at an agent.
    pub(crate) fn message_arrived(&mut self, session: Session, message: Message) {
        let Some(node) = self.is_heard(session) else {
            return;
        };
        match message {
            Message::Reply(id, body) => {
                let agent = self.agents.get_mut(&node);
                if let Some(call) = agent.and_then(|agent| agent.calls.remove(&id)) {
                    self.answered(node, call, body);
                }
            }
            Message::Command(order, command) => match node {
                Node::Memory(number) => self.command_memory(session, number, order, &command),
                Node::Compute(blade) => self.command_blade(session, blade, order, &command),
            },
        }
    }

    /// The controller has answered a request.
    fn answered(&mut self, node: Node, call: Call, body: Answer) {
        match call.purpose {
            Purpose::Joins => self.joined(node, body),
            Purpose::Resumes => self.resumed(node, body.is_ok()),
            Purpose::Keeps(domain) => {
                if let Ok(Reply::Entered { domain: number }) = body {
                    self.know_domain(number, domain);
                    self.kept.insert(domain, DomainId(number));
                }
            }
            Purpose::Enters(thread, start) => self.has_entered(node, thread, start, body),
            Purpose::Maps(caller, mapping, area) => {
                let now = self.queue.now();
                if let Err(broken) = self.promises.answered(now, &call.request, &body) {
                    self.fail(broken);
                }
                self.close_area(node, &call.request, &body);
                let at = match (mapping, body) {
                    (_, Ok(Reply::Mapped { va, .. })) => Some(Some(Va(va))),
                    (Mapping::Map, _) | (Mapping::Unmap, Ok(_)) => Some(None),
                    _ => None,
                };
                self.mapped.answered(mapping, area, at);
                if let Some(caller) = caller {
                    self.go_on_after_mapping(caller);
                }
            }
            Purpose::Syncs(caller) => self.synced(caller, body.is_ok()),
            Purpose::Tells => {}
        }
    }

    /// A process that has opened an area closes it again; the area stays as long as it has its name.
    fn close_area(&mut self, node: Node, request: &Request, body: &Answer) {
        if let (Request::OpenArea { domain, pid, .. }, Ok(Reply::Mapped { va, length })) =
            (request, body)
        {
            let close = Request::Unmap {
                domain: *domain,
                pid: *pid,
                va: *va,
                length: *length,
            };
            self.ask(node, close, Purpose::Tells);
        }
    }

    /// A blade is registered, or must try again.
    fn joined(&mut self, node: Node, body: Answer) {
        let Ok(Reply::Registered {
            number,
            incarnation,
            ..
        }) = body
        else {
            self.end_agent(node, 0);
            self.queue.after(RESTART, Event::Begin(node));
            return;
        };
        let Some(agent) = self.agents.get_mut(&node) else {
            return;
        };
        let is_its = |own: u8| {
            debug_assert_eq!(
                own, number,
                "numbers are given in the order of registration"
            );
            number
        };
        let (kind, number) = match node {
            Node::Compute(blade) => (BladeKind::Compute, is_its(blade.get())),
            Node::Memory(memory) => (BladeKind::Memory, is_its(memory)),
        };
        agent.incarnation = Some(Incarnation {
            kind,
            number,
            incarnation,
        });
        match node {
            Node::Compute(blade) => self.begin_incarnation(Connection { blade, incarnation }),
            Node::Memory(number) => self.begin_memory(number),
        }
    }

    /// The number that the controller has given to a domain of the plan.
    pub(crate) fn know_domain(&mut self, number: u32, domain: usize) {
        self.domains.insert(DomainId(number), domain);
    }

    /// A thread's process is in its domain, or must try again.
    fn has_entered(&mut self, node: Node, thread: usize, start: i32, body: Answer) {
        let Node::Compute(blade) = node else {
            return;
        };
        let Some(connection) = self.host(blade).map(|host| host.connection) else {
            return;
        };
        match body {
            Ok(Reply::Entered { domain }) => {
                self.know_domain(domain, self.plan.programs[thread].domain);
                self.entered(thread, start, DomainId(domain), connection);
            }
            _ => {
                let again = Event::Enters(thread, start, connection);
                self.queue.after(AGAIN, again);
            }
        }
    }

    // Commands.

    /// An agent has done as it was told, or could not.
    pub(crate) fn report(&mut self, session: Session, order: u64, result: Result<Report, Refused>) {
        self.send_to_controller(session, Input::Report { order, result });
    }

    fn command_blade(&mut self, session: Session, blade: BladeId, order: u64, command: &Command) {
        let is_unable = self.unable_until.get(&blade) > Some(&self.queue.now());
        match *command {
            Command::FlushRange { .. } | Command::CountCache if is_unable => {
                let message = "it cannot be done".to_owned();
                self.report(session, order, Err(Refused::new(Errno::EIO, message)));
            }
            Command::CountCache => {
                self.report(session, order, Ok(Report::Cache(Box::default())));
            }
            Command::FlushRange { va, length } => {
                self.flush(blade, Va(va), length, None, Flush::Order(session, order));
            }
            Command::Leave => {
                self.end(blade, 0);
                self.queue
                    .after(RESTART, Event::Begin(Node::Compute(blade)));
            }
            Command::ZeroPages { .. }
            | Command::FencePages { .. }
            | Command::FenceBlade { .. }
            | Command::Identify => {}
        }
    }
}
