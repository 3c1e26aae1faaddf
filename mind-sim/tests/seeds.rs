//! Seeds, many of them: what is promised holds in each, and each can be run again.

use mind_sim::{Flaw, plan::Plan, run, shrink};

/// Seeds of a test.
const SEEDS: u64 = 5_000;

#[test]
fn what_is_promised_holds_in_every_seed() {
    let mut operations = 0;
    for seed in 0..SEEDS {
        let plan = Plan::of_seed(seed);
        operations += plan.operations();
        let outcome = run(&plan, false);
        if let Some(f) = outcome.failure { println!("BAD {seed} {f}"); }
    }
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
fn what_is_broken_is_found_and_the_run_cut_down() {
    for flaw in Flaw::ALL {
        let found = (0..SEEDS).find_map(|seed| {
            let flaw = Some(flaw);
            let plan = Plan {
                flaw,
                ..Plan::of_seed(seed)
            };
            let failure = run(&plan, false).failure?;
            Some((seed, plan, failure))
        });
        let (seed, plan, failure) = found.unwrap_or_else(|| panic!("{flaw:?} is not found"));
        let (small, same) = shrink(&plan, &failure, 5_000);
        println!(
            "{flaw:?}: seed {seed}, {failure}; {} operations, {} disturbances; cut to {} and {}: {same}",
            plan.operations(),
            plan.disturbances.len(),
            small.operations(),
            small.disturbances.len(),
        );
        assert_eq!(run(&small, false).failure, Some(same));
        assert!(small.operations() <= 20, "{flaw:?}: {small:?}");
    }
}
