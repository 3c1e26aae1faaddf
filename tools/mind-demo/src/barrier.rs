//! A barrier between processes on different blades.
//!
//! Each worker writes its own phase, in a region of its own, and reads those of the others. So a
//! worker's arrival costs each other worker one page, and no word has two writers that would
//! contend for it. Waiting is polling with short sleeps: a futex wakes sleepers on its own host
//! only. While nothing changes, the polled page lies in the poller's cache and costs no packet.

use std::time::{Duration, Instant};

use crate::memory::Memory;

/// First sleep between two checks.
const SHORTEST: Duration = Duration::from_micros(20);
/// Longest sleep between two checks: the most that waiting adds to a phase.
const LONGEST: Duration = Duration::from_millis(1);

/// A worker that does not arrive, and does not update its heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "worker {worker} has not responded for {} s; it should reach phase {phase} and is in phase {is}",
    patience.as_secs_f64()
)]
pub struct Stuck {
    /// The worker that was waited for.
    pub worker: usize,
    /// Where it should be.
    pub phase: u64,
    /// Where it is.
    pub is: u64,
    /// How long it was waited for.
    pub patience: Duration,
}

/// One worker's view of the barrier.
#[derive(Debug)]
pub struct Barrier<'a> {
    memory: Memory<'a>,
    worker: usize,
    phase: u64,
    beats: u64,
    last_beat: Instant,
    patience: Duration,
}

impl<'a> Barrier<'a> {
    /// The barrier of worker `worker`, which waits for others until their heartbeats have not
    /// changed for `patience`.
    pub fn new(memory: Memory<'a>, worker: usize, patience: Duration) -> Self {
        Self {
            memory,
            worker,
            phase: 0,
            beats: 0,
            last_beat: Instant::now(),
            patience,
        }
    }

    /// Waits until all have arrived as often as this one. Their earlier writes are visible
    /// afterwards.
    ///
    /// # Errors
    ///
    /// When a worker does not arrive.
    pub fn arrive(&mut self) -> Result<(), Stuck> {
        self.phase += 1;
        self.memory.set_phase(self.worker, self.phase);
        self.last_beat = Instant::now();
        let workers = self.memory.layout().workers;
        (0..workers).try_for_each(|worker| self.wait_for(worker))
    }

    fn wait_for(&self, worker: usize) -> Result<(), Stuck> {
        let mut sleep = SHORTEST;
        let mut seen = (Instant::now(), self.memory.heartbeat(worker));
        loop {
            let is = self.memory.phase(worker);
            if is >= self.phase {
                return Ok(());
            }
            let beat = self.memory.heartbeat(worker);
            if beat != seen.1 {
                seen = (Instant::now(), beat);
            } else if seen.0.elapsed() > self.patience {
                return Err(Stuck {
                    worker,
                    phase: self.phase,
                    is,
                    patience: self.patience,
                });
            }
            std::thread::sleep(sleep);
            sleep = (2 * sleep).min(LONGEST);
        }
    }

    /// Updates this worker's heartbeat, if that is due; returns whether it did.
    pub fn show_life(&mut self) -> bool {
        if self.last_beat.elapsed() < self.patience / 8 {
            return false;
        }
        self.last_beat = Instant::now();
        self.beats += 1;
        self.memory.set_heartbeat(self.worker, self.beats);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;
    use crate::memory::Private;
    use std::sync::atomic::{AtomicU64, Ordering};

    const LAYOUT: Layout = Layout {
        vertices: 10,
        edges: 0,
        workers: 3,
    };

    #[test]
    fn nobody_leaves_before_all_have_arrived() {
        const PHASES: u64 = 50;
        let private = Private::new(LAYOUT);
        let memory = private.memory();
        let arrived = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for worker in 0..LAYOUT.workers {
                let arrived = &arrived;
                scope.spawn(move || {
                    let mut barrier = Barrier::new(memory, worker, Duration::from_secs(20));
                    for phase in 1..=PHASES {
                        arrived.fetch_add(1, Ordering::SeqCst);
                        barrier.arrive().unwrap();
                        let least = phase * LAYOUT.workers as u64;
                        assert!(arrived.load(Ordering::SeqCst) >= least, "left early");
                    }
                });
            }
        });
    }

    #[test]
    fn a_worker_that_shows_no_life_is_named() {
        let private = Private::new(LAYOUT);
        let mut barrier = Barrier::new(private.memory(), 0, Duration::from_millis(20));
        let stuck = barrier.arrive().unwrap_err();
        assert_eq!((stuck.worker, stuck.phase, stuck.is), (1, 1, 0));
        assert_eq!(
            stuck.to_string(),
            "worker 1 has not responded for 0.02 s; it should reach phase 1 and is in phase 0"
        );
    }

    #[test]
    fn a_worker_that_shows_life_is_waited_for() {
        let private = Private::new(Layout {
            workers: 2,
            ..LAYOUT
        });
        let memory = private.memory();
        let patience = Duration::from_millis(200);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(move || Barrier::new(memory, 0, patience).arrive());
            let mut slow = Barrier::new(memory, 1, patience);
            let begin = Instant::now();
            let mut beats = 0;
            while begin.elapsed() < 3 * patience {
                beats += u32::from(slow.show_life());
                std::thread::sleep(Duration::from_millis(5));
            }
            assert!(beats > 3, "a beat comes before patience is at an end");
            slow.arrive().unwrap();
            waiting.join().unwrap().unwrap();
        });
    }
}
