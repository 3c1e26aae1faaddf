//! A compute blade for a model checker: the checker fires its timers by name, in any order, and
//! removes what has no effect on its behaviour, so that equivalent states compare equal.

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

/// How late a timer fires: what else is due by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lateness {
    /// Nothing else.
    OnTime = 0,
    /// A request that pauses is sent as a repeat.
    RepeatDue = 1,
    /// The request is reported to the controller as stuck.
    ReportDue = 2,
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
    /// The page's residency is over.
    Residency(Va),
    /// There may be room now.
    Room,
}

/// Visits the numbers of a state that only count up, so that a model checker can rename them.
pub trait Numbers {
    /// A request of that blade's.
    fn seq(&mut self, of: BladeId, seq: &mut Seq);
    /// A version of that page.
    fn version(&mut self, of: Va, version: &mut Version);
    /// An invalidation of a region with that page.
    fn episode(&mut self, of: Va, episode: &mut Episode);
}

/// The residency of pages, if they have one: longer than any [`Lateness`].
const RESIDENCY: u64 = 4;

/// Bits for the requests of one incarnation.
const INCARNATION_SHIFT: u32 = 16;

impl Config {
    /// For a blade without a clock: its time stands still, and a timer fires with a given
    /// [`Lateness`]. `stays` says whether a page stays until its timer is fired.
    pub const fn without_clock(connection: Connection, capacity: usize, stays: bool) -> Self {
        let residency = if stays { RESIDENCY } else { 0 };
        Self {
            connection,
            capacity,
            reserve: 0,
            residency: residency::Bounds {
                least: residency,
                most: residency,
            },
            timeout: retransmission::Bounds { least: 1, most: 1 },
            stuck_after: Lateness::ReportDue as u64,
            deadline: Lateness::Expired as u64,
            // Above those of the incarnations before, as long as each had fewer than 2^16.
            first_seq: Seq::new((connection.incarnation as u32) << INCARNATION_SHIFT | 1),
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
            Timer::Residency(page) => Some(Alarm::Residency(page)),
            Timer::Room => Some(Alarm::Room),
        };
        let timers = self.timers.iter();
        timers.filter_map(|(_, timer)| alarm(timer)).collect()
    }

    /// The strongest access to this page that threads wait for.
    pub fn waiting(&self, page: Va) -> Option<Access> {
        self.pages.get(&page).and_then(|entry| entry.page.waiting)
    }

    /// Whether the request with this number is under way.
    pub fn has_request(&self, seq: Seq) -> bool {
        self.transactions.contains_key(&seq.get())
    }

    /// Whether it is a write-back, which is never given up.
    pub fn is_write_back(&self, seq: Seq) -> bool {
        let transaction = self.transactions.get(&seq.get());
        transaction.is_some_and(|known| matches!(known.purpose, Purpose::WriteBack(_)))
    }

    /// Fires a timer, so late; does nothing if it is not set.
    pub fn fire(&mut self, alarm: Alarm, late: Lateness, out: &mut Vec<Action>) {
        let (timer, now) = match alarm {
            Alarm::Answer(seq) | Alarm::Pause(seq) => (Timer::Transaction(seq.get()), late as u64),
            Alarm::Residency(page) => (Timer::Residency(page), RESIDENCY),
            Alarm::Room => (Timer::Room, RESIDENCY),
        };
        let before = self.timers.len();
        self.timers.retain(|(_, set)| *set != timer);
        if self.timers.len() == before {
            return;
        }
        match timer {
            Timer::Transaction(seq) => self.on_due(now, seq, out),
            Timer::Residency(page) => {
                if let Some(entry) = self.pages.get_mut(&page) {
                    entry.resident_until = 0;
                    self.apply(now, page, Event::ResidencyOver, out);
                }
            }
            Timer::Room => self.room_at = None,
        }
        self.settle(now, out);
    }

    /// Sets all times back to the beginning, and the round trip to unknown.
    pub fn rewind(&mut self) {
        self.trip = RoundTrip::new(self.config.timeout, 0);
        for transaction in self.transactions.values_mut() {
            (transaction.heard_at, transaction.sent) = (0, 0);
            (transaction.repeated_at, transaction.reported_at) = (0, 0);
        }
    }

    /// [Rewinds](Self::rewind), and clears what has no effect on behaviour: times, counters, random numbers, repeat
    /// counts.
    pub fn normalize(&mut self) {
        self.rewind();
        for entry in self.pages.values_mut() {
            entry.faulted_at = None;
            entry.resident_until = entry.resident_until.min(RESIDENCY);
            if !has_copy(entry.page.phase) {
                entry.page.version = Version::default();
                entry.resident_until = 0;
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
        // A page that owes nothing does nothing when its residency is over; when it owes something it sets its
        // timer anew.
        let owes = |page: &Va| {
            let entry = self.pages.get(page);
            entry.is_some_and(|entry| entry.page.owed.is_some())
        };
        let timers = self.timers.iter().filter_map(|(_, timer)| match timer {
            Timer::Residency(page) if !owes(page) => None,
            timer => Some((0, *timer)),
        });
        self.timers = timers.collect();
        self.order.renumber();
        self.residency = Residency::new(self.config.residency);
        self.counters = Counters::default();
    }

    /// Shows the tokens of the flushes under way to `visit`, which may change them.
    pub fn visit_flushes(&mut self, mut visit: impl FnMut(&mut u64)) {
        for recall in &mut self.recalls {
            if let Cause::Flush(token) = &mut recall.cause {
                visit(token);
            }
        }
    }

    /// Lets `numbers` rename the numbers of this state, if different ones stay different.
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
            Timer::Residency(_) | Timer::Room => Some((at, timer)),
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
