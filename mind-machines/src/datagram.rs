//! A datagram of the protocol: the fields of its headers, and its page, or what stands for the page.
//!
//! One type serves all: agents parse and emit [`Datagram<&Page>`](Page), whose page stays in the buffer; the compute
//! blade's machine sends [`Body<PageRequest>`], which names the page in its cache, and takes `Body<()>`, the headers;
//! simulators let a few words or a number stand for a page.

use std::{fmt::Debug, hash::Hash};

use mind_common::{
    addr::{PAGE_SIZE, Page, Va},
    directory::Want,
    id::{BladeSet, DomainId},
    serial::{Seq, Version},
    wire::{
        AETH_LEN, ATOMIC_LEN, ATOMIC_REQUEST_LEN, Aeth, Atomic, AtomicEth, BTH_LEN, Bth, CETH_LEN,
        Ceth, Cost, FORWARD_LEN, IMM_LEN, Invalidation, Malformed, Opcode, PAGE_REQUEST_LEN,
        READ_RESPONSE_LEN, RETH_LEN, Reth, SHORT_REQUEST_LEN, Syndrome, WRITE_LEN,
    },
};
use zerocopy::{
    FromBytes, IntoBytes,
    big_endian::{U16, U32, U64},
};

/// What stands for the bytes of a page. A fresh one is all zeros.
pub trait Content: Clone + Debug + Default + Eq + Hash {
    /// The word number `index` of a page, which has 512.
    fn word(&self, index: usize) -> u64;
    /// Changes it.
    fn set_word(&mut self, index: usize, value: u64);
}

/// No content: only headers matter.
impl Content for () {
    fn word(&self, _: usize) -> u64 {
        0
    }

    fn set_word(&mut self, _: usize, _: u64) {}
}

/// A page of equal words.
impl Content for u64 {
    fn word(&self, _: usize) -> u64 {
        *self
    }

    fn set_word(&mut self, _: usize, value: u64) {
        *self = value;
    }
}

/// A page of `N` words, repeated.
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

/// A page in a protection domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageRequest {
    /// First address of the page.
    pub page: Va,
    /// The domain that the requesting threads belong to.
    pub domain: DomainId,
}

/// The fields of a BTH that all datagrams have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// Destination queue pair: a [`Connection`](mind_common::id::Connection)'s number.
    pub qp: u32,
    /// The number of the request that this is or answers.
    pub seq: Seq,
    /// In a request, how often it was sent before without an answer; in its answer, the transition
    /// that it caused.
    pub attempt: u8,
}

/// A datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Datagram<P> {
    /// Connection, number, attempt.
    pub envelope: Envelope,
    /// The rest.
    pub body: Body<P>,
}

/// What a datagram carries behind its envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Body<P> {
    /// READ, ACQUIRE or UPGRADE. On its way from the switch to memory, a READ's address is an offset in the store.
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
        /// The version that it becomes: one more than it had.
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
        /// Address of the word, a multiple of 8.
        va: Va,
        /// In which protection domain.
        domain: DomainId,
        /// What to do.
        operation: Atomic,
    },
    /// A word's value before an atomic operation.
    AtomicAcknowledge {
        /// Whether the operation was carried out.
        syndrome: Syndrome,
        /// The value.
        original: u64,
    },
    /// Give a region up, or give up writing it.
    Invalidate(Invalidation),
    /// The region is given up: INVALIDATE-ACK or INVALIDATE-ACK-FETCH.
    Answer {
        /// The invalidation that it answers.
        invalidation: Invalidation,
        /// What the invalidation cost.
        cost: Cost,
        /// Whether the requester is to have the page fetched: INVALIDATE-ACK-FETCH.
        fetch: bool,
    },
    /// The region is given up; carries the page for the requester.
    Forward {
        /// The invalidation that it answers.
        invalidation: Invalidation,
        /// What the invalidation cost.
        cost: Cost,
        /// The page's version; memory has the same.
        version: Version,
        /// What is in it.
        data: P,
    },
    /// Inside the switch only, from XDP to TC or to the controller, which send the invalidation to
    /// several blades.
    FanOut {
        /// The invalidation to send.
        invalidation: Invalidation,
        /// The blades to send it to.
        pending: BladeSet,
    },
}

impl<P> Body<P> {
    /// READ: a page, to read.
    pub const fn read(page: PageRequest) -> Self {
        let want = Want::Read;
        Self::Request { want, page }
    }

    /// ACQUIRE: a page, to write.
    pub const fn acquire(page: PageRequest) -> Self {
        let want = Want::Acquire;
        Self::Request { want, page }
    }

    /// UPGRADE: permission to write a page that the requester has.
    pub const fn upgrade(page: PageRequest) -> Self {
        let want = Want::Upgrade;
        Self::Request { want, page }
    }

    /// INVALIDATE-ACK.
    pub const fn answer(invalidation: Invalidation, cost: Cost) -> Self {
        Self::Answer {
            invalidation,
            cost,
            fetch: false,
        }
    }

    /// INVALIDATE-ACK-FETCH.
    pub const fn answer_with_fetch(invalidation: Invalidation, cost: Cost) -> Self {
        Self::Answer {
            invalidation,
            cost,
            fetch: true,
        }
    }

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

    /// Bytes of the UDP payload, padding included.
    pub const fn wire_len(&self) -> usize {
        match self {
            Self::Request {
                want: Want::Read | Want::Acquire,
                ..
            }
            | Self::Answer { fetch: true, .. } => PAGE_REQUEST_LEN,
            Self::Request {
                want: Want::Upgrade,
                ..
            }
            | Self::Acknowledge { .. }
            | Self::AtomicAcknowledge { .. }
            | Self::Invalidate(_)
            | Self::FanOut { .. }
            | Self::Answer { fetch: false, .. } => SHORT_REQUEST_LEN,
            Self::Atomic { .. } => ATOMIC_REQUEST_LEN,
            Self::Write { .. } => WRITE_LEN,
            Self::ReadResponse { .. } => READ_RESPONSE_LEN,
            Self::Forward { .. } => FORWARD_LEN,
        }
    }

    /// The page in it.
    pub const fn data(&self) -> Option<&P> {
        match self {
            Self::Write { data, .. }
            | Self::ReadResponse { data, .. }
            | Self::Forward { data, .. } => Some(data),
            _ => None,
        }
    }

    /// The page in it, to be changed.
    pub const fn data_mut(&mut self) -> Option<&mut P> {
        match self {
            Self::Write { data, .. }
            | Self::ReadResponse { data, .. }
            | Self::Forward { data, .. } => Some(data),
            _ => None,
        }
    }

    /// The same with another page, if it has one.
    pub fn map<Q>(self, page: impl FnOnce(P) -> Q) -> Body<Q> {
        match self {
            Self::Write {
                page: request,
                version,
                data,
            } => Body::Write {
                page: request,
                version,
                data: page(data),
            },
            Self::ReadResponse { version, data } => Body::ReadResponse {
                version,
                data: page(data),
            },
            Self::Forward {
                invalidation,
                cost,
                version,
                data,
            } => Body::Forward {
                invalidation,
                cost,
                version,
                data: page(data),
            },
            Self::Request { want, page } => Body::Request { want, page },
            Self::Acknowledge { syndrome, version } => Body::Acknowledge { syndrome, version },
            Self::Atomic {
                va,
                domain,
                operation,
            } => Body::Atomic {
                va,
                domain,
                operation,
            },
            Self::AtomicAcknowledge { syndrome, original } => {
                Body::AtomicAcknowledge { syndrome, original }
            }
            Self::Invalidate(invalidation) => Body::Invalidate(invalidation),
            Self::Answer {
                invalidation,
                cost,
                fetch,
            } => Body::Answer {
                invalidation,
                cost,
                fetch,
            },
            Self::FanOut {
                invalidation,
                pending,
            } => Body::FanOut {
                invalidation,
                pending,
            },
        }
    }

    /// Its headers.
    pub fn headers(&self) -> Body<()>
    where
        P: Copy,
    {
        self.map(|_| ())
    }
}

impl<P> Datagram<P> {
    /// A datagram with these headers.
    pub(crate) const fn new(bth: &Bth, body: Body<P>) -> Self {
        Self {
            envelope: Envelope::of(bth),
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

    /// The page in it.
    pub const fn data(&self) -> Option<&P> {
        self.body.data()
    }

    /// The page in it, to be changed.
    pub const fn data_mut(&mut self) -> Option<&mut P> {
        self.body.data_mut()
    }

    /// The same with another page, if it has one.
    pub fn map<Q>(self, page: impl FnOnce(P) -> Q) -> Datagram<Q> {
        Datagram {
            envelope: self.envelope,
            body: self.body.map(page),
        }
    }
}

impl Envelope {
    pub(crate) const fn of(bth: &Bth) -> Self {
        Self {
            qp: bth.dest_qp(),
            seq: bth.seq(),
            attempt: bth.attempt(),
        }
    }
}

fn take<T: FromBytes>(bytes: &[u8], at: usize) -> Result<T, Malformed> {
    bytes
        .get(at..)
        .and_then(|rest| T::read_from_prefix(rest).ok())
        .map(|(value, _)| value)
        .ok_or(Malformed::Truncated {
            have: bytes.len(),
            need: at + size_of::<T>(),
        })
}

fn take_page(bytes: &[u8], at: usize) -> Result<&Page, Malformed> {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .ok_or(Malformed::Truncated {
            have: bytes.len(),
            need: at + PAGE_SIZE,
        })
}

impl PageRequest {
    fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let reth: Reth = take(bytes, BTH_LEN)?;
        if reth.len.get() as usize != PAGE_SIZE {
            return Err(Malformed::Field("len"));
        }
        if !reth.va().is_page_aligned() {
            return Err(Malformed::Field("va"));
        }
        Ok(Self {
            page: reth.va(),
            domain: reth.domain(),
        })
    }

    pub(crate) fn reth(&self) -> Reth {
        Reth::new(self.page, self.domain, PAGE_SIZE as u32)
    }
}

impl<'a> Datagram<&'a Page> {
    /// The datagram that a UDP payload is. Bytes behind it are padding and ignored.
    ///
    /// # Errors
    ///
    /// See [`Malformed`]. No input panics.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let bth: Bth = take(bytes, 0)?;
        let opcode = Opcode::from_u8(bth.opcode).ok_or(Malformed::Opcode(bth.opcode))?;
        Ok(Self {
            envelope: Envelope::of(&bth),
            body: Body::parse(opcode, bytes)?,
        })
    }

    /// The headers, and the page behind them, to be sent one after the other and padded with anything to
    /// [`wire_len`](Body::wire_len) bytes (a scatter list saves the copy).
    pub fn emit(&self) -> (Headers, Option<&'a Page>) {
        let mut headers = Headers::new(&self.bth());
        self.body.push_headers(&mut headers);
        (headers, self.data().copied())
    }

    /// Writes the whole datagram, padding zeroed, to the front of `buffer`; its length.
    ///
    /// # Errors
    ///
    /// [`Malformed::Truncated`] when `buffer` is shorter than [`wire_len`](Body::wire_len).
    pub fn emit_into(&self, buffer: &mut [u8]) -> Result<usize, Malformed> {
        let need = self.body.wire_len();
        let have = buffer.len();
        let out = buffer
            .get_mut(..need)
            .ok_or(Malformed::Truncated { have, need })?;
        let (headers, page) = self.emit();
        let (front, rest) = out.split_at_mut(headers.as_bytes().len());
        front.copy_from_slice(headers.as_bytes());
        let page = page.map_or(&[][..], |page| page);
        let (body, padding) = rest.split_at_mut(page.len());
        body.copy_from_slice(page);
        padding.fill(0);
        Ok(need)
    }
}

impl<'a> Body<&'a Page> {
    fn parse(opcode: Opcode, bytes: &'a [u8]) -> Result<Self, Malformed> {
        let coherence = || -> Result<(Ceth, Invalidation, Cost), Malformed> {
            let ceth: Ceth = take(bytes, BTH_LEN)?;
            Ok((ceth, ceth.invalidation()?, ceth.cost()))
        };
        let acknowledgement = || -> Result<(Syndrome, Version), Malformed> {
            let aeth: Aeth = take(bytes, BTH_LEN)?;
            let syndrome = Syndrome::from_u8(aeth.syndrome).ok_or(Malformed::Field("syndrome"))?;
            Ok((syndrome, aeth.version()))
        };
        Ok(match opcode {
            Opcode::Read => Self::read(PageRequest::parse(bytes)?),
            Opcode::Acquire => Self::acquire(PageRequest::parse(bytes)?),
            Opcode::Upgrade => Self::upgrade(PageRequest::parse(bytes)?),
            Opcode::Write => {
                let immediate: U32 = take(bytes, BTH_LEN + RETH_LEN)?;
                Self::Write {
                    page: PageRequest::parse(bytes)?,
                    version: Version::new(immediate.get()),
                    data: take_page(bytes, BTH_LEN + RETH_LEN + IMM_LEN)?,
                }
            }
            Opcode::ReadResponse => {
                let (syndrome, version) = acknowledgement()?;
                if syndrome != Syndrome::Ack {
                    return Err(Malformed::Field("syndrome"));
                }
                Self::ReadResponse {
                    version,
                    data: take_page(bytes, BTH_LEN + AETH_LEN)?,
                }
            }
            Opcode::Acknowledge => {
                let (syndrome, version) = acknowledgement()?;
                Self::Acknowledge { syndrome, version }
            }
            Opcode::AtomicAcknowledge => {
                let (syndrome, _) = acknowledgement()?;
                let original: U64 = take(bytes, BTH_LEN + AETH_LEN)?;
                Self::AtomicAcknowledge {
                    syndrome,
                    original: original.get(),
                }
            }
            Opcode::CmpSwap | Opcode::FetchAdd => {
                let atomic: AtomicEth = take(bytes, BTH_LEN)?;
                let va = Va(atomic.va.get());
                if !va.0.is_multiple_of(8) {
                    return Err(Malformed::Field("va"));
                }
                let operation = match opcode {
                    Opcode::CmpSwap => Atomic::CmpSwap {
                        expected: atomic.compare.get(),
                        new: atomic.swap_or_add.get(),
                    },
                    _ => Atomic::FetchAdd {
                        addend: atomic.swap_or_add.get(),
                    },
                };
                Self::Atomic {
                    va,
                    domain: DomainId(atomic.rkey.get()),
                    operation,
                }
            }
            Opcode::Invalidate => Self::Invalidate(coherence()?.1),
            Opcode::InvalidateAck => {
                let (_, invalidation, cost) = coherence()?;
                Self::answer(invalidation, cost)
            }
            Opcode::InvalidateAckFetch => {
                let (_, invalidation, cost) = coherence()?;
                Self::answer_with_fetch(invalidation, cost)
            }
            Opcode::Forward => {
                let (ceth, invalidation, cost) = coherence()?;
                Self::Forward {
                    invalidation,
                    cost,
                    version: ceth.version(),
                    data: take_page(bytes, BTH_LEN + CETH_LEN)?,
                }
            }
            Opcode::FanOut => return Err(Malformed::Opcode(opcode as u8)),
        })
    }
}

/// Headers of a datagram, without its page: see [`Datagram::emit`].
#[derive(Clone, Copy, Debug)]
pub struct Headers {
    bytes: [u8; BTH_LEN + CETH_LEN],
    used: usize,
}

impl Headers {
    fn new(bth: &Bth) -> Self {
        let mut headers = Self {
            bytes: [0; BTH_LEN + CETH_LEN],
            used: 0,
        };
        headers.push(bth.as_bytes());
        headers
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.used..self.used + bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len();
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }
}

impl<P> Body<P> {
    /// Appends the headers behind the BTH.
    fn push_headers(&self, headers: &mut Headers) {
        match self {
            Self::Request { page, .. } => headers.push(page.reth().as_bytes()),
            Self::Write { page, version, .. } => {
                headers.push(page.reth().as_bytes());
                headers.push(U32::new(version.get()).as_bytes());
            }
            Self::ReadResponse { version, .. } => {
                headers.push(Aeth::new(Syndrome::Ack, *version).as_bytes());
            }
            Self::Acknowledge { syndrome, version } => {
                headers.push(Aeth::new(*syndrome, *version).as_bytes());
            }
            Self::AtomicAcknowledge { syndrome, original } => {
                headers.push(Aeth::new(*syndrome, Version::default()).as_bytes());
                headers.push(U64::new(*original).as_bytes());
            }
            Self::Atomic {
                va,
                domain,
                operation,
            } => headers.push(atomic_header(*va, *domain, *operation).as_bytes()),
            Self::Invalidate(invalidation) => {
                headers.push(Ceth::new(invalidation, BladeSet::EMPTY).as_bytes());
            }
            Self::Answer {
                invalidation, cost, ..
            } => headers.push(answer_header(invalidation, cost, Version::default()).as_bytes()),
            Self::Forward {
                invalidation,
                cost,
                version,
                ..
            } => headers.push(answer_header(invalidation, cost, *version).as_bytes()),
            Self::FanOut {
                invalidation,
                pending,
            } => headers.push(Ceth::new(invalidation, *pending).as_bytes()),
        }
    }
}

/// The header of an atomic operation.
pub(crate) fn atomic_header(va: Va, domain: DomainId, operation: Atomic) -> AtomicEth {
    let (swap_or_add, compare) = match operation {
        Atomic::CmpSwap { expected, new } => (new, expected),
        Atomic::FetchAdd { addend } => (addend, 0),
    };
    AtomicEth {
        va: U64::new(va.0),
        rkey: U32::new(domain.0),
        swap_or_add: U64::new(swap_or_add),
        compare: U64::new(compare),
    }
}

/// The coherence header of an answer.
pub(crate) fn answer_header(invalidation: &Invalidation, cost: &Cost, version: Version) -> Ceth {
    let mut ceth = Ceth::new(invalidation, BladeSet::EMPTY);
    ceth.dropped = U16::new(cost.dropped);
    ceth.flushed = U16::new(cost.flushed);
    ceth.version = U32::new(version.get());
    ceth
}

const _: () = assert!(BTH_LEN + CETH_LEN >= BTH_LEN + ATOMIC_LEN);
const _: () = assert!(CETH_LEN >= RETH_LEN + IMM_LEN);
