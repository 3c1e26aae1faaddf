//! A compute blade as a whole. [`super::page`] decides the transitions of one page; the modules
//! here carry them out:
//!
//! * `interface`: the interface to the agent,
//! * `requests`: requests and write-backs under way,
//! * `recalls`: regions being given up,
//! * `cross_domain`: threads of two domains at one address,
//! * `room`: pages that wait for room, and which page is evicted,
//! * `pages`: the consequences of one page's transition,
//! * `model`: what a model checker needs of it (feature `model`).

mod cross_domain;
mod interface;
#[cfg(feature = "model")]
pub mod model;
mod pages;
mod recalls;
mod requests;
mod room;

use crate::datagram::Body;
use core::ops::Range;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    vec::Vec,
};

pub use self::interface::{Action, Config, Counters};
use self::{
    recalls::{Cause, Recall, Scope},
    requests::{Purpose, Transaction},
};
use super::{
    eviction::TwoQueue,
    page::{Access, Event, Page, Phase},
    residency::Residency,
    retransmission::RoundTrip,
};
use crate::datagram::{Datagram, PageRequest};
use mind_common::{
    addr::Va,
    directory::Target,
    id::DomainId,
    refusal::Refusal,
    serial::{Seq, Version},
    wire::Syndrome,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Entry {
    page: Page,
    domain: DomainId,
    /// The request under way.
    seq: Option<Seq>,
    /// The end of its residency: from then on it may be given away.
    resident_until: u64,
    /// When the thread that waits longest faulted.
    faulted_at: Option<u64>,
    /// Waits in [`Blade::starved`].
    starved: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Timer {
    Transaction(u32),
    Residency(Va),
    Room,
}

/// A compute blade. See the [module](super) for how it is driven.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Blade {
    config: Config,
    pages: BTreeMap<Va, Entry>,
    transactions: BTreeMap<u32, Transaction>,
    next_seq: Seq,
    recalls: Vec<Recall>,
    timers: BTreeSet<(u64, Timer)>,
    /// When [`Timer::Room`] is due.
    room_at: Option<u64>,
    /// Absent pages that threads wait for and that may make their request once there is room.
    starved: VecDeque<Va>,
    /// Threads of a domain that wait until another's request for the page is answered.
    cross_domain: Vec<(PageRequest, Access)>,
    /// Pages that take room.
    used: usize,
    /// How many of these are being evicted.
    evicting: usize,
    order: TwoQueue,
    residency: Residency,
    trip: RoundTrip,
    counters: Counters,
}

impl Blade {
    /// A blade with an empty cache.
    pub fn new(config: Config) -> Self {
        Self {
            pages: BTreeMap::new(),
            transactions: BTreeMap::new(),
            next_seq: config.first_seq,
            recalls: Vec::new(),
            timers: BTreeSet::new(),
            room_at: None,
            starved: VecDeque::new(),
            cross_domain: Vec::new(),
            used: 0,
            evicting: 0,
            order: TwoQueue::new(config.capacity),
            residency: Residency::new(config.residency),
            trip: RoundTrip::new(config.timeout, u64::from(config.connection.to_qp())),
            counters: Counters::default(),
            config,
        }
    }

    /// The blade's counters.
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Pages that take room now, and how many may at most.
    pub const fn room(&self) -> (usize, usize) {
        (self.used, self.config.capacity)
    }

    /// The smoothed round trip of its requests, in nanoseconds.
    pub const fn round_trip(&self) -> Option<u64> {
        self.trip.smoothed()
    }

    /// Whether nothing is under way: no request, no invalidation, no waiting thread.
    pub fn is_quiet(&self) -> bool {
        self.transactions.is_empty()
            && self.recalls.is_empty()
            && self.starved.is_empty()
            && self.cross_domain.is_empty()
    }

    /// A page's phase and version.
    pub fn page(&self, page: Va) -> (Phase, Version) {
        self.pages
            .get(&page)
            .map_or((Phase::Absent, Version::default()), |entry| {
                (entry.page.phase, entry.page.version)
            })
    }

    /// When [`poll`](Self::poll) is to be called next.
    pub fn next_deadline(&self) -> Option<u64> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// A thread of a program in that domain faulted.
    pub fn fault(&mut self, now: u64, page: PageRequest, access: Access, out: &mut Vec<Action>) {
        self.counters.faults += 1;
        self.take_up(now, page, access, out);
        self.settle(now, out);
    }

    fn take_up(&mut self, now: u64, page: PageRequest, access: Access, out: &mut Vec<Action>) {
        let va = page.page;
        let is_decided = self.is_decided(va);
        let answering = self.is_answering(va, page.domain);
        let entry = self.pages.entry(va).or_insert(Entry {
            page: Page {
                answering,
                ..Page::default()
            },
            domain: page.domain,
            seq: None,
            resident_until: 0,
            faulted_at: None,
            starved: false,
        });
        if entry.domain != page.domain {
            // An address belongs to one domain at a time. If the other domain has no copy here, the
            // switch decides.
            if !is_decided {
                self.contest(page, access);
                return;
            }
            if entry.page.phase != Phase::Absent {
                out.push(Action::Fail {
                    page,
                    access,
                    refusal: Refusal::Denied,
                });
                return;
            }
            entry.domain = page.domain;
            entry.page.answering = answering;
        }
        entry.faulted_at.get_or_insert(now);
        if entry.page.phase == Phase::Absent {
            entry.page.waiting = entry.page.waiting.max(Some(access));
            self.begin_if_possible(now, va, out);
        } else {
            self.order.touch(va);
            self.join(va);
            let requests = self.counters.requests;
            self.apply(now, va, Event::Fault(access), out);
            if requests == self.counters.requests {
                self.counters.hits += 1;
            }
        }
    }

    /// A datagram came. If an [`Action::Install`] comes of it, it is about the page in it.
    pub fn receive(&mut self, now: u64, datagram: Datagram<()>, out: &mut Vec<Action>) {
        let Datagram { envelope, body } = datagram;
        if envelope.qp != self.config.connection.to_qp() {
            self.counters.ignored += 1;
            return;
        }
        match body {
            Body::Invalidate(invalidation) => {
                self.invalidate(now, envelope.seq, invalidation, out);
            }
            Body::ReadResponse { version, .. } => {
                self.answered(now, &envelope, None, Event::Data(version), out);
            }
            Body::Forward {
                invalidation,
                version,
                ..
            } => {
                let page = Some(invalidation.page);
                self.answered(now, &envelope, page, Event::Data(version), out);
            }
            Body::Acknowledge { syndrome, .. } => {
                let purpose = self
                    .transactions
                    .get(&envelope.seq.get())
                    .map(|t| t.purpose);
                let event = match (purpose, syndrome) {
                    (Some(Purpose::WriteBack(_)), Syndrome::Ack) => Event::Stored,
                    (Some(Purpose::WriteBack(_)), Syndrome::Refused(refusal)) => {
                        Event::NotStored(refusal)
                    }
                    (_, Syndrome::Ack) => Event::Granted,
                    (_, Syndrome::Refused(refusal)) => Event::Refused(refusal),
                };
                self.answered(now, &envelope, None, event, out);
            }
            // Not sent to compute blades, or not used by them.
            Body::Request { .. }
            | Body::Write { .. }
            | Body::Atomic { .. }
            | Body::AtomicAcknowledge { .. }
            | Body::Answer { .. }
            | Body::FanOut { .. } => self.counters.ignored += 1,
        }
        self.settle(now, out);
    }

    /// Writes every page of a range back and drops it, for the controller or the agent; only those
    /// of `domain`, if one is given. [`Action::Flushed`] with the token reports the end.
    pub fn flush(
        &mut self,
        now: u64,
        range: Range<u64>,
        domain: Option<DomainId>,
        token: u64,
        out: &mut Vec<Action>,
    ) {
        let scope = Scope { range, domain };
        self.recall(now, Cause::Flush(token), scope, Target::Invalid, None, out);
        self.settle(now, out);
    }

    /// Whether an answer may come at any moment: a request or a write-back is on its way.
    pub fn expects_answer(&self) -> bool {
        self.transactions
            .values()
            .any(|transaction| !transaction.pausing)
    }

    /// Whether an answer with a page in it may be used: a request is under way. As long as none is,
    /// the headers of a datagram are enough.
    pub fn expects_page(&self) -> bool {
        self.transactions
            .values()
            .any(|transaction| matches!(transaction.purpose, Purpose::Request(_)))
    }

    /// Does what is due at `now`.
    pub fn poll(&mut self, now: u64, out: &mut Vec<Action>) {
        while let Some(&(at, timer)) = self.timers.first()
            && at <= now
        {
            self.timers.pop_first();
            match timer {
                Timer::Transaction(seq) => self.on_due(now, seq, out),
                Timer::Residency(page) => {
                    // The page may have left and come back since; then another timer is set.
                    if self
                        .pages
                        .get(&page)
                        .is_some_and(|e| e.resident_until <= now)
                    {
                        self.apply(now, page, Event::ResidencyOver, out);
                    }
                }
                Timer::Room => self.room_at = None,
            }
            self.settle(now, out);
        }
    }
}
