//! The pipeline bench as its user runs it, short: all rows are there. It loads programs and attaches none, so it takes root
//! and no testbed. Figures themselves depend on the machine.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// All paths.
const PATHS: [&str; 15] = [
    "i_s",
    "i_m",
    "s_s",
    "i_s_cold",
    "i_s_spread",
    "first_touch",
    "multicast",
    "forward",
    "write_back",
    "answer",
    "busy",
    "denied",
    "foreign",
    "responder_read",
    "responder_write",
];

/// Runs the bench; `None` where the kernel loads no programs for this process.
fn run(args: &[&str]) -> Option<Output> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: this loads eBPF programs, which takes root");
        return None;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_mind-bench"))
        .args(["pipeline", "--rounds=1", "--packets=100"])
        .args(args)
        .stderr(Stdio::inherit())
        .output()
        .expect("the bench can be started");
    assert!(output.status.success(), "{}", output.status);
    Some(output)
}

fn figure(report: &Value, pointer: &str) {
    let ns = report.pointer(pointer).and_then(Value::as_f64);
    let ns = ns.unwrap_or_else(|| panic!("there is no {pointer}: {report:#}"));
    assert!(ns > 0.0, "{pointer} is {ns}");
}

#[test]
fn the_pipeline_has_all_figures() {
    let Some(output) = run(&["--json", "--traced"]) else {
        return;
    };
    let report: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    for key in ["floor_ns", "redirect_ns", "restore_ns"] {
        figure(&report, &format!("/{key}"));
    }
    for path in PATHS {
        figure(&report, &format!("/paths/{path}_ns"));
    }
    let paths = report["paths"].as_object().expect("they are by name");
    assert_eq!(paths.len(), PATHS.len(), "{report:#}");
    let [read, lost] =
        ["read", "lost"].map(|key| report["records"][key].as_u64().expect("it is counted"));
    assert!(read > 0, "{read} records read, {lost} lost");
}

#[test]
fn the_pipeline_has_all_rows() {
    let Some(output) = run(&[]) else {
        return;
    };
    let text = String::from_utf8(output.stdout).expect("it is text");
    let row = |line: &str| line.split_whitespace().next().map(str::to_owned);
    let rows: Vec<_> = text.lines().filter_map(row).collect();
    let beside = ["path", "floor", "redirect", "restore"];
    let expected: Vec<_> = beside.into_iter().chain(PATHS).collect();
    assert_eq!(rows, expected, "{text}");
}
