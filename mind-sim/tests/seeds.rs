//! Seeds, many of them: what is promised holds in each, and each can be run again.

use mind_sim::{plan::Plan, run};

/// Seeds of a test.
const SEEDS: u64 = 2_000;

#[test]
fn what_is_promised_holds_in_every_seed() {
    let mut operations = 0; let mut bad = 0;
    for seed in 0..SEEDS {
        let plan = Plan::of_seed(seed);
        operations += plan.operations();
        let outcome = run(&plan, false);
        if let Some(f) = outcome.failure { println!("seed {seed}: {f}"); bad += 1; }
    }
    assert_eq!(bad, 0);
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
