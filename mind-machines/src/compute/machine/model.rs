//! A blade for a model checker: its timers fire by name, whenever the checker likes, and what has no
//! effect on what it does can be forgotten, so that a blade that comes back to where it was is equal
//! to what it was.

use std::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

use super::{Action, Blade, Config, Counters, Timer, recalls::Cause};
use crate::compute::{
    page::{Access, Event, Phase},
    residency::{self, Residency},
    retransmission::{self, RoundTrip},
};
use mind_common::{
    addr::Va,
    id::{BladeId, Connection},
    serial::{Episode, Seq, Version},
    wire::Cost,
};

use super::requests::Purpose;

/// How late a timer is that fires: what has become due with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lateness {
    /// Nothing else.
    Punctual = 0,
    /// Who pauses says that it went unanswered for long.
    Nudging = 1,
    /// The controller is told.
    Appealing = 2,
    /// The request is given up.
    Expired = 3,
}

/// A timer that is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Alarm {
    /// The request with this number was not answered in time.
    Answer(Seq),
    /// The pause after "busy" of the request with this number is over.
    Pause(Seq),
    /// The page was here for long enough.
    Ripe(Va),
    /// There may be room now.
    Room,
}

/// The numbers in a state that only ever count up, for somebody who renames them.
pub trait Numbers {
    /// A request of that blade's.
    fn seq(&mut self, of: BladeId, seq: &mut Seq);
    /// A version of that page.
    fn version(&mut self, of: Va, version: &mut Version);
    /// An invalidation of a region with that page.
    fn episode(&mut self, of: Va, episode: &mut Episode);
}

/// How long a page stays at least where pages are held: later than any [`Lateness`].
const HOLD: u64 = 4;

/// Requests of a life are fewer than this many bits say.
const LIFE_SHIFT: u32 = 16;

impl Config {
    /// For a blade that has no clock: it stands still, and a timer that is fired says how late it
    /// is. `is_locked` says whether a page stays until its timer is fired.
    pub const fn without_clock(connection: Connection, capacity: usize, is_locked: bool) -> Self {
        let hold = if is_locked { HOLD } else { 0 };
        Self {
            connection,
            capacity,
            reserve: 0,
            residency: residency::Bounds {
                least: hold,
                most: hold,
            },
            timeout: retransmission::Bounds { least: 1, most: 1 },
            appeal: Lateness::Appealing as u64,
            deadline: Lateness::Expired as u64,
            // Above those of the lives before, as long as they had few.
            first_seq: Seq::new((connection.incarnation as u32) << LIFE_SHIFT | 1),
            is_watched: false,
        }
    }
}

impl Blade {
    /// Its connection.
    pub const fn connection(&self) -> Connection {
        self.config.connection
    }

    /// The timers that are set.
    pub fn alarms(&self) -> Vec<Alarm> {
        let alarm = |timer: &Timer| match *timer {
            Timer::Transaction(seq) => {
                let transaction = self.transactions.get(&seq)?;
                let seq = Seq::new(seq);
                Some(if transaction.pausing {
                    Alarm::Pause(seq)
                } else {
                    Alarm::Answer(seq)
                })
            }
            Timer::Ripe(page) => Some(Alarm::Ripe(page)),
            Timer::Room => Some(Alarm::Room),
        };
        let timers = self.timers.iter();
        timers.filter_map(|(_, timer)| alarm(timer)).collect()
    }

    /// What threads wait for at most, of this page.
    pub fn waiting(&self, page: Va) -> Option<Access> {
        self.pages.get(&page).and_then(|entry| entry.page.waiting)
    }

    /// Whether the request with this number is under way.
    pub fn knows(&self, seq: Seq) -> bool {
        self.transactions.contains_key(&seq.get())
    }

    /// Whether it is a write-back's, which is never given up.
    pub fn is_write_back(&self, seq: Seq) -> bool {
        let transaction = self.transactions.get(&seq.get());
        transaction.is_some_and(|known| matches!(known.purpose, Purpose::WriteBack(_)))
    }

    /// Fires a timer, so late; nothing if it is not set.
    pub fn fire(&mut self, alarm: Alarm, late: Lateness, out: &mut Vec<Action>) {
        let (timer, now) = match alarm {
            Alarm::Answer(seq) | Alarm::Pause(seq) => (Timer::Transaction(seq.get()), late as u64),
            Alarm::Ripe(page) => (Timer::Ripe(page), HOLD),
            Alarm::Room => (Timer::Room, HOLD),
        };
        let before = self.timers.len();
        self.timers.retain(|(_, set)| *set != timer);
        if self.timers.len() == before {
            return;
        }
        match timer {
            Timer::Transaction(seq) => self.on_due(now, seq, out),
            Timer::Ripe(page) => {
                if let Some(entry) = self.pages.get_mut(&page) {
                    entry.ripe_at = 0;
                    self.apply(now, page, Event::Ripe, out);
                }
            }
            Timer::Room => self.room_at = None,
        }
        self.settle(now, out);
    }

    /// All that it waits for begins now, and it has learned nothing of how long that takes: from
    /// here on it takes as long as the checker likes.
    pub fn rewind(&mut self) {
        self.trip = RoundTrip::new(self.config.timeout, 0);
        for transaction in self.transactions.values_mut() {
            (transaction.began, transaction.sent) = (0, 0);
            (transaction.nudged, transaction.appealed) = (0, 0);
        }
    }

    /// [Rewinds](Self::rewind), and forgets what has no effect on what it does: times, counters, chance, how often something was
    /// repeated.
    pub fn forget(&mut self) {
        self.rewind();
        for entry in self.pages.values_mut() {
            entry.faulted_at = None;
            entry.ripe_at = entry.ripe_at.min(HOLD);
            if !has_copy(entry.page.phase) {
                entry.page.version = Version::default();
                entry.ripe_at = 0;
            }
        }
        for transaction in self.transactions.values_mut() {
            transaction.due = 0;
            (transaction.attempt, transaction.refusals) = (0, 0);
        }
        for recall in &mut self.recalls {
            recall.cost = Cost::default();
        }
        self.room_at = self.room_at.map(|_| 0);
        // A page that owes nothing does nothing when it is ripe; when it owes something it sets its
        // timer anew.
        let owes = |page: &Va| {
            let entry = self.pages.get(page);
            entry.is_some_and(|entry| entry.page.owed.is_some())
        };
        let timers = self.timers.iter().filter_map(|(_, timer)| match timer {
            Timer::Ripe(page) if !owes(page) => None,
            timer => Some((0, *timer)),
        });
        self.timers = timers.collect();
        self.order.renumber();
        self.residency = Residency::new(self.config.residency);
        self.counters = Counters::default();
    }

    /// Shows its numbers to somebody who may change them, if no two that differ become the same.
    pub fn visit(&mut self, numbers: &mut impl Numbers) {
        let me = self.config.connection.blade;
        self.config.first_seq = Seq::default();
        numbers.seq(me, &mut self.next_seq);
        for (page, entry) in &mut self.pages {
            if let Some(seq) = &mut entry.seq {
                numbers.seq(me, seq);
            }
            if has_copy(entry.page.phase) {
                numbers.version(*page, &mut entry.page.version);
            }
        }
        let transactions = core::mem::take(&mut self.transactions);
        self.transactions = transactions
            .into_iter()
            .map(|(seq, mut transaction)| {
                let mut seq = Seq::new(seq);
                numbers.seq(me, &mut seq);
                if let Purpose::WriteBack(version) = &mut transaction.purpose {
                    numbers.version(transaction.page, version);
                }
                (seq.get(), transaction)
            })
            .collect::<BTreeMap<_, _>>();
        let others = self.timers.iter().filter_map(|&(at, timer)| match timer {
            Timer::Transaction(_) => None,
            Timer::Ripe(_) | Timer::Room => Some((at, timer)),
        });
        let requests = self.transactions.iter();
        let requests = requests.map(|(seq, known)| (known.due, Timer::Transaction(*seq)));
        self.timers = others.chain(requests).collect::<BTreeSet<_>>();
        for recall in &mut self.recalls {
            if let Cause::Directory(seq, invalidation) = &mut recall.cause {
                numbers.seq(invalidation.requester, seq);
                numbers.episode(invalidation.page, &mut invalidation.episode);
            }
        }
    }
}

const fn has_copy(phase: Phase) -> bool {
    !matches!(phase, Phase::Absent | Phase::Reading | Phase::Acquiring)
}
