//! The benches as their user runs them, short: all figures are there, and nothing else is left. Figures themselves depend
//! on the machine.

mod control;
mod fault;
mod splitting;

use std::{
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
};

use netns_setup::{condition::Condition, testbed};
use serde_json::Value;

/// There is one testbed at a time.
static TESTBED: Mutex<()> = Mutex::new(());

/// What a bench reports.
struct Report(Value);

/// Runs a bench, and checks that nothing of it is left; `None` where there can be no testbed.
fn run(args: &[&str]) -> Option<Report> {
    if !testbed::is_testable() {
        return None;
    }
    let _one = TESTBED.lock().unwrap_or_else(PoisonError::into_inner);
    let output = Command::new(env!("CARGO_BIN_EXE_mind-bench"))
        .args(args)
        .arg("--json")
        .stderr(Stdio::inherit())
        .output()
        .expect("the bench can be started");
    assert!(output.status.success(), "{}", output.status);
    let left = testbed::look().expect("the machine can be looked at");
    assert!(matches!(left, Condition::Absent), "{left:?}");
    Some(Report(
        serde_json::from_slice(&output.stdout).expect("it is JSON"),
    ))
}

impl Report {
    /// A figure, which must be more than 0.
    fn figure(&self, pointer: &str) -> f64 {
        let figure = self.0.pointer(pointer).and_then(Value::as_f64);
        let figure = figure.unwrap_or_else(|| panic!("there is no {pointer}: {:#}", self.0));
        assert!(figure > 0.0, "{pointer} is {figure}");
        figure
    }
}
