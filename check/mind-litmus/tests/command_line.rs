//! The program's output and exit codes.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use netns_setup::condition::Condition;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn run(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_mind-litmus");
    Command::new(program).args(arguments).output().unwrap()
}

/// What the program prints, which must succeed.
fn answer(arguments: &[&str]) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = run(arguments);
    let stderr = String::from_utf8(stderr).unwrap();
    assert!(status.success(), "{arguments:?}: {stderr}");
    assert_eq!(stderr, "", "{arguments:?}");
    String::from_utf8(stdout).unwrap()
}

/// The stderr of the program, which must fail.
fn complaint(arguments: &[&str]) -> String {
    let Output { status, stderr, .. } = run(arguments);
    assert!(!status.success(), "{arguments:?}");
    String::from_utf8(stderr).unwrap()
}

/// A folder of this test's own, empty.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    folder
}

#[test]
fn a_test_is_shown_by_cycle_by_name_and_by_path() {
    let by_name = answer(&["show", "SB"]);
    let expected = "\
X86_64 SB
\"PodWR Fre PodWR Fre\"
{
uint64_t x; uint64_t y; uint64_t 0:rax; uint64_t 1:rax;
}
 P0            | P1            ;
 movq $1,(x)   | movq $1,(y)   ;
 movq (y),%rax | movq (x),%rax ;
exists (0:rax=0 /\\ 1:rax=0)

 0:rax  1:rax  x  y  TSO      SC       CONDITION
     0      0  1  1  allowed  -        holds
     0      1  1  1  allowed  allowed  -
     1      0  1  1  allowed  allowed  -
     1      1  1  1  allowed  allowed  -
";
    assert_eq!(by_name, expected);
    assert_eq!(answer(&["show", "Fre PodWR Fre PodWR"]), by_name);

    let folder = folder("shown");
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("any.litmus");
    let (text, _) = by_name.split_once("\n\n").unwrap();
    fs::write(&file, text).unwrap();
    for path in [&file, &folder] {
        assert_eq!(answer(&["show", path.to_str().unwrap()]), by_name);
    }

    let json: Value = serde_json::from_str(&answer(&["show", "SB", "--json"])).unwrap();
    assert_eq!(json["tso"], "sometimes");
    assert_eq!(json["sc"], "never");
    assert_eq!(json["outcomes"][0]["judgement"], "tso-only");
    assert_eq!(json["outcomes"].as_array().unwrap().len(), 4);
}

#[test]
fn the_collection_is_generated_and_listed() {
    let folder = folder("generated");
    let out = folder.to_str().unwrap();
    let said = answer(&["generate", "--out", out, "--threads", "3", "--length", "5"]);
    let index = fs::read_to_string(folder.join("@all")).unwrap();
    let files = index.lines().count();
    assert_eq!(said, format!("{files} tests in {out}\n"));
    // 21 of two threads; 24 of three, in which one has a single store; of coherence 7 that have names,
    // and 6 and 17 of two and three threads.
    assert_eq!(files, 75);
    assert!(
        index.contains("WRC.litmus") && !index.contains("ISA2.litmus"),
        "{index}"
    );

    let list = answer(&["list", out]);
    assert_eq!(list.lines().count(), files + 1);
    let line = |name: &str| {
        let line = list
            .lines()
            .find(|line| line.split_whitespace().next() == Some(name));
        let cells = line
            .unwrap_or_else(|| panic!("{name} is not in\n{list}"))
            .split_whitespace();
        cells.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("SB"), "SB 2 4 3 sometimes never");
    assert_eq!(line("WRC"), "WRC 3 7 7 never never");

    let json: Value = serde_json::from_str(&answer(&["list", out, "--json"])).unwrap();
    assert_eq!(json.as_array().unwrap().len(), files);
}

#[test]
fn what_cannot_be_read_is_named_and_the_rest_is_listed() {
    let folder = folder("broken");
    fs::create_dir_all(folder.join("deep")).unwrap();
    let good = "X86_64 good\n{ }\n P0 ;\n movq $1,(x) ;\nexists (x=1)\n";
    fs::write(folder.join("deep/good.litmus"), good).unwrap();
    fs::write(folder.join("bad.litmus"), good.replace("movq", "mosq")).unwrap();
    fs::write(folder.join("other.txt"), "not looked at").unwrap();
    let out = folder.to_str().unwrap();
    let Output {
        status,
        stdout,
        stderr,
    } = run(&["list", out, "/nonexistent"]);
    assert_eq!(status.code(), Some(1));
    assert!(String::from_utf8(stdout).unwrap().contains("good"));
    let stderr = String::from_utf8(stderr).unwrap();
    assert!(
        stderr.contains("bad.litmus:4:2: expected mov, xchg"),
        "{stderr}"
    );
    assert!(stderr.contains("cannot read `/nonexistent`"), "{stderr}");
    assert!(
        stderr.contains("2 of the tests cannot be listed"),
        "{stderr}"
    );
}

#[test]
fn what_is_asked_wrongly_is_refused_with_the_reason() {
    let nothing = complaint(&["show", "NOPE"]);
    assert!(
        nothing.contains("`NOPE` is no cycle (`NOPE` is no edge"),
        "{nothing}"
    );
    let cycle = complaint(&["show", "PodWR Rfe"]);
    assert!(
        cycle.contains("`PodWR` cannot be followed by `Rfe`"),
        "{cycle}"
    );
    let open = complaint(&["show", "Rfe PodRW Coe"]);
    assert!(
        open.contains("only one edge leads to another location"),
        "{open}"
    );
    let device = complaint(&["show", "/dev/zero"]);
    assert!(device.contains("`/dev/zero` is no litmus file"), "{device}");
    let empty = folder("empty");
    fs::create_dir_all(&empty).unwrap();
    let empty = complaint(&["list", empty.to_str().unwrap()]);
    assert!(
        empty.contains("no files `*.litmus` in the folder"),
        "{empty}"
    );
    let file = complaint(&["generate", "--out", "/dev/null/x"]);
    assert!(
        file.contains("cannot make the folder `/dev/null/x`"),
        "{file}"
    );
}

#[test]
fn tests_are_run_in_the_memory_of_this_machine_and_the_exit_code_is_theirs() {
    let Output {
        status,
        stdout,
        stderr,
    } = run(&[
        "--own-memory",
        "--iterations=300",
        "--seed=7",
        "MP",
        "PosWR Fre Coe",
    ]);
    let stderr = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(0), "{stderr}");
    // Nothing but what goes on: the result is on stdout.
    assert!(
        stderr.contains("2 tests, 300 copies of each with 3 layouts"),
        "{stderr}"
    );
    assert!(
        stderr.contains("--seed 7 repeats its random choices"),
        "{stderr}"
    );
    let text = String::from_utf8(stdout).unwrap();
    for setting in ["own-page", "one-region", "one-page"] {
        let head = format!("MP (this machine, {setting}): 300 copies");
        assert!(text.contains(&head), "{text}");
    }
    assert!(
        text.ends_with("6 tests, 1800 copies: 0 wrong, 0 forbidden outcomes\n"),
        "{text}"
    );

    let Output { status, stdout, .. } =
        run(&["run", "--own-memory", "--json", "--layout=one-page", "WRC"]);
    assert!(status.success());
    let json: Value = serde_json::from_slice(&stdout).unwrap();
    assert!(json["seed"].is_u64());
    let test = &json["tests"][0];
    assert_eq!(test["name"], "WRC");
    assert_eq!(test["setting"], "this machine, one-page");
    let rows = test["outcomes"].as_array().unwrap();
    let count = rows.iter().map(|row| row["count"].as_u64().unwrap());
    assert_eq!(count.sum::<u64>(), 1000);
}

#[test]
fn without_a_testbed_it_is_said_how_to_make_one() {
    if !matches!(netns_setup::testbed::look(), Ok(Condition::Absent)) {
        eprintln!("SKIPPED: there is a testbed on this machine, or debris of one");
        return;
    }
    let Output { status, stderr, .. } = run(&["SB"]);
    assert_eq!(status.code(), Some(1));
    let stderr = String::from_utf8(stderr).unwrap();
    assert!(
        stderr.contains("no testbed is running; `netns-setup up` starts one"),
        "{stderr}"
    );
}

#[test]
fn usage_is_2_and_what_cannot_be_run_is_1() {
    for wrong in [
        &[][..],
        &["run"],
        &["--iterations=0", "SB"],
        &["--layout=x", "SB"],
    ] {
        assert_eq!(run(wrong).status.code(), Some(2), "{wrong:?}");
    }
    let Output { status, stderr, .. } = run(&["--own-memory", "SB", "NOPE"]);
    assert_eq!(status.code(), Some(1));
    assert!(
        String::from_utf8(stderr)
            .unwrap()
            .contains("`NOPE` is no cycle")
    );

    let folder = folder("many-variables");
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("many.litmus");
    let stores: String = (0..64).map(|of| format!(" movq $1,(x{of}) ;\n")).collect();
    let text = format!("X86_64 many\n{{ }}\n P0 ;\n{stores}exists (x0=1)\n");
    fs::write(&file, text).unwrap();
    let complaint = complaint(&["--own-memory", file.to_str().unwrap()]);
    assert!(
        complaint.contains(
            "the test `many` has 64 variables; with the layout one-page there is room for 63"
        ),
        "{complaint}"
    );
}

/// A run that goes on until it is ended, and its workers, which are at work.
fn endless() -> (Child, Vec<i32>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_mind-litmus"))
        .args([
            "--own-memory",
            "--iterations=1000000000",
            "--layout=one-page",
            "SB",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id().cast_signed();
    let begin = Instant::now();
    let workers = loop {
        let workers = children(pid);
        let at_work = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/maps"));
        // The arena is mapped when it is ready.
        let ready = |pid: &i32| at_work(pid).is_ok_and(|maps| maps.contains("memfd:litmus "));
        if workers.len() == 2 && workers.iter().all(ready) {
            break workers;
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "{workers:?}");
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
        std::thread::sleep(Duration::from_millis(5));
    };
    std::thread::sleep(Duration::from_millis(100));
    (child, workers)
}

/// The children of a process, whichever of its threads started them.
fn children(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten();
    let lists = threads
        .flatten()
        .map(|thread| fs::read_to_string(thread.path().join("children")).unwrap_or_default());
    let text: String = lists.collect();
    text.split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect()
}

/// Waits until these processes have ended.
fn gone(workers: &[i32]) {
    let begin = Instant::now();
    while workers
        .iter()
        .any(|pid| Path::new(&format!("/proc/{pid}")).exists())
    {
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "{workers:?} are left"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// The last lines of what a run says on stderr.
fn last_words(child: &mut Child) -> String {
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let lines: Vec<_> = stderr.lines().map(Result::unwrap).collect();
    lines.join("\n")
}

#[test]
fn ctrl_c_ends_it_with_130_and_leaves_nothing() {
    for wish in [Signal::INT, Signal::TERM] {
        let (mut child, workers) = endless();
        signal(child.id().cast_signed(), wish);
        assert_eq!(child.wait().unwrap().code(), Some(130));
        let text = last_words(&mut child);
        assert!(
            text.ends_with("interrupted; nothing is left running"),
            "{text}"
        );
        gone(&workers);
    }
}

#[test]
fn a_worker_that_dies_is_named_and_the_others_end() {
    let (mut child, workers) = endless();
    signal(workers[0], Signal::KILL);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let text = last_words(&mut child);
    assert!(
        text.contains("cannot run the test `SB` (this machine, one-page): the worker on p"),
        "{text}"
    );
    assert!(text.contains("died of SIGKILL"), "{text}");
    gone(&workers);
}

#[test]
fn workers_end_with_whoever_started_them() {
    let (mut child, workers) = endless();
    child.kill().unwrap();
    child.wait().unwrap();
    gone(&workers);
}
