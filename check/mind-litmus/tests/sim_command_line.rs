//! The program with `--sim`: output and exit codes.

use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mind-litmus"));
    command.args(arguments);
    command
}

/// Exit code, stdout and stderr.
fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn a_run_is_printed_and_a_seed_does_the_same_again() {
    let arguments = [
        "--sim",
        "--seed=7",
        "--iterations=120",
        "MP",
        "PodWR Fre PodWR Fre",
    ];
    let (code, stdout, stderr) = run(&arguments);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(
        stderr.contains("2 tests, 120 copies of each with 3 layouts, in the simulator; --seed 7"),
        "{stderr}"
    );
    for setting in ["own-page", "one-region", "one-page"] {
        let head = format!("MP (simulator, {setting}): 120 copies");
        assert!(stdout.contains(&head), "{stdout}");
    }
    let last = "6 tests, 720 copies: 0 wrong, 0 forbidden outcomes\n";
    assert!(stdout.ends_with(last), "{stdout}");
    assert_eq!(run(&arguments).1, stdout);

    let (code, stdout, _) = run(&["run", "--sim", "--json", "--layout=one-page", "SB"]);
    assert_eq!(code, Some(0));
    let json: Value = serde_json::from_str(&stdout).unwrap();
    assert!(json["seed"].is_u64());
    assert_eq!(json["tests"][0]["setting"], "simulator, one-page");
    assert_eq!(json["tests"][0]["copies"], 1000);
}

#[test]
fn what_is_broken_ends_with_1_and_is_named() {
    let (code, stdout, stderr) = run(&["--sim", "--seed=1", "--flaw=forgotten-sharer", "MP"]);
    assert_eq!(code, Some(1));
    assert!(stdout.contains("FORBIDDEN"), "{stdout}");
    assert!(stderr.contains("`MP` (simulator, own-page): "), "{stderr}");
    assert!(stderr.contains("that x86-TSO forbids"), "{stderr}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    for wrong in [
        &["--sim", "--own-memory", "SB"][..],
        &["--flaw=forgotten-sharer", "SB"],
        &["--sim", "--flaw=nothing", "SB"],
        &["--sim"],
    ] {
        assert_eq!(run(wrong).0, Some(2), "{wrong:?}");
    }
    let file = std::env::temp_dir().join(format!("mind-litmus-{}.litmus", std::process::id()));
    let stores: String = (0..9).map(|of| format!(" movq $1,(x{of}) ;\n")).collect();
    let text = format!("X86_64 many\n{{ }}\n P0 ;\n{stores}exists (x0=1)\n");
    std::fs::write(&file, text).expect("the temporary folder can be written to");
    let (code, _, stderr) = run(&["--sim", file.to_str().expect("its name is UTF-8")]);
    std::fs::remove_file(&file).expect("the file was just written");
    assert_eq!(code, Some(1));
    assert!(
        stderr.contains("with the layout one-page there is room for 8"),
        "{stderr}"
    );
}

/// Whether a process has a handler for SIGINT (`SigCgt` in `proc_pid_status(5)`).
fn takes_sigint(child: &Child) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
    caught >> (Signal::INT.as_raw() - 1) & 1 == 1
}

#[test]
fn ctrl_c_ends_it_with_130() {
    let mut child = command(&["--sim", "--iterations=1000000000", "SB"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !takes_sigint(&child) {
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
}
