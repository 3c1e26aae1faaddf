//! The system that a trace is replayed through: threads, blades with page caches, a directory, and modelled time.
//!
//! * [`latency`]: what accesses cost,
//! * [`outcome`]: what is counted,
//! * `pages` and `blade`: a blade's page cache,
//! * `directory`: slots, and which pages find them,
//! * `threads`: whose turn it is, and what becomes of an access,
//! * `requests`: from a fault to the page,
//! * `giving`: what blades give up for that,
//! * `changes`: regions that are split, merged, and given up for their slots,
//! * `epochs`: time, the policy, and samples.
//!
//! # Time
//!
//! Threads and requests are events in one heap, ordered by time; a thread goes on until its time is beyond the next event.
//! A hit takes the local cost. A request's transition of the directory happens when it begins, an invalidation's end when
//! the request completes; in between the word is busy, and other requests are told so and come again after the live
//! blade's pause. The run takes as long as the thread that takes longest.
//!
//! What is not modelled: packets, their losses and queues; that a write-back of an evicted page takes time; that the
//! controller does; threads that wait for each other.

mod blade;
mod changes;
mod directory;
mod epochs;
mod giving;
pub mod latency;
pub mod outcome;
mod pages;
mod requests;
#[cfg(test)]
mod tests;
mod threads;

pub use latency::Latencies;
pub use outcome::Outcome;

use std::{cmp::Reverse, collections::BinaryHeap, time::Instant};

use mind_common::id::BladeId;

use crate::{
    modes::Mode,
    trace::{Error, Source},
};
use blade::Blade;
use changes::Deferred;
use directory::Directory;
use epochs::Epochs;
use latency::Nanos;
use outcome::Counters;
use requests::Request;
use threads::Thread;

/// A system to replay a trace through.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// How it differs from the live one.
    pub mode: Mode,
    /// Pages that a blade's cache has room for; at least 1.
    pub cache: usize,
    /// Slots of the directory, one of which is never used, where they are limited.
    pub slots: u32,
    /// Milliseconds of an epoch; 0 for regions that stay as they are.
    pub epoch_ms: u32,
    /// What accesses cost.
    pub latencies: Latencies,
}

/// What has a turn: a thread, or with this bit a request.
const REQUEST: u32 = 1 << 31;

/// The state of an emulation.
struct System {
    mode: Mode,
    nanos: Nanos,
    blades: Vec<Blade>,
    directory: Directory,
    threads: Vec<Thread>,
    requests: Vec<Request>,
    /// Numbers of requests that are over.
    over: Vec<u32>,
    events: BinaryHeap<Reverse<(u64, u32)>>,
    epochs: Epochs,
    deferred: Deferred,
    /// The slot to look at next, to take it back.
    hand: u32,
    /// Slots are not taken back before then.
    reclaim_at: u64,
    counters: Counters,
    /// Pages of a region; kept for its room.
    scratch: Vec<u32>,
    /// When the last thread or request was over.
    end: u64,
}

/// Replays a trace. `progress` is told from time to time how many accesses were made since it was told last.
///
/// # Errors
///
/// When the trace cannot be read.
pub fn run(
    setup: &Setup,
    source: &mut dyn Source,
    progress: &dyn Fn(u64),
) -> Result<Outcome, Error> {
    let began = Instant::now();
    let mut system = System::new(setup, source);
    system.replay(source, progress)?;
    Ok(system.outcome(began.elapsed()))
}

impl System {
    fn new(setup: &Setup, source: &dyn Source) -> Self {
        let mode = setup.mode;
        let shape = source.shape();
        let blade =
            |number| Blade::new(BladeId::from_low_bits(number), setup.cache, mode.protocol());
        let limit = mode.is_limited().then_some(setup.slots);
        let threads: Vec<_> = shape
            .threads
            .iter()
            .map(|blade| Thread::new(*blade))
            .collect();
        Self {
            mode,
            nanos: Nanos::new(&setup.latencies),
            blades: (0..u64::from(shape.blades)).map(blade).collect(),
            directory: Directory::new(limit),
            events: (0..threads.len() as u32)
                .map(|thread| Reverse((0, thread)))
                .collect(),
            threads,
            requests: Vec::new(),
            over: Vec::new(),
            epochs: Epochs::new(setup),
            deferred: Deferred::default(),
            hand: 1,
            reclaim_at: 0,
            counters: Counters::default(),
            scratch: Vec::new(),
            end: 0,
        }
    }

    fn replay(&mut self, source: &mut dyn Source, progress: &dyn Fn(u64)) -> Result<(), Error> {
        const TOLD_AFTER: u64 = 1 << 16;
        let mut told = 0;
        while self.step(source)? {
            if self.counters.accesses - told >= TOLD_AFTER {
                progress(self.counters.accesses - told);
                told = self.counters.accesses;
            }
        }
        progress(self.counters.accesses - told);
        self.sample(self.end);
        Ok(())
    }

    /// What is next has its turn; whether there was something.
    fn step(&mut self, source: &mut dyn Source) -> Result<bool, Error> {
        let Some(&Reverse((now, actor))) = self.events.peek() else {
            return Ok(false);
        };
        if now >= self.epochs.end {
            self.end_epochs(now);
        }
        self.events.pop();
        if actor & REQUEST == 0 {
            self.on_thread(now, actor as usize, source)?;
        } else {
            self.on_request(now, actor & !REQUEST);
        }
        Ok(true)
    }

    /// The thread has its turn at that time.
    fn wake(&mut self, at: u64, thread: u32) {
        self.events.push(Reverse((at, thread)));
    }

    /// The request has its turn at that time.
    fn come_back(&mut self, at: u64, request: u32) {
        self.events.push(Reverse((at, request | REQUEST)));
    }
}
