//! What runs tests: a simulator, real blades. It is handed a test and gives back what it saw; what
//! that means is for the oracle to say.

use std::error::Error;

use crate::{
    histogram::Histogram,
    oracle::{Allowed, TooLarge},
    report::{Judged, Report},
    test::Test,
};

/// Something that runs tests, in one setting: on these blades, with variables laid out like that.
pub trait Runner {
    /// What the report calls it, such as `blades, a page for each variable`.
    fn setting(&self) -> String;

    /// Runs `copies` copies of `test`, each from the test's initial state, and counts their outcomes.
    /// Copies may run at the same time and in any order, but share no memory.
    ///
    /// # Errors
    ///
    /// If not all copies could be run to their end; an outcome that should not be is no error.
    fn run(&mut self, test: &Test, copies: u64) -> Result<Histogram, Box<dyn Error + Send + Sync>>;
}

/// Why tests were not run and judged.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The runner failed.
    #[error("cannot run the test `{test}` ({setting})")]
    Runner {
        /// The test.
        test: String,
        /// What runs it.
        setting: String,
        /// Why.
        source: Box<dyn Error + Send + Sync>,
    },
    /// Outcomes are missing, or there are too many.
    #[error(
        "the test `{test}` ({setting}) has {counted} outcomes of {copies} copies; expected one of each"
    )]
    Copies {
        /// The test.
        test: String,
        /// What ran it.
        setting: String,
        /// How many copies it should have run.
        copies: u64,
        /// How many outcomes there are.
        counted: u64,
    },
    /// The oracle does not know.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}

/// Runs `copies` copies of each test with each runner, and judges what was seen. `done` is called
/// after each test and runner.
///
/// # Errors
///
/// If a test could not be run or judged. Forbidden outcomes are in the report, and no error.
pub fn run(
    tests: &[Test],
    runners: &mut [Box<dyn Runner>],
    copies: u64,
    mut done: impl FnMut(&Judged),
) -> Result<Report, RunError> {
    let mut report = Report::default();
    for test in tests {
        let allowed = Allowed::of(test)?;
        for runner in runners.iter_mut() {
            let setting = runner.setting();
            let histogram = runner
                .run(test, copies)
                .map_err(|source| RunError::Runner {
                    test: test.name().to_owned(),
                    setting: setting.clone(),
                    source,
                })?;
            let counted = histogram.copies();
            if counted != copies {
                return Err(RunError::Copies {
                    test: test.name().to_owned(),
                    setting,
                    copies,
                    counted,
                });
            }
            let judged = Judged::new(test, &allowed, &setting, &histogram);
            done(&judged);
            report.tests.push(judged);
        }
    }
    Ok(report)
}
