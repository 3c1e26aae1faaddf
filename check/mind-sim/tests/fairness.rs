//! Eight blades want one page all the time, to write: none gets it more than twice as often as another.

use std::{cell::Cell, rc::Rc};

use mind_api::message::OnLoss;
use mind_common::id::BladeId;
use mind_sim::{
    plan::{Area, Load, NetworkFaults, Place, Plan, Program},
    run_scripts,
    script::{Script, Step},
};

const DOMAIN: usize = 0;
const BLADES: u8 = 8;
const WORD: Place = Place {
    area: 0,
    page: 0,
    word: 0,
};

/// Which blade had the page last, and how often it has changed hands.
#[derive(Default)]
struct Turns {
    last: Cell<Option<u8>>,
    count: Cell<u64>,
}

/// Adds to the word until it has changed hands `most` times.
struct Adder {
    blade: u8,
    /// How often this blade got the page from another.
    got: u64,
    turns: Rc<Turns>,
    most: u64,
}

impl Script for Adder {
    fn next(&mut self) -> Step {
        match self.turns.count.get() < self.most {
            true => Step::Update(WORD),
            false => Step::End,
        }
    }

    fn loaded(&mut self, _value: u64) {}

    fn update(&mut self, old: u64) -> u64 {
        if self.turns.last.replace(Some(self.blade)) != Some(self.blade) {
            self.got += 1;
            self.turns.count.set(self.turns.count.get() + 1);
        }
        old + 1
    }
}

fn plan(seed: u64, network_faults: NetworkFaults) -> Plan {
    Plan {
        epoch: None,
        seed,
        blades: BLADES,
        memories: 1,
        capacity: 4,
        domains: vec![OnLoss::LastWritten],
        areas: vec![Area {
            domain: DOMAIN,
            order: 0,
            is_writable: true,
            is_mapped: true,
            is_named: false,
        }],
        programs: (0..BLADES)
            .map(|number| Program {
                blade: BladeId::from_low_bits(number.into()),
                domain: DOMAIN,
                ops: Vec::new(),
            })
            .collect(),
        pace: 1_000,
        load: Load::default(),
        network_faults,
        disturbances: Vec::new(),
        triggers: Vec::new(),
        flaw: None,
    }
}

/// How often each blade got the page, of `most` times in all.
fn shares(plan: &Plan, most: u64) -> Vec<u64> {
    let turns = Rc::new(Turns::default());
    let mut adders: Vec<_> = (0..BLADES)
        .map(|blade| Adder {
            blade,
            got: 0,
            turns: Rc::clone(&turns),
            most,
        })
        .collect();
    let scripts = adders.iter_mut().map(|adder| adder as &mut dyn Script);
    let outcome = run_scripts(plan, scripts.collect(), false);
    assert_eq!(outcome.failure, None);
    adders.iter().map(|adder| adder.got).collect()
}

#[test]
fn no_blade_starves() {
    // An hour of virtual time, which no run takes.
    let always = 3_600_000_000_000;
    let good = NetworkFaults {
        loss: 0,
        duplication: 0,
        lateness: 0,
        latest: 0,
        hold_ups: 0,
        longest: 0,
        until: 0,
    };
    let late = NetworkFaults {
        lateness: 500,
        latest: 50_000,
        until: always,
        ..good
    };
    // What is lost costs a timeout.
    let lossy = NetworkFaults {
        loss: 50,
        lateness: 300,
        latest: 20_000,
        until: always,
        ..good
    };
    for (network_faults, most) in [(good, 2_000), (late, 2_000), (lossy, 1_000)] {
        for seed in 0..3 {
            let shares = shares(&plan(seed, network_faults), most);
            let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            assert!(
                *least > 0 && *most <= 2 * least,
                "{network_faults:?}, seed {seed}: {shares:?}"
            );
        }
    }
}
