//! A run from beginning to end: where to play, workers, report. The one place that knows the order of
//! things.

use std::cell::RefCell;
use std::rc::Rc;

use anyhow::{Context as _, Result};
use mind_workers::Interrupt;
use netns_setup::Testbed;

use super::company::{Blades, Company, Stage};
use super::layout::Layout;
use super::progress::{Progress, step};
use crate::{
    oracle::Allowed,
    report::Report,
    runner::{self, Runner},
    test::Test,
};

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Copies of each test with each layout.
    pub iterations: u64,
    /// The layouts.
    pub layouts: Vec<Layout>,
    /// What everything that is left to chance is drawn from.
    pub seed: u64,
    /// Whether to run on this machine's own memory, instead of blades.
    pub own_memory: bool,
}

/// A test that needs more blades than there are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the test `{test}` has {threads} threads, each for another compute blade; the testbed has \
     {blades}: `netns-setup down` and `netns-setup up --compute {threads}` make one that has enough"
)]
pub struct TooFewBlades {
    /// Its name.
    pub test: String,
    /// How many it has.
    pub threads: usize,
    /// How many there are.
    pub blades: usize,
}

/// Runs tests and judges what they did. When it returns, however it does, nothing of it is left.
///
/// # Errors
///
/// Whatever kept tests from being run. Forbidden outcomes are in the report.
pub fn run(tests: &[Test], options: &Options, interrupt: &Interrupt) -> Result<Report> {
    check(tests, &options.layouts, interrupt)?;
    let testbed;
    let stage = if options.own_memory {
        Stage::Machine(most_threads(tests).max(2))
    } else {
        testbed = Testbed::current().context("there is nothing to run on")?;
        Stage::Blades(&testbed)
    };
    enough(tests, stage.players().len())?;
    interrupt.check()?;
    step(format_args!(
        "{} tests, {} copies of each with {} layouts, on {}; --seed {} draws the same lots",
        tests.len(),
        options.iterations,
        options.layouts.len(),
        stage.players().join(", "),
        options.seed
    ));
    let company = Company::start(stage, options.seed, interrupt)?;
    let company = Rc::new(RefCell::new(company));
    let runner = |layout: &Layout| Box::new(Blades::new(&company, *layout)) as Box<dyn Runner>;
    let mut runners: Vec<_> = options.layouts.iter().map(runner).collect();
    let mut progress = Progress::new(tests.len() * runners.len());
    let report = runner::run(tests, &mut runners, options.iterations, |judged| {
        progress.done(judged);
    })?;
    drop(progress);
    drop(runners);
    if let Some(company) = Rc::into_inner(company) {
        company.into_inner().dismiss()?;
    }
    Ok(report)
}

/// What can be known to fail before anything is begun.
fn check(tests: &[Test], layouts: &[Layout], interrupt: &Interrupt) -> Result<()> {
    for test in tests {
        interrupt.check()?;
        for layout in layouts {
            layout.copies(test.name(), test.memory().len())?;
        }
        Allowed::of(test)?;
    }
    Ok(())
}

fn most_threads(tests: &[Test]) -> usize {
    let threads = tests.iter().map(|test| test.threads().len());
    threads.max().unwrap_or(0)
}

fn enough(tests: &[Test], blades: usize) -> Result<(), TooFewBlades> {
    let largest = tests.iter().max_by_key(|test| test.threads().len());
    match largest {
        Some(test) if test.threads().len() > blades => Err(TooFewBlades {
            test: test.name().to_owned(),
            threads: test.threads().len(),
            blades,
        }),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family;

    #[test]
    fn a_test_with_too_many_threads_is_named() {
        let named = |name: &str| family::test(&family::named(name).unwrap()).unwrap();
        let tests = ["SB", "IRIW", "WRC"].map(named);
        assert_eq!(enough(&tests, 4), Ok(()));
        assert_eq!(enough(&tests[..1], 2), Ok(()));
        let error = enough(&tests, 2).unwrap_err().to_string();
        assert!(
            error.contains("`IRIW` has 4 threads") && error.contains("up --compute 4`"),
            "{error}"
        );
    }
}
