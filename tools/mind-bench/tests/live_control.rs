//! The control bench as its user runs it, with few requests: all figures are there, also those of a hung blade, and
//! nothing else is left. Figures themselves depend on the machine.

use std::process::{Command, Stdio};

use netns_setup::{condition::Condition, testbed};

#[test]
fn every_figure_is_there_and_nothing_is_left() {
    if !testbed::is_testable() {
        return;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_mind-bench"))
        .args(["control", "--json", "--samples=5", "--vmas=1,20"])
        .args(["--compute=12", "--memory=2", "--rate-ms=200"])
        .stderr(Stdio::inherit())
        .output()
        .expect("the bench can be started");
    assert!(output.status.success(), "{}", output.status);

    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let figure = |pointer: &str| {
        let figure = report.pointer(pointer).and_then(serde_json::Value::as_f64);
        let figure = figure.unwrap_or_else(|| panic!("there is no {pointer}: {report:#}"));
        assert!(figure > 0.0, "{pointer} is {figure}");
    };
    for kind in ["map", "unmap", "protect", "open", "attach"] {
        for vmas in [1, 20] {
            figure(&format!("/{kind}_at_vmas_us/{vmas}/p99"));
        }
        figure(&format!("/hung/{kind}_ms/p99"));
    }
    for pointer in [
        "/map_us/4k/p50",
        "/hung/status_ms/p99",
        "/hung/metrics_ms/p99",
        "/hung/ops_per_s",
        "/ops_per_s",
        "/limits/commit_us/p50",
        "/limits/round_trip_us/p50",
    ] {
        figure(pointer);
    }
    let left = testbed::look().expect("the machine can be looked at");
    assert!(matches!(left, Condition::Absent), "{left:?}");
}
