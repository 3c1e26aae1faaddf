//! A compute blade as a whole: many pages, the requests under way, the regions being given up,
//! the timers, and the room. What happens to one page is [`super::page`]'s to say.

use alloc::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    vec::Vec,
};
use core::ops::Range;

use super::{
    eviction::TwoQueue,
    hold::{self, Holds},
    page::{Access, Event, Page, Phase, Reaction, step},
    retransmission::{self, RoundTrip},
};
use crate::{
    addr::Va,
    directory::{Path, Supply, Target, Want},
    id::{Connection, DomainId},
    serial::{Seq, Version},
    wire::{
        Invalidation, Message, Refusal, Syndrome,
        message::{Envelope, PageRequest, Toll},
    },
};

/// What a blade is told when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Its connection to the switch.
    pub connection: Connection,
    /// Pages that the cache may hold; at least 1.
    pub capacity: usize,
    /// Pages of these that are kept free, so that a fault need not wait for a write-back; less
    /// than the capacity.
    pub reserve: usize,
    /// How long a page stays at least, in nanoseconds.
    pub hold: hold::Bounds,
    /// How long to wait for an answer, in nanoseconds.
    pub timeout: retransmission::Bounds,
    /// How long a request may take with everything, in nanoseconds. After that the fault fails.
    pub deadline: u64,
    /// The number of the first request. Anything; a new life of a blade does well to begin
    /// elsewhere.
    pub first_seq: Seq,
}

impl Config {
    /// What suits a blade with that connection and capacity on an Ethernet: a hold of 10 us to
    /// 1 ms, a timeout of 4 to 100 ms, a deadline of 5 s, a 32nd of the capacity (at most 256
    /// pages) kept free.
    pub fn new(connection: Connection, capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Self {
            connection,
            capacity,
            reserve: (capacity / 32).min(256),
            hold: hold::Bounds {
                least: 10_000,
                most: 1_000_000,
            },
            timeout: retransmission::Bounds {
                least: 4_000_000,
                most: 100_000_000,
            },
            deadline: 5_000_000_000,
            first_seq: Seq::new(connection.to_qp()),
        }
    }
}

/// What the agent is to do, in the order given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a datagram.
    Send {
        /// Its envelope.
        envelope: Envelope,
        /// The rest.
        message: Outgoing,
    },
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
    /// A fault that took a request is over (for statistics).
    Served {
        /// The way it took through the directory, where the answer said so.
        path: Option<Path>,
        /// From the fault to the answer, in nanoseconds.
        nanos: u64,
    },
    /// What the controller asked to be flushed is flushed.
    Flushed {
        /// Its token.
        token: u64,
    },
}

/// A datagram without its page, which the agent takes from the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outgoing {
    /// A request.
    Request {
        /// READ, ACQUIRE or UPGRADE.
        want: Want,
        /// Of which page.
        page: PageRequest,
    },
    /// A WRITE of the page as it is in the cache.
    WriteBack {
        /// Which page.
        page: PageRequest,
        /// The version it becomes.
        version: Version,
    },
    /// An answer to an INVALIDATE, without a page.
    Answer {
        /// What was asked.
        invalidation: Invalidation,
        /// What it cost.
        toll: Toll,
        /// Whether it is padded to become a READ ([`Supply::Fetch`]).
        fetch: bool,
    },
    /// An answer to an INVALIDATE with the page as it is in the cache.
    Forward {
        /// What was asked.
        invalidation: Invalidation,
        /// What it cost.
        toll: Toll,
        /// The page.
        page: PageRequest,
        /// Its version.
        version: Version,
    },
}

/// What the blade counts; only ever grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

#[derive(Clone, Copy, Debug)]
struct Entry {
    page: Page,
    domain: DomainId,
    /// The request under way.
    seq: Option<Seq>,
    /// From when on it may be given away.
    ripe_at: u64,
    /// When the thread that waits longest faulted.
    faulted_at: Option<u64>,
    /// Waits in [`Blade::starved`].
    starved: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Errand {
    Request(Want),
    WriteBack(Version),
}

#[derive(Clone, Copy, Debug)]
struct Transaction {
    page: Va,
    errand: Errand,
    began: u64,
    sent: u64,
    /// How often it went unanswered.
    attempt: u8,
    /// How often it was told "busy".
    refusals: u32,
    /// When it last said that it went unanswered, or began.
    nudged: u64,
    /// What its timer waits for: a pause to be over, or an answer.
    pausing: bool,
    due: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Directory(Seq, Invalidation),
    /// The controller's, or the agent's own, with a token.
    Order(u64),
}

/// Which pages something is about.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Scope {
    range: Range<u64>,
    /// Of this domain only.
    domain: Option<DomainId>,
}

impl Scope {
    fn contains(&self, page: Va, domain: DomainId) -> bool {
        self.range.contains(&page.0) && self.domain.is_none_or(|only| only == domain)
    }
}

/// Pages that are being given up.
#[derive(Debug)]
struct Surrender {
    source: Source,
    scope: Scope,
    owing: BTreeSet<Va>,
    toll: Toll,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Transaction(u32),
    Ripe(Va),
    Room,
}

/// A compute blade. See the [module](super) for how it is driven.
#[derive(Debug)]
pub struct Blade {
    config: Config,
    pages: BTreeMap<Va, Entry>,
    transactions: BTreeMap<u32, Transaction>,
    next_seq: Seq,
    surrenders: Vec<Surrender>,
    timers: BTreeSet<(u64, Timer)>,
    /// When [`Timer::Room`] is due.
    room_at: Option<u64>,
    /// Absent pages that threads wait for and that may make their request once there is room.
    starved: VecDeque<Va>,
    /// Pages that take room.
    used: usize,
    /// Pages of these that will soon not.
    evicting: usize,
    order: TwoQueue,
    holds: Holds,
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
            surrenders: Vec::new(),
            timers: BTreeSet::new(),
            room_at: None,
            starved: VecDeque::new(),
            used: 0,
            evicting: 0,
            order: TwoQueue::new(config.capacity),
            holds: Holds::new(config.hold),
            trip: RoundTrip::new(config.timeout, u64::from(config.connection.to_qp())),
            counters: Counters::default(),
            config,
        }
    }

    /// What it counted.
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Pages that take room now, and how many may.
    pub const fn room(&self) -> (usize, usize) {
        (self.used, self.config.capacity)
    }

    /// The smoothed round trip of its requests, in nanoseconds.
    pub const fn round_trip(&self) -> Option<u64> {
        self.trip.smoothed()
    }

    /// Whether nothing is under way: no request, no invalidation, nobody waiting.
    pub fn is_quiet(&self) -> bool {
        self.transactions.is_empty() && self.surrenders.is_empty() && self.starved.is_empty()
    }

    /// Where a page is in its life, and its version.
    pub fn page(&self, page: Va) -> (Phase, Version) {
        self.pages
            .get(&page)
            .map_or((Phase::Absent, Version::default()), |entry| {
                (entry.page.phase, entry.page.version)
            })
    }

    /// When [`poll`](Self::poll) has something to do next.
    pub fn next_deadline(&self) -> Option<u64> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// A thread of a program in that domain faulted.
    pub fn fault(&mut self, now: u64, page: PageRequest, access: Access, out: &mut Vec<Action>) {
        self.counters.faults += 1;
        let va = page.page;
        let answering = self.is_answering(va, page.domain);
        let entry = self.pages.entry(va).or_insert(Entry {
            page: Page {
                answering,
                ..Page::default()
            },
            domain: page.domain,
            seq: None,
            ripe_at: 0,
            faulted_at: None,
            starved: false,
        });
        if entry.domain != page.domain {
            // An address belongs to one domain at a time. Where nothing is left of the other's
            // page, the switch decides.
            if entry.page.phase != Phase::Absent || entry.page.waiting.is_some() {
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
            let requests = self.counters.requests;
            self.apply(now, va, Event::Fault(access), out);
            if requests == self.counters.requests {
                self.counters.hits += 1;
            }
        }
        self.settle(now, out);
    }

    /// A datagram came. If an [`Action::Install`] comes of it, it is about the page in it.
    pub fn receive(
        &mut self,
        now: u64,
        envelope: &Envelope,
        message: &Message<'_>,
        out: &mut Vec<Action>,
    ) {
        if envelope.qp != self.config.connection.to_qp() {
            self.counters.ignored += 1;
            return;
        }
        match *message {
            Message::Invalidate(invalidation) => {
                self.invalidate(now, envelope.seq, invalidation, out);
            }
            Message::ReadResponse { version, .. } => {
                self.answered(now, envelope, None, Event::Data(version), out);
            }
            Message::Forward {
                invalidation,
                version,
                ..
            } => self.answered(
                now,
                envelope,
                Some(invalidation.page),
                Event::Data(version),
                out,
            ),
            Message::Acknowledge { syndrome, .. } => {
                let errand = self.transactions.get(&envelope.seq.get()).map(|t| t.errand);
                let event = match (errand, syndrome) {
                    (Some(Errand::WriteBack(_)), Syndrome::Ack) => Event::Stored,
                    (Some(Errand::WriteBack(_)), Syndrome::Refused(refusal)) => {
                        Event::NotStored(refusal)
                    }
                    (_, Syndrome::Ack) => Event::Granted,
                    (_, Syndrome::Refused(refusal)) => Event::Refused(refusal),
                };
                self.answered(now, envelope, None, event, out);
            }
            // Not for a compute blade, or not in use by it.
            Message::Read(_)
            | Message::Acquire(_)
            | Message::Upgrade(_)
            | Message::Write { .. }
            | Message::Atomic { .. }
            | Message::AtomicAcknowledge { .. }
            | Message::InvalidateAck { .. }
            | Message::InvalidateAckFetch { .. } => self.counters.ignored += 1,
        }
        self.settle(now, out);
    }

    /// The controller, or the agent itself, wants every page of a range written back and dropped;
    /// only those of `domain`, if one is given. Reported by [`Action::Flushed`] with the token.
    pub fn flush(
        &mut self,
        now: u64,
        range: Range<u64>,
        domain: Option<DomainId>,
        token: u64,
        out: &mut Vec<Action>,
    ) {
        let scope = Scope { range, domain };
        self.surrender(now, Source::Order(token), scope, Target::Invalid, None, out);
        self.settle(now, out);
    }

    /// Whether an answer may come at any moment: a request or a write-back is on its way.
    pub fn expects_answer(&self) -> bool {
        self.transactions
            .values()
            .any(|transaction| !transaction.pausing)
    }

    /// Whether an answer with a page in it could mean anything: a request is under way. As long as there is none, the
    /// headers of a datagram say all that there is to know of it.
    pub fn expects_page(&self) -> bool {
        self.transactions
            .values()
            .any(|transaction| matches!(transaction.errand, Errand::Request(_)))
    }

    /// Does what is due at `now`.
    pub fn poll(&mut self, now: u64, out: &mut Vec<Action>) {
        while let Some(&(at, timer)) = self.timers.first()
            && at <= now
        {
            self.timers.pop_first();
            match timer {
                Timer::Transaction(seq) => self.on_due(now, seq, out),
                Timer::Ripe(page) => {
                    // It may have left and come back since; then another timer is set.
                    if self.pages.get(&page).is_some_and(|e| e.ripe_at <= now) {
                        self.apply(now, page, Event::Ripe, out);
                    }
                }
                Timer::Room => self.room_at = None,
            }
            self.settle(now, out);
        }
    }

    fn is_answering(&self, page: Va, domain: DomainId) -> bool {
        self.surrenders
            .iter()
            .any(|surrender| surrender.scope.contains(page, domain))
    }

    /// The pages in scope that the blade knows.
    fn pages_in(&self, scope: &Scope) -> Vec<Va> {
        self.pages
            .range(Va(scope.range.start)..Va(scope.range.end))
            .filter(|(page, entry)| scope.contains(**page, entry.domain))
            .map(|(page, _)| *page)
            .collect()
    }

    // Requests.

    fn answered(
        &mut self,
        now: u64,
        envelope: &Envelope,
        about: Option<Va>,
        event: Event,
        out: &mut Vec<Action>,
    ) {
        let seq = envelope.seq.get();
        let known = self.transactions.get(&seq).copied().filter(|transaction| {
            about.is_none_or(|page| page == transaction.page)
                && match (transaction.errand, event) {
                    // "Granted" without the page means nothing to who wants to read it.
                    (Errand::Request(want), Event::Granted) => want != Want::Read,
                    (Errand::Request(_), Event::Data(_) | Event::Refused(_)) => true,
                    // One "busy" is enough.
                    (Errand::WriteBack(_), Event::NotStored(Refusal::Busy)) => !transaction.pausing,
                    (Errand::WriteBack(_), Event::Stored | Event::NotStored(_)) => true,
                    _ => false,
                }
        });
        let Some(transaction) = known else {
            self.counters.ignored += 1;
            return;
        };
        let page = transaction.page;
        match event {
            Event::Refused(Refusal::Busy) | Event::NotStored(Refusal::Busy) => {
                self.counters.busy += 1;
                let owed = self
                    .pages
                    .get(&page)
                    .is_some_and(|entry| entry.page.owed.is_some());
                if transaction.pausing && !owed {
                    return;
                }
            }
            _ => {
                if transaction.attempt == 0 && transaction.refusals == 0 {
                    self.trip.sample(now.saturating_sub(transaction.sent));
                }
                self.end(page);
                if matches!(event, Event::Data(_) | Event::Granted)
                    && let Some(entry) = self.pages.get_mut(&page)
                    && let Some(faulted_at) = entry.faulted_at.take()
                {
                    out.push(Action::Served {
                        path: Path::from_u8(envelope.attempt),
                        nanos: now.saturating_sub(faulted_at),
                    });
                }
            }
        }
        self.apply(now, page, event, out);
    }

    fn begin(&mut self, now: u64, page: Va, errand: Errand, out: &mut Vec<Action>) {
        let mut seq = self.next_seq;
        while self.transactions.contains_key(&seq.get()) {
            seq = seq.next();
        }
        self.next_seq = seq.next();
        match errand {
            Errand::Request(_) => self.counters.requests += 1,
            Errand::WriteBack(_) => self.counters.write_backs += 1,
        }
        let transaction = Transaction {
            page,
            errand,
            began: now,
            sent: now,
            attempt: 0,
            refusals: 0,
            nudged: now,
            pausing: false,
            due: 0,
        };
        self.transactions.insert(seq.get(), transaction);
        if let Some(entry) = self.pages.get_mut(&page) {
            entry.seq = Some(seq);
        }
        self.send(now, seq, 0, out);
    }

    /// Sends the request with that number and sets its timer.
    fn send(&mut self, now: u64, seq: Seq, attempt: u8, out: &mut Vec<Action>) {
        let Some(transaction) = self.transactions.get_mut(&seq.get()) else {
            return;
        };
        let Some(entry) = self.pages.get(&transaction.page) else {
            return;
        };
        let page = PageRequest {
            page: transaction.page,
            domain: entry.domain,
        };
        transaction.sent = now;
        transaction.pausing = false;
        let wait = self.trip.timeout(transaction.attempt);
        out.push(Action::Send {
            envelope: Envelope {
                qp: self.config.connection.to_qp(),
                seq,
                attempt,
            },
            message: match transaction.errand {
                Errand::Request(want) => Outgoing::Request { want, page },
                Errand::WriteBack(version) => Outgoing::WriteBack { page, version },
            },
        });
        self.set_due(seq, now.saturating_add(wait));
    }

    fn set_due(&mut self, seq: Seq, due: u64) {
        if let Some(transaction) = self.transactions.get_mut(&seq.get()) {
            self.timers
                .remove(&(transaction.due, Timer::Transaction(seq.get())));
            transaction.due = due;
            self.timers.insert((due, Timer::Transaction(seq.get())));
        }
    }

    /// Forgets the request that a page has under way.
    fn end(&mut self, page: Va) {
        if let Some(seq) = self.pages.get_mut(&page).and_then(|e| e.seq.take())
            && let Some(transaction) = self.transactions.remove(&seq.get())
        {
            self.timers
                .remove(&(transaction.due, Timer::Transaction(seq.get())));
        }
    }

    /// A pause is over, or an answer did not come in time.
    fn on_due(&mut self, now: u64, seq: u32, out: &mut Vec<Action>) {
        let nudge_after = self.trip.timeout(0);
        let Some(transaction) = self.transactions.get_mut(&seq) else {
            return;
        };
        let page = transaction.page;
        // A write-back is all that is left of what programs wrote: it is never given up.
        if matches!(transaction.errand, Errand::Request(_))
            && now.saturating_sub(transaction.began) >= self.config.deadline
        {
            self.counters.expired += 1;
            self.end(page);
            self.apply(now, page, Event::Refused(Refusal::Unreachable), out);
            return;
        }
        let owed = self
            .pages
            .get(&page)
            .is_some_and(|entry| entry.page.owed.is_some());
        if !transaction.pausing && owed && matches!(transaction.errand, Errand::Request(_)) {
            // Somebody else wants the region, so either the answer to this request is lost, or
            // the repeat of it was spent on telling this very blade. As good as "busy".
            self.counters.timeouts += 1;
            self.apply(now, page, Event::Refused(Refusal::Busy), out);
            return;
        }
        let attempt = if transaction.pausing {
            // The switch answers, so nothing of ours is lost; but the one that the region is busy
            // with may be stuck.
            if now.saturating_sub(transaction.nudged) >= nudge_after {
                transaction.nudged = now;
                1
            } else {
                0
            }
        } else {
            self.counters.timeouts += 1;
            transaction.nudged = now;
            transaction.attempt = transaction
                .attempt
                .saturating_add(1)
                .min(crate::wire::bth::MAX_ATTEMPT);
            transaction.attempt
        };
        self.send(now, Seq::new(seq), attempt, out);
    }

    // Invalidations.

    fn invalidate(
        &mut self,
        now: u64,
        seq: Seq,
        invalidation: Invalidation,
        out: &mut Vec<Action>,
    ) {
        let known = self.surrenders.iter().any(|surrender| {
            matches!(surrender.source, Source::Directory(_, other)
                if other.region == invalidation.region
                    && other.requester == invalidation.requester
                    && other.episode == invalidation.episode)
        });
        if known {
            return;
        }
        let base = invalidation.region.base().0;
        self.surrender(
            now,
            Source::Directory(seq, invalidation),
            Scope {
                range: base..base + invalidation.region.size(),
                domain: None,
            },
            invalidation.target,
            Some(invalidation.page),
            out,
        );
    }

    fn surrender(
        &mut self,
        now: u64,
        source: Source,
        scope: Scope,
        target: Target,
        wanted: Option<Va>,
        out: &mut Vec<Action>,
    ) {
        let pages = self.pages_in(&scope);
        self.surrenders.push(Surrender {
            source,
            scope,
            owing: pages.iter().copied().collect(),
            toll: Toll::default(),
        });
        for page in pages {
            let ripe_at = self.pages.get(&page).map_or(0, |entry| entry.ripe_at);
            let event = Event::Invalidate {
                target,
                wanted: wanted == Some(page),
                ripe: ripe_at <= now,
            };
            self.apply(now, page, event, out);
            self.note_if_yielded(page);
        }
    }

    /// Strikes a page that owes nothing (any more) off every list.
    fn note_if_yielded(&mut self, page: Va) {
        let owes = self
            .pages
            .get(&page)
            .is_some_and(|entry| entry.page.owed.is_some());
        if !owes {
            for surrender in &mut self.surrenders {
                surrender.owing.remove(&page);
            }
        }
    }

    /// Answers one invalidation to which nothing is owed any more.
    fn answer_one(&mut self, now: u64, out: &mut Vec<Action>) -> bool {
        let Some(at) = self.surrenders.iter().position(|s| s.owing.is_empty()) else {
            return false;
        };
        let Surrender {
            source,
            scope,
            toll,
            ..
        } = self.surrenders.remove(at);
        self.counters.invalidations += 1;
        self.counters.false_invalidations += u64::from(toll.dropped);
        out.push(match source {
            Source::Order(token) => Action::Flushed { token },
            Source::Directory(seq, invalidation) => Action::Send {
                envelope: Envelope {
                    qp: self.config.connection.to_qp(),
                    seq,
                    attempt: 0,
                },
                message: self.answer(invalidation, toll),
            },
        });
        for page in self.pages_in(&scope) {
            let Some(domain) = self.pages.get(&page).map(|entry| entry.domain) else {
                continue;
            };
            let more = self.is_answering(page, domain);
            self.apply(now, page, Event::Answered { more }, out);
            self.begin_if_possible(now, page, out);
        }
        true
    }

    fn answer(&self, invalidation: Invalidation, toll: Toll) -> Outgoing {
        let copy = self
            .pages
            .get(&invalidation.page)
            .filter(|entry| entry.page.phase.is_clean_copy());
        match (invalidation.supply, copy) {
            (Supply::Forward, Some(entry)) => Outgoing::Forward {
                invalidation,
                toll,
                page: PageRequest {
                    page: invalidation.page,
                    domain: entry.domain,
                },
                version: entry.page.version,
            },
            (supply, _) => Outgoing::Answer {
                invalidation,
                toll,
                fetch: supply != Supply::Grant,
            },
        }
    }

    // Room.

    const fn free(&self) -> usize {
        self.config.capacity.saturating_sub(self.used)
    }

    /// Makes the request that threads wait for, if it may be made and there is room; otherwise
    /// sees to it that it is made later.
    fn begin_if_possible(&mut self, now: u64, page: Va, out: &mut Vec<Action>) {
        let free = self.free();
        let Some(entry) = self.pages.get_mut(&page) else {
            return;
        };
        if entry.page.phase != Phase::Absent || entry.page.answering || entry.starved {
            return;
        }
        let Some(access) = entry.page.waiting else {
            if entry.seq.is_none() && entry.page.owed.is_none() {
                self.pages.remove(&page);
            }
            return;
        };
        if free > 0 {
            self.apply(now, page, Event::Fault(access), out);
        } else {
            entry.starved = true;
            self.starved.push_back(page);
            self.counters.starved += 1;
        }
    }

    /// Evicts until there is room for those that wait and for the reserve.
    fn make_room(&mut self, now: u64, out: &mut Vec<Action>) {
        let wanted = self
            .starved
            .len()
            .saturating_add(self.config.reserve)
            .min(self.config.capacity);
        while self.free() + self.evicting < wanted {
            let pages = &self.pages;
            let ripe_at = |page: Va| {
                pages
                    .get(&page)
                    .filter(|entry| {
                        matches!(entry.page.phase, Phase::Shared | Phase::Modified)
                            && entry.page.owed.is_none()
                    })
                    .map(|entry| entry.ripe_at)
            };
            let victim = self
                .order
                .victim(|page| ripe_at(page).is_some_and(|at| at <= now));
            let Some(victim) = victim else {
                // All are in use, and will make themselves heard; or too new.
                if !self.starved.is_empty()
                    && let Some(at) = self.pages.keys().filter_map(|page| ripe_at(*page)).min()
                {
                    self.set_room_timer(at);
                }
                return;
            };
            self.counters.evictions += 1;
            self.apply(now, victim, Event::Evict, out);
            self.begin_if_possible(now, victim, out);
        }
    }

    fn set_room_timer(&mut self, at: u64) {
        if let Some(before) = self.room_at.replace(at) {
            self.timers.remove(&(before, Timer::Room));
        }
        self.timers.insert((at, Timer::Room));
    }

    /// Does what has become possible.
    fn settle(&mut self, now: u64, out: &mut Vec<Action>) {
        loop {
            if self.answer_one(now, out) {
                continue;
            }
            self.make_room(now, out);
            if self.free() == 0 {
                return;
            }
            let Some(page) = self.starved.pop_front() else {
                return;
            };
            if let Some(entry) = self.pages.get_mut(&page) {
                entry.starved = false;
                self.begin_if_possible(now, page, out);
            }
        }
    }

    // One page.

    fn apply(&mut self, now: u64, page: Va, event: Event, out: &mut Vec<Action>) {
        let Some(entry) = self.pages.get_mut(&page) else {
            return;
        };
        let before = entry.page;
        let (after, reactions) = step(before, event);
        entry.page = after;
        let named = PageRequest {
            page,
            domain: entry.domain,
        };
        self.account(before.phase, after.phase);
        for reaction in reactions.iter() {
            match reaction {
                Reaction::Request(want) => self.begin(now, page, Errand::Request(want), out),
                Reaction::WriteBack => {
                    self.toll(named, |toll, _| {
                        toll.flushed = toll.flushed.saturating_add(1)
                    });
                    self.begin(now, page, Errand::WriteBack(after.version.next()), out);
                }
                Reaction::Retry => self.pause(now, page),
                Reaction::Abandon => self.end(page),
                Reaction::Install { writable } => {
                    self.order.insert(page);
                    self.hold(now, page);
                    out.push(Action::Install {
                        page: named,
                        writable,
                    });
                }
                Reaction::Map { writable } => {
                    if writable && before.phase == Phase::Upgrading {
                        self.hold(now, page);
                    }
                    self.went_on(page);
                    out.push(Action::Map {
                        page: named,
                        writable,
                    });
                }
                Reaction::Protect => {
                    if after.owed.is_some() {
                        self.holds.on_given(page, now);
                    }
                    out.push(Action::Protect { page: named });
                }
                Reaction::Drop => {
                    let evicted =
                        event == Event::Evict || before.phase == Phase::Cleaning { evicting: true };
                    self.order.remove(page, evicted && before.owed.is_none());
                    if before.owed.is_some() || matches!(event, Event::Invalidate { .. }) {
                        self.holds.on_given(page, now);
                    }
                    self.toll(named, |toll, wanted| {
                        if !wanted {
                            toll.dropped = toll.dropped.saturating_add(1);
                        }
                    });
                    out.push(Action::Drop { page: named });
                }
                Reaction::Fail(access, refusal) => {
                    self.went_on(page);
                    out.push(Action::Fail {
                        page: named,
                        access,
                        refusal,
                    });
                }
                Reaction::Lost => {
                    self.counters.lost += 1;
                    let refusal = match event {
                        Event::NotStored(refusal) => refusal,
                        _ => Refusal::Unreachable,
                    };
                    out.push(Action::Lost {
                        page: named,
                        refusal,
                    });
                }
            }
        }
        match (before.owed, after.owed) {
            (_, Some(_)) if matches!(after.phase, Phase::Shared | Phase::Modified) => {
                if let Some(entry) = self.pages.get(&page) {
                    self.timers
                        .insert((entry.ripe_at.max(now), Timer::Ripe(page)));
                }
            }
            (Some(_), None) => self.note_if_yielded(page),
            _ => {}
        }
        if after.phase == Phase::Absent {
            self.begin_if_possible(now, page, out);
        }
    }

    /// Nobody waits for the page now.
    fn went_on(&mut self, page: Va) {
        if let Some(entry) = self.pages.get_mut(&page)
            && entry.page.waiting.is_none()
        {
            entry.faulted_at = None;
        }
    }

    fn account(&mut self, before: Phase, after: Phase) {
        self.used += usize::from(after.takes_room());
        self.used -= usize::from(before.takes_room());
        let evicting = |phase| usize::from(phase == Phase::Cleaning { evicting: true });
        self.evicting += evicting(after);
        self.evicting -= evicting(before);
    }

    fn hold(&mut self, now: u64, page: Va) {
        let hold = self.holds.on_install(page, now);
        if let Some(entry) = self.pages.get_mut(&page) {
            entry.ripe_at = now.saturating_add(hold);
        }
    }

    fn pause(&mut self, now: u64, page: Va) {
        let Some(seq) = self.pages.get(&page).and_then(|entry| entry.seq) else {
            return;
        };
        let Some(transaction) = self.transactions.get_mut(&seq.get()) else {
            return;
        };
        transaction.refusals = transaction.refusals.saturating_add(1);
        transaction.pausing = true;
        let pause = self.trip.pause(transaction.refusals);
        self.set_due(seq, now.saturating_add(pause));
    }

    /// Adds to what the invalidations of a page cost.
    fn toll(&mut self, page: PageRequest, add: impl Fn(&mut Toll, bool)) {
        for surrender in &mut self.surrenders {
            if surrender.scope.contains(page.page, page.domain) {
                let wanted = matches!(surrender.source, Source::Directory(_, invalidation)
                    if invalidation.page == page.page);
                add(&mut surrender.toll, wanted);
            }
        }
    }
}
