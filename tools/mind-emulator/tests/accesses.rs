//! The commands about memory accesses: what they print and write, and what they refuse.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;
use tempfile::TempDir;

/// Exit code, stdout and stderr.
fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(env!("CARGO_BIN_EXE_mind-emulator"))
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// What the command prints as JSON, without how long it took.
fn report(arguments: &[&str]) -> Value {
    let (code, stdout, stderr) = run(arguments);
    assert_eq!(code, Some(0), "{stderr}");
    let mut report: Value = serde_json::from_str(&stdout).unwrap();
    for mode in report["modes"].as_array_mut().unwrap() {
        mode.as_object_mut().unwrap().remove("real_s").unwrap();
    }
    report
}

/// The message with which the command refuses.
fn refusal(arguments: &[&str]) -> String {
    let (code, stdout, stderr) = run(arguments);
    assert_eq!(code, Some(1), "{stderr}");
    assert_eq!(stdout, "");
    stderr
}

fn path(folder: &TempDir, name: &str) -> (PathBuf, String) {
    let path = folder.path().join(name);
    let text = path.to_str().unwrap().to_owned();
    (path, text)
}

fn written(folder: &TempDir, name: &str, content: impl AsRef<[u8]>) -> String {
    let (path, text) = path(folder, name);
    fs::write(path, content).unwrap();
    text
}

const SMALL: [&str; 4] = ["--pages=2000", "--accesses=20000", "--blades=4", "--seed=5"];

#[test]
fn a_generators_file_replays_as_the_generator_does() {
    let folder = TempDir::new().unwrap();
    let (_, out) = path(&folder, "out");
    let (code, stdout, stderr) = run(&[&["generate", "zipf"], &SMALL[..], &[&out]].concat());
    assert_eq!(code, Some(0), "{stderr}");
    assert!(
        stdout.ends_with("20000 accesses by 4 threads on 4 blades, to 1264 pages\n")
            || stdout.contains("20000 accesses"),
        "{stdout}"
    );
    let from_file = report(&["run", &out, "--json", "--mode=unlimited"]);
    let generated = report(
        &[
            &["run", "--generate=zipf", "--json", "--mode=unlimited"],
            &SMALL[..],
        ]
        .concat(),
    );
    for key in ["accesses", "false_invalidations"] {
        assert_eq!(
            from_file["modes"][0][key], generated["modes"][0][key],
            "{key}"
        );
    }
    // In the file, accesses to one page in a row are one record.
    let hits = |report: &Value| report["modes"][0]["hit_rate"].as_f64().unwrap();
    assert!((hits(&from_file) - hits(&generated)).abs() < 0.01);
}

#[test]
fn several_modes_are_answered_in_their_order_whatever_the_number_of_workers() {
    let modes = [
        "--mode=mind",
        "--mode=fixed:64K",
        "--mode=private",
        "--mode=home",
        "--mode=pso+",
    ];
    let of = |workers| {
        report(
            &[
                &[
                    "run",
                    "--generate=uniform",
                    "--json",
                    "--cache=2M",
                    "--slots=200",
                    workers,
                ],
                &SMALL[..],
                &modes,
            ]
            .concat(),
        )
    };
    let alone = of("--workers=1");
    assert_eq!(alone, of("--workers=4"));
    let names: Vec<_> = alone["modes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mode| &mode["mode"])
        .collect();
    assert_eq!(names, ["mind", "fixed:64K", "private", "home", "pso+"]);
    assert_eq!(alone["slots"], 200);
    assert_eq!(alone["cache_pages"], 512);
    assert_eq!(alone["latencies"]["i_s_us"], 10.6);
    for mode in alone["modes"].as_array().unwrap() {
        assert_eq!(mode["accesses"], 20_000);
        for key in ["hit_rate", "run_time_ms", "accesses_per_s", "mean_fault_us"] {
            assert!(mode[key].as_f64() > Some(0.0), "{key} of {mode}");
        }
        for key in [
            "invalidations",
            "false_invalidations",
            "flushed",
            "evicted",
            "joined",
            "busy",
        ] {
            assert!(mode[key].is_u64(), "{key} of {mode}");
        }
        for key in [
            "/directory/most",
            "/directory/over_time/0/slots",
            "/transitions/I->S",
        ] {
            assert!(
                mode.pointer(key).is_some_and(Value::is_u64),
                "{key} of {mode}"
            );
        }
    }
    assert_eq!(alone["modes"][2]["invalidations"], 0);
}

#[test]
fn the_table_and_the_drawing_have_each_mode() {
    let folder = TempDir::new().unwrap();
    let (drawing, svg) = path(&folder, "out.svg");
    let arguments = [
        "run",
        "--generate=graph",
        "--mode=mind",
        "--mode=fixed:2M",
        "--mode=private",
        "--svg",
        &svg,
    ];
    let (code, stdout, stderr) = run(&[&arguments[..], &SMALL].concat());
    assert_eq!(code, Some(0), "{stderr}");
    let lines: Vec<_> = stdout.lines().collect();
    let header: Vec<_> = lines[1].split_whitespace().collect();
    assert_eq!(header, ["mind", "fixed:2M", "private"]);
    for row in [
        "hit rate",
        "false invalidations",
        "slots, most",
        "splits",
        "run time, modelled ms",
    ] {
        assert!(
            lines.iter().any(|line| line.trim().starts_with(row)),
            "{row}: {stdout}"
        );
    }
    let drawing = fs::read_to_string(drawing).unwrap();
    assert!(drawing.starts_with("<svg") && drawing.trim_end().ends_with("</svg>"));
    assert!(drawing.contains("fixed:2M") && drawing.contains("directory entries"));
    assert!(
        !drawing.contains("private"),
        "what has no directory has no entries"
    );
}

#[test]
fn what_lackey_writes_is_converted_and_replayed() {
    let folder = TempDir::new().unwrap();
    let text = "==1== Lackey\nI  04001000,3\n L 1ffeffe7e,8\n S 1ffeffffc,8\n M 0421c7cc,4\n==1== Exit code: 0\n";
    let (one, two) = (written(&folder, "one", text), written(&folder, "two", text));
    let (_, out) = path(&folder, "out");
    let (code, stdout, stderr) = run(&["convert", "--from=lackey", "--blades=2", &one, &two, &out]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(
        stdout.contains("8 accesses by 2 threads on 2 blades, to 3 pages"),
        "{stdout}"
    );
    let report = report(&["run", &out, "--json"]);
    assert_eq!(
        (&report["threads"], &report["pages"]),
        (&2.into(), &3.into())
    );
    assert_eq!(report["modes"][0]["accesses"], 8);

    let wrong = written(&folder, "wrong", "I  04001000,3\nhello\n");
    let error = refusal(&["convert", "--from=lackey", &wrong, &out]);
    assert!(error.contains("wrong: line 2: "), "{error}");
    let nothing = written(&folder, "nothing", "I  04001000,3\n");
    let error = refusal(&["convert", "--from=lackey", &nothing, &out]);
    assert!(error.contains("no access"), "{error}");
}

#[test]
fn a_damaged_file_is_refused_with_its_offset() {
    let folder = TempDir::new().unwrap();
    let (file, out) = path(&folder, "out");
    assert_eq!(
        run(&[&["generate", "uniform"], &SMALL[..], &[&out]].concat()).0,
        Some(0)
    );
    let mut bytes = fs::read(&file).unwrap();
    bytes[1000] ^= 1;
    fs::write(&file, &bytes).unwrap();
    let error = refusal(&["run", &out]);
    assert!(
        error.contains(&out) && error.contains("damaged at byte 64: "),
        "{error}"
    );
    fs::write(&file, &bytes[..900]).unwrap();
    let error = refusal(&["run", &out]);
    assert!(
        error.contains("damaged at byte 64: it ends within a block"),
        "{error}"
    );
    let text = written(&folder, "text", "hello");
    assert!(refusal(&["run", &text]).contains("does not begin as a trace"));
    let absent = folder.path().join("absent");
    assert!(refusal(&["run", absent.to_str().unwrap()]).contains("cannot replay"));
}

#[test]
fn latencies_are_those_of_the_file() {
    let folder = TempDir::new().unwrap();
    let times = |us: f64| serde_json::json!({ "p50_us": us, "p99_us": us, "count": 1 });
    let names = ["i_s", "s_s", "i_m", "s_m", "s_m_several", "m_s", "m_m"];
    let transitions: serde_json::Map<_, _> = names
        .into_iter()
        .map(|name| (name.to_owned(), times(100.0)))
        .collect();
    let mut bench = serde_json::json!({ "limits": { "network_us": 1.0 }, "sum_us": 50.0, "transitions": transitions });
    let file = written(&folder, "fault.json", bench.to_string());
    let arguments = [
        "run",
        "--generate=uniform",
        "--mode=private",
        "--json",
        "--latencies",
    ];
    let slow = report(&[&arguments[..], &[&file], &SMALL].concat());
    assert_eq!(slow["latencies"]["m_m_us"], 100.0);
    assert_eq!(slow["modes"][0]["mean_fault_us"], 100.0);

    bench["transitions"].as_object_mut().unwrap().remove("m_s");
    let file = written(&folder, "fault.json", bench.to_string());
    let error = refusal(&[&arguments[..], &[&file], &SMALL].concat());
    assert!(
        error.contains("fault.json is no report") && error.contains("m_s"),
        "{error}"
    );
}

#[test]
fn what_makes_no_sense_is_refused() {
    for wrong in [
        &["run"][..],
        &["run", "--mode=other", "--generate=uniform"],
        &["run", "--cache=1000", "--generate=uniform"],
        &["run", "--generate=other"],
        &["run", "--generate=uniform", "trace"],
        &["run", "--pages=100", "trace"],
        &["run", "--slots=1", "trace"],
        &["generate", "uniform"],
        &["convert", "in", "out"],
        &["convert", "--from=lackey", "--blades=33", "in", "out"],
    ] {
        let (code, stdout, stderr) = run(wrong);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{wrong:?}");
        assert!(
            stderr.contains("--help") || stderr.contains("for more information"),
            "{stderr}"
        );
    }
    assert!(refusal(&["run", "--generate=graph", "--reads=0.5"]).contains("--reads means nothing"));
    assert!(!Path::new("out").exists());
}
