//! `mind-litmus` on a testbed, as its user runs it: the classic tests see nothing that is forbidden,
//! every blade takes part, and nothing is left.

use std::process::{Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use mind_e2e::{Bed, patience, scaled, suite};
use serde_json::Value;

const BLADES: [&str; 4] = ["c0", "c1", "c2", "c3"];
/// Bytes that a blade may cache: more than most runs have at once, and less than the largest.
const CACHE: u64 = 1 << 20;
/// What literature has names for: two threads, three, four, coherence; with and without fences.
const CLASSIC: [&str; 14] = [
    "SB",
    "SB+mfences",
    "MP",
    "LB",
    "R",
    "S",
    "2+2W",
    "WRC",
    "ISA2",
    "RWC+po+mfence",
    "IRIW",
    "CoRR",
    "CoRW2",
    "CoWR",
];
const LAYOUTS: [&str; 3] = ["own-page", "one-region", "one-page"];

fn main() -> ExitCode {
    suite::run(
        &[
            ("classic_tests_see_nothing_forbidden", classic),
            ("pages_that_are_evicted_meanwhile_are_right", evicted),
            ("a_test_with_more_threads_than_blades_is_named", too_large),
            ("an_interrupted_run_leaves_nothing", interrupted),
        ],
        || Bed::up(4, 2, CACHE),
    )
}

/// `mind-litmus` with these arguments.
fn litmus(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mind-litmus"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// The report of a run that must see nothing forbidden.
fn report(arguments: &[&str]) -> Result<Value> {
    let output = litmus(arguments).stderr(Stdio::inherit()).output()?;
    ensure!(
        output.status.success(),
        "mind-litmus ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stdout)
    );
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// What the report must have: each of these tests with each of these layouts, so many copies, and
/// outcomes that are allowed.
fn check(report: &Value, names: &[&str], layouts: &[&str], copies: u64) -> Result<()> {
    let tests = report["tests"].as_array().context("there are no tests")?;
    ensure!(
        tests.len() == names.len() * layouts.len(),
        "{} tests",
        tests.len()
    );
    for name in names {
        for layout in layouts {
            let setting = format!("blades, {layout}");
            let test = tests
                .iter()
                .find(|test| test["name"] == *name && test["setting"] == *setting)
                .with_context(|| format!("{name} was not run ({setting})"))?;
            let rows = test["outcomes"].as_array().context("no outcomes")?;
            let seen = rows.iter().map(|row| row["count"].as_u64().unwrap_or(0));
            ensure!(seen.sum::<u64>() == copies, "{test}");
            ensure!(
                rows.iter().all(|row| row["judgement"] != "forbidden"),
                "{test}"
            );
        }
    }
    Ok(())
}

fn classic(bed: &Bed) -> Result<()> {
    let copies = scaled(300);
    let iterations = copies.to_string();
    let mut arguments = vec!["--json", "--seed=1", "--iterations", &iterations];
    arguments.extend(CLASSIC);
    let requests = || -> Result<Vec<u64>> {
        let reports = BLADES.iter().map(|blade| bed.report(blade));
        reports.map(|report| Ok(report?.requests)).collect()
    };
    let before = requests()?;
    let report = report(&arguments)?;
    check(&report, &CLASSIC, &LAYOUTS, copies)?;
    for ((blade, before), after) in BLADES.iter().zip(before).zip(requests()?) {
        // At the very least one for each copy of four threads.
        ensure!(
            after - before >= copies,
            "{blade} asked the switch {} times only",
            after - before
        );
    }
    // Threads overlap in more than one order: else nothing would be tested.
    for name in ["SB", "MP", "LB"] {
        let tests = report["tests"].as_array().into_iter().flatten();
        for test in tests.filter(|test| test["name"] == name) {
            let rows = test["outcomes"].as_array().into_iter().flatten();
            let seen = rows.filter(|row| row["count"] != 0).count();
            ensure!(seen >= 2, "only one outcome of {test}");
        }
    }
    gone(bed)
}

fn evicted(bed: &Bed) -> Result<()> {
    let evictions = || -> Result<u64> {
        let reports = BLADES.iter().map(|blade| bed.report(blade));
        reports.map(|report| Ok(report?.evictions)).sum()
    };
    let before = evictions()?;
    // As many as run at once. Each of four blades begins with a quarter of 1024 pages, and then reads
    // others; it has room for 256.
    let arguments = ["--json", "--layout=own-page", "--iterations=256", "4.SB"];
    check(&report(&arguments)?, &["4.SB"], &["own-page"], 256)?;
    ensure!(evictions()? > before, "nothing was evicted");
    gone(bed)
}

fn too_large(bed: &Bed) -> Result<()> {
    let cycle = ["PodWR Fre"; 5].join(" ");
    let Output { status, stderr, .. } = litmus(&["SB", &cycle]).output()?;
    let stderr = String::from_utf8_lossy(&stderr);
    ensure!(status.code() == Some(1), "it ended with {status}: {stderr}");
    ensure!(
        stderr.contains("has 5 threads") && stderr.contains("netns-setup up --compute 5"),
        "{stderr}"
    );
    gone(bed)
}

fn interrupted(bed: &Bed) -> Result<()> {
    let mut child = litmus(&["--iterations", "1000000000", "SB"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let begin = Instant::now();
    while domains(bed)?.is_empty() {
        ensure!(begin.elapsed() < patience(), "its domain never came");
        std::thread::sleep(Duration::from_millis(50));
    }
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::INT)?;
    let status = child.wait()?;
    ensure!(status.code() == Some(130), "it ended with {status}");
    gone(bed)
}

/// The protection domains of runs.
fn domains(bed: &Bed) -> Result<Vec<String>> {
    let domains = bed.status()?.domains.into_iter();
    let names = domains.map(|domain| domain.name);
    Ok(names.filter(|name| name.starts_with("litmus")).collect())
}

/// Waits until nothing of a run is left: agents learn of their programs' ends from the kernel.
fn gone(bed: &Bed) -> Result<()> {
    let begin = Instant::now();
    loop {
        let left = domains(bed)?;
        if left.is_empty() {
            return Ok(());
        }
        ensure!(begin.elapsed() < patience(), "{left:?} are left");
        std::thread::sleep(Duration::from_millis(50));
    }
}
