//! Runs in which everybody wants the same few pages while the region that they are in changes all
//! the time, packets of long ago arrive, and daemons and controller come late: what happens only
//! when several things meet within microseconds.

mod follow;

use mind_common::{
    addr::{PAGE_SHIFT, Region, Va, WINDOW_BASE},
    id::DomainId,
};
use mind_machines::Node;

use super::{
    Area, Change, DRAWN_WORDS, Disturbance, Load, MILLISECOND, Mapping, Op, Place, Plan, Program,
    Weather, blade, dice, general,
};

/// Whose memory it is.
const DOMAIN: DomainId = DomainId(1);

/// What a blade reads before nobody hears it.
const LULL: usize = 3_000;

/// What happens, and when.
type List = Vec<(u64, Disturbance)>;

/// What is done to the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It is made read-only and writable again.
    Protection,
    /// It is split, joined and given up by all.
    Changes,
    /// Its writers die while its halves are joined, and accesses fail from then on.
    Losses,
    /// A blade stands still while another asks, and what it asked arrives when all is over.
    Echoes,
    /// Nothing, but there is hardly any room in the caches.
    Room,
    /// It is given up and its writers die, and half of what is said is lost.
    Deafness,
    /// It is read-only half of the time, and wanted back from those who want to write it.
    Denials,
    /// Nothing, but the only blade that writes hears from nobody until it gives up.
    Silence,
}

impl Kind {
    /// Of sixteen dice.
    const fn of(roll: u8) -> Self {
        match roll {
            0..2 => Self::Protection,
            2..4 => Self::Denials,
            4..7 => Self::Changes,
            7..9 => Self::Losses,
            9..12 => Self::Room,
            12 | 13 => Self::Echoes,
            14 => Self::Deafness,
            _ => Self::Silence,
        }
    }
}

/// The run that a seed stands for.
pub(super) fn plan(seed: u64) -> Plan {
    let mut random = dice(seed, 1);
    let random = &mut random;
    let kind = Kind::of(random.u8(0..16));
    let blades = match kind {
        Kind::Echoes | Kind::Deafness => 2,
        _ => random.u8(2..=4),
    };
    let order = 1 + u8::from(random.u8(0..4) == 0);
    let region = Region::containing(Va(WINDOW_BASE), order)
        .unwrap_or_else(|| unreachable!("regions have such orders"));
    let weather = weather(random, kind);
    let programs = programs(random, kind, blades, region);
    let capacity = match kind {
        Kind::Room => random.usize(1..=2),
        _ if random.u8(0..4) == 0 => random.usize(1..=3),
        _ => 1024,
    };
    let pace = 1_000
        << random.u32(match kind {
            Kind::Silence => 1..3,
            Kind::Deafness => 7..9,
            Kind::Denials => 0..4,
            Kind::Protection | Kind::Room => 0..7,
            Kind::Changes | Kind::Losses => 0..12,
            Kind::Echoes => 8..12,
        });
    let daemons = 20_000
        << random.u32(match kind {
            Kind::Room => 3..7,
            Kind::Protection | Kind::Denials | Kind::Echoes | Kind::Deafness => 0..2,
            Kind::Changes | Kind::Losses | Kind::Silence => 0..8,
        });
    Plan {
        seed,
        blades,
        memories: 1,
        capacity,
        areas: vec![Area {
            domain: DOMAIN,
            region,
            fails: matches!(kind, Kind::Losses | Kind::Deafness)
                || kind == Kind::Echoes && random.bool(),
            is_writable: true,
            is_mapped: true,
        }],
        programs,
        pace,
        load: Load {
            faults: daemons,
            late_faults: 1000,
            timers: daemons,
            controller: 5_000 << random.u32(0..8),
            hold: match kind {
                Kind::Denials => 10_000 << random.u32(2..7),
                _ => Load::default().hold,
            },
        },
        weather,
        disturbances: disturbances(random, kind, blades, region, weather.until),
        echoes: follow::echoes(kind, region),
        flaw: None,
    }
}

fn weather(random: &mut fastrand::Rng, kind: Kind) -> Weather {
    let set = |loss, duplication, lateness, until| Weather {
        loss,
        duplication,
        lateness,
        latest: 5 * MILLISECOND,
        until: until * MILLISECOND,
    };
    match kind {
        Kind::Echoes => return set(0, 1000, 800, 150),
        Kind::Deafness => return set(400, 500, 200, 100),
        _ => {}
    }
    let is_lossy = matches!(kind, Kind::Changes | Kind::Losses) && random.bool();
    Weather {
        loss: random.u32(if is_lossy { 100..=300 } else { 0..=20 }),
        duplication: random.u32(0..=1000),
        lateness: random.u32(0..=500),
        latest: random.u64(0..=5 * MILLISECOND),
        until: match kind {
            Kind::Silence => 8_000 * MILLISECOND,
            _ => random.u64(10 * MILLISECOND..60 * MILLISECOND),
        },
    }
}

fn page(random: &mut fastrand::Rng, region: Region) -> Va {
    let pages = region.size() >> PAGE_SHIFT;
    Va(region.base().0 + (random.u64(0..pages) << PAGE_SHIFT))
}

/// Three threads a blade, or one.
fn programs(random: &mut fastrand::Rng, kind: Kind, blades: u8, region: Region) -> Vec<Program> {
    let (length, syncs) = match kind {
        Kind::Protection => (random.usize(50..=300), 20),
        Kind::Room => (random.usize(40..=160), 10),
        Kind::Changes | Kind::Losses => (5 << random.u32(0..6), 2),
        Kind::Denials => (random.usize(100..=400), 2),
        Kind::Silence | Kind::Echoes | Kind::Deafness => (random.usize(40..=160), 2),
    };
    let writes = random.u8(2..=6);
    let threads = match kind {
        Kind::Echoes | Kind::Deafness => 1,
        Kind::Denials => 2,
        _ => 3,
    };
    let homes = (0..blades).flat_map(|number| std::iter::repeat_n(number, threads));
    homes
        .enumerate()
        .map(|(thread, number)| {
            let length = match kind {
                Kind::Silence if number == 0 => length + LULL,
                _ => length,
            };
            let ops = (0..length).map(|op| {
                let place = Place {
                    page: page(random, region),
                    word: random.usize(0..DRAWN_WORDS),
                };
                match random.u8(0..100) {
                    // It reads for so long that the others are through.
                    _ if kind == Kind::Silence && number == 0 && op < LULL => Op::Load(place),
                    roll if roll < syncs => Op::Sync(region),
                    _ if kind == Kind::Denials && thread % threads > 0 => Op::Load(place),
                    _ if kind == Kind::Denials => Op::Store(place),
                    // Nobody else's wish makes it known that the first blade is not heard.
                    _ if kind == Kind::Silence && number > 0 => Op::Load(place),
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
    region: Region,
    until: u64,
) -> List {
    let mut list = Vec::new();
    let mut at = 0;
    while at < until {
        match kind {
            Kind::Protection | Kind::Denials => protect(random, region, &mut at, &mut list),
            Kind::Changes => change(random, blades, region, &mut at, &mut list),
            Kind::Losses => lose(random, blades, region, &mut at, &mut list),
            Kind::Deafness => upset(random, region, &mut at, &mut list),
            Kind::Echoes => echo(random, region, &mut at, &mut list),
            Kind::Room => break,
            Kind::Silence => {
                let unplug = Disturbance::Unplug {
                    node: Node::Compute(blade(0)),
                    lasts: until,
                };
                list.push((random.u64(3 * MILLISECOND..6 * MILLISECOND), unplug));
                break;
            }
        }
    }
    list
}

/// It may not be written for a while.
fn protect(random: &mut fastrand::Rng, region: Region, at: &mut u64, list: &mut List) {
    *at += random.u64(100_000..MILLISECOND);
    list.push((*at, Disturbance::Mapping(Mapping::Freeze, DOMAIN, region)));
    *at += random.u64(100_000..4 * MILLISECOND);
    list.push((*at, Disturbance::Mapping(Mapping::Thaw, DOMAIN, region)));
}

/// The region is another, or a daemon stands still.
fn change(random: &mut fastrand::Rng, blades: u8, region: Region, at: &mut u64, list: &mut List) {
    *at += random.u64(0..MILLISECOND);
    let va = page(random, region);
    let what = match random.u8(0..9) {
        8 => {
            let compute = blade(random.u8(0..blades));
            general::exit(random, compute, DOMAIN)
        }
        0..4 => Disturbance::Change(Change::Reset, va),
        4 => Disturbance::Change(Change::Split, va),
        5 | 6 => Disturbance::Change(Change::Merge, va),
        _ => Disturbance::Hang {
            blade: blade(random.u8(0..blades)),
            lasts: random.u64(0..8 * MILLISECOND),
        },
    };
    list.push((*at, what));
}

/// Somebody who wrote fails, perhaps while halves are joined; some time later all begins anew.
fn lose(random: &mut fastrand::Rng, blades: u8, region: Region, at: &mut u64, list: &mut List) {
    let va = page(random, region);
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
        list.push((*at, Disturbance::Change(Change::Split, va)));
        *at += random.u64(MILLISECOND / 2..2 * MILLISECOND);
        list.push((*at, Disturbance::Change(Change::Merge, va)));
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
        list.push((*at, Disturbance::Mapping(mapping, DOMAIN, region)));
        *at += 300_000;
    }
}

/// The second blade stands still, and when it goes on all that there was is gone.
fn echo(random: &mut fastrand::Rng, region: Region, at: &mut u64, list: &mut List) {
    *at += random.u64(2 * MILLISECOND..5 * MILLISECOND);
    let hang = Disturbance::Hang {
        blade: blade(1),
        lasts: random.u64(5 * MILLISECOND..8 * MILLISECOND),
    };
    list.push((*at, hang));
    *at += random.u64(6 * MILLISECOND..10 * MILLISECOND);
    let va = page(random, region);
    let crash = Disturbance::Crash {
        blade: blade(1),
        noticed: random.u64(0..200_000),
        back: random.u64(MILLISECOND..2 * MILLISECOND),
    };
    let end = match random.bool() {
        true => crash,
        false => Disturbance::Change(Change::Reset, va),
    };
    list.push((*at, end));
    *at += random.u64(500_000..2 * MILLISECOND);
    list.push((*at, Disturbance::Change(Change::Reset, va)));
    *at += random.u64(500_000..2 * MILLISECOND);
    for mapping in [Mapping::Unmap, Mapping::Map] {
        list.push((*at, Disturbance::Mapping(mapping, DOMAIN, region)));
        *at += 300_000;
    }
}

/// It is given up twice in a row, or a writer fails and all begins anew.
fn upset(random: &mut fastrand::Rng, region: Region, at: &mut u64, list: &mut List) {
    *at += random.u64(MILLISECOND..4 * MILLISECOND);
    let va = page(random, region);
    if random.bool() {
        for _ in 0..2 {
            list.push((*at, Disturbance::Change(Change::Reset, va)));
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
        list.push((*at, Disturbance::Mapping(mapping, DOMAIN, region)));
        *at += 300_000;
    }
}
