//! A run from beginning to end: where to run, workers, report.

use std::cell::RefCell;
use std::rc::Rc;

use anyhow::{Context as _, Result};
use mind_cli::Interrupt;
use netns_setup::Testbed;

use super::layout::Layout;
use super::progress::{Progress, step};
use super::workers::{Blades, Stage, Workers};
use crate::{
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
    /// Whether to run on this machine's own memory, instead of blades.
    pub own_memory: bool,
}

/// Runs tests and judges what they did. When it returns, however it does, nothing of it is left.
///
/// # Errors
///
/// What kept all tests from being run. Forbidden outcomes, and tests that could not be run, are in the report.
pub fn run(tests: &[Test], options: &Options, interrupt: &Interrupt) -> Result<Report> {
    let testbed;
    let stage = if options.own_memory {
        Stage::Machine(most_threads(tests).max(2))
    } else {
        testbed = Testbed::current().context("there is nothing to run on")?;
        Stage::Blades(&testbed)
    };
    interrupt.check()?;
    step(format_args!(
        "{} tests, {} copies of each with {} layouts, on {}; --seed {} repeats its random choices",
        tests.len(),
        options.iterations,
        options.layouts.len(),
        stage.participants().join(", "),
        options.seed
    ));
    let workers = Workers::start(stage, options.seed, interrupt)?;
    let workers = Rc::new(RefCell::new(workers));
    let runner = |layout: &Layout| Box::new(Blades::new(&workers, *layout)) as Box<dyn Runner>;
    let mut runners: Vec<_> = options.layouts.iter().map(runner).collect();
    let mut progress = Progress::new(tests.len(), runners.len());
    let report = runner::run(tests, &mut runners, options.iterations, |done| {
        progress.done(done);
    })?;
    drop(progress);
    drop(runners);
    if let Some(workers) = Rc::into_inner(workers) {
        workers.into_inner().dismiss()?;
    }
    Ok(report)
}

fn most_threads(tests: &[Test]) -> usize {
    let threads = tests.iter().map(|test| test.threads().len());
    threads.max().unwrap_or(0)
}
