//! Programs that know nothing of MIND, by `mind run` on a blade.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Output, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use mind_e2e::{Bed, Program, bed, patience, suite};
use tempfile::TempDir;

/// How often the controller is asked, since there is no event for a domain's end.
const PAUSE: Duration = Duration::from_millis(20);

/// The page cache of the blade: a small part of what the programs have.
const CACHE: u64 = 1 << 20;

fn main() -> ExitCode {
    suite::run(
        &[
            ("a_program_finds_all_as_it_left_it", allocates),
            ("what_a_killed_program_had_is_freed", killed),
            ("without_its_agent_a_program_ends", without_agent),
            ("files_are_sorted_as_without_it", sorts),
            ("a_shell_and_what_it_starts", shell),
        ],
        || Bed::up(1, 2, CACHE),
    )
}

/// `mind`.
fn mind() -> Result<PathBuf> {
    bed::need(&bed::programs()?, "mind")
}

/// The program in C, compiled into the folder.
fn compile(folder: &TempDir) -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/allocates.c");
    let program = folder.path().join("allocates");
    let output = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-std=c11", "-O1", "-pthread"])
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .output()
        .context("cannot run cc")?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cc: {complaints}");
    Ok(program)
}

/// Runs a program to its end on the blade.
fn run(bed: &Bed, options: &str, command: &[OsString]) -> Result<Output> {
    let mut run = Command::new(mind()?);
    run.arg("run")
        .args(options.split_whitespace())
        .arg("--")
        .args(command)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = bed.testbed().spawn("c0", &mut run)?.wait_with_output()?;
    ensure!(
        output.status.success(),
        "{command:?} ends with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(output)
}

/// Waits until the controller has no domain.
fn expect_no_domains(bed: &Bed) -> Result<()> {
    let start = Instant::now();
    loop {
        let domains = bed.status()?.domains;
        if domains.is_empty() {
            return Ok(());
        }
        ensure!(start.elapsed() < patience(), "there are still {domains:?}");
        std::thread::sleep(PAUSE);
    }
}

fn allocates(bed: &Bed) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let program = compile(&folder)?.into_os_string();
    for local_heap in ["0", "1M"] {
        let options = format!("--report --local-heap {local_heap}");
        let output = run(bed, &options, std::slice::from_ref(&program))?;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(said == "all as it was left\n", "it says {said}");
        let report = String::from_utf8_lossy(&output.stderr);
        ensure!(
            report.contains("(allocates) mapped "),
            "the report is {report}"
        );
        expect_no_domains(bed)?;
    }
    Ok(())
}

/// The program in C, once it goes on and on.
fn staying(bed: &Bed, folder: &TempDir) -> Result<Program> {
    let program = compile(folder)?;
    let arguments = format!("run -- {} stay", program.display());
    let mut program = Program::execute(bed, "c0", &mind()?, &arguments)?;
    program.expect("all as it was left")?;
    program.expect("stays")?;
    Ok(program)
}

fn killed(bed: &Bed) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let program = staying(bed, &folder)?;
    let domains = bed.status()?.domains;
    ensure!(domains.len() == 1, "the program has {domains:?}");
    ensure!(
        domains[0].name.starts_with("allocates "),
        "the operator sees {:?}",
        domains[0].name
    );
    program.kill()?;
    expect_no_domains(bed)
}

fn without_agent(bed: &Bed) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let program = staying(bed, &folder)?;
    netns_setup::testbed::restart("c0", &[])?;
    // It checks its memory all the time, and never finds that it has changed.
    program.die_of(libc::SIGBUS)?;
    expect_no_domains(bed)
}

fn sorts(bed: &Bed) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("lines");
    let mut random = 1_u64;
    let mut lines = String::new();
    for _ in 0..60_000 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        lines.push_str(&format!("{:016x}\n", random.rotate_left(17)));
    }
    fs::write(&file, &lines)?;
    let command = ["sort", "--buffer-size=8M", "--parallel=2"].map(OsString::from);
    let command: Vec<_> = command.into_iter().chain([file.into_os_string()]).collect();
    let output = run(bed, "--report", &command)?;
    let mut sorted: Vec<_> = lines.lines().collect();
    sorted.sort_unstable();
    let expected = sorted.join("\n") + "\n";
    ensure!(
        String::from_utf8_lossy(&output.stdout) == expected,
        "the lines are not sorted, or not the same"
    );
    let report = String::from_utf8_lossy(&output.stderr);
    ensure!(report.contains("(sort) mapped "), "the report is {report}");
    expect_no_domains(bed)
}

fn shell(bed: &Bed) -> Result<()> {
    // All of its memory is in the window, and each of its children has a copy.
    let script = r#"
        list=""; for i in $(seq 200); do list="$list $(echo $i)"; done
        set -- $list; shift 199; echo $1
        (list="$list 201"; set -- $list; echo $#) | cat
    "#;
    let command = ["sh", "-c", script].map(OsString::from);
    let output = run(bed, "--local-heap 0 --min-alloc 4K", &command)?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(said == "200\n201\n", "it says {said}");
    expect_no_domains(bed)
}
