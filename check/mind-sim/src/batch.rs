//! Many seeds on all processors. The results do not depend on the number of processors.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use crate::{Failure, coverage::Coverage, plan::Plan, run};

/// The results of many seeds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// How many there were.
    pub seeds: u64,
    /// What programs did.
    pub operations: u64,
    /// Events, of all kinds.
    pub events: u64,
    /// Virtual time until programs had finished, in nanoseconds.
    pub virtual_nanos: u64,
    /// The longest time from the end of a run's faults until its programs had finished, in nanoseconds.
    pub recovery_nanos: u64,
    /// The sum of the runs' hashes.
    pub hash: u64,
    /// What of the machines they covered together.
    pub coverage: Coverage,
    /// Seeds that failed, and how.
    pub failures: Vec<(u64, Failure)>,
}

impl Batch {
    fn add(&mut self, seed: u64, plan: &Plan) {
        let outcome = run(plan, false);
        self.seeds += 1;
        self.operations += plan.operations() as u64;
        self.events += outcome.events;
        self.virtual_nanos += outcome.virtual_nanos;
        self.recovery_nanos = self.recovery_nanos.max(outcome.recovery_nanos);
        self.hash = self.hash.wrapping_add(outcome.hash);
        self.coverage.add(&outcome.coverage);
        let failed = outcome.failure.map(|failure| (seed, failure));
        self.failures.extend(failed);
    }

    fn join(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.operations += other.operations;
        self.events += other.events;
        self.virtual_nanos += other.virtual_nanos;
        self.recovery_nanos = self.recovery_nanos.max(other.recovery_nanos);
        self.hash = self.hash.wrapping_add(other.hash);
        self.coverage.add(&other.coverage);
        self.failures.extend(other.failures);
        self.failures.sort_by_key(|(seed, _)| *seed);
    }
}

/// Runs `count` seeds from `first` on, in that many threads; calls `done` after each.
pub fn run_seeds(first: u64, count: u64, workers: usize, done: &(dyn Fn() + Sync)) -> Batch {
    run_plans(first, count, workers, &Plan::of_seed, done)
}

/// The same with the runs that `plan` makes of seeds.
pub fn run_plans(
    first: u64,
    count: u64,
    workers: usize,
    plan: &(dyn Fn(u64) -> Plan + Sync),
    done: &(dyn Fn() + Sync),
) -> Batch {
    let next = AtomicU64::new(0);
    let all = Mutex::new(Batch::default());
    std::thread::scope(|scope| {
        for _ in 0..workers.max(1) {
            scope.spawn(|| {
                let mut batch = Batch::default();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        break;
                    }
                    let seed = first.wrapping_add(number);
                    batch.add(seed, &plan(seed));
                    done();
                }
                let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                all.join(batch);
            });
        }
    });
    all.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_results_of_seeds_do_not_depend_on_the_number_of_threads() {
        let alone = run_seeds(7, 20, 1, &|| ());
        assert_eq!(alone, run_seeds(7, 20, 3, &|| ()));
        assert_eq!(alone.seeds, 20);
    }
}
