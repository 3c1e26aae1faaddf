//! The program's output and exit codes.

use std::process::{Command, Output};

use serde_json::Value;

/// Exit code, stdout and stderr.
fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(env!("CARGO_BIN_EXE_mind-sim"))
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// A run's report without its timings.
fn report(arguments: &[&str]) -> Value {
    let (code, stdout, stderr) = run(arguments);
    assert_eq!(code, Some(0), "{stderr}");
    let mut report: Value = serde_json::from_str(&stdout).unwrap();
    let report = report.as_object_mut().unwrap();
    for name in ["real_seconds", "seeds_per_minute"] {
        assert!(report.remove(name).unwrap().as_f64() > Some(0.0), "{name}");
    }
    report.clone().into()
}

#[test]
fn seeds_are_reported_and_repeat_on_other_processors() {
    let first = report(&["--seeds=20", "--seed=7", "--json", "--workers=1"]);
    assert_eq!(first["seeds"], 20);
    assert_eq!(first["failures"].as_array().map(Vec::len), Some(0));
    assert!(first["coverage"]["reached"].as_u64() > Some(80), "{first}");
    assert!(first["recovery_seconds"].as_f64() > Some(0.0), "{first}");
    let again = report(&["--seeds=20", "--seed=7", "--json", "--workers=3"]);
    assert_eq!(again, first);
    let other = report(&["--seeds=20", "--seed=8", "--json"]);
    assert_ne!(other["hash"], first["hash"]);

    let (code, stdout, _) = run(&["--seeds=20", "--seed=7", "--coverage"]);
    assert_eq!(code, Some(0));
    let hash = format!("hash {}", first["hash"].as_str().unwrap());
    assert!(stdout.starts_with("20 seeds, "), "{stdout}");
    assert!(stdout.contains(&hash), "{stdout}");
    assert!(stdout.contains("not reached: "), "{stdout}");
    assert!(stdout.contains(" page Absent: Fault(Read)\n"), "{stdout}");
}

#[test]
fn a_failing_seed_is_reduced_and_its_page_shown() {
    let broken = ["--seeds=20", "--flaw=lost-stores"];
    let (code, stdout, _) = run(&[&broken[..], &["--json"]].concat());
    assert_eq!(code, Some(1));
    let report: Value = serde_json::from_str(&stdout).unwrap();
    let first = &report["failures"][0]["seed"];
    let (code, stdout, stderr) = run(&broken);
    assert_eq!(code, Some(1));
    assert!(stdout.contains(&format!("\nseed {first}: ")), "{stdout}");
    for part in [
        &*format!("seed {first}, cut down: "),
        "broken: LostStores\n",
        "what happened to 0x100000",
        "┆ switch ",
        " stores [",
        " seeds failed\n",
    ] {
        assert!(stderr.contains(part), "{part} should be in {stderr}");
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    for wrong in [
        &["--seeds=-1"][..],
        &["--seeds=many"],
        &["--workers=0"],
        &["--flaw=nothing"],
        &["--flaw=unordered-stores"],
        &["7"],
    ] {
        let (code, stdout, stderr) = run(wrong);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{wrong:?}");
        assert!(stderr.contains("--help"), "{stderr}");
    }
}

#[test]
fn no_seeds_are_no_failure() {
    let (code, stdout, stderr) = run(&["--seeds=0"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(
        stdout.starts_with("0 seeds, 0 operations, 0 events: 0 seeds a minute"),
        "{stdout}"
    );
}
