//! Tests that share a testbed. It takes long to bring one up, and there is only one on a machine: so it is brought up
//! for the first test that runs, and taken down after the last.

use std::{
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Result;
use libtest_mimic::{Arguments, Failed, Trial};
use netns_setup::testbed;

use crate::Bed;

/// A test.
pub type Test = fn(&Bed) -> Result<()>;

/// Runs the tests on a testbed that `up` brings up.
pub fn run(tests: &[(&'static str, Test)], up: fn() -> Result<Bed>) -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    if !arguments.list && !testbed::is_testable() {
        return ExitCode::SUCCESS;
    }
    let bed = Arc::new(Mutex::new(None));
    let trials = tests.iter().map(|&(name, test)| {
        let bed = Arc::clone(&bed);
        Trial::test(name, move || {
            // A test that panicked leaves the testbed as it is.
            let mut bed = bed.lock().unwrap_or_else(PoisonError::into_inner);
            if bed.is_none() {
                *bed = Some(up().map_err(failed)?);
            }
            let Some(bed) = bed.as_ref() else {
                return Err(Failed::without_message());
            };
            test(bed).map_err(|error| {
                let failure = failed(error);
                Failed::from(format!(
                    "{}\n{}",
                    failure.message().unwrap_or_default(),
                    bed.logs()
                ))
            })
        })
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    bed.lock().unwrap_or_else(PoisonError::into_inner).take();
    conclusion.exit_code()
}

fn failed(error: anyhow::Error) -> Failed {
    Failed::from(format!("{error:#}"))
}
