//! Runs with many requests to the controller under way at once: programs of several domains map, unmap, protect and sync
//! their areas while others fault on them, regions change, blades of both kinds crash, and the controller dies.

use mind_machines::{
    Node,
    compute::page::{self, Event},
};

use super::{
    Area, Change, DRAWN_WORDS, Disturbance, GRACE, Load, MILLISECOND, Mapping, Moment,
    NetworkFaults, OnLoss, Op, Place, Plan, Program, blade, epoch, general, generator, incidents,
};
use crate::{
    coverage::Pair,
    trigger::{Effect, Trigger},
};

/// The run of a seed.
pub(super) fn plan(seed: u64) -> Plan {
    let mut random = generator(seed, 1);
    let random = &mut random;
    let blades = random.u8(2..=5);
    let memories = random.u8(1..=2);
    let domains: Vec<_> = (0..random.u8(1..=3))
        .map(|_| match random.bool() {
            true => OnLoss::Fail,
            false => OnLoss::LastWritten,
        })
        .collect();
    let areas: Vec<_> = (0..random.usize(2..=6))
        .map(|number| Area {
            domain: number % domains.len(),
            order: random.u8(0..=4),
            is_writable: random.u8(0..8) != 0,
            is_mapped: random.u8(0..4) != 0,
            is_named: random.u8(0..4) == 0,
        })
        .collect();
    let until = random.u64(20 * MILLISECOND..100 * MILLISECOND);
    let programs = programs(random, blades, &areas);
    let mut disturbances = disturbances(random, (blades, memories), &areas, until);
    incidents::dies_in_a_phase(random, &mut disturbances, (blades, memories), until);
    let capacity = match random.bool() {
        true => random.usize(1..=4),
        false => 1024,
    };
    let mut triggers = incidents::triggers(random, (blades, memories));
    if capacity < 1024 && random.bool() {
        triggers.push(evicted_in_vain(random, memories));
    }
    Plan {
        seed,
        epoch: epoch(seed),
        blades,
        memories,
        capacity,
        domains,
        areas,
        programs,
        pace: 2_000 << random.u32(0..9),
        load: Load {
            controller: 2_000 << random.u32(0..9),
            ..Load::default()
        },
        network_faults: NetworkFaults {
            loss: random.u32(0..=50),
            duplication: random.u32(0..=200),
            lateness: random.u32(0..=100),
            latest: random.u64(0..=MILLISECOND),
            hold_ups: random.u32(0..=50),
            longest: random.u64(0..=5 * MILLISECOND),
            until,
        },
        disturbances,
        triggers,
        flaw: None,
    }
}

/// A memory blade crashes while a page is written back since there is no room for it, and is back before that is given
/// up.
fn evicted_in_vain(random: &mut fastrand::Rng, memories: u8) -> Trigger {
    let crash = Disturbance::MemoryCrash {
        memory: random.u8(0..memories),
        noticed: 0,
        back: random.u64(MILLISECOND..3 * MILLISECOND),
    };
    let evicted = Pair::Page(page::Phase::Modified, Event::Evict);
    Trigger::new(evicted, 20, Effect::Happens(crash), 0)
}

/// One to four threads a blade, of which every fifth operation is a request.
fn programs(random: &mut fastrand::Rng, blades: u8, areas: &[Area]) -> Vec<Program> {
    let length = random.usize(20..=120);
    let mut programs = Vec::new();
    for number in 0..blades {
        for _ in 0..random.u8(1..=4) {
            let domain = areas[random.usize(0..areas.len())].domain;
            let own: Vec<_> = (0..areas.len())
                .filter(|number| areas[*number].domain == domain)
                .collect();
            let ops = (0..length).map(|_| {
                let area = own[random.usize(0..own.len())];
                let place = Place {
                    area,
                    page: random.u64(0..areas[area].pages()),
                    word: random.usize(0..DRAWN_WORDS),
                };
                match random.u8(0..20) {
                    0 => Op::Mapping(Mapping::Unmap, area),
                    1 | 2 => Op::Mapping(Mapping::Map, area),
                    3 => Op::Mapping(general::mapping(random), area),
                    4 => Op::Sync(area),
                    5 => Op::Exchange(place),
                    6..14 => Op::Store(place),
                    _ => Op::Load(place),
                }
            });
            let ops = ops.collect();
            programs.push(Program {
                blade: blade(number),
                domain,
                ops,
            });
        }
    }
    programs
}

fn disturbances(
    random: &mut fastrand::Rng,
    (blades, memories): (u8, u8),
    areas: &[Area],
    until: u64,
) -> Vec<(u64, Disturbance)> {
    let memory_crashes = random.bool();
    let mut list: Vec<_> = (0..random.usize(4..=40))
        .map(|_| {
            let at = random.u64(0..until);
            let area = random.usize(0..areas.len());
            let page = random.u64(0..areas[area].pages());
            let compute = blade(random.u8(0..blades));
            let what = match random.u8(0..23) {
                0..3 => Disturbance::Change(Change::Reset, area, page),
                3..7 => Disturbance::Change(Change::Split, area, page),
                7..10 => Disturbance::Change(Change::Merge, area, page),
                10 | 11 => Disturbance::Mapping(general::mapping(random), area),
                12 => Disturbance::Crash {
                    blade: compute,
                    noticed: random.u64(0..2 * MILLISECOND),
                    back: random.u64(MILLISECOND..10 * MILLISECOND),
                },
                13 => Disturbance::Hang {
                    blade: compute,
                    lasts: random.u64(0..20 * MILLISECOND),
                },
                14 | 15 => general::controller_dies(random, blades),
                16 if memory_crashes => general::memory_crash(random, memories),
                17 => Disturbance::Unzeroed {
                    memory: random.u8(0..memories),
                    lasts: random.u64(0..20 * MILLISECOND),
                },
                18 => general::exit(random, compute, areas[area].domain),
                19 | 20 => Disturbance::Counts,
                21 => Disturbance::Unable {
                    blade: compute,
                    lasts: random.u64(0..10 * MILLISECOND),
                },
                _ => Disturbance::LinkDown {
                    node: Node::Memory(random.u8(0..memories)),
                    lasts: random.u64(0..10 * MILLISECOND),
                },
            };
            (at, what)
        })
        .collect();
    let deaths: Vec<_> = list.iter().filter_map(dies_with_an_answer).collect();
    for at in deaths {
        // There is something to answer soon.
        let mapping = match random.u8(0..3) {
            0 => general::mapping(random),
            _ => Mapping::Map,
        };
        let area = random.usize(0..areas.len());
        list.push((at, Disturbance::Mapping(mapping, area)));
    }
    if random.u8(0..4) == 0 {
        // A blade is asked what it counts while it hangs, until that is waited for no longer; no controller dies any more.
        let at = until + 2 * GRACE;
        let hangs = Disturbance::Hang {
            blade: blade(random.u8(0..blades)),
            lasts: random.u64(100 * MILLISECOND..3_000 * MILLISECOND),
        };
        list.extend([(at, hangs), (at, Disturbance::Counts)]);
    }
    list.sort_by_key(|(at, _)| *at);
    list
}

/// When the controller is to die with an answer, if it is.
const fn dies_with_an_answer((at, what): &(u64, Disturbance)) -> Option<u64> {
    match what {
        Disturbance::ControllerDies {
            moment: Moment::Answers(_),
            ..
        } => Some(*at),
        _ => None,
    }
}
