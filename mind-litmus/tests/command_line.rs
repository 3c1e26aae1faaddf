//! The program: what it prints, and what it ends with.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

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

/// What the program complains about, which must fail.
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
