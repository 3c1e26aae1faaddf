//! Tells operators what becomes of packets: a thread that reads the switch's records, and a queue for each operator.
//!
//! The kernel gives out what any of the operators wants; what each of them wants is picked here. While none wants
//! anything, it gives out nothing, and the thread sleeps.

use std::{
    collections::VecDeque,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result};
use mind_api::operator::{AddressRange, Traced, TracedPacket};
use mind_common::{
    id::BladeId,
    trace::{EVERY_BLADE, KNOWS_BTH, Record, Tracing},
};
use mind_dataplane::{TraceControl, Traces};
use rustix::{
    event::{PollFd, PollFlags, poll},
    time::{ClockId, clock_gettime},
};
use tokio::sync::Notify;

/// Records that may wait for an operator.
const WAITING: usize = 1 << 16;
/// Records in one answer; each takes at most about 300 bytes.
const MOST: usize = 1_000;

/// Which records an operator wants: one of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted(Vec<Tracing>);

impl Wanted {
    /// Those of a blade, or of all; that name an address in one of the ranges, or any.
    pub(super) fn new(blade: Option<BladeId>, ranges: &[AddressRange]) -> Self {
        let all = Tracing {
            blade: blade.map_or(EVERY_BLADE, |blade| blade.get().into()),
            ..Tracing::EVERYTHING
        };
        if ranges.is_empty() {
            return Self(vec![all]);
        }
        let range = |range: &AddressRange| {
            let behind = range.length.checked_sub(1)?;
            Some(Tracing {
                first: range.va,
                last: range.va.saturating_add(behind),
                ..all
            })
        };
        Self(ranges.iter().filter_map(range).collect())
    }

    fn wants(&self, record: &Record) -> bool {
        self.0.iter().any(|tracing| tracing.wants(record))
    }

    /// All of it, for the kernel.
    fn whole(&self) -> Tracing {
        self.0
            .iter()
            .fold(Tracing::default(), |all, one| all.either(*one))
    }
}

/// What waits for an operator.
#[derive(Debug, Default)]
struct Queue {
    records: VecDeque<Record>,
    /// Records that are missing before those.
    lost: u64,
}

/// An operator that traces.
#[derive(Debug)]
struct Follower {
    wanted: Wanted,
    /// When it began, by the monotonic clock: what is older was for others.
    since: u64,
    /// The time of day at 0 of that clock, in nanoseconds since 1970.
    since_1970: u64,
    queue: Mutex<Queue>,
    /// That something waits.
    is_there: Notify,
}

impl Follower {
    fn new(wanted: Wanted, since: u64) -> Self {
        Self {
            wanted,
            since,
            since_1970: offset(),
            queue: Mutex::default(),
            is_there: Notify::new(),
        }
    }

    /// Takes what it wants of `records`; `lost` others found no room.
    fn note(&self, records: &[Record], lost: u64) {
        let mut queue = lock(&self.queue);
        queue.lost += lost;
        let wanted = records
            .iter()
            .filter(|record| record.when >= self.since && self.wanted.wants(record));
        for record in wanted {
            match queue.records.len() < WAITING {
                true => queue.records.push_back(*record),
                false => queue.lost += 1,
            }
        }
        if !queue.records.is_empty() || queue.lost > 0 {
            self.is_there.notify_one();
        }
    }

    /// What waits, as much as fits in an answer.
    fn take(&self) -> Option<(Vec<Record>, u64)> {
        let mut queue = lock(&self.queue);
        let count = queue.records.len().min(MOST);
        let records: Vec<_> = queue.records.drain(..count).collect();
        let lost = mem::take(&mut queue.lost);
        (!records.is_empty() || lost > 0).then_some((records, lost))
    }
}

/// Who traces.
struct Followers {
    control: TraceControl,
    all: Vec<Arc<Follower>>,
}

impl Followers {
    /// Has the kernel give out what they want.
    fn tell_kernel(&mut self) -> mind_dataplane::Result<()> {
        let wanted = self.all.iter().map(|follower| follower.wanted.whole());
        self.control
            .set(wanted.fold(Tracing::default(), Tracing::either))
    }
}

/// Where operators find what the thread reads.
pub(super) struct Tracer(Mutex<Followers>);

/// An operator's part of it, which ends when it is dropped.
pub(super) struct Following {
    tracer: Arc<Tracer>,
    follower: Arc<Follower>,
}

impl Tracer {
    /// Starts the thread, which ends with the process. Whatever an earlier controller's operators traced is over.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub(super) fn start(mut traces: Traces, mut control: TraceControl) -> Result<Arc<Self>> {
        let off = control.set(Tracing::default());
        off.context("cannot end what operators of an earlier controller traced")?;
        while traces.take().is_some() {}
        let all = Vec::new();
        let tracer = Arc::new(Self(Mutex::new(Followers { control, all })));
        let read = Arc::clone(&tracer);
        std::thread::Builder::new()
            .name("tracer".into())
            .spawn(move || {
                if let Err(error) = read.read(traces) {
                    tracing::error!(%error, "what becomes of packets is not told any more");
                }
            })
            .context("cannot start the thread that reads what becomes of packets")?;
        Ok(tracer)
    }

    /// Begins to note what is wanted.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub(super) fn follow(self: &Arc<Self>, wanted: Wanted) -> mind_dataplane::Result<Following> {
        let follower = Arc::new(Follower::new(wanted, monotonic()));
        // Before the kernel is told: dropped, it leaves nothing, whatever the kernel says.
        let following = Following {
            tracer: Arc::clone(self),
            follower: Arc::clone(&follower),
        };
        let mut followers = lock(&self.0);
        followers.all.push(follower);
        let told = followers.tell_kernel();
        drop(followers);
        told.map(|()| following)
    }

    /// Ends it for all: no record is read any more.
    pub(super) fn end(&self) {
        let mut followers = lock(&self.0);
        followers.all.clear();
        if let Err(error) = followers.tell_kernel() {
            tracing::error!(%error, "packets are still traced, though no operator follows them");
        }
    }

    fn read(&self, mut traces: Traces) -> Result<()> {
        let mut lost = lock(&self.0).control.lost()?;
        let mut records = Vec::with_capacity(MOST);
        loop {
            match poll(&mut [PollFd::new(&traces, PollFlags::IN)], None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            loop {
                records.clear();
                records.extend(std::iter::from_fn(|| traces.take()).take(MOST));
                let followers = lock(&self.0);
                let now = followers.control.lost()?;
                for follower in &followers.all {
                    follower.note(&records, now.wrapping_sub(lost));
                }
                lost = now;
                if records.len() < MOST {
                    break;
                }
            }
        }
    }
}

impl Following {
    /// What was noted since it was last asked; waits until there is something.
    pub(super) async fn next(&self) -> Traced {
        loop {
            if let Some((records, lost)) = self.follower.take() {
                let since_1970 = self.follower.since_1970;
                let packets = records.iter().map(|record| told(record, since_1970));
                return Traced {
                    packets: packets.collect(),
                    lost,
                };
            }
            self.follower.is_there.notified().await;
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let mut followers = lock(&self.tracer.0);
        let mine = |follower: &Arc<Follower>| Arc::ptr_eq(follower, &self.follower);
        followers.all.retain(|follower| !mine(follower));
        if let Err(error) = followers.tell_kernel() {
            tracing::error!(%error, "packets are still traced, though no operator follows them");
        }
    }
}

/// A record as an operator gets it; `since_1970` is the time of day at 0 of the monotonic clock.
fn told(record: &Record, since_1970: u64) -> TracedPacket {
    let has_bth = record.known & KNOWS_BTH != 0;
    let words = record.words();
    TracedPacket {
        when: record.when.wrapping_add(since_1970),
        ifindex: record.ifindex,
        verdict: record
            .verdict()
            .map_or_else(|| record.verdict.to_string(), |it| it.name().to_owned()),
        opcode: u8::try_from(record.opcode).ok().filter(|_| has_bth),
        qp: has_bth.then_some(record.qp),
        psn: has_bth.then_some(record.psn),
        va: record.va().map(|va| va.0),
        before: words.map(|(before, _)| before.raw()),
        after: words.map(|(_, after)| after.raw()),
    }
}

/// Nanoseconds of the monotonic clock.
fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// Nanoseconds from 1970 to 0 of the monotonic clock.
fn offset() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
    now.wrapping_sub(monotonic())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What it holds is whole between any two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
