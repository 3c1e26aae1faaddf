//! The controller and the switch's tables, with memory blades and one process: what a program's requests go to. It is the
//! controller that `mind-controller` runs; what drives it here carries out what it wants at once.

use std::net::Ipv4Addr;

use anyhow::{Context as _, Result, bail};
use mind_api::{
    errno::Failure,
    message::{Access, BladeKind, OnLoss, Registration, Reply, Report, Request},
};
use mind_common::id::BladeId;
use mind_machines::{
    Node,
    controller::{
        Act, Config, Controller, Input, Output, Seen, Session,
        books::{Answer, tables::Key},
    },
    switch::{Switch, port_of},
};

/// Slots of the directory: no page is touched, so none is used.
const SLOTS: usize = 16;
/// The number of the process.
const PID: i32 = 1;

/// How many entries the switch's tables have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entries {
    /// Where addresses are kept (MIND, SOSP 2021, section 4.1).
    pub translation: u64,
    /// What domains may do with them (section 4.2).
    pub protection: u64,
}

/// A switch with its controller, memory blades, and one process in a protection domain of its own.
#[derive(Debug)]
pub struct Live {
    controller: Controller,
    switch: Switch,
    blades: u8,
    /// The session of the compute blade's agent.
    agent: Session,
    domain: u32,
    requests: u64,
}

impl Live {
    /// One with so many memory blades of `pages` pages each.
    ///
    /// # Errors
    ///
    /// The controller refuses a blade or the process.
    pub fn new(blades: u8, pages: u64) -> Result<Self> {
        let address = Ipv4Addr::new(198, 18, 0, 1);
        let mut live = Self {
            controller: Controller::new(Config::new(address, SLOTS as u32 + 1)),
            switch: Switch::new(SLOTS),
            blades,
            agent: Session(0),
            domain: 0,
            requests: 0,
        };
        for number in 0..blades {
            live.join(Node::Memory(number), pages)?;
        }
        live.agent = live.join(Node::Compute(BladeId::from_low_bits(0)), 1)?;
        let entering = Request::EnterProcess {
            domain: "program".to_owned(),
            pid: PID,
            on_loss: Some(OnLoss::default()),
        };
        live.domain = match live.ask(entering)? {
            Ok(Reply::Entered { domain }) => domain,
            other => bail!("the controller lets no process into a domain: {other:?}"),
        };
        Ok(live)
    }

    /// Maps memory of the process.
    ///
    /// # Errors
    ///
    /// The controller's refusal, inside; outside, it does not answer as it should.
    pub fn map(&mut self, length: u64, access: Access) -> Result<Result<(), Failure>> {
        let request = Request::Map {
            domain: self.domain,
            length,
            access,
        };
        match self.ask(request)? {
            Ok(Reply::Mapped { .. }) => Ok(Ok(())),
            Err(failure) => Ok(Err(failure)),
            Ok(other) => bail!("the controller answers a map with {other:?}"),
        }
    }

    /// Entries that the switch's tables have.
    ///
    /// # Errors
    ///
    /// The tables cannot be read.
    pub fn entries(&mut self) -> Result<Entries> {
        let Some(Seen::Tables(entries)) = self.switch.execute(&Act::ReadTables) else {
            bail!("the switch does not say what its tables have");
        };
        let count = |is_it: fn(&Key) -> bool| {
            let those = entries.iter().filter(|(key, _)| is_it(key));
            those.count() as u64
        };
        Ok(Entries {
            translation: count(|key| matches!(key, Key::Translation(_))),
            protection: count(|key| matches!(key, Key::Protection(..))),
        })
    }

    /// Bytes that are allocated on each memory blade: whole granules.
    pub fn loads(&self) -> Vec<u64> {
        let memory = &self.controller.books().memory;
        let load = |number| memory.slice(number).map_or(0, |slice| slice.used());
        (0..self.blades).map(load).collect()
    }

    /// A blade's agent registers; its session.
    fn join(&mut self, node: Node, pages: u64) -> Result<Session> {
        self.requests += 1;
        let (id, session) = (self.requests, Session(self.requests));
        let (kind, last) = match node {
            Node::Compute(blade) => (BladeKind::Compute, blade.get()),
            Node::Memory(number) => (BladeKind::Memory, number + 100),
        };
        let registration = Registration {
            kind,
            name: node.to_string(),
            address: Ipv4Addr::new(198, 18, 1, last),
            mac: [2, 0, 0, 0, 0, last],
            pages,
        };
        let input = Input::Register {
            session,
            id,
            registration,
            port: port_of(node),
        };
        match self.hand_in(input, id)? {
            Ok(Reply::Registered { .. }) => Ok(session),
            other => bail!("the controller refuses blade {node}: {other:?}"),
        }
    }

    /// The compute blade's agent asks for something; the answer.
    fn ask(&mut self, body: Request) -> Result<Answer> {
        self.requests += 1;
        let id = self.requests;
        let input = Input::Request {
            session: self.agent,
            id,
            answered: id,
            body,
        };
        self.hand_in(input, id)
    }

    /// Hands something in and does what the controller wants until it rests; its answer to request `id`.
    fn hand_in(&mut self, input: Input, id: u64) -> Result<Answer> {
        // Nothing here waits for time to go on.
        let now = 1;
        let mut answer = None;
        self.controller.handle(now, input);
        while let Some(output) = self.controller.poll(now) {
            match output {
                Output::Act { operation, act } => {
                    // What there is no switch for is records, which are for a controller that follows.
                    let result = self.switch.execute(&act).unwrap_or(Seen::Done(Ok(())));
                    let done = Input::Done { operation, result };
                    self.controller.handle(now, done);
                }
                Output::WaitForPackets { operation } => {
                    let result = Seen::Done(Ok(()));
                    let done = Input::Done { operation, result };
                    self.controller.handle(now, done);
                }
                Output::Order { order, .. } => {
                    let result = Ok(Report::Done);
                    self.controller.handle(now, Input::Report { order, result });
                }
                Output::Reply { id: of, body, .. } if of == id => answer = Some(body),
                Output::Reply { .. } | Output::KeepSoon { .. } | Output::Event(_) => {}
            }
        }
        answer.context("the controller rests without an answer")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mind_api::errno::Errno;
    use mind_machines::controller::books::memory::GRANULE;

    #[test]
    fn tables_have_an_entry_for_each_memory_blade_and_each_prefix_of_a_vma() {
        let mut live = Live::new(3, 1 << 20).unwrap();
        let entries = |live: &mut Live| {
            let entries = live.entries().unwrap();
            (entries.translation, entries.protection)
        };
        assert_eq!(entries(&mut live), (3, 0));
        assert_eq!(live.loads(), [0, 0, 0]);
        live.map(GRANULE, Access::Write).unwrap().unwrap();
        assert_eq!(entries(&mut live), (3, 1));
        // Three pages are two prefixes.
        live.map(0x3000, Access::Read).unwrap().unwrap();
        assert_eq!(entries(&mut live), (3, 3));
        assert_eq!(live.loads(), [GRANULE, GRANULE, 0]);
    }

    #[test]
    fn a_refusal_is_the_controllers() {
        let mut live = Live::new(1, 4).unwrap();
        let failure = live.map(5 << 12, Access::Write).unwrap().unwrap_err();
        assert_eq!(failure.errno, Errno::ENOMEM);
        let failure = live.map(1 << 45, Access::Write).unwrap().unwrap_err();
        assert_eq!(failure.errno, Errno::EFBIG);
    }

    #[test]
    fn all_blades_join() {
        assert_eq!(Live::new(32, 1 << 27).unwrap().loads().len(), 32);
    }
}
