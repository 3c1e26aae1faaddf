//! Runs with contention: all blades access the same few pages while their region changes all the
//! time, old packets arrive, and daemons and controller are slow. They cover what happens only when
//! several events fall within microseconds.

mod triggers;

use mind_machines::Node;

use super::{
    Area, Change, DRAWN_WORDS, Disturbance, Load, MILLISECOND, Mapping, NetworkFaults, OnLoss, Op,
    Place, Plan, Program, blade, epoch, general, generator,
};

/// The domain of the memory, and its only area.
const DOMAIN: usize = 0;
const AREA: usize = 0;

/// Reads of a blade before it is isolated.
const READS_BEFORE: usize = 3_000;

/// Disturbances with their times.
type List = Vec<(u64, Disturbance)>;

/// The kinds of runs, by what is done to the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It is made read-only and writable again.
    Protection,
    /// It is split, merged and reset.
    Changes,
    /// Its writers crash while its halves are merged, and accesses fail from then on.
    Losses,
    /// A blade hangs while another requests the region, and its own request arrives late.
    LatePackets,
    /// Nothing; there is hardly any room in the caches.
    Room,
    /// It is reset and its writers crash, and half of all packets are lost.
    PacketLoss,
    /// It is read-only half of the time, and invalidated while blades request it for writing.
    Denials,
    /// Nothing; the only blade that writes is isolated until it gives up.
    Isolation,
}

impl Kind {
    /// The kind for a number below 16.
    const fn of(roll: u8) -> Self {
        match roll {
            0..2 => Self::Protection,
            2..4 => Self::Denials,
            4..7 => Self::Changes,
            7..9 => Self::Losses,
            9..12 => Self::Room,
            12 | 13 => Self::LatePackets,
            14 => Self::PacketLoss,
            _ => Self::Isolation,
        }
    }
}

/// The run of a seed.
pub(super) fn plan(seed: u64) -> Plan {
    let mut random = generator(seed, 1);
    let random = &mut random;
    let kind = Kind::of(random.u8(0..16));
    let blades = match kind {
        Kind::LatePackets | Kind::PacketLoss => 2,
        _ => random.u8(2..=4),
    };
    let area = Area {
        domain: DOMAIN,
        order: 1 + u8::from(random.u8(0..4) == 0),
        is_writable: true,
        is_mapped: true,
        is_named: false,
    };
    let network_faults = network_faults(random, kind);
    let programs = programs(random, kind, blades, area);
    let capacity = match kind {
        Kind::Room => random.usize(1..=2),
        _ if random.u8(0..4) == 0 => random.usize(1..=3),
        _ => 1024,
    };
    let pace = 1_000
        << random.u32(match kind {
            Kind::Isolation => 1..3,
            Kind::PacketLoss => 7..9,
            Kind::Denials => 0..4,
            Kind::Protection | Kind::Room => 0..7,
            Kind::Changes | Kind::Losses => 0..12,
            Kind::LatePackets => 8..12,
        });
    let daemons = 20_000
        << random.u32(match kind {
            Kind::Room => 3..7,
            Kind::Protection | Kind::Denials | Kind::LatePackets | Kind::PacketLoss => 0..2,
            Kind::Changes | Kind::Losses | Kind::Isolation => 0..8,
        });
    Plan {
        seed,
        epoch: epoch(seed),
        blades,
        memories: 1,
        capacity,
        domains: vec![match matches!(kind, Kind::Losses | Kind::PacketLoss)
            || kind == Kind::LatePackets && random.bool()
        {
            true => OnLoss::Fail,
            false => OnLoss::LastWritten,
        }],
        areas: vec![area],
        programs,
        pace,
        load: Load {
            faults: daemons,
            late_faults: 1000,
            timers: daemons,
            controller: 5_000 << random.u32(0..8),
            residency: match kind {
                Kind::Denials => 10_000 << random.u32(2..7),
                _ => Load::default().residency,
            },
        },
        network_faults,
        disturbances: disturbances(random, kind, blades, area, network_faults.until),
        triggers: triggers::triggers(kind),
        flaw: None,
    }
}

fn network_faults(random: &mut fastrand::Rng, kind: Kind) -> NetworkFaults {
    let set = |loss, duplication, lateness, until| NetworkFaults {
        loss,
        duplication,
        lateness,
        latest: 5 * MILLISECOND,
        hold_ups: 20,
        longest: MILLISECOND,
        until: until * MILLISECOND,
    };
    match kind {
        Kind::LatePackets => return set(0, 1000, 800, 150),
        Kind::PacketLoss => return set(400, 500, 200, 100),
        _ => {}
    }
    let is_lossy = matches!(kind, Kind::Changes | Kind::Losses) && random.bool();
    NetworkFaults {
        loss: random.u32(if is_lossy { 100..=300 } else { 0..=20 }),
        duplication: random.u32(0..=1000),
        lateness: random.u32(0..=500),
        latest: random.u64(0..=5 * MILLISECOND),
        hold_ups: random.u32(0..=100),
        longest: random.u64(0..=5 * MILLISECOND),
        until: match kind {
            Kind::Isolation => 8_000 * MILLISECOND,
            _ => random.u64(10 * MILLISECOND..60 * MILLISECOND),
        },
    }
}

fn page(random: &mut fastrand::Rng, area: Area) -> u64 {
    random.u64(0..area.pages())
}

/// Three threads a blade, or one.
fn programs(random: &mut fastrand::Rng, kind: Kind, blades: u8, area: Area) -> Vec<Program> {
    let (length, syncs) = match kind {
        Kind::Protection => (random.usize(50..=300), 20),
        Kind::Room => (random.usize(40..=160), 10),
        Kind::Changes | Kind::Losses => (5 << random.u32(0..6), 2),
        Kind::Denials => (random.usize(100..=400), 2),
        Kind::Isolation | Kind::LatePackets | Kind::PacketLoss => (random.usize(40..=160), 2),
    };
    let writes = random.u8(2..=6);
    let threads = match kind {
        Kind::LatePackets | Kind::PacketLoss => 1,
        Kind::Denials => 2,
        _ => 3,
    };
    let homes = (0..blades).flat_map(|number| std::iter::repeat_n(number, threads));
    homes
        .enumerate()
        .map(|(thread, number)| {
            let length = match kind {
                Kind::Isolation if number == 0 => length + READS_BEFORE,
                _ => length,
            };
            let ops = (0..length).map(|op| {
                let place = Place {
                    area: AREA,
                    page: page(random, area),
                    word: random.usize(0..DRAWN_WORDS),
                };
                match random.u8(0..100) {
                    // It reads for so long that the others have finished.
                    _ if kind == Kind::Isolation && number == 0 && op < READS_BEFORE => {
                        Op::Load(place)
                    }
                    roll if roll < syncs => Op::Sync(AREA),
                    _ if kind == Kind::Denials && thread % threads > 0 => Op::Load(place),
                    _ if kind == Kind::Denials => Op::Store(place),
                    // The others only read, so no invalidation shows that the first blade is
                    // isolated.
                    _ if kind == Kind::Isolation && number > 0 => Op::Load(place),
                    _ if random.u8(0..10) < writes => Op::Store(place),
                    _ => Op::Load(place),
                }
            });
            Program {
                blade: blade(number),
                domain: DOMAIN,
                ops: ops.collect(),
            }
        })
        .collect()
}

fn disturbances(
    random: &mut fastrand::Rng,
    kind: Kind,
    blades: u8,
    area: Area,
    until: u64,
) -> List {
    let mut list = Vec::new();
    let mut at = 0;
    while at < until {
        match kind {
            Kind::Protection | Kind::Denials => protect(random, &mut at, &mut list),
            Kind::Changes => change(random, blades, area, &mut at, &mut list),
            Kind::Losses => lose(random, blades, area, &mut at, &mut list),
            Kind::PacketLoss => upset(random, area, &mut at, &mut list),
            Kind::LatePackets => trigger(random, area, &mut at, &mut list),
            Kind::Room => break,
            Kind::Isolation => {
                let link_down = Disturbance::LinkDown {
                    node: Node::Compute(blade(0)),
                    lasts: until,
                };
                list.push((random.u64(3 * MILLISECOND..6 * MILLISECOND), link_down));
                break;
            }
        }
    }
    list
}

/// It may not be written for a while.
fn protect(random: &mut fastrand::Rng, at: &mut u64, list: &mut List) {
    *at += random.u64(100_000..MILLISECOND);
    list.push((*at, Disturbance::Mapping(Mapping::MakeReadOnly, AREA)));
    *at += random.u64(100_000..4 * MILLISECOND);
    list.push((*at, Disturbance::Mapping(Mapping::MakeWritable, AREA)));
}

/// The region is split, merged or reset, or a daemon hangs.
fn change(random: &mut fastrand::Rng, blades: u8, area: Area, at: &mut u64, list: &mut List) {
    *at += random.u64(0..MILLISECOND);
    let page = page(random, area);
    let what = match random.u8(0..9) {
        8 => {
            let compute = blade(random.u8(0..blades));
            general::exit(random, compute, DOMAIN)
        }
        0..4 => Disturbance::Change(Change::Reset, AREA, page),
        4 => Disturbance::Change(Change::Split, AREA, page),
        5 | 6 => Disturbance::Change(Change::Merge, AREA, page),
        _ => Disturbance::Hang {
            blade: blade(random.u8(0..blades)),
            lasts: random.u64(0..8 * MILLISECOND),
        },
    };
    list.push((*at, what));
}

/// A writer crashes, perhaps while halves are merged; some time later the area is mapped anew.
fn lose(random: &mut fastrand::Rng, blades: u8, area: Area, at: &mut u64, list: &mut List) {
    let page = page(random, area);
    if random.bool() {
        let hang = Disturbance::Hang {
            blade: blade(random.u8(0..blades)),
            lasts: random.u64(0..8 * MILLISECOND),
        };
        list.push((*at, hang));
        *at += random.u64(0..8 * MILLISECOND);
    }
    if random.bool() {
        *at += random.u64(MILLISECOND / 2..2 * MILLISECOND);
        list.push((*at, Disturbance::Change(Change::Split, AREA, page)));
        *at += random.u64(MILLISECOND / 2..2 * MILLISECOND);
        list.push((*at, Disturbance::Change(Change::Merge, AREA, page)));
        *at += random.u64(0..400_000);
    } else {
        *at += random.u64(MILLISECOND / 2..3 * MILLISECOND);
    }
    for _ in 0..random.u8(1..=3) {
        let crash = Disturbance::Crash {
            blade: blade(random.u8(0..blades)),
            noticed: random.u64(0..200_000),
            back: random.u64(MILLISECOND..5 * MILLISECOND),
        };
        list.push((*at, crash));
        *at += random.u64(0..MILLISECOND);
    }
    *at += random.u64(MILLISECOND..3 * MILLISECOND);
    for mapping in [Mapping::Unmap, Mapping::Map] {
        list.push((*at, Disturbance::Mapping(mapping, AREA)));
        *at += 300_000;
    }
}

/// The second blade hangs, and the area is mapped anew meanwhile.
fn trigger(random: &mut fastrand::Rng, area: Area, at: &mut u64, list: &mut List) {
    *at += random.u64(2 * MILLISECOND..5 * MILLISECOND);
    let hang = Disturbance::Hang {
        blade: blade(1),
        lasts: random.u64(5 * MILLISECOND..8 * MILLISECOND),
    };
    list.push((*at, hang));
    *at += random.u64(6 * MILLISECOND..10 * MILLISECOND);
    let page = page(random, area);
    let crash = Disturbance::Crash {
        blade: blade(1),
        noticed: random.u64(0..200_000),
        back: random.u64(MILLISECOND..2 * MILLISECOND),
    };
    let end = match random.bool() {
        true => crash,
        false => Disturbance::Change(Change::Reset, AREA, page),
    };
    list.push((*at, end));
    *at += random.u64(500_000..2 * MILLISECOND);
    list.push((*at, Disturbance::Change(Change::Reset, AREA, page)));
    *at += random.u64(500_000..2 * MILLISECOND);
    for mapping in [Mapping::Unmap, Mapping::Map] {
        list.push((*at, Disturbance::Mapping(mapping, AREA)));
        *at += 300_000;
    }
}

/// It is reset twice in a row, or a writer crashes and the area is mapped anew.
fn upset(random: &mut fastrand::Rng, area: Area, at: &mut u64, list: &mut List) {
    *at += random.u64(MILLISECOND..4 * MILLISECOND);
    let page = page(random, area);
    if random.bool() {
        for _ in 0..2 {
            list.push((*at, Disturbance::Change(Change::Reset, AREA, page)));
            *at += random.u64(200_000..MILLISECOND);
        }
        return;
    }
    let crash = Disturbance::Crash {
        blade: blade(random.u8(0..2)),
        noticed: random.u64(0..200_000),
        back: random.u64(MILLISECOND..2 * MILLISECOND),
    };
    list.push((*at, crash));
    *at += random.u64(MILLISECOND..2 * MILLISECOND);
    for mapping in [Mapping::Unmap, Mapping::Map] {
        list.push((*at, Disturbance::Mapping(mapping, AREA)));
        *at += 300_000;
    }
}
