//! Reports on outcomes: of histograms made by hand, and of machines that are right and wrong.

use std::error::Error;

use mind_litmus::family;
use mind_litmus::histogram::Histogram;
use mind_litmus::machine::{Machine, Model};
use mind_litmus::oracle::{Allowed, Judgement};
use mind_litmus::report::{Judged, RIGHT, Report, WRONG};
use mind_litmus::runner::{self, RunError, Runner, Unable};
use mind_litmus::tables;
use mind_litmus::test::{Observable, Outcome, Test};

fn named(name: &str) -> Test {
    family::test(&family::named(name).unwrap()).unwrap()
}

/// The outcome of a test with these values, of which memory has what it always has in the end.
fn outcome(test: &Test, registers: &[u64]) -> Outcome {
    let mut registers = registers.iter();
    Outcome::new(test, |observable| match observable {
        Observable::Register { .. } => *registers.next().unwrap(),
        Observable::Memory(_) => 1,
    })
}

/// The report on the test after outcomes with these registers were seen as often.
fn judged(name: &str, seen: &[([u64; 2], u64)]) -> Judged {
    let test = named(name);
    let mut histogram = Histogram::default();
    for (registers, count) in seen {
        histogram.add(outcome(&test, registers), *count);
    }
    Judged::new(&test, &Allowed::of(&test).unwrap(), "by hand", &histogram)
}

fn report(tests: impl Into<Vec<Judged>>) -> Report {
    Report {
        tests: tests.into(),
        not_run: Vec::new(),
    }
}

#[test]
fn allowed_outcomes_are_right() {
    let sb = judged("SB", &[([0, 1], 60), ([0, 0], 30), ([1, 0], 10)]);
    assert_eq!((sb.copies, sb.forbidden(), sb.never_seen()), (100, 0, 1));
    assert_eq!(sb.fault(), None);
    let rows = sb
        .outcomes
        .iter()
        .map(|row| (row.count, row.judgement, row.condition));
    assert_eq!(
        rows.collect::<Vec<_>>(),
        [
            (30, Judgement::TsoOnly, true),
            (60, Judgement::Sequential, false),
            (10, Judgement::Sequential, false),
            // Allowed, and never seen.
            (0, Judgement::Sequential, false),
        ]
    );
    assert_eq!(report([sb]).exit_code(), RIGHT);
}

#[test]
fn one_forbidden_outcome_among_many_is_wrong() {
    let right = judged("SB", &[([0, 1], 1)]);
    // Message passing: the flag is seen, what was stored before it is not.
    let wrong = judged("MP", &[([1, 1], 999_999), ([1, 0], 1)]);
    assert_eq!((wrong.forbidden(), wrong.never_seen()), (1, 2));
    let fault = wrong.fault().unwrap();
    assert_eq!(
        fault,
        "`MP` (by hand): 1 of 1000000 copies had an outcome that x86-TSO forbids"
    );
    let first = &wrong.outcomes[0];
    assert_eq!((first.judgement, first.count), (Judgement::Forbidden, 1));
    for tests in [
        vec![wrong.clone()],
        vec![right.clone(), wrong.clone()],
        vec![wrong, right],
    ] {
        let report = report(tests);
        assert_eq!(report.faults(), [fault.as_str()]);
        assert_eq!(report.exit_code(), WRONG);
    }
}

#[test]
fn a_value_that_nobody_wrote_is_forbidden() {
    let test = named("SB");
    let histogram: Histogram = [Outcome::new(&test, |_| 77)].into_iter().collect();
    let judged = Judged::new(&test, &Allowed::of(&test).unwrap(), "by hand", &histogram);
    assert_eq!(judged.forbidden(), 1);
}

#[test]
fn nothing_run_is_wrong() {
    assert_eq!(Report::default().exit_code(), WRONG);
    let nothing = judged("SB", &[]);
    assert!(nothing.fault().unwrap().contains("nothing was run"));
    assert_eq!(
        report([judged("MP", &[([0, 0], 1)]), nothing]).exit_code(),
        WRONG
    );
}

#[test]
fn the_table_shows_counts_and_judgements() {
    let report = report([
        judged("SB", &[([0, 1], 60), ([0, 0], 30), ([1, 0], 10)]),
        judged("MP", &[([1, 1], 9), ([1, 0], 1)]),
    ]);
    let expected = "\
SB (by hand): 100 copies, 1 of the allowed outcomes never seen
 COUNT  0:rax  1:rax  x  y  JUDGEMENT          CONDITION
    30      0      0  1  1  allowed, TSO only  holds
    60      0      1  1  1  allowed            -
    10      1      0  1  1  allowed            -
     0      1      1  1  1  allowed            -

MP (by hand): 10 copies, 1 FORBIDDEN, 2 of the allowed outcomes never seen
 COUNT  1:rax  1:rbx  x  y  JUDGEMENT  CONDITION
     1      1      0  1  1  FORBIDDEN  holds
     0      0      0  1  1  allowed    -
     0      0      1  1  1  allowed    -
     9      1      1  1  1  allowed    -

2 tests, 110 copies: 1 wrong, 1 forbidden outcomes
";
    assert_eq!(tables::report(&report), expected);
}

#[test]
fn the_report_is_json() {
    let report = report([judged("MP", &[([1, 1], 9), ([1, 0], 1)])]);
    let value = serde_json::to_value(&report).unwrap();
    let test = &value["tests"][0];
    assert_eq!(test["name"], "MP");
    assert_eq!(test["setting"], "by hand");
    assert_eq!(test["copies"], 10);
    assert_eq!(test["outcomes"][0]["values"]["1:rbx"], 0);
    assert_eq!(test["outcomes"][0]["judgement"], "forbidden");
    assert_eq!(test["outcomes"][0]["condition"], true);
    assert_eq!(test["outcomes"][3]["count"], 9);
    assert_eq!(test["outcomes"][3]["judgement"], "sequential");
}

/// Runs tests by walking through the states of a machine at random. `skip` copies are not run.
struct Walk {
    model: Model,
    random: fastrand::Rng,
    skip: u64,
}

impl Walk {
    fn new(model: Model) -> Self {
        let random = fastrand::Rng::with_seed(7);
        let skip = 0;
        Self {
            model,
            random,
            skip,
        }
    }
}

impl Runner for Walk {
    fn setting(&self) -> String {
        format!("random walk, {:?}", self.model)
    }

    fn run(&mut self, test: &Test, copies: u64) -> Result<Histogram, Unable> {
        if test.threads().len() > 2 {
            return Err(Unable::Test("more than two threads".into()));
        }
        let machine = Machine::new(test, self.model);
        let mut following = Vec::new();
        let mut one = || {
            let mut state = machine.initial().clone();
            loop {
                machine.successors(&state, &mut following);
                if following.is_empty() {
                    return machine.outcome(&state);
                }
                let next = self.random.usize(..following.len());
                state = following.swap_remove(next);
                following.clear();
            }
        };
        Ok((self.skip..copies).map(|_| one()).collect())
    }
}

#[test]
fn runners_are_run_and_judged() {
    let tests = ["SB", "MP", "LB", "R", "S", "2+2W", "CoRR", "CoRW2"].map(named);
    let walks = [Model::Tso, Model::Sc].map(Walk::new);
    let mut runners = walks.map(|walk| Box::new(walk) as Box<dyn Runner>);
    let mut done = 0;
    let report = runner::run(&tests, &mut runners, 2000, |_| done += 1).unwrap();
    assert_eq!((done, report.tests.len()), (16, 16));
    assert_eq!(report.faults(), [""; 0]);
    assert_eq!(report.exit_code(), RIGHT);
    for judged in &report.tests {
        let with_buffers = judged.setting == "random walk, Tso";
        for row in &judged.outcomes {
            // 2000 walks through so few states go everywhere; without buffers, not where only they
            // lead.
            let reachable = with_buffers || row.judgement == Judgement::Sequential;
            assert_eq!(row.count > 0, reachable, "{judged:?}");
        }
    }
}

#[test]
fn a_test_that_cannot_be_run_is_named_and_the_others_are_run() {
    let mut runners: [Box<dyn Runner>; 1] = [Box::new(Walk::new(Model::Tso))];
    let tests = [named("WRC"), named("SB")];
    let report = runner::run(&tests, &mut runners, 1, |_| ()).unwrap();
    assert_eq!(
        report.faults(),
        ["`WRC` (random walk, Tso) could not be run: more than two threads"]
    );
    assert_eq!(report.tests.len(), 1);
    assert_eq!(report.exit_code(), WRONG);
}

/// A runner that is broken.
struct Broken;

impl Runner for Broken {
    fn setting(&self) -> String {
        "broken".to_owned()
    }

    fn run(&mut self, _test: &Test, _copies: u64) -> Result<Histogram, Unable> {
        Err(Unable::Runner("the machine is gone".into()))
    }
}

#[test]
fn a_runner_that_fails_or_loses_copies_is_named() {
    let mut runners: [Box<dyn Runner>; 1] = [Box::new(Broken)];
    let error = runner::run(&[named("SB")], &mut runners, 1, |_| ()).unwrap_err();
    assert_eq!(error.to_string(), "cannot run the test `SB` (broken)");
    assert_eq!(error.source().unwrap().to_string(), "the machine is gone");

    let mut lossy = Walk::new(Model::Tso);
    lossy.skip = 1;
    let mut runners: [Box<dyn Runner>; 1] = [Box::new(lossy)];
    let error = runner::run(&[named("SB")], &mut runners, 10, |_| ()).unwrap_err();
    assert!(
        matches!(
            error,
            RunError::Copies {
                copies: 10,
                counted: 9,
                ..
            }
        ),
        "{error}"
    );
}
