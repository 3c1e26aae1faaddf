//! What a run is: who is there, what programs do, what goes wrong. Explicit lists, so that a run
//! can be cut down to what matters; how long things take and which packets are lost is thrown from
//! the seed as the run goes.

use mind_common::{
    addr::{MAX_REGION_ORDER, PAGE_SHIFT, Region, SLICE_SHIFT, Va, WINDOW_BASE},
    id::{BladeId, DomainId},
};
use mind_nodes::Node;

use crate::flaw::Flaw;

/// Words of a page that somebody looks at; they stand for all 512.
pub const WORDS: usize = 4;

/// What is in a page.
pub type Image = [u64; WORDS];

/// Milliseconds, in nanoseconds.
pub const MILLISECOND: u64 = 1_000_000;

/// A quick thread's pace, in nanoseconds.
pub(crate) const QUICK: u64 = 50_000;

/// A word in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The address of its page.
    pub page: Va,
    /// Which of the page's words, below [`WORDS`].
    pub word: usize,
}

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Reads a word.
    Load(Place),
    /// Writes a word.
    Store(Place),
    /// Reads and writes a word in one.
    Exchange(Place),
    /// Has what was written into these pages written back.
    Sync(Region),
    /// Has an area mapped, unmapped or protected.
    Mapping(Mapping, Region),
}

impl Op {
    /// Whether it is about that region.
    pub(crate) fn is_within(self, region: Region) -> bool {
        match self {
            Self::Load(place) | Self::Store(place) | Self::Exchange(place) => {
                region.contains(place.page)
            }
            Self::Sync(of) | Self::Mapping(_, of) => region.contains(of.base()),
        }
    }
}

/// What may be done to an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mapping {
    /// It is there, zeroed.
    Map,
    /// It is there no more.
    Unmap,
    /// It may be read only.
    Freeze,
    /// It may be read and written.
    Thaw,
}

/// A thread of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// On which blade.
    pub blade: BladeId,
    /// In which protection domain.
    pub domain: DomainId,
    /// What it does, one after the other.
    pub ops: Vec<Op>,
}

/// Memory of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Whose it is.
    pub domain: DomainId,
    /// Where, as one region at first.
    pub region: Region,
    /// Whether accesses fail after writes were lost.
    pub fails: bool,
    /// Whether it may be written at first.
    pub is_writable: bool,
    /// Whether it is mapped from the beginning. Of several areas of one region, one is.
    pub is_mapped: bool,
}

/// What the network does until its faults stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weather {
    /// Of 1000 packets on a cable, how many are lost.
    pub loss: u32,
    /// Of 1000 packets on a cable, how many come more than once.
    pub duplication: u32,
    /// Of 1000 packets on a cable, how many are late.
    pub lateness: u32,
    /// How late a packet may be, in nanoseconds.
    pub latest: u64,
    /// When the faults stop, in nanoseconds.
    pub until: u64,
}

/// Something that happens to the system from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Disturbance {
    /// An operator, or the policy, changes the region that the address is in.
    Change(Change, Va),
    /// Somebody maps, unmaps or protects the domain's area.
    Mapping(Mapping, DomainId, Region),
    /// A memory blade cannot zero pages.
    Unzeroed {
        /// Which.
        memory: u8,
        /// For how long, in nanoseconds.
        lasts: u64,
    },
    /// The program in TC is gone from a compute blade's port.
    WithoutTc {
        /// Whose.
        blade: BladeId,
        /// For how long, in nanoseconds.
        lasts: u64,
    },
    /// Nothing passes a cable.
    Unplug {
        /// Whose.
        node: Node,
        /// For how long, in nanoseconds.
        lasts: u64,
    },
    /// The daemon of a compute blade stands still, and goes on where it was; programs run on what
    /// they have.
    Hang {
        /// Whose.
        blade: BladeId,
        /// For how long, in nanoseconds.
        lasts: u64,
    },
    /// The connection between a compute blade and the controller breaks: what either says is lost.
    Sever {
        /// Whose.
        blade: BladeId,
        /// After how many nanoseconds the controller finds out.
        noticed: u64,
        /// After how many nanoseconds the blade finds out, and begins a new life.
        found: u64,
    },
    /// A compute blade fails, with all that it has.
    Crash {
        /// Which.
        blade: BladeId,
        /// After how many nanoseconds the controller finds out.
        noticed: u64,
        /// After how many nanoseconds it begins a new life.
        back: u64,
    },
}

impl Disturbance {
    /// The compute blade that it happens to, if it happens to one.
    pub(crate) const fn blade(self) -> Option<BladeId> {
        match self {
            Self::Crash { blade, .. }
            | Self::Hang { blade, .. }
            | Self::WithoutTc { blade, .. }
            | Self::Sever { blade, .. }
            | Self::Unplug {
                node: Node::Compute(blade),
                ..
            } => Some(blade),
            Self::Unplug { .. } | Self::Change(..) | Self::Mapping(..) | Self::Unzeroed { .. } => {
                None
            }
        }
    }
}

/// What may be done to a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// Everybody gives it up.
    Reset,
    /// Its halves become regions.
    Split,
    /// It joins its other half.
    Merge,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Of all dice that are thrown as the run goes.
    pub seed: u64,
    /// Compute blades.
    pub blades: u8,
    /// Memory blades.
    pub memories: u8,
    /// Pages that a compute blade may cache.
    pub capacity: usize,
    /// Of the domains' memory.
    pub areas: Vec<Area>,
    /// The threads.
    pub programs: Vec<Program>,
    /// What a thread does between two operations takes at most so long, in nanoseconds.
    pub pace: u64,
    /// The network.
    pub weather: Weather,
    /// What else happens, and when, in nanoseconds.
    pub disturbances: Vec<(u64, Disturbance)>,
    /// What is broken on purpose.
    pub flaw: Option<Flaw>,
}

/// The blade with that number, which is below [`mind_common::id::MAX_BLADES`].
pub(crate) const fn blade(number: u8) -> BladeId {
    BladeId::from_low_bits(number as u64)
}

/// The dice of one of many uses, so that one more throw of one leaves the others as they are.
pub(crate) fn dice(seed: u64, purpose: u64) -> fastrand::Rng {
    let mut first = fastrand::Rng::with_seed(seed);
    let mixed = first.u64(..) ^ purpose.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    fastrand::Rng::with_seed(mixed)
}

impl Plan {
    /// The run that a seed stands for.
    pub fn of_seed(seed: u64) -> Self {
        let mut random = dice(seed, 1);
        let random = &mut random;
        let blades = random.u8(2..=8);
        let memories = random.u8(1..=2);
        let domains = random.u32(1..=2);
        let areas = areas(random, memories, domains);
        let weather = weather(random);
        let programs = programs(random, blades, &areas);
        let disturbances = disturbances(random, blades, memories, &areas, weather.until);
        Self {
            seed,
            blades,
            memories,
            capacity: if random.bool() {
                random.usize(2..=16)
            } else {
                1024
            },
            areas,
            programs,
            // Most are busy for as long as things go wrong.
            pace: match random.u8(0..4) {
                0 => QUICK,
                _ => QUICK.max(weather.until / 20),
            },
            weather,
            disturbances,
            flaw: None,
        }
    }

    /// That area of the domain's.
    pub(crate) fn area_of(&self, domain: DomainId, region: Region) -> Option<&Area> {
        let is_it = |area: &&Area| area.domain == domain && area.region == region;
        self.areas.iter().find(is_it)
    }

    /// When the last of what goes wrong is over, in nanoseconds.
    pub(crate) fn calm_at(&self) -> u64 {
        let ends = self.disturbances.iter().map(|(at, what)| match *what {
            Disturbance::Change(..) | Disturbance::Mapping(..) => *at,
            Disturbance::Hang { lasts, .. }
            | Disturbance::WithoutTc { lasts, .. }
            | Disturbance::Unzeroed { lasts, .. } => at.saturating_add(lasts),
            Disturbance::Sever { noticed, found, .. } => at.saturating_add(noticed.max(found)),
            Disturbance::Crash { noticed, back, .. } => at.saturating_add(noticed.max(back)),
            // Not beyond the end of the weather.
            Disturbance::Unplug { .. } => *at,
        });
        ends.max().unwrap_or(0).max(self.weather.until)
    }

    /// How many things its programs do.
    pub fn operations(&self) -> usize {
        self.programs.iter().map(|program| program.ops.len()).sum()
    }
}

/// Areas apart from each other, so that no region can grow into another; a few of them of two domains,
/// one after the other.
fn areas(random: &mut fastrand::Rng, memories: u8, domains: u32) -> Vec<Area> {
    let mut areas = Vec::new();
    for number in 0..random.u64(1..=8) {
        let memory = u64::from(random.u8(0..memories));
        let base = WINDOW_BASE
            + (memory << SLICE_SHIFT)
            + (number << (PAGE_SHIFT + u32::from(MAX_REGION_ORDER)));
        let order = random.u8(0..=5);
        let area = Area {
            domain: DomainId(1 + number as u32 % domains),
            region: Region::containing(Va(base), order)
                .unwrap_or_else(|| unreachable!("the orders of areas are those of regions")),
            fails: random.u8(0..4) == 0,
            is_writable: random.u8(0..12) != 0,
            is_mapped: random.u8(0..12) != 0,
        };
        areas.push(area);
        if random.u8(0..4) == 0 {
            areas.push(Area {
                domain: DomainId(1 + random.u32(0..domains)),
                is_mapped: false,
                ..area
            });
        }
    }
    areas
}

fn mapping(random: &mut fastrand::Rng) -> Mapping {
    match random.u8(0..8) {
        0..3 => Mapping::Map,
        3 => Mapping::Unmap,
        4 | 5 => Mapping::Freeze,
        _ => Mapping::Thaw,
    }
}

fn weather(random: &mut fastrand::Rng) -> Weather {
    let until = match random.u8(0..16) {
        // Long enough for blades to give up.
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
    Weather {
        loss: up_to(300),
        duplication: up_to(500),
        lateness: up_to(300),
        latest: random.u64(0..=5 * MILLISECOND),
        until,
    }
}

fn pick(random: &mut fastrand::Rng, area: &Area, hot: u64) -> Va {
    let pages = area.region.size() >> PAGE_SHIFT;
    // A few pages are fought over, or nothing happens between blades.
    let among = if random.u8(0..4) == 0 {
        pages
    } else {
        hot.min(pages)
    };
    Va(area.region.base().0 + (random.u64(0..among) << PAGE_SHIFT))
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
            let own: Vec<_> = areas.iter().filter(|area| area.domain == domain).collect();
            let ops = (0..length).map(|_| {
                let area = own[random.usize(0..own.len())];
                let place = Place {
                    page: pick(random, area, hot),
                    word: random.usize(0..WORDS),
                };
                let foreign = &areas[random.usize(0..areas.len())];
                match random.u16(0..120) {
                    0..3 => Op::Sync(area.region),
                    3 => Op::Mapping(mapping(random), area.region),
                    4 => Op::Load(Place {
                        page: pick(random, foreign, hot),
                        ..place
                    }),
                    5 => Op::Store(Place {
                        page: pick(random, foreign, hot),
                        ..place
                    }),
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

/// How long something lasts: mostly until somebody asks again, or until blades are sent away.
fn duration(random: &mut fastrand::Rng) -> u64 {
    match random.u8(0..8) {
        0 => random.u64(0..7_000 * MILLISECOND),
        1 => random.u64(0..4_000 * MILLISECOND),
        _ => random.u64(0..50 * MILLISECOND),
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
            let area = &areas[random.usize(0..areas.len())];
            let compute = blade(random.u8(0..blades));
            let what = match random.u8(0..16) {
                0..3 if crashes => Disturbance::Crash {
                    blade: compute,
                    // A daemon that dies is missed at once, a host after a while.
                    noticed: if random.bool() {
                        random.u64(0..MILLISECOND)
                    } else {
                        random.u64(0..20 * MILLISECOND)
                    },
                    back: random.u64(MILLISECOND..100 * MILLISECOND),
                },
                3 | 4 => Disturbance::Change(Change::Reset, pick(random, area, 8)),
                5 | 6 => Disturbance::Change(Change::Split, pick(random, area, 8)),
                7 => Disturbance::Change(Change::Merge, pick(random, area, 8)),
                8 => Disturbance::Hang {
                    blade: compute,
                    lasts: duration(random),
                },
                9 if crashes => Disturbance::Sever {
                    blade: compute,
                    noticed: duration(random),
                    found: duration(random),
                },
                10 => Disturbance::Unzeroed {
                    memory: random.u8(0..memories),
                    lasts: duration(random),
                },
                11 => Disturbance::WithoutTc {
                    blade: compute,
                    lasts: duration(random),
                },
                12 | 13 => Disturbance::Mapping(mapping(random), area.domain, area.region),
                _ => Disturbance::Unplug {
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
