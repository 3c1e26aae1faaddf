//! Random interleavings of two to four blades, a directory and memory, over a network that delays,
//! repeats and loses: single writer or many readers, the latest value is read, nothing that was
//! written is lost, everything completes.

use std::collections::BTreeSet;

use mind_common::directory::Path;
use proptest::prelude::*;

mod world;

use world::{Faults, GOOD, Setup, World};

/// Ten minutes of virtual time for the half under faults, in nanoseconds. Where nearly a third of all
/// messages is lost, four blades that fight for one page's room each take up to one.
const TIME_LIMIT: u64 = 600_000_000_000;

fn setups() -> impl Strategy<Value = Setup> {
    let faults = (0..300u32, 0..500u32, 1_000..5_000_000u64).prop_map(
        |(loss, duplication, longest_delay)| Faults {
            loss,
            duplication,
            longest_delay,
        },
    );
    (
        any::<u64>(),
        2..=4u8,
        1..12u64,
        0..=2u8,
        1..8usize,
        1..=3usize,
        faults,
    )
        .prop_map(
            |(seed, blades, pages, region_order, capacity, threads, faults)| Setup {
                seed,
                blades,
                pages,
                region_order,
                capacity,
                threads,
                operations: 60,
                writes: 1,
                faults,
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn memory_is_coherent_over_a_bad_network(setup in setups()) {
        let outcome = World::new(setup).run(TIME_LIMIT);
        prop_assert!(outcome.is_ok(), "{}", outcome.unwrap_err());
    }

    #[test]
    fn memory_is_coherent_over_a_good_network(setup in setups()) {
        let setup = Setup {
            faults: GOOD,
            ..setup
        };
        let mut world = World::new(setup);
        let outcome = world.run(TIME_LIMIT);
        prop_assert!(outcome.is_ok(), "{}", outcome.unwrap_err());
        // Nothing was lost, so nobody had to wait for a timer and guess. (A wait can outlast the
        // timeout where many want the same page: then the repeat does no harm.)
        prop_assert!(world.counters().iter().all(|c| c.expired == 0 && c.lost == 0));
    }
}

#[test]
fn every_path_through_the_directory_is_taken() {
    let mut paths = BTreeSet::new();
    for seed in 0..20 {
        let mut world = World::new(Setup {
            seed,
            blades: 4,
            pages: 6,
            region_order: 1,
            capacity: 4,
            threads: 2,
            operations: 100,
            writes: 1,
            faults: GOOD,
        });
        world.run(TIME_LIMIT).expect("a good network completes");
        paths.extend(world.paths);
    }
    assert_eq!(paths, Path::ALL.into_iter().collect());
}

/// Eight blades want one page all the time, to write: none gets it more than twice as often as another.
#[test]
fn nobody_starves() {
    const MS: u64 = 1_000_000;
    for (loss, longest_delay, time) in [
        (0, 2_000, 400 * MS),
        (0, 50_000, 400 * MS),
        // What is lost costs a timeout.
        (50, 20_000, 20_000 * MS),
    ] {
        for seed in 0..8 {
            let mut world = World::new(Setup {
                seed,
                blades: 8,
                pages: 1,
                region_order: 0,
                capacity: 4,
                threads: 1,
                // More than there is time for.
                operations: 1_000_000,
                writes: 3,
                faults: Faults {
                    loss,
                    duplication: 0,
                    longest_delay,
                },
            });
            let outcome = world.run(time);
            assert!(outcome.is_err_and(|error| error.starts_with("does not complete")));
            let served = world.served();
            let (most, least) = (served.iter().max(), served.iter().min());
            let (most, least) = (*most.unwrap(), *least.unwrap());
            println!("loss {loss}, delay {longest_delay}: {served:?}");
            assert!(least > 0 && most <= 2 * least, "{served:?}");
        }
    }
}
