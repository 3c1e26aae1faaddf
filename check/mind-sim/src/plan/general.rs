//! Runs with a mix of all disturbances.

use mind_common::id::BladeId;
use mind_machines::Node;

use super::{
    Area, Change, DRAWN_WORDS, Disturbance, Load, MILLISECOND, Mapping, Moment, NetworkFaults,
    OnLoss, Op, Place, Plan, Program, QUICK, blade, epoch, generator, incidents,
};

/// The run of a seed.
pub(super) fn plan(seed: u64) -> Plan {
    let mut random = generator(seed, 1);
    let random = &mut random;
    let blades = random.u8(2..=8);
    let memories = random.u8(1..=2);
    let domains = (0..random.u8(1..=2)).map(|_| match random.u8(0..4) {
        0 => OnLoss::Fail,
        _ => OnLoss::LastWritten,
    });
    let domains: Vec<_> = domains.collect();
    let areas = areas(random, domains.len());
    let network_faults = network_faults(random);
    let programs = programs(random, blades, &areas);
    let until = network_faults.until;
    let mut disturbances = disturbances(random, blades, memories, &areas, until);
    let mut triggers = Vec::new();
    if random.bool() {
        incidents::dies_in_a_phase(random, &mut disturbances, (blades, memories), until);
    }
    if random.u8(0..4) == 0 {
        triggers = incidents::triggers(random, (blades, memories));
    }
    Plan {
        seed,
        epoch: epoch(seed),
        blades,
        memories,
        capacity: if random.bool() {
            random.usize(2..=16)
        } else {
            1024
        },
        domains,
        areas,
        programs,
        // Most threads are busy until the faults stop.
        pace: match random.u8(0..4) {
            0 => QUICK,
            _ => QUICK.max(network_faults.until / 20),
        },
        load: Load::default(),
        network_faults,
        disturbances,
        triggers,
        flaw: None,
    }
}

/// Areas of the domains in turn. Those that are not mapped at first take over what others give up.
fn areas(random: &mut fastrand::Rng, domains: usize) -> Vec<Area> {
    let mut areas = Vec::new();
    for number in 0..random.usize(1..=8) {
        let area = Area {
            domain: number % domains,
            order: random.u8(0..=5),
            is_writable: random.u8(0..12) != 0,
            is_mapped: random.u8(0..12) != 0,
            is_named: random.u8(0..8) == 0,
        };
        areas.push(area);
        if random.u8(0..4) == 0 {
            areas.push(Area {
                domain: random.usize(0..domains),
                is_mapped: false,
                ..area
            });
        }
    }
    areas
}

pub(super) fn mapping(random: &mut fastrand::Rng) -> Mapping {
    match random.u8(0..8) {
        0..3 => Mapping::Map,
        3 => Mapping::Unmap,
        4 | 5 => Mapping::MakeReadOnly,
        _ => Mapping::MakeWritable,
    }
}

fn network_faults(random: &mut fastrand::Rng) -> NetworkFaults {
    let until = match random.u8(0..16) {
        // Long enough for blades to give requests up.
        0 => random.u64(1_000 * MILLISECOND..9_000 * MILLISECOND),
        _ => random.u64(10 * MILLISECOND..200 * MILLISECOND),
    };
    let mut up_to = |most: u32| {
        if random.bool() {
            random.u32(0..=most)
        } else {
            0
        }
    };
    NetworkFaults {
        loss: up_to(300),
        duplication: up_to(500),
        lateness: up_to(300),
        hold_ups: up_to(100),
        latest: random.u64(0..=5 * MILLISECOND),
        longest: random.u64(0..=5 * MILLISECOND),
        until,
    }
}

/// A page of the area.
fn pick(random: &mut fastrand::Rng, area: Area, hot: u64) -> u64 {
    // A few pages are contended, or blades share nothing.
    let among = if random.u8(0..4) == 0 {
        area.pages()
    } else {
        hot.min(area.pages())
    };
    random.u64(0..among)
}

fn programs(random: &mut fastrand::Rng, blades: u8, areas: &[Area]) -> Vec<Program> {
    let length = random.usize(5..=40);
    let hot = random.u64(1..=8);
    let writes = random.u8(1..=8);
    let mut homes: Vec<_> = (0..blades).collect();
    homes.extend((0..blades).filter(|_| random.bool()));
    homes
        .into_iter()
        .map(|number| {
            let domain = areas[random.usize(0..areas.len())].domain;
            let own: Vec<_> = (0..areas.len())
                .filter(|number| areas[*number].domain == domain)
                .collect();
            let place = |random: &mut fastrand::Rng, area: usize| Place {
                area,
                page: pick(random, areas[area], hot),
                word: random.usize(0..DRAWN_WORDS),
            };
            let ops = (0..length).map(|_| {
                let area = own[random.usize(0..own.len())];
                let own = place(random, area);
                let any = random.usize(0..areas.len());
                let foreign = place(random, any);
                let place = own;
                match random.u16(0..120) {
                    0..3 => Op::Sync(area),
                    3 => Op::Mapping(mapping(random), area),
                    4 => Op::Load(foreign),
                    5 => Op::Store(foreign),
                    6..12 => Op::Exchange(place),
                    _ if random.u8(0..10) < writes => Op::Store(place),
                    _ => Op::Load(place),
                }
            });
            Program {
                blade: blade(number),
                domain,
                ops: ops.collect(),
            }
        })
        .collect()
}

/// How long a disturbance lasts: mostly until requests are repeated, or until blades are ended.
pub(super) fn duration(random: &mut fastrand::Rng) -> u64 {
    match random.u8(0..8) {
        0 => random.u64(0..7_000 * MILLISECOND),
        1 => random.u64(0..4_000 * MILLISECOND),
        _ => random.u64(0..50 * MILLISECOND),
    }
}

/// A thread's program fails, or those of all threads there.
pub(super) fn exit(random: &mut fastrand::Rng, blade: BladeId, domain: usize) -> Disturbance {
    Disturbance::Exit {
        blade,
        domain,
        threads: if random.u8(0..4) == 0 { 1 } else { usize::MAX },
        back: match random.u8(0..4) {
            // While its request is under way.
            0..2 => random.u64(0..MILLISECOND),
            2 => random.u64(0..10 * MILLISECOND),
            _ => duration(random),
        },
    }
}

/// The controller dies at any point of what it does; most blades' agents come back in time.
pub(super) fn controller_dies(random: &mut fastrand::Rng, blades: u8) -> Disturbance {
    Disturbance::ControllerDies {
        moment: match random.bool() {
            true => Moment::Outputs(random.u64(0..40)),
            false => Moment::Answers(random.u64(0..3)),
        },
        back: random.u64(0..20 * MILLISECOND),
        late: (random.u8(0..4) == 0).then(|| blade(random.u8(0..blades))),
    }
}

/// A memory blade crashes.
pub(super) fn memory_crash(random: &mut fastrand::Rng, memories: u8) -> Disturbance {
    Disturbance::MemoryCrash {
        memory: random.u8(0..memories),
        noticed: random.u64(0..20 * MILLISECOND),
        back: random.u64(MILLISECOND..100 * MILLISECOND),
    }
}

fn disturbances(
    random: &mut fastrand::Rng,
    blades: u8,
    memories: u8,
    areas: &[Area],
    until: u64,
) -> Vec<(u64, Disturbance)> {
    let crashes = random.bool();
    let mut list: Vec<_> = (0..random.usize(0..=16))
        .map(|_| {
            let at = random.u64(0..until);
            let number = random.usize(0..areas.len());
            let area = areas[number];
            let compute = blade(random.u8(0..blades));
            let what = match random.u8(0..20) {
                0..3 if crashes => Disturbance::Crash {
                    blade: compute,
                    // The loss of a daemon is noticed at once, that of a host after a while.
                    noticed: if random.bool() {
                        random.u64(0..MILLISECOND)
                    } else {
                        random.u64(0..20 * MILLISECOND)
                    },
                    back: random.u64(MILLISECOND..100 * MILLISECOND),
                },
                3 | 4 => Disturbance::Change(Change::Reset, number, pick(random, area, 8)),
                5 | 6 => Disturbance::Change(Change::Split, number, pick(random, area, 8)),
                7 => Disturbance::Change(Change::Merge, number, pick(random, area, 8)),
                8 => Disturbance::Hang {
                    blade: compute,
                    lasts: duration(random),
                },
                9 if crashes => Disturbance::Disconnect {
                    blade: compute,
                    noticed: duration(random),
                    found: duration(random),
                },
                18 if crashes => controller_dies(random, blades),
                19 if crashes => memory_crash(random, memories),
                10 => Disturbance::Unzeroed {
                    memory: random.u8(0..memories),
                    lasts: duration(random),
                },
                11 => Disturbance::WithoutTc {
                    blade: compute,
                    lasts: duration(random),
                },
                14 | 15 => exit(random, compute, area.domain),
                16 if random.bool() => Disturbance::Counts,
                16 if crashes => Disturbance::Unable {
                    blade: compute,
                    lasts: random.u64(0..20 * MILLISECOND),
                },
                12 | 13 => Disturbance::Mapping(mapping(random), number),
                _ => Disturbance::LinkDown {
                    node: if random.u8(0..5) == 0 {
                        Node::Memory(random.u8(0..memories))
                    } else {
                        Node::Compute(compute)
                    },
                    lasts: duration(random),
                },
            };
            (at, what)
        })
        .collect();
    list.sort_by_key(|(at, _)| *at);
    list
}
