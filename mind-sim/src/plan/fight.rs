//! Runs in which everybody wants the same few pages while the region that they are in changes all
//! the time, packets of long ago arrive, and daemons and controller come late: what happens only
//! when several things meet within microseconds.

use mind_common::{
    addr::{PAGE_SHIFT, Region, Va, WINDOW_BASE},
    id::DomainId,
};

use super::{
    Area, Change, Disturbance, Load, MILLISECOND, Mapping, Op, Place, Plan, Program, WORDS,
    Weather, blade, dice,
};

/// Whose memory it is.
const DOMAIN: DomainId = DomainId(1);

/// What is done to the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It is made read-only and writable again.
    Protection,
    /// It is split, joined and given up by all.
    Changes,
    /// Its writers die while its halves are joined, and accesses fail from then on.
    Losses,
}

/// The run that a seed stands for.
pub(super) fn plan(seed: u64) -> Plan {
    let mut random = dice(seed, 1);
    let random = &mut random;
    let kind = [Kind::Protection, Kind::Changes, Kind::Losses][random.usize(0..3)];
    let blades = random.u8(2..=4);
    let order = random.u8(1..=2);
    let region = Region::containing(Va(WINDOW_BASE), order)
        .unwrap_or_else(|| unreachable!("regions have such orders"));
    let weather = Weather {
        loss: random.u32(0..=50),
        duplication: random.u32(0..=700),
        lateness: random.u32(0..=500),
        latest: random.u64(0..=5 * MILLISECOND),
        until: random.u64(5 * MILLISECOND..20 * MILLISECOND),
    };
    let programs = programs(random, kind, blades, region);
    Plan {
        seed,
        blades,
        memories: 1,
        capacity: if random.bool() {
            random.usize(1..=3)
        } else {
            1024
        },
        areas: vec![Area {
            domain: DOMAIN,
            region,
            fails: kind == Kind::Losses,
            is_writable: true,
            is_mapped: true,
        }],
        programs,
        pace: 1_000 << random.u32(0..8),
        load: Load {
            daemons: 20_000 << random.u32(0..6),
            controller: 5_000 << random.u32(0..8),
        },
        weather,
        disturbances: disturbances(random, kind, blades, region, weather.until),
        flaw: None,
    }
}

fn page(random: &mut fastrand::Rng, region: Region) -> Va {
    let pages = region.size() >> PAGE_SHIFT;
    Va(region.base().0 + (random.u64(0..pages) << PAGE_SHIFT))
}

/// Two or three threads a blade.
fn programs(random: &mut fastrand::Rng, kind: Kind, blades: u8, region: Region) -> Vec<Program> {
    let length = random.usize(20..=80);
    let syncs = if kind == Kind::Protection { 8 } else { 2 };
    let writes = random.u8(2..=6);
    let homes = (0..blades).flat_map(|number| [number, number]);
    homes
        .map(|number| {
            let ops = (0..length).map(|_| {
                let place = Place {
                    page: page(random, region),
                    word: random.usize(0..WORDS),
                };
                match random.u8(0..100) {
                    roll if roll < syncs => Op::Sync(region),
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
) -> Vec<(u64, Disturbance)> {
    let mut list = Vec::new();
    let mut at = 0;
    while at < until {
        at += random.u64(0..MILLISECOND);
        let va = page(random, region);
        let crash = Disturbance::Crash {
            blade: blade(random.u8(0..blades)),
            noticed: random.u64(0..200_000),
            back: random.u64(MILLISECOND..5 * MILLISECOND),
        };
        let what = match (kind, random.u8(0..8)) {
            (Kind::Protection, 0..4) => Disturbance::Mapping(Mapping::Freeze, DOMAIN, region),
            (Kind::Protection, 4..7) => Disturbance::Mapping(Mapping::Thaw, DOMAIN, region),
            (Kind::Protection, _) => Disturbance::Change(Change::Reset, va),
            (Kind::Changes, 0..3) => Disturbance::Change(Change::Reset, va),
            (Kind::Changes, 3 | 4) => Disturbance::Change(Change::Split, va),
            (Kind::Changes, 5 | 6) => Disturbance::Change(Change::Merge, va),
            (Kind::Losses, 0 | 1) => Disturbance::Change(Change::Split, va),
            (Kind::Losses, 2..5) => Disturbance::Change(Change::Merge, va),
            (Kind::Losses, 5) if random.bool() => {
                Disturbance::Mapping(Mapping::Unmap, DOMAIN, region)
            }
            (Kind::Losses, 5) => Disturbance::Mapping(Mapping::Map, DOMAIN, region),
            (Kind::Losses, 6 | 7) => crash,
            (Kind::Changes | Kind::Losses, _) => Disturbance::Hang {
                blade: blade(random.u8(0..blades)),
                lasts: random.u64(0..MILLISECOND),
            },
        };
        list.push((at, what));
    }
    list
}
