//! A run from beginning to end, in the simulator.

use std::num::NonZero;
use std::thread;

use anyhow::{Context as _, Result};
use mind_cli::Interrupt;
use mind_sim::Flaw;

use super::simulator::Simulator;
use crate::{
    blades::{
        layout::Layout,
        progress::{Progress, step},
    },
    report::Report,
    runner::{self, Runner},
    test::Test,
};

/// The options of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Copies of each test with each layout.
    pub iterations: u64,
    /// The layouts.
    pub layouts: Vec<Layout>,
    /// The seed of all random choices.
    pub seed: u64,
    /// The flaw, if there is one.
    pub flaw: Option<Flaw>,
}

/// Runs tests on all processors and judges what they did.
///
/// # Errors
///
/// What kept all tests from being run. Forbidden outcomes, and tests that could not be run, are in the report.
pub fn run(tests: &[Test], options: &Options, interrupt: &Interrupt) -> Result<Report> {
    let workers = thread::available_parallelism().context("cannot count processors")?;
    let Options {
        iterations,
        layouts,
        seed,
        flaw,
    } = options;
    step(format_args!(
        "{} tests, {iterations} copies of each with {} layouts, in the simulator; --seed {seed} does \
         the same again",
        tests.len(),
        layouts.len(),
    ));
    let runner = |layout: &Layout| runner_of(*layout, *seed, workers, *flaw, interrupt);
    let mut runners: Vec<_> = layouts.iter().map(runner).collect();
    let mut progress = Progress::new(tests.len(), runners.len());
    let report = runner::run(tests, &mut runners, *iterations, |done| {
        progress.done(done);
    })?;
    Ok(report)
}

fn runner_of(
    layout: Layout,
    seed: u64,
    workers: NonZero<usize>,
    flaw: Option<Flaw>,
    interrupt: &Interrupt,
) -> Box<dyn Runner> {
    Box::new(Simulator {
        layout,
        seed,
        workers,
        flaw,
        interrupt: interrupt.clone(),
    })
}
