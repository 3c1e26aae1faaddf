//! The interface between a compute blade and its agent: configuration, actions, counters.

use crate::{
    compute::{
        page::{Access, Event, Phase},
        residency, retransmission,
    },
    datagram::{Datagram, PageRequest},
};
use mind_common::{addr::Va, directory::Transition, id::Connection, refusal::Refusal, serial::Seq};

/// Configuration of a compute blade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Its connection to the switch.
    pub connection: Connection,
    /// Pages that the cache may hold; at least 1.
    pub capacity: usize,
    /// How many of these are kept free, so that a fault need not wait for a write-back; less than
    /// the capacity.
    pub reserve: usize,
    /// Bounds of a page's [residency], in nanoseconds.
    pub residency: residency::Bounds,
    /// Bounds of the wait for an answer, in nanoseconds.
    pub timeout: retransmission::Bounds,
    /// How long a request may take before it is reported to the controller as stuck, in
    /// nanoseconds; it is reported again after every further such period.
    pub stuck_after: u64,
    /// How long nothing may be heard of a request, in nanoseconds. After that the fault fails. That it is to wait counts
    /// as heard: the switch is there, and something is being done to the region.
    pub deadline: u64,
    /// The number of the first request. Any number will do; a new incarnation should begin at
    /// another than the last.
    pub first_seq: Seq,
    /// Whether the blade reports each event of a page ([`Action::Stepped`]), for tests that count
    /// them.
    pub is_watched: bool,
}

impl Config {
    /// The configuration for a blade with that connection and capacity on an Ethernet: a residency
    /// of 10 us to 1 ms, a timeout of 4 to 100 ms, reported stuck after 1 s, a deadline of 5 s, a
    /// 32nd of the capacity (at most 256 pages) kept free.
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
            stuck_after: 1_000_000_000,
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
    /// Unmap the copy from every program and discard it.
    Drop {
        /// Which page.
        page: PageRequest,
    },
    /// The access that threads wait for fails: SIGSEGV when denied, SIGBUS otherwise.
    Fail {
        /// Which page.
        page: PageRequest,
        /// The access. Threads that wait for less go on and fault again.
        access: Access,
        /// Why not.
        refusal: Refusal,
    },
    /// Writes to the page are lost: memory refused the write-back for good.
    Lost {
        /// Which page.
        page: PageRequest,
        /// Why.
        refusal: Refusal,
    },
    /// Report to the controller that a request does not complete: it may reset the region (paper,
    /// section 4.4).
    ReportStuck {
        /// For which page.
        page: PageRequest,
    },
    /// A fault that took a request is over (for statistics).
    Served {
        /// The transition that it caused in the directory, if the answer carried it.
        transition: Option<Transition>,
        /// From the fault to the answer, in nanoseconds.
        nanos: u64,
    },
    /// A flush is complete.
    Flushed {
        /// The flush's token.
        token: u64,
    },
    /// An event of a page; nothing is to be done. Only if [`Config::is_watched`].
    Stepped {
        /// Which page.
        page: Va,
        /// Its phase before the event.
        before: Phase,
        /// What happened.
        event: Event,
    },
}

macro_rules! counters {
    ($($(#[doc = $help:literal])+ $name:ident: $metric:literal;)+) => {
        /// The blade's counters, from 0 on.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct Counters {
            $($(#[doc = $help])+ pub $name: u64,)+
        }
    };
}

mind_common::blade_counters!(counters);
