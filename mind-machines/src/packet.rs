//! A datagram of ours with all that its headers say, and as much of its page as its owner wants to
//! follow: bytes, a few words, a number.

use std::{fmt::Debug, hash::Hash};

use crate::compute::{Incoming, Outgoing};
use mind_common::{
    addr::Va,
    directory::Want,
    id::{BladeSet, DomainId},
    serial::{Seq, Version},
    wire::{
        Bth, Invalidation, Message, Opcode, Syndrome,
        message::{Atomic, Envelope, Page, PageRequest, Toll},
    },
};

/// What stands for the bytes of a page. A fresh one is all zeros.
pub trait Content: Clone + Debug + Default + Eq + Hash {
    /// The word number `index` of a page, which has 512.
    fn word(&self, index: usize) -> u64;
    /// Changes it.
    fn set_word(&mut self, index: usize, value: u64);
}

/// A page of which nobody looks at the bytes.
impl Content for () {
    fn word(&self, _: usize) -> u64 {
        0
    }

    fn set_word(&mut self, _: usize, _: u64) {}
}

/// A page whose words are all one.
impl Content for u64 {
    fn word(&self, _: usize) -> u64 {
        *self
    }

    fn set_word(&mut self, _: usize, value: u64) {
        *self = value;
    }
}

/// A page of a few words, over and over.
impl<const N: usize> Content for [u64; N]
where
    Self: Default,
{
    fn word(&self, index: usize) -> u64 {
        self.get(index % N.max(1)).copied().unwrap_or(0)
    }

    fn set_word(&mut self, index: usize, value: u64) {
        if let Some(word) = self.get_mut(index % N.max(1)) {
            *word = value;
        }
    }
}

/// A datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packet<P> {
    /// Connection, number, attempt.
    pub envelope: Envelope,
    /// The rest.
    pub body: Body<P>,
}

/// What a datagram carries behind its envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Body<P> {
    /// READ, ACQUIRE or UPGRADE. On its way from the switch to memory, a READ's address is an
    /// offset in the store.
    Request {
        /// Which of the three.
        want: Want,
        /// Of which page.
        page: PageRequest,
    },
    /// A page is written back.
    Write {
        /// Which page.
        page: PageRequest,
        /// The version that it becomes.
        version: Version,
        /// What is in it.
        data: P,
    },
    /// A page from memory.
    ReadResponse {
        /// The version that it has there.
        version: Version,
        /// What is in it.
        data: P,
    },
    /// A request is carried out or refused.
    Acknowledge {
        /// Which of the two.
        syndrome: Syndrome,
        /// The page's version, where the request was a write-back.
        version: Version,
    },
    /// An atomic operation in memory.
    Atomic {
        /// Address of the word.
        va: Va,
        /// In which protection domain.
        domain: DomainId,
        /// What to do.
        operation: Atomic,
    },
    /// A word's value before an atomic operation.
    AtomicAcknowledge {
        /// Whether it was carried out.
        syndrome: Syndrome,
        /// The value.
        original: u64,
    },
    /// Give a region up, or give up writing it.
    Invalidate(Invalidation),
    /// It is given up.
    Answer {
        /// What was asked.
        invalidation: Invalidation,
        /// What it cost.
        toll: Toll,
        /// Whether the requester is to have the page fetched: INVALIDATE-ACK-FETCH.
        fetch: bool,
    },
    /// It is given up, and here is the requester's page.
    Forward {
        /// What was asked.
        invalidation: Invalidation,
        /// What it cost.
        toll: Toll,
        /// The page's version, which memory has, too.
        version: Version,
        /// What is in it.
        data: P,
    },
    /// Inside the switch only, from XDP to TC.
    FanOut {
        /// What to ask.
        invalidation: Invalidation,
        /// Whom.
        pending: BladeSet,
    },
}

impl<P> Body<P> {
    /// Its opcode on the wire.
    pub const fn opcode(&self) -> Opcode {
        match self {
            Self::Request { want, .. } => match want {
                Want::Read => Opcode::Read,
                Want::Acquire => Opcode::Acquire,
                Want::Upgrade => Opcode::Upgrade,
            },
            Self::Write { .. } => Opcode::Write,
            Self::ReadResponse { .. } => Opcode::ReadResponse,
            Self::Acknowledge { .. } => Opcode::Acknowledge,
            Self::Atomic { operation, .. } => match operation {
                Atomic::CmpSwap { .. } => Opcode::CmpSwap,
                Atomic::FetchAdd { .. } => Opcode::FetchAdd,
            },
            Self::AtomicAcknowledge { .. } => Opcode::AtomicAcknowledge,
            Self::Invalidate(_) => Opcode::Invalidate,
            Self::Answer { fetch: false, .. } => Opcode::InvalidateAck,
            Self::Answer { fetch: true, .. } => Opcode::InvalidateAckFetch,
            Self::Forward { .. } => Opcode::Forward,
            Self::FanOut { .. } => Opcode::FanOut,
        }
    }
}

impl<P> Packet<P> {
    /// A datagram with these headers.
    pub(crate) const fn new(bth: &Bth, body: Body<P>) -> Self {
        Self {
            envelope: Envelope {
                qp: bth.dest_qp(),
                seq: bth.seq(),
                attempt: bth.attempt(),
            },
            body,
        }
    }

    /// Its transport header.
    pub(crate) const fn bth(&self) -> Bth {
        let mut bth = Bth::new(self.body.opcode(), self.envelope.qp, self.envelope.seq);
        bth.set_attempt(self.envelope.attempt);
        bth
    }

    /// The number of the request that it is or answers.
    pub const fn seq(&self) -> Seq {
        self.envelope.seq
    }

    /// What a compute blade sends, with `data` from its cache if the message has a page.
    pub fn outgoing(envelope: Envelope, message: Outgoing, data: impl FnOnce() -> P) -> Self {
        let body = match message {
            Outgoing::Request { want, page } => Body::Request { want, page },
            Outgoing::WriteBack { page, version } => Body::Write {
                page,
                version,
                data: data(),
            },
            Outgoing::Answer {
                invalidation,
                toll,
                fetch,
            } => Body::Answer {
                invalidation,
                toll,
                fetch,
            },
            Outgoing::Forward {
                invalidation,
                toll,
                version,
                ..
            } => Body::Forward {
                invalidation,
                toll,
                version,
                data: data(),
            },
        };
        Self { envelope, body }
    }

    /// What a compute blade looks at ([`Blade::receive_headers`]).
    ///
    /// [`Blade::receive_headers`]: crate::compute::Blade::receive_headers
    pub const fn incoming(&self) -> Incoming {
        match self.body {
            Body::Invalidate(invalidation) => Incoming::Invalidate(invalidation),
            Body::ReadResponse { version, .. } => Incoming::Page {
                version,
                about: None,
            },
            Body::Forward {
                invalidation,
                version,
                ..
            } => Incoming::Page {
                version,
                about: Some(invalidation.page),
            },
            Body::Acknowledge { syndrome, .. } => Incoming::Acknowledge(syndrome),
            Body::Request { .. }
            | Body::Write { .. }
            | Body::Atomic { .. }
            | Body::AtomicAcknowledge { .. }
            | Body::Answer { .. }
            | Body::FanOut { .. } => Incoming::Other,
        }
    }

    /// The page in it.
    pub const fn data(&self) -> Option<&P> {
        match &self.body {
            Body::Write { data, .. }
            | Body::ReadResponse { data, .. }
            | Body::Forward { data, .. } => Some(data),
            _ => None,
        }
    }

    /// The page in it, to be changed.
    pub const fn data_mut(&mut self) -> Option<&mut P> {
        match &mut self.body {
            Body::Write { data, .. }
            | Body::ReadResponse { data, .. }
            | Body::Forward { data, .. } => Some(data),
            _ => None,
        }
    }

    /// The datagram that these bytes are, which were parsed; `content` is what to keep of a page.
    pub fn parsed(
        envelope: Envelope,
        message: &Message<'_>,
        content: impl FnOnce(&Page) -> P,
    ) -> Self {
        let request = |want, page| Body::Request { want, page };
        let body = match *message {
            Message::Read(page) => request(Want::Read, page),
            Message::Acquire(page) => request(Want::Acquire, page),
            Message::Upgrade(page) => request(Want::Upgrade, page),
            Message::Write {
                request,
                version,
                data,
            } => Body::Write {
                page: request,
                version,
                data: content(data),
            },
            Message::ReadResponse { version, data } => Body::ReadResponse {
                version,
                data: content(data),
            },
            Message::Acknowledge { syndrome, version } => Body::Acknowledge { syndrome, version },
            Message::AtomicAcknowledge { syndrome, original } => {
                Body::AtomicAcknowledge { syndrome, original }
            }
            Message::Atomic {
                va,
                domain,
                operation,
            } => Body::Atomic {
                va,
                domain,
                operation,
            },
            Message::Invalidate(invalidation) => Body::Invalidate(invalidation),
            Message::InvalidateAck { invalidation, toll } => Body::Answer {
                invalidation,
                toll,
                fetch: false,
            },
            Message::InvalidateAckFetch { invalidation, toll } => Body::Answer {
                invalidation,
                toll,
                fetch: true,
            },
            Message::Forward {
                invalidation,
                toll,
                version,
                data,
            } => Body::Forward {
                invalidation,
                toll,
                version,
                data: content(data),
            },
        };
        Self { envelope, body }
    }

    /// The message of the wire, with `bytes` for a page; `None` for what never leaves the switch.
    pub fn message<'a>(&'a self, bytes: impl FnOnce(&'a P) -> &'a Page) -> Option<Message<'a>> {
        Some(match &self.body {
            Body::Request { want, page } => match want {
                Want::Read => Message::Read(*page),
                Want::Acquire => Message::Acquire(*page),
                Want::Upgrade => Message::Upgrade(*page),
            },
            Body::Write {
                page,
                version,
                data,
            } => Message::Write {
                request: *page,
                version: *version,
                data: bytes(data),
            },
            Body::ReadResponse { version, data } => Message::ReadResponse {
                version: *version,
                data: bytes(data),
            },
            &Body::Acknowledge { syndrome, version } => Message::Acknowledge { syndrome, version },
            &Body::AtomicAcknowledge { syndrome, original } => {
                Message::AtomicAcknowledge { syndrome, original }
            }
            &Body::Atomic {
                va,
                domain,
                operation,
            } => Message::Atomic {
                va,
                domain,
                operation,
            },
            &Body::Invalidate(invalidation) => Message::Invalidate(invalidation),
            &Body::Answer {
                invalidation,
                toll,
                fetch: false,
            } => Message::InvalidateAck { invalidation, toll },
            &Body::Answer {
                invalidation, toll, ..
            } => Message::InvalidateAckFetch { invalidation, toll },
            Body::Forward {
                invalidation,
                toll,
                version,
                data,
            } => Message::Forward {
                invalidation: *invalidation,
                toll: *toll,
                version: *version,
                data: bytes(data),
            },
            Body::FanOut { .. } => return None,
        })
    }
}
