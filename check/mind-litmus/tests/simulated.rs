//! Tests in the simulator: nothing forbidden is seen, what is allowed is, and what is broken shows.

use std::num::NonZero;

use mind_cli::Interrupt;
use mind_litmus::blades::layout::Layout;
use mind_litmus::report::{Judged, Report, WRONG};
use mind_litmus::runner::{self, RunError, Runner};
use mind_litmus::simulated::simulator::Simulator;
use mind_litmus::test::Test;
use mind_litmus::{family, parser};
use mind_sim::Flaw;

fn named(name: &str) -> Test {
    let cycle = family::named(name).unwrap_or_else(|| panic!("{name} is in the collection"));
    family::test(&cycle).unwrap()
}

fn simulator(layout: Layout, flaw: Option<Flaw>, workers: usize) -> Simulator {
    Simulator {
        layout,
        seed: 1,
        workers: NonZero::new(workers).unwrap(),
        flaw,
        interrupt: Interrupt::default(),
    }
}

/// What is seen of tests with all layouts.
fn report(tests: &[Test], copies: u64, flaw: Option<Flaw>) -> Report {
    let runner = |layout| Box::new(simulator(layout, flaw, 2)) as Box<dyn Runner>;
    let mut runners = Layout::ALL.map(runner);
    runner::run(tests, &mut runners, copies, |_| {}).unwrap()
}

/// All rows, as a text.
fn shown(judged: &Judged) -> String {
    let rows = judged.outcomes.iter().map(|row| format!("{row:?}\n"));
    format!(
        "{} ({})\n{}",
        judged.name,
        judged.setting,
        rows.collect::<String>()
    )
}

#[test]
fn classic_tests_see_nothing_forbidden_wherever_variables_are() {
    let names = [
        "SB", "MP", "LB", "S", "R", "2+2W", "IRIW", "WRC", "ISA2", "RWC", "W+RWC", "WWC", "CoRR",
        "CoWW", "CoWR", "CoRW1",
    ];
    let mut tests = names.map(named).to_vec();
    for cycle in ["MFencedWR Fre MFencedWR Fre", "MFencedWR Fre PodWR Fre"] {
        tests.push(family::test(&cycle.parse().unwrap()).unwrap());
    }
    let report = report(&tests, 400, None);
    assert_eq!(report.faults(), Vec::<String>::new());
    for judged in &report.tests {
        assert_eq!(judged.copies, 400);
        let (seen, all) = (
            judged.outcomes.len() - judged.never_seen(),
            judged.outcomes.len(),
        );
        assert!(seen * 3 >= all, "much is missing of {}", shown(judged));
    }
}

#[test]
fn every_outcome_of_store_buffering_is_seen() {
    for judged in report(&[named("SB")], 1000, None).tests {
        assert_eq!(judged.outcomes.len(), 4);
        assert_eq!(
            (judged.never_seen(), judged.forbidden()),
            (0, 0),
            "{}",
            shown(&judged)
        );
    }
}

#[test]
fn locked_instructions_are_atomic_and_drain_the_store_buffer() {
    let program = "\
X86_64 locked
{ uint32_t x; uint64_t y; uint32_t z; 0:rbx=1; 1:rbx=1; 2:rbx=2;
  uint32_t 0:rbx; uint64_t 0:rax; uint32_t 1:rbx; uint64_t 1:rcx; uint64_t 1:rax; uint64_t 2:rax; }
 P0                     | P1                    | P2                     ;
 movl $1,(x)            | movq $1,(y)           | lock addl $4,(z)       ;
 lock xaddl %ebx,(z)    | xchgl %ebx,(z)        | lock cmpxchgl %ebx,(z) ;
 movq (y),%rax          | movl (x),%eax         | mfence                 ;
exists (0:rax=0 /\\ 1:rax=0)
";
    let test = parser::parse(program).unwrap();
    for judged in report(&[test], 600, None).tests {
        assert_eq!(judged.forbidden(), 0, "{}", shown(&judged));
        assert!(
            judged.outcomes.len() - judged.never_seen() > 5,
            "{}",
            shown(&judged)
        );
        assert!(
            !judged.outcomes.iter().any(|row| row.condition),
            "{}",
            shown(&judged)
        );
    }
}

#[test]
fn what_is_broken_shows() {
    for flaw in [Flaw::ForgottenSharer, Flaw::NoProtection, Flaw::LostStores] {
        let report = report(&[named("SB"), named("MP")], 300, Some(flaw));
        assert_eq!(report.exit_code(), 1);
        for judged in report.tests {
            assert!(judged.forbidden() > 0, "{flaw:?}: {}", shown(&judged));
        }
    }
    // A thread that stores once has nothing to confuse.
    let report = report(
        &[named("SB"), named("MP")],
        1000,
        Some(Flaw::UnorderedStores),
    );
    for judged in report.tests {
        let is_seen = judged.forbidden() > 0;
        assert_eq!(is_seen, judged.name == "MP", "{}", shown(&judged));
    }
}

#[test]
fn what_is_seen_depends_on_the_seed_and_on_nothing_else() {
    let seen = |seed, workers| {
        let mut simulator = Simulator {
            seed,
            ..simulator(Layout::OwnPage, None, workers)
        };
        simulator.run(&named("IRIW"), 330).unwrap()
    };
    let once = seen(1, 1);
    assert_eq!(once.copies(), 330);
    assert_eq!(once, seen(1, 3));
    assert_ne!(once, seen(2, 1));
}

/// The test that asks for `edge` between each of so many threads and the next one, round and round.
fn ring(edge: &str, threads: usize) -> Test {
    let cycle = vec![edge; threads].join(" ").parse().unwrap();
    family::test(&cycle).unwrap()
}

#[test]
fn tests_of_five_and_six_variables_run_in_every_layout() {
    let tests = [
        ring("PodWR Fre", 5),
        ring("PodWW Coe", 5),
        ring("PodRW Rfe", 6),
        ring("MFencedWR Fre", 6),
    ];
    let report = report(&tests, 50, None);
    assert_eq!(report.not_run, []);
    assert_eq!(report.tests.len(), 3 * tests.len());
    assert_eq!(report.faults(), [] as [&str; 0]);
}

#[test]
fn a_test_that_does_not_fit_is_named_and_the_others_are_run() {
    let variables = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
    let stores = variables.map(|name| format!(" movq $1,({name}) ;\n"));
    let all = variables.map(|name| format!("{name}=1"));
    let wide = format!(
        "X86_64 wide\n{{\n}}\n P0 ;\n{}exists ({})\n",
        stores.concat(),
        all.join(" /\\ ")
    );
    let wide = parser::parse_bytes(wide.as_bytes()).unwrap();
    let report = report(&[wide, named("SB")], 10, None);
    let [not_run] = &report.not_run[..] else {
        panic!("one layout of one test cannot be run: {:?}", report.not_run);
    };
    let reason = "9 variables";
    assert_eq!(not_run.name, "wide");
    assert!(not_run.reason.contains(reason), "{}", not_run.fault());
    assert_eq!(
        report
            .tests
            .iter()
            .filter(|judged| judged.name == "SB")
            .count(),
        3
    );
    assert_eq!(report.exit_code(), WRONG);
}

#[test]
fn it_ends_when_somebody_wants_it_to() {
    let runner = simulator(Layout::OwnPage, None, 2);
    runner.interrupt.happen();
    let mut runners = [Box::new(runner) as Box<dyn Runner>];
    let result = runner::run(&[named("SB")], &mut runners, u64::MAX, |_| {});
    assert!(matches!(result, Err(RunError::Runner { .. })), "{result:?}");
}
