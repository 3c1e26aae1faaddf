//! Connections between agents and the controller: messages keep their order and none is lost, until a connection breaks.

use mind_api::message::Command;
use mind_machines::{
    Node,
    controller::{Input, Session, books::Answer},
};

use crate::{
    plan::Disturbance,
    world::{Event, World},
};

/// How long a message between the controller and an agent takes, in nanoseconds.
const TRANSIT: std::ops::Range<u64> = 20_000..200_000;

/// How long an operator stays that does not wait for its answer, in nanoseconds.
const STAYS: std::ops::Range<u64> = 0..1_000_000;

/// What the controller sends to an agent.
pub(crate) enum Message {
    /// The answer to the request with that number.
    Reply(u64, Answer),
    /// A command, with the number of its order.
    Command(u64, Command),
}

/// A connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection {
    /// Which host's agent it is of.
    pub(crate) node: Node,
    /// When the last message arrives at the controller, and at the agent.
    arrivals: (u64, u64),
    /// Nothing passes it any more, and neither side knows.
    is_broken: bool,
    /// The controller knows that it has ended.
    is_closed: bool,
}

impl World<'_> {
    /// An agent opens a connection.
    pub(crate) fn connect(&mut self, node: Node) -> Session {
        let session = Session(self.connections.len() as u64 + 1);
        let connection = Connection {
            node,
            arrivals: (0, 0),
            is_broken: false,
            is_closed: false,
        };
        self.connections.insert(session, connection);
        session
    }

    fn transit(&mut self) -> u64 {
        match self.is_starting {
            true => 0,
            false => self.random.u64(TRANSIT),
        }
    }

    /// An agent sends something to the controller.
    pub(crate) fn send_to_controller(&mut self, session: Session, input: Input) {
        let at = self.queue.now() + self.transit();
        let Some(connection) = self.connections.get_mut(&session) else {
            return;
        };
        if !connection.is_broken && !connection.is_closed {
            connection.arrivals.0 = at.max(connection.arrivals.0);
            let at = connection.arrivals.0;
            self.queue.at(at, Event::ToController(session, input));
        }
    }

    /// The controller sends something to an agent.
    pub(crate) fn send_to_agent(&mut self, session: Session, message: Message) {
        let at = self.queue.now() + self.transit();
        let Some(connection) = self.connections.get_mut(&session) else {
            // Operators look for themselves.
            return;
        };
        if !connection.is_broken {
            connection.arrivals.1 = at.max(connection.arrivals.1);
            let at = connection.arrivals.1;
            self.queue.at(at, Event::ToAgent(session, message));
        }
    }

    /// An operator asks the controller for something.
    pub(crate) fn operate(&mut self, body: mind_api::message::Request) {
        self.operations += 1;
        let input = Input::Request {
            session: OPERATOR,
            id: self.operations,
            answered: self.operations,
            body,
        };
        let delay = self.transit();
        self.queue
            .after(delay, Event::ToController(OPERATOR, input));
        if self.random.bool() {
            let stays = self.random.u64(STAYS);
            self.queue
                .after(stays, Event::Follow(Disturbance::OperatorsLeave));
        }
    }

    /// All operators end their connections, whether or not they have their answers.
    pub(crate) fn operators_leave(&mut self) {
        self.tell_controller(Input::Closed(OPERATOR));
    }

    /// Something arrives at the controller.
    pub(crate) fn arrived_at_controller(&mut self, session: Session, input: Input) {
        let connection = self.connections.get_mut(&session);
        if connection.is_some_and(|connection| connection.is_broken || connection.is_closed) {
            return;
        }
        self.tell_controller(input);
    }

    /// Something arrives at an agent: its host, unless the agent is another one by now.
    pub(crate) fn is_heard(&self, session: Session) -> Option<Node> {
        let connection = self.connections.get(&session)?;
        let agent = self.agents.get(&connection.node)?;
        (!connection.is_broken && agent.session == Some(session)).then_some(connection.node)
    }

    /// No message passes the connection any more.
    pub(crate) fn break_connection(&mut self, session: Session) {
        if let Some(connection) = self.connections.get_mut(&session) {
            connection.is_broken = true;
        }
    }

    /// All connections end with the controller: those that agents have not lost yet.
    pub(crate) fn close_connections(&mut self) -> Vec<Session> {
        for connection in self.connections.values_mut() {
            connection.is_closed = true;
        }
        let sessions = self.agents.values().filter_map(|agent| agent.session);
        sessions.collect()
    }

    /// The controller finds out that a connection has ended.
    pub(crate) fn closed(&mut self, session: Session) {
        if let Some(connection) = self.connections.get_mut(&session)
            && !std::mem::replace(&mut connection.is_closed, true)
        {
            self.tell_controller(Input::Closed(session));
        }
    }
}

/// The session of an operator on the switch.
const OPERATOR: Session = Session(0);
