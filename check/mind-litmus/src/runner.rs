//! Runners of tests: the simulator, or real blades. A runner gets a test and returns the outcomes
//! that it saw; the oracle judges them.

use std::error::Error;

use crate::{
    histogram::Histogram,
    oracle::Allowed,
    report::{Judged, NotRun, Report},
    test::Test,
};

/// An error of whatever kind.
pub type Cause = Box<dyn Error + Send + Sync>;

/// Why a runner has no outcomes of a test.
#[derive(Debug)]
pub enum Unable {
    /// This test cannot be run, or not to its end. Others can.
    Test(Cause),
    /// Nothing can be run any more.
    Runner(Cause),
}

/// An error of which nothing else is said ends the run. (This is why [`Unable`] is no [`Error`].)
impl<E: Error + Send + Sync + 'static> From<E> for Unable {
    fn from(error: E) -> Self {
        Self::Runner(error.into())
    }
}

/// Something that runs tests, in one setting: on these blades, with variables laid out like that.
pub trait Runner {
    /// What the report calls it, such as `blades, a page for each variable`.
    fn setting(&self) -> String;

    /// Checks whether `test` can be run, before anything is done for it; by default, any test can.
    ///
    /// # Errors
    ///
    /// If it is known that it cannot.
    fn check(&self, _test: &Test) -> Result<(), Unable> {
        Ok(())
    }

    /// Runs `copies` copies of `test`, each from the test's initial state, and counts their outcomes. Copies may run at
    /// the same time and in any order, but share no memory.
    ///
    /// # Errors
    ///
    /// If not all copies could be run to their end; an outcome that should not be is no error.
    fn run(&mut self, test: &Test, copies: u64) -> Result<Histogram, Unable>;
}

/// A finished part of a run.
#[derive(Clone, Copy, Debug)]
pub enum Done<'a> {
    /// A test in one setting.
    Judged(&'a Judged),
    /// A test that could not be run, in one setting or in all.
    NotRun(&'a NotRun),
}

/// Why a run ended before all tests were done.
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
        source: Cause,
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
}

/// Runs `copies` copies of each test with each runner, and judges what was seen. A test that cannot
/// be run is in the report with the reason, and the others go on. `done` is called after each test
/// and runner.
///
/// # Errors
///
/// If nothing can be run any more. Forbidden outcomes are in the report, and no error.
pub fn run(
    tests: &[Test],
    runners: &mut [Box<dyn Runner>],
    copies: u64,
    done: impl FnMut(Done<'_>),
) -> Result<Report, RunError> {
    let report = Report::default();
    let mut run = Run { report, done };
    for test in tests {
        run.test(test, runners, copies)?;
    }
    Ok(run.report)
}

/// A run that goes on.
struct Run<F> {
    report: Report,
    done: F,
}

impl<F: FnMut(Done<'_>)> Run<F> {
    fn test(
        &mut self,
        test: &Test,
        runners: &mut [Box<dyn Runner>],
        copies: u64,
    ) -> Result<(), RunError> {
        let checks: Vec<_> = runners
            .iter()
            .map(|runner| refusal(test, runner.as_ref(), runner.check(test)))
            .collect::<Result<_, _>>()?;
        if let Some(reason) = common(&checks) {
            self.not_run(test, None, reason);
            return Ok(());
        }
        let allowed = match Allowed::of(test) {
            Ok(allowed) => allowed,
            Err(error) => {
                self.not_run(test, None, &error.to_string());
                return Ok(());
            }
        };
        for (runner, check) in runners.iter_mut().zip(checks) {
            let setting = runner.setting();
            let ran = match check {
                Ok(()) => {
                    let ran = runner.run(test, copies);
                    refusal(test, runner.as_ref(), ran)?
                }
                Err(reason) => Err(reason),
            };
            let histogram = match ran {
                Ok(histogram) => histogram,
                Err(reason) => {
                    self.not_run(test, Some(setting), &reason);
                    continue;
                }
            };
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
            (self.done)(Done::Judged(&judged));
            self.report.tests.push(judged);
        }
        Ok(())
    }

    fn not_run(&mut self, test: &Test, setting: Option<String>, reason: &str) {
        let not_run = NotRun {
            name: test.name().to_owned(),
            setting,
            reason: reason.to_owned(),
        };
        (self.done)(Done::NotRun(&not_run));
        self.report.not_run.push(not_run);
    }
}

/// A runner's result: outcomes, or why the test cannot be run.
fn refusal<T>(
    test: &Test,
    runner: &dyn Runner,
    said: Result<T, Unable>,
) -> Result<Result<T, String>, RunError> {
    match said {
        Ok(said) => Ok(Ok(said)),
        Err(Unable::Test(cause)) => Ok(Err(text(cause.as_ref()))),
        Err(Unable::Runner(source)) => Err(RunError::Runner {
            test: test.name().to_owned(),
            setting: runner.setting(),
            source,
        }),
    }
}

/// The reason why none of several runners can run a test, if all have the same.
fn common(checks: &[Result<(), String>]) -> Option<&String> {
    let (first, others) = checks.split_first()?;
    let reason = first.as_ref().err()?;
    let is_common = !others.is_empty() && others.iter().all(|other| other == first);
    is_common.then_some(reason)
}

/// An error and what is behind it, in a line.
pub fn text(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
