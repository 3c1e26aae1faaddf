//! What passes between a blade and its agent: what it is told at first, what it wants done, what
//! it counts.

use crate::{
    compute::{
        page::{Access, Event, Phase},
        residency, retransmission,
    },
    datagram::{Datagram, PageRequest},
};
use mind_common::{addr::Va, directory::Transition, id::Connection, refusal::Refusal, serial::Seq};

/// What a blade is told when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Its connection to the switch.
    pub connection: Connection,
    /// Pages that the cache may hold; at least 1.
    pub capacity: usize,
    /// Pages of these that are kept free, so that a fault need not wait for a write-back; less
    /// than the capacity.
    pub reserve: usize,
    /// How long a page stays at least, in nanoseconds.
    pub residency: residency::Bounds,
    /// How long to wait for an answer, in nanoseconds.
    pub timeout: retransmission::Bounds,
    /// How long a request may take before the controller is told that something is stuck, and
    /// again after as long, in nanoseconds.
    pub appeal: u64,
    /// How long a request may take with everything, in nanoseconds. After that the fault fails.
    pub deadline: u64,
    /// The number of the first request. Anything; a new life of a blade does well to begin
    /// elsewhere.
    pub first_seq: Seq,
    /// Whether it says what happens to each page ([`Action::Stepped`]), for tests that count it.
    pub is_watched: bool,
}

impl Config {
    /// What suits a blade with that connection and capacity on an Ethernet: a hold of 10 us to
    /// 1 ms, a timeout of 4 to 100 ms, an appeal after 1 s, a deadline of 5 s, a 32nd of the
    /// capacity (at most 256 pages) kept free.
    pub fn new(connection: Connection, capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Self {
            connection,
            capacity,
            reserve: (capacity / 32).min(256),
            residency: residency::Bounds {
                least: 10_000,
                most: 1_000_000,
            },
            timeout: retransmission::Bounds {
                least: 4_000_000,
                most: 100_000_000,
            },
            appeal: 1_000_000_000,
            deadline: 5_000_000_000,
            first_seq: Seq::new(connection.to_qp()),
            is_watched: false,
        }
    }
}

/// What the agent is to do, in the order given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send a datagram, with the page that it names as it is in the cache.
    Send(Datagram<PageRequest>),
    /// Put the page of the datagram just received into the cache; let waiting threads go on.
    Install {
        /// Which page.
        page: PageRequest,
        /// Whether programs may write it.
        writable: bool,
    },
    /// Let programs use the copy that is there; let waiting threads go on.
    Map {
        /// Which page.
        page: PageRequest,
        /// Whether they may write it.
        writable: bool,
    },
    /// Take the permission to write from every program.
    Protect {
        /// Which page.
        page: PageRequest,
    },
    /// Take the copy from every program and forget it.
    Drop {
        /// Which page.
        page: PageRequest,
    },
    /// The threads that wait for this access can't have it: SIGSEGV when denied, SIGBUS
    /// otherwise.
    Fail {
        /// Which page.
        page: PageRequest,
        /// What they want. Threads that want less are let go on and fault again.
        access: Access,
        /// Why not.
        refusal: Refusal,
    },
    /// What was written into the page is gone: memory refused it for good.
    Lost {
        /// Which page.
        page: PageRequest,
        /// Why.
        refusal: Refusal,
    },
    /// Tell the controller that a request does not complete: it may reset the region (paper,
    /// section 4.4).
    ReportStuck {
        /// For which page.
        page: PageRequest,
    },
    /// A fault that took a request is over (for statistics).
    Served {
        /// The way it took through the directory, where the answer said so.
        transition: Option<Transition>,
        /// From the fault to the answer, in nanoseconds.
        nanos: u64,
    },
    /// What the controller asked to be flushed is flushed.
    Flushed {
        /// Its token.
        token: u64,
    },
    /// Something happened to a page; nothing is to be done. Only where [`Config::is_watched`].
    Stepped {
        /// Which page.
        page: Va,
        /// Where it was in its life.
        before: Phase,
        /// What happened.
        event: Event,
    },
}

/// What the blade counts; only ever grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counters {
    /// Faults taken.
    pub faults: u64,
    /// Faults that found the page here, and needed no request.
    pub hits: u64,
    /// Faults that waited for room.
    pub starved: u64,
    /// READ, ACQUIRE and UPGRADE requests begun.
    pub requests: u64,
    /// Requests sent again because no answer came in time.
    pub timeouts: u64,
    /// Requests that were told "busy".
    pub busy: u64,
    /// Requests of which the controller was told that they do not complete.
    pub appeals: u64,
    /// Requests given up because of the deadline.
    pub expired: u64,
    /// Pages written back.
    pub write_backs: u64,
    /// Pages that went to make room.
    pub evictions: u64,
    /// Invalidations answered.
    pub invalidations: u64,
    /// Pages dropped by an invalidation though nobody asked for them.
    pub false_invalidations: u64,
    /// Pages whose last writes are gone.
    pub lost: u64,
    /// Datagrams that answer nothing (any more), or are for an earlier life of the blade.
    pub ignored: u64,
}
