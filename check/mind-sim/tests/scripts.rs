//! Threads with scripts: they get the values that they load, and their stores wait in store
//! buffers.

use std::collections::BTreeMap;

use mind_api::message::OnLoss;
use mind_common::id::BladeId;
use mind_sim::{
    Flaw,
    plan::{Area, Load, NetworkFaults, Place, Plan, Program},
    run_scripts,
    script::{Script, Step},
};

const DOMAIN: usize = 0;

/// A word in an area of its own.
const fn place(number: usize) -> Place {
    Place {
        area: number,
        page: 0,
        word: number,
    }
}

const X: Place = place(0);
const Y: Place = place(1);

/// Steps one after the other; an update adds one.
struct Steps {
    left: std::vec::IntoIter<Step>,
    found: Vec<u64>,
}

impl Script for Steps {
    fn next(&mut self) -> Step {
        self.left.next().unwrap_or(Step::End)
    }

    fn loaded(&mut self, value: u64) {
        self.found.push(value);
    }

    fn update(&mut self, old: u64) -> u64 {
        self.found.push(old);
        old + 1
    }
}

/// A thread on each blade, which run the scripts.
fn plan(seed: u64, blades: u8) -> Plan {
    let areas = [X, Y].map(|_| Area {
        domain: DOMAIN,
        order: 2,
        is_writable: true,
        is_mapped: true,
        is_named: false,
    });
    let programs = (0..blades).map(|number| Program {
        blade: BladeId::from_low_bits(number.into()),
        domain: DOMAIN,
        ops: Vec::new(),
    });
    Plan {
        epoch: None,
        seed,
        blades,
        memories: 1,
        capacity: 8,
        domains: vec![OnLoss::LastWritten],
        areas: areas.to_vec(),
        programs: programs.collect(),
        pace: 2_000,
        load: Load::default(),
        network_faults: NetworkFaults {
            loss: 100,
            duplication: 200,
            lateness: 100,
            latest: 100_000,
            hold_ups: 20,
            longest: 100_000,
            until: 10_000_000,
        },
        disturbances: Vec::new(),
        triggers: Vec::new(),
        flaw: None,
    }
}

/// How often threads loaded which values, in that many runs.
fn found(threads: &[&[Step]], runs: u64, flaw: Option<Flaw>) -> BTreeMap<Vec<u64>, u64> {
    let mut counts = BTreeMap::new();
    for seed in 0..runs {
        let mut plan = plan(seed, threads.len() as u8);
        plan.flaw = flaw;
        let all = Step::Barrier {
            point: 0,
            threads: threads.len(),
        };
        // Both have both pages, so no access faults.
        let begin = [Step::Load(X), Step::Load(Y), all];
        let mut scripts: Vec<_> = threads
            .iter()
            .map(|steps| Steps {
                left: [&begin, *steps].concat().into_iter(),
                found: Vec::new(),
            })
            .collect();
        let scripted = scripts.iter_mut().map(|script| script as &mut dyn Script);
        let outcome = run_scripts(&plan, scripted.collect(), flaw.is_some());
        assert_eq!(outcome.failure, None, "seed {seed}");
        let values = scripts.iter().flat_map(|script| script.found[2..].to_vec());
        *counts.entry(values.collect()).or_default() += 1;
    }
    counts
}

#[test]
fn a_store_may_wait_behind_a_later_load_and_its_own_thread_sees_it() {
    let sb = [
        [Step::Store(X, 1), Step::Load(X), Step::Load(Y)],
        [Step::Store(Y, 1), Step::Load(Y), Step::Load(X)],
    ];
    let seen = found(&[&sb[0], &sb[1]], 400, None);
    assert!(seen.contains_key(&vec![1, 0, 1, 0]), "{seen:?}");
    assert!(seen.keys().all(|of| of[0] == 1 && of[2] == 1), "{seen:?}");

    let fenced = [
        [Step::Store(X, 1), Step::Fence, Step::Load(Y)],
        [Step::Store(Y, 1), Step::Fence, Step::Load(X)],
    ];
    let seen = found(&[&fenced[0], &fenced[1]], 400, None);
    assert!(!seen.contains_key(&vec![0, 0]), "{seen:?}");
    assert!(seen.len() == 3, "{seen:?}");
}

#[test]
fn stores_arrive_in_order_unless_that_is_broken() {
    let (writer, reader) = (
        [Step::Store(X, 1), Step::Store(Y, 1)],
        [Step::Pause(50_000), Step::Load(Y), Step::Load(X)],
    );
    let seen = found(&[&writer, &reader], 400, None);
    assert!(!seen.contains_key(&vec![1, 0]), "{seen:?}");
    assert!(seen.contains_key(&vec![1, 1]), "{seen:?}");
    let seen = found(&[&writer, &reader], 400, Some(Flaw::UnorderedStores));
    assert!(seen.contains_key(&vec![1, 0]), "{seen:?}");
}

#[test]
fn updates_come_one_after_the_other() {
    let twice = [Step::Update(X), Step::Update(X)];
    let seen = found(&[&twice, &twice, &twice], 100, None);
    for values in seen.keys() {
        let mut sorted = values.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2, 3, 4, 5]);
    }
    assert!(seen.len() > 1, "{seen:?}");
}
