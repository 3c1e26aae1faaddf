//! The fault bench as its user runs it, with few faults: all figures are there, and nothing else is
//! left. Figures themselves depend on the machine.

use std::process::{Command, Stdio};

use netns_setup::{condition::Condition, testbed};

/// Faults of each transition.
const SAMPLES: u64 = 20;

#[test]
fn every_figure_is_there_and_nothing_is_left() {
    if !testbed::is_testable() {
        return;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_mind-bench"))
        .args(["fault", "--json", "--evict-ms=300"])
        .arg(format!("--samples={SAMPLES}"))
        .stderr(Stdio::inherit())
        .output()
        .expect("the bench can be started");
    assert!(output.status.success(), "{}", output.status);

    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let figure = |pointer: &str| {
        let figure = report.pointer(pointer).and_then(serde_json::Value::as_f64);
        let figure = figure.unwrap_or_else(|| panic!("there is no {pointer}"));
        assert!(figure > 0.0, "{pointer} is {figure}");
        figure
    };
    for limit in ["userfault_us", "network_us"] {
        figure(&format!("/limits/{limit}"));
    }
    for name in ["i_s", "s_s", "i_m", "s_m", "m_s", "m_m"] {
        let [p50, p99, count] = ["p50_us", "p99_us", "count"]
            .map(|figure_of| figure(&format!("/transitions/{name}/{figure_of}")));
        assert!(p50 <= p99, "{name}");
        assert!(count >= SAMPLES as f64, "{name}");
    }
    for threads in ["t1", "t8"] {
        figure(&format!("/evicting_faults_per_s/{threads}"));
    }
    let left = testbed::look().expect("the machine can be looked at");
    assert!(matches!(left, Condition::Absent), "{left:?}");
}
