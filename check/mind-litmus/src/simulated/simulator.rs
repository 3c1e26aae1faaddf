//! The runner: copies in batches, batches on all processors. What is seen depends on the seed, and not
//! on how many processors there are.

use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use mind_cli::Interrupt;
use mind_sim::Flaw;

use super::assignment;
use super::batch::{BatchError, Setting};
use crate::{
    blades::layout::Layout,
    histogram::Histogram,
    runner::{Runner, Unable},
    test::Test,
};

/// Copies of a batch.
const BATCH: u64 = 50;

/// Runs tests in the simulator.
#[derive(Debug)]
pub struct Simulator {
    /// Where variables are.
    pub layout: Layout,
    /// The seed of all random choices.
    pub seed: u64,
    /// Batches at a time.
    pub workers: NonZero<usize>,
    /// The flaw, if there is one.
    pub flaw: Option<Flaw>,
    /// Whether the run was interrupted.
    pub interrupt: Interrupt,
}

/// The seed of a batch, which depends on the test: else all tests would have the same faults.
fn batch_seed(seed: u64, name: &str, number: u64) -> u64 {
    let mix = |sum: u64, part: u64| {
        // As in FNV-1a.
        (sum ^ part).wrapping_mul(0x0100_0000_01b3)
    };
    let of_test = name.bytes().fold(seed, |sum, byte| mix(sum, byte.into()));
    mix(of_test, number.wrapping_add(1))
}

impl Runner for Simulator {
    fn setting(&self) -> String {
        format!("simulator, {}", self.layout)
    }

    fn check(&self, test: &Test) -> Result<(), Unable> {
        self.interrupt.check()?;
        assignment::check(test, self.layout).map_err(|error| Unable::Test(error.into()))
    }

    fn run(&mut self, test: &Test, copies: u64) -> Result<Histogram, Unable> {
        self.check(test)?;
        let setting = Setting {
            test,
            layout: self.layout,
            flaw: self.flaw,
        };
        let next = AtomicU64::new(0);
        let batches = copies.div_ceil(BATCH);
        let all = Mutex::new((Histogram::default(), None::<(u64, BatchError)>));
        let lock = || all.lock().unwrap_or_else(PoisonError::into_inner);
        thread::scope(|scope| {
            for _ in 0..self.workers.get().min(batches as usize) {
                scope.spawn(|| {
                    while !self.interrupt.is_wanted() {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= batches {
                            break;
                        }
                        let count = BATCH.min(copies - number * BATCH);
                        let seed = batch_seed(self.seed, test.name(), number);
                        let outcomes = setting.run(count as usize, seed);
                        let (histogram, failed) = &mut *lock();
                        match outcomes {
                            Ok(outcomes) => {
                                outcomes
                                    .into_iter()
                                    .for_each(|outcome| histogram.add(outcome, 1));
                            }
                            Err(error) => {
                                // Always the same one of several, whichever comes first.
                                if failed.as_ref().is_none_or(|(other, _)| number < *other) {
                                    *failed = Some((number, error));
                                }
                            }
                        }
                    }
                });
            }
        });
        self.interrupt.check()?;
        let (histogram, failed) = all.into_inner().unwrap_or_else(PoisonError::into_inner);
        match failed {
            None => Ok(histogram),
            // Each batch is an independent run.
            Some((_, error)) => Err(Unable::Test(error.into())),
        }
    }
}
