//! Atomic operations in memory, as an agent may have them carried out: it owns the region and has
//! written the page back, and until the operation is answered it answers no invalidation of the
//! region and does not use the page. (The agent of `mind-blade` has none; programs' own atomic
//! instructions are writes of a page that it owns.)

use mind_common::{
    serial::Seq,
    wire::{Atomic, Syndrome},
};
use mind_machines::{
    Node,
    datagram::{Body, Datagram, Envelope},
};

use crate::{
    property::Violation,
    value::{Age, Value},
    world::{DOMAIN, Flight, Position, World, page},
};

/// The token of the flush that an operation begins with.
pub const FLUSH: u64 = u64::MAX;
/// Operations are numbered from here on: apart from requests, and not renamed, as a budget bounds
/// them.
const FIRST: u32 = 1 << 23;

/// An operation under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    /// On which page.
    pub page: u8,
    /// Its number.
    pub seq: Seq,
    /// Whether the page is written back and the operation sent.
    pub is_sent: bool,
    /// Whether memory has carried it out.
    pub is_done: bool,
}

/// Whether an operation has that number, and no request.
pub const fn is_of_operation(seq: Seq) -> bool {
    seq.get() >= FIRST
}

impl World {
    /// The operation that a blade has under way.
    pub fn operation(&self, blade: usize) -> Option<Operation> {
        self.hosts.get(blade)?.as_ref()?.operation
    }

    fn set_operation(&mut self, blade: usize, operation: Option<Operation>) {
        if let Some(Some(host)) = self.hosts.get_mut(blade) {
            host.operation = operation;
        }
    }

    /// Whether the packet's receiver defers it for now.
    pub fn is_put_off(&self, flight: &Flight) -> bool {
        let (Position::To(Node::Compute(to)), Body::Invalidate(invalidation)) =
            (flight.position, &flight.packet.body)
        else {
            return false;
        };
        self.operation(usize::from(to.get()))
            .is_some_and(|operation| invalidation.region.contains(page(operation.page)))
    }

    /// Whether a blade's operation was sent, and neither it nor an answer is on its way any more.
    pub fn is_unanswered(&self, blade: usize) -> bool {
        let Some(Some(host)) = self.hosts.get(blade) else {
            return false;
        };
        let qp = host.blade.connection().to_qp();
        host.operation.is_some_and(|operation| {
            let is_of_it = |flight: &Flight| {
                let envelope = &flight.packet.envelope;
                envelope.seq == operation.seq && envelope.qp == qp
            };
            operation.is_sent && !self.network.iter().any(is_of_it)
        })
    }

    /// A blade that may write the page begins one.
    pub(crate) fn begin_operation(&mut self, blade: usize, number: u8) {
        let before = self.setting.budget.operations - self.budget.operations;
        self.budget.operations -= 1;
        let operation = Operation {
            page: number,
            seq: Seq::new(FIRST + u32::from(before)),
            is_sent: false,
            is_done: false,
        };
        self.set_operation(blade, Some(operation));
        let range = page(number).0..page(number + 1).0;
        self.with(blade, None, |blade, out| {
            blade.flush(0, range, None, FLUSH, out);
        });
    }

    /// Sends it, for the first time or again.
    pub(crate) fn send_operation(&mut self, blade: usize) {
        let Some(operation) = self.operation(blade) else {
            return;
        };
        let is_sent = true;
        self.set_operation(
            blade,
            Some(Operation {
                is_sent,
                ..operation
            }),
        );
        let Some(Some(host)) = self.hosts.get(blade) else {
            return;
        };
        let connection = host.blade.connection();
        let body = Body::Atomic {
            va: page(operation.page),
            domain: DOMAIN,
            operation: Atomic::FetchAdd { addend: 1 },
        };
        let envelope = Envelope {
            qp: connection.to_qp(),
            seq: operation.seq,
            attempt: 0,
        };
        let packet = Datagram { envelope, body };
        self.send(Position::From(Node::Compute(connection.blade)), packet);
    }

    /// Memory carried out an operation with these headers.
    pub(crate) fn operated(&mut self, qp: u32, seq: Seq, number: u8) {
        let hosts = self.hosts.iter_mut().flatten();
        let mut hosts = hosts.filter(|host| host.blade.connection().to_qp() == qp);
        if let Some(host) = hosts.next() {
            match &mut host.operation {
                Some(operation) if operation.seq == seq && !operation.is_done => {
                    operation.is_done = true;
                }
                _ => self.violate(Violation::OperatedAgain),
            }
        }
        let stored = self.memory.page(u64::from(number));
        if stored.data.age != Age::Latest {
            self.violate(Violation::OperatedOnOld);
        }
        self.age(number, |_| Age::Old);
        let mut stored = self.memory.page(u64::from(number));
        stored.data = Value {
            page: number,
            age: Age::Latest,
        };
        self.memory.set_page(u64::from(number), stored);
    }

    /// The answer to an operation comes.
    pub(crate) fn hear_of_operation(&mut self, blade: usize, packet: &Datagram<Value>) {
        let Some(operation) = self.operation(blade) else {
            return;
        };
        if operation.seq != packet.envelope.seq {
            return;
        }
        match packet.body {
            Body::AtomicAcknowledge { .. } if operation.is_done => {
                self.set_operation(blade, None);
            }
            Body::Acknowledge {
                syndrome: Syndrome::Refused(refusal),
                ..
            } => self.violate(Violation::Refused(refusal)),
            _ => self.violate(Violation::NotOperated),
        }
    }
}
