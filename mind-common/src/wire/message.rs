//! A whole datagram, as blades send and receive it: parse and emit.

use zerocopy::{FromBytes, IntoBytes, big_endian::U16, big_endian::U32, big_endian::U64};

use super::{
    AETH_LEN, ATOMIC_LEN, ATOMIC_REQUEST_LEN, Aeth, AtomicEth, BTH_LEN, Bth, CETH_LEN, Ceth,
    FORWARD_LEN, IMM_LEN, Invalidation, Opcode, PAGE_REQUEST_LEN, READ_RESPONSE_LEN, RETH_LEN,
    Reth, SHORT_REQUEST_LEN, Syndrome, WRITE_LEN,
};
use crate::{
    addr::{PAGE_SIZE, Va},
    id::{BladeSet, DomainId},
    serial::{Seq, Version},
};

/// A page's bytes.
pub type Page = [u8; PAGE_SIZE];

/// What a datagram carries behind the fields that all have ([`Envelope`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A page, to read.
    Read(PageRequest),
    /// A page, to write.
    Acquire(PageRequest),
    /// Permission to write a page that the requester has.
    Upgrade(PageRequest),
    /// A page is written back.
    Write {
        /// Which page.
        request: PageRequest,
        /// One more than the version it had.
        version: Version,
        /// Its bytes.
        data: &'a Page,
    },
    /// A page from memory.
    ReadResponse {
        /// The version it has in memory.
        version: Version,
        /// Its bytes.
        data: &'a Page,
    },
    /// A request is carried out or refused.
    Acknowledge {
        /// Which of the two.
        syndrome: Syndrome,
        /// The page's version, where the request was a write-back.
        version: Version,
    },
    /// An 8-byte word's value before an atomic operation.
    AtomicAcknowledge {
        /// Whether the operation was carried out.
        syndrome: Syndrome,
        /// The value before it.
        original: u64,
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
    /// Give a region up, or give up writing it.
    Invalidate(Invalidation),
    /// It is given up.
    InvalidateAck {
        /// What was asked.
        invalidation: Invalidation,
        /// What it cost.
        toll: Toll,
    },
    /// It is given up, and the requester's page is in memory.
    InvalidateAckFetch {
        /// What was asked.
        invalidation: Invalidation,
        /// What it cost.
        toll: Toll,
    },
    /// It is given up, and here is the requester's page.
    Forward {
        /// What was asked.
        invalidation: Invalidation,
        /// What it cost.
        toll: Toll,
        /// The page's version, which memory has, too.
        version: Version,
        /// The page's bytes.
        data: &'a Page,
    },
}

/// A page in a protection domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageRequest {
    /// First address of the page.
    pub page: Va,
    /// The domain in whose name it is asked for.
    pub domain: DomainId,
}

/// An atomic operation on an 8-byte word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Atomic {
    /// Replace the value if it is the expected one.
    CmpSwap {
        /// The value that must be there.
        expected: u64,
        /// The value to put there.
        new: u64,
    },
    /// Add, wrapping.
    FetchAdd {
        /// What to add.
        addend: u64,
    },
}

/// What an invalidation cost the blade that answers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Toll {
    /// Pages dropped though the requester did not want them: false invalidations.
    pub dropped: u16,
    /// Pages written back.
    pub flushed: u16,
}

/// The fields of a BTH that matter to a blade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// Destination queue pair: a [`Connection`](crate::id::Connection)'s number.
    pub qp: u32,
    /// The number of the request that this is or answers.
    pub seq: Seq,
    /// How often the request went unanswered.
    pub attempt: u8,
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Fewer bytes than the opcode needs, or than a BTH has.
    Truncated {
        /// Bytes there are.
        have: usize,
        /// Bytes it takes.
        need: usize,
    },
    /// No opcode of ours, or one that never leaves the switch.
    Opcode(u8),
    /// A header field has a value that nobody sends.
    Field(&'static str),
}

impl core::fmt::Display for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Truncated { have, need } => {
                write!(f, "truncated: {have} bytes where the opcode takes {need}")
            }
            Self::Opcode(opcode) => write!(f, "opcode {opcode:#04x} is none that a blade gets"),
            Self::Field(name) => write!(f, "header field {name} has a value that nobody sends"),
        }
    }
}

impl core::error::Error for Malformed {}

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

    fn reth(&self) -> Reth {
        Reth::new(self.page, self.domain, PAGE_SIZE as u32)
    }
}

/// Parses a UDP payload. Bytes behind the message are padding and ignored.
///
/// # Errors
///
/// See [`Malformed`]. No input panics.
pub fn parse(bytes: &[u8]) -> Result<(Envelope, Message<'_>), Malformed> {
    let bth: Bth = take(bytes, 0)?;
    let envelope = Envelope {
        qp: bth.dest_qp(),
        seq: bth.seq(),
        attempt: bth.attempt(),
    };
    let opcode = Opcode::from_u8(bth.opcode).ok_or(Malformed::Opcode(bth.opcode))?;
    let coherence = || -> Result<(Ceth, Invalidation, Toll), Malformed> {
        let ceth: Ceth = take(bytes, BTH_LEN)?;
        let toll = Toll {
            dropped: ceth.dropped.get(),
            flushed: ceth.flushed.get(),
        };
        Ok((ceth, ceth.invalidation()?, toll))
    };
    let acknowledgement = || -> Result<(Syndrome, Version), Malformed> {
        let aeth: Aeth = take(bytes, BTH_LEN)?;
        let syndrome = Syndrome::from_u8(aeth.syndrome).ok_or(Malformed::Field("syndrome"))?;
        Ok((syndrome, aeth.version()))
    };
    let message = match opcode {
        Opcode::Read => Message::Read(PageRequest::parse(bytes)?),
        Opcode::Acquire => Message::Acquire(PageRequest::parse(bytes)?),
        Opcode::Upgrade => Message::Upgrade(PageRequest::parse(bytes)?),
        Opcode::Write => {
            let immediate: U32 = take(bytes, BTH_LEN + RETH_LEN)?;
            Message::Write {
                request: PageRequest::parse(bytes)?,
                version: Version::new(immediate.get()),
                data: take_page(bytes, BTH_LEN + RETH_LEN + IMM_LEN)?,
            }
        }
        Opcode::ReadResponse => {
            let (syndrome, version) = acknowledgement()?;
            if syndrome != Syndrome::Ack {
                return Err(Malformed::Field("syndrome"));
            }
            Message::ReadResponse {
                version,
                data: take_page(bytes, BTH_LEN + AETH_LEN)?,
            }
        }
        Opcode::Acknowledge => {
            let (syndrome, version) = acknowledgement()?;
            Message::Acknowledge { syndrome, version }
        }
        Opcode::AtomicAcknowledge => {
            let (syndrome, _) = acknowledgement()?;
            let original: U64 = take(bytes, BTH_LEN + AETH_LEN)?;
            Message::AtomicAcknowledge {
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
            Message::Atomic {
                va,
                domain: DomainId(atomic.rkey.get()),
                operation: if opcode == Opcode::CmpSwap {
                    Atomic::CmpSwap {
                        expected: atomic.compare.get(),
                        new: atomic.swap_or_add.get(),
                    }
                } else {
                    Atomic::FetchAdd {
                        addend: atomic.swap_or_add.get(),
                    }
                },
            }
        }
        Opcode::Invalidate => Message::Invalidate(coherence()?.1),
        Opcode::InvalidateAck => {
            let (_, invalidation, toll) = coherence()?;
            Message::InvalidateAck { invalidation, toll }
        }
        Opcode::InvalidateAckFetch => {
            let (_, invalidation, toll) = coherence()?;
            Message::InvalidateAckFetch { invalidation, toll }
        }
        Opcode::Forward => {
            let (ceth, invalidation, toll) = coherence()?;
            Message::Forward {
                invalidation,
                toll,
                version: ceth.version(),
                data: take_page(bytes, BTH_LEN + CETH_LEN)?,
            }
        }
        Opcode::FanOut => return Err(Malformed::Opcode(bth.opcode)),
    };
    Ok((envelope, message))
}

/// Headers of a message, without its page: see [`Message::emit`].
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

impl<'a> Message<'a> {
    /// The opcode.
    pub const fn opcode(&self) -> Opcode {
        match self {
            Self::Read(_) => Opcode::Read,
            Self::Acquire(_) => Opcode::Acquire,
            Self::Upgrade(_) => Opcode::Upgrade,
            Self::Write { .. } => Opcode::Write,
            Self::ReadResponse { .. } => Opcode::ReadResponse,
            Self::Acknowledge { .. } => Opcode::Acknowledge,
            Self::AtomicAcknowledge { .. } => Opcode::AtomicAcknowledge,
            Self::Atomic {
                operation: Atomic::CmpSwap { .. },
                ..
            } => Opcode::CmpSwap,
            Self::Atomic {
                operation: Atomic::FetchAdd { .. },
                ..
            } => Opcode::FetchAdd,
            Self::Invalidate(_) => Opcode::Invalidate,
            Self::InvalidateAck { .. } => Opcode::InvalidateAck,
            Self::InvalidateAckFetch { .. } => Opcode::InvalidateAckFetch,
            Self::Forward { .. } => Opcode::Forward,
        }
    }

    /// Bytes of the datagram, padding included.
    pub const fn len(&self) -> usize {
        match self {
            Self::Read(_) | Self::Acquire(_) | Self::InvalidateAckFetch { .. } => PAGE_REQUEST_LEN,
            Self::Upgrade(_)
            | Self::Acknowledge { .. }
            | Self::AtomicAcknowledge { .. }
            | Self::Invalidate(_)
            | Self::InvalidateAck { .. } => SHORT_REQUEST_LEN,
            Self::Atomic { .. } => ATOMIC_REQUEST_LEN,
            Self::Write { .. } => WRITE_LEN,
            Self::ReadResponse { .. } => READ_RESPONSE_LEN,
            Self::Forward { .. } => FORWARD_LEN,
        }
    }

    /// Never: a message has at least a BTH.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// The headers and the page behind them, to be sent one after the other and padded with
    /// anything to [`len`](Self::len) bytes (a scatter list saves the copy).
    pub fn emit(&self, envelope: &Envelope) -> (Headers, Option<&'a Page>) {
        let mut bth = Bth::new(self.opcode(), envelope.qp, envelope.seq);
        bth.set_attempt(envelope.attempt);
        let mut headers = Headers::new(&bth);
        let answer = |invalidation: &Invalidation, toll: &Toll, version: u32| {
            let mut ceth = Ceth::new(invalidation, BladeSet::EMPTY);
            ceth.dropped = U16::new(toll.dropped);
            ceth.flushed = U16::new(toll.flushed);
            ceth.version = U32::new(version);
            ceth
        };
        match self {
            Self::Read(request) | Self::Acquire(request) | Self::Upgrade(request) => {
                headers.push(request.reth().as_bytes());
                (headers, None)
            }
            Self::Write {
                request,
                version,
                data,
            } => {
                headers.push(request.reth().as_bytes());
                headers.push(U32::new(version.get()).as_bytes());
                (headers, Some(data))
            }
            Self::ReadResponse { version, data } => {
                headers.push(Aeth::new(Syndrome::Ack, *version).as_bytes());
                (headers, Some(data))
            }
            Self::Acknowledge { syndrome, version } => {
                headers.push(Aeth::new(*syndrome, *version).as_bytes());
                (headers, None)
            }
            Self::AtomicAcknowledge { syndrome, original } => {
                headers.push(Aeth::new(*syndrome, Version::default()).as_bytes());
                headers.push(U64::new(*original).as_bytes());
                (headers, None)
            }
            Self::Atomic {
                va,
                domain,
                operation,
            } => {
                let (swap_or_add, compare) = match *operation {
                    Atomic::CmpSwap { expected, new } => (new, expected),
                    Atomic::FetchAdd { addend } => (addend, 0),
                };
                let atomic = AtomicEth {
                    va: U64::new(va.0),
                    rkey: U32::new(domain.0),
                    swap_or_add: U64::new(swap_or_add),
                    compare: U64::new(compare),
                };
                headers.push(atomic.as_bytes());
                (headers, None)
            }
            Self::Invalidate(invalidation) => {
                headers.push(Ceth::new(invalidation, BladeSet::EMPTY).as_bytes());
                (headers, None)
            }
            Self::InvalidateAck { invalidation, toll }
            | Self::InvalidateAckFetch { invalidation, toll } => {
                headers.push(answer(invalidation, toll, 0).as_bytes());
                (headers, None)
            }
            Self::Forward {
                invalidation,
                toll,
                version,
                data,
            } => {
                headers.push(answer(invalidation, toll, version.get()).as_bytes());
                (headers, Some(data))
            }
        }
    }

    /// Writes the whole datagram, padding zeroed, to the front of `buffer`; its length.
    ///
    /// # Errors
    ///
    /// [`Malformed::Truncated`] when `buffer` is shorter than [`len`](Self::len).
    pub fn emit_into(&self, envelope: &Envelope, buffer: &mut [u8]) -> Result<usize, Malformed> {
        let need = self.len();
        let have = buffer.len();
        let out = buffer
            .get_mut(..need)
            .ok_or(Malformed::Truncated { have, need })?;
        let (headers, page) = self.emit(envelope);
        let (front, rest) = out.split_at_mut(headers.as_bytes().len());
        front.copy_from_slice(headers.as_bytes());
        let page = page.map_or(&[][..], |page| page);
        let (body, padding) = rest.split_at_mut(page.len());
        body.copy_from_slice(page);
        padding.fill(0);
        Ok(need)
    }
}

const _: () = assert!(BTH_LEN + CETH_LEN >= BTH_LEN + ATOMIC_LEN);
const _: () = assert!(CETH_LEN >= RETH_LEN + IMM_LEN);
