//! Many seeds: the guarantees hold in each, and each can be run again.

use mind_machines::controller::{
    Act, Event, Output,
    procedure::{Change, Outcome},
};
use mind_sim::{
    Flaw,
    coverage::Coverage,
    history,
    plan::{Disturbance, MILLISECOND, Plan},
    run, shrink,
    trace::What,
};

/// Seeds of a test.
const SEEDS: u64 = 2_000;

#[test]
fn the_guarantees_hold_in_every_seed() {
    let mut operations = 0;
    let mut coverage = Coverage::default();
    for seed in 0..SEEDS {
        let plan = Plan::of_seed(seed);
        operations += plan.operations();
        let outcome = run(&plan, false);
        assert_eq!(outcome.failure, None, "seed {seed}");
        coverage.add(&outcome.coverage);
    }
    assert_eq!(coverage.unexpected(), [], "it cannot happen");
    assert_eq!(coverage.missing(), [], "it can happen, and did not");
    assert!(operations as u64 > SEEDS * 50, "programs do something");
}

#[test]
fn a_seed_replays_byte_for_byte() {
    for seed in 0..20 {
        let plan = Plan::of_seed(seed);
        let first = run(&plan, true);
        assert_eq!(first, run(&plan, true), "seed {seed}");
        assert_eq!(first.hash, run(&plan, false).hash, "seed {seed}");
    }
}

#[test]
fn slots_become_more_and_fewer_and_tables_run_out() {
    let (mut replaced, mut more, mut too_few, mut blocks) = (0, 0, 0, 0);
    for seed in 0..SEEDS / 4 {
        let mut before = usize::MAX;
        for record in run(&Plan::of_seed(seed), true).records {
            match record.what {
                What::Replaced(slots, true) => {
                    replaced += 1;
                    more += usize::from(slots > before);
                    before = slots;
                }
                What::Replaced(_, false) => too_few += 1,
                What::Output(Output::Act {
                    act: Act::LookIntoBlocks { .. },
                    ..
                }) => blocks += 1,
                _ => {}
            }
        }
    }
    let counts = [replaced, more, too_few, blocks];
    println!("{counts:?}");
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}

#[test]
fn epochs_split_regions_and_merge_them() {
    let (mut splits, mut merges, mut spared) = (0, 0, 0);
    for seed in 0..SEEDS / 4 {
        let mut plan = Plan::of_seed(seed);
        if plan.epoch.is_none() {
            continue;
        }
        // No operator changes regions.
        plan.disturbances
            .retain(|(_, disturbance)| !matches!(disturbance, Disturbance::Change(..)));
        for record in run(&plan, true).records {
            match record.what {
                What::Output(Output::Event(Event::Changed(Change::Split, Outcome::Changed(_)))) => {
                    splits += 1;
                }
                What::Output(Output::Event(Event::Changed(Change::Merge, outcome))) => {
                    match outcome {
                        Outcome::Changed(_) => merges += 1,
                        _ => spared += 1,
                    }
                }
                _ => {}
            }
        }
    }
    let counts = [splits, merges, spared];
    println!("{counts:?}");
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}

/// A seed's plan with more crashes, which are noticed at once, and late packets.
fn with_many_faults(seed: u64) -> Plan {
    let mut plan = Plan::of_seed(seed);
    plan.network_faults.lateness = 500;
    plan.network_faults.latest = 5 * MILLISECOND;
    plan.network_faults.loss /= 4;
    for number in 1..=20 {
        let crash = Disturbance::Crash {
            blade: plan.programs[number as usize % plan.programs.len()].blade,
            noticed: 50_000,
            back: MILLISECOND,
        };
        let at = plan.network_faults.until * number / 20;
        plan.disturbances.push((at, crash));
    }
    plan
}

#[test]
fn the_guarantees_hold_with_many_faults() {
    for seed in 0..SEEDS / 4 {
        assert_eq!(
            run(&with_many_faults(seed), false).failure,
            None,
            "seed {seed}"
        );
    }
}

#[test]
fn a_flaw_is_found_and_the_run_reduced() {
    for flaw in Flaw::ALL {
        let found = (0..SEEDS).find_map(|seed| {
            let flaw = Some(flaw);
            let plan = Plan {
                flaw,
                ..with_many_faults(seed)
            };
            let failure = run(&plan, false).failure?;
            Some((seed, plan, failure))
        });
        let (seed, plan, failure) = found.unwrap_or_else(|| panic!("{flaw:?} is not found"));
        let (small, same) = shrink(&plan, &failure, 10_000);
        println!(
            "{flaw:?}: seed {seed}, {failure}; {} operations, {} disturbances; cut to {} and {}: {same}",
            plan.operations(),
            plan.disturbances.len(),
            small.operations(),
            small.disturbances.len(),
        );
        let outcome = run(&small, true);
        assert_eq!(outcome.failure.as_ref(), Some(&same));
        let page = history::page(&same, &outcome.records).expect("a page broke");
        let table = history::table(&small, page, &outcome.records);
        println!("{small}{page}\n{table}");
        assert!(small.operations() <= 20, "{flaw:?}: {small:?}");
    }
}
