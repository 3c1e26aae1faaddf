//! The system that a batch of copies runs on, and its faults: drawn at random.
//!
//! A thread of a test whose blade fails has no outcome, so only blades without participants fail;
//! they only read.

use fastrand::Rng;
use mind_common::{addr::INITIAL_REGION_ORDER, id::BladeId};
use mind_machines::Node;
use mind_sim::Flaw;
use mind_sim::plan::{
    Area, Change, Disturbance, Load, MILLISECOND, NetworkFaults, OnLoss, Op, Place, Plan, Program,
};

/// The domain of the memory.
const DOMAIN: usize = 0;
/// Operations of a blade without participants.
const CHECKS: usize = 40;

/// The blades of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deployment {
    /// On which blade each participant is.
    pub participants: Vec<u8>,
    /// Blades that have participants.
    pub blades: u8,
    /// Blades that have none.
    pub bystanders: u8,
    /// Memory blades.
    pub memories: u8,
}

impl Deployment {
    /// Draws the blades: at least as many participants as a test has threads, one or more on a blade.
    pub fn draw(threads: usize, random: &mut Rng) -> Self {
        let blades = random.u8(2..=8);
        let most = threads.max(blades.into());
        let mut participants: Vec<u8> = (0..blades).collect();
        participants.extend((participants.len()..most).map(|_| random.u8(..blades)));
        random.shuffle(&mut participants);
        Self {
            participants,
            blades,
            bystanders: random.u8(..=1),
            memories: random.u8(1..=2),
        }
    }
}

fn blade(number: u8) -> BladeId {
    BladeId::from_low_bits(number.into())
}

/// Draws the run of a batch whose copies lie in so many areas. The participants' programs come first.
pub fn plan(deployment: &Deployment, areas: usize, flaw: Option<Flaw>, random: &mut Rng) -> Plan {
    let network_faults = network_faults(random);
    let program = |number: u8, ops| Program {
        blade: blade(number),
        domain: DOMAIN,
        ops,
    };
    let participants = deployment.participants.iter();
    let mut programs: Vec<_> = participants
        .map(|number| program(*number, Vec::new()))
        .collect();
    for number in 0..deployment.bystanders {
        let looks = (0..CHECKS).map(|_| {
            let (area, page) = page(areas, random);
            Op::Load(Place {
                area,
                page,
                word: 0,
            })
        });
        programs.push(program(deployment.blades + number, looks.collect()));
    }
    Plan {
        seed: random.u64(..),
        epoch: None,
        blades: deployment.blades + deployment.bystanders,
        memories: deployment.memories,
        capacity: if random.bool() {
            random.usize(2..=16)
        } else {
            1024
        },
        domains: vec![OnLoss::LastWritten],
        areas: vec![
            Area {
                domain: DOMAIN,
                order: INITIAL_REGION_ORDER,
                is_writable: true,
                is_mapped: true,
                is_named: false,
            };
            areas
        ],
        programs,
        pace: 200 << random.u32(..8),
        load: Load::default(),
        disturbances: disturbances(deployment, areas, network_faults.until, random),
        network_faults,
        triggers: Vec::new(),
        flaw,
    }
}

/// A page of any area: of which, and which of it.
fn page(areas: usize, random: &mut Rng) -> (usize, u64) {
    let area = random.usize(..areas);
    (area, random.u64(..1 << INITIAL_REGION_ORDER))
}

/// Nothing in a quarter of the batches.
fn network_faults(random: &mut Rng) -> NetworkFaults {
    let is_calm = random.u8(..4) == 0;
    let mut up_to = |most: u32| {
        if is_calm || random.bool() {
            0
        } else {
            random.u32(..=most)
        }
    };
    NetworkFaults {
        loss: up_to(150),
        duplication: up_to(300),
        lateness: up_to(300),
        hold_ups: up_to(50),
        latest: random.u64(..MILLISECOND),
        longest: random.u64(..MILLISECOND),
        until: random.u64(2 * MILLISECOND..50 * MILLISECOND),
    }
}

fn disturbances(
    deployment: &Deployment,
    areas: usize,
    until: u64,
    random: &mut Rng,
) -> Vec<(u64, Disturbance)> {
    let mut list: Vec<_> = (0..random.usize(..=16))
        .map(|_| {
            let change = |change, random: &mut Rng| {
                let (area, page) = page(areas, random);
                Disturbance::Change(change, area, page)
            };
            let what = match random.u8(..10) {
                0..3 => change(Change::Reset, random),
                3..6 => change(Change::Split, random),
                6 | 7 => change(Change::Merge, random),
                8 if deployment.bystanders > 0 => Disturbance::Crash {
                    blade: blade(deployment.blades + random.u8(..deployment.bystanders)),
                    noticed: random.u64(..5 * MILLISECOND),
                    back: random.u64(MILLISECOND..20 * MILLISECOND),
                },
                _ => Disturbance::LinkDown {
                    node: Node::Compute(blade(random.u8(..deployment.blades))),
                    lasts: random.u64(..5 * MILLISECOND),
                },
            };
            (random.u64(..until), what)
        })
        .collect();
    list.sort_by_key(|(at, _)| *at);
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plans() -> impl Iterator<Item = (Deployment, Plan)> {
        (0..200).map(|seed| {
            let mut random = Rng::with_seed(seed);
            let deployment = Deployment::draw(4, &mut random);
            let plan = plan(&deployment, 1, None, &mut random);
            (deployment, plan)
        })
    }

    #[test]
    fn threads_are_on_blades_that_do_not_fail() {
        for (deployment, plan) in plans() {
            assert!(deployment.participants.len() >= 4);
            assert!(
                deployment
                    .participants
                    .iter()
                    .all(|participant| *participant < deployment.blades)
            );
            for (participant, program) in deployment.participants.iter().zip(&plan.programs) {
                assert_eq!(program.blade, blade(*participant));
                assert!(program.ops.is_empty(), "the steps come from a script");
                for (_, what) in &plan.disturbances {
                    if let Disturbance::Crash { blade, .. } = what {
                        assert_ne!(*blade, program.blade, "it crashes");
                    }
                }
            }
        }
    }

    #[test]
    fn all_kinds_of_faults_and_disturbances_come() {
        let plans: Vec<_> = plans().map(|(_, plan)| plan).collect();
        let some =
            |is: fn(&NetworkFaults) -> bool| plans.iter().any(|plan| is(&plan.network_faults));
        assert!(
            some(|network_faults| network_faults.loss > 0)
                && some(|network_faults| network_faults.duplication > 0)
        );
        assert!(some(|network_faults| network_faults.lateness > 0));
        let is_calm = |network_faults: &NetworkFaults| {
            network_faults.loss + network_faults.duplication + network_faults.lateness == 0
        };
        assert!(some(is_calm));
        let all = || plans.iter().flat_map(|plan| &plan.disturbances);
        for change in [Change::Reset, Change::Split, Change::Merge] {
            let is =
                |what: &Disturbance| matches!(what, Disturbance::Change(of, ..) if *of == change);
            assert!(all().any(|(_, what)| is(what)), "{change:?}");
        }
        assert!(all().any(|(_, what)| matches!(what, Disturbance::Crash { .. })));
        assert!(all().any(|(_, what)| matches!(what, Disturbance::LinkDown { .. })));
    }
}
