//! What a run is: who is there, what programs do, what goes wrong. Explicit lists, so that a run
//! can be cut down to what matters; how long things take and which packets are lost is thrown from
//! the seed as the run goes.
//!
//! * `general`: runs in which a bit of everything happens,
//! * `fight`: runs in which little is fought over,
//! * `scene`: runs in which something is done step by step,
//! * `text`: what people read of a plan.

mod fight;
mod general;
mod scene;
pub(crate) mod text;

use mind_common::{
    addr::{Region, Va},
    id::{BladeId, DomainId},
};
use mind_machines::Node;

use crate::{
    echo::{Echo, Then},
    flaw::Flaw,
};

/// Words of a page that somebody looks at; they stand for all 512. A litmus test has as many variables
/// on a page at most.
pub const WORDS: usize = 8;

/// Those of them that the plans of seeds use, the first ones: few, so that threads meet at the same one.
pub(crate) const DRAWN_WORDS: usize = 4;

const _: () = assert!(DRAWN_WORDS <= WORDS);

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
    /// Waits until that time, in nanoseconds.
    Until(u64),
}

impl Op {
    /// Whether it is about that region.
    pub(crate) fn is_within(self, region: Region) -> bool {
        match self {
            Self::Load(place) | Self::Store(place) | Self::Exchange(place) => {
                region.contains(place.page)
            }
            Self::Sync(of) | Self::Mapping(_, of) => region.contains(of.base()),
            Self::Until(_) => false,
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

/// How late those are who have more to do than they can, until nothing goes wrong any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// How late a compute blade's daemon hears of a fault, at most, in nanoseconds.
    pub faults: u64,
    /// Of 1000 faults, how many are that late; it hears of the others at once.
    pub late_faults: u32,
    /// How late it looks at its timers, at most, in nanoseconds.
    pub timers: u64,
    /// What a step of the controller's takes, at most, in nanoseconds.
    pub controller: u64,
    /// How long a compute blade keeps a page at least, in nanoseconds; for the whole run.
    pub hold: u64,
}

impl Default for Load {
    /// Nobody has much to do.
    fn default() -> Self {
        Self {
            faults: 20_000,
            late_faults: 1000,
            timers: 20_000,
            controller: 5_000,
            hold: 10_000,
        }
    }
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
    /// Threads of a domain on a compute blade fail, its first ones; what others there have stays.
    Exit {
        /// On which.
        blade: BladeId,
        /// Of which domain.
        domain: DomainId,
        /// How many; all, if there are no more.
        threads: usize,
        /// After how many nanoseconds they are started again.
        back: u64,
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
            | Self::Exit { blade, .. }
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
    /// How late daemons and controller are.
    pub load: Load,
    /// The network.
    pub weather: Weather,
    /// What else happens, and when, in nanoseconds.
    pub disturbances: Vec<(u64, Disturbance)>,
    /// What follows when something happens.
    pub echoes: Vec<Echo>,
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

/// One blade with one region of two pages, on which nobody does anything and nothing goes wrong.
#[cfg(test)]
pub(crate) fn calm(until: u64) -> Plan {
    let region = Region::containing(Va(mind_common::addr::WINDOW_BASE), 1);
    Plan {
        seed: 1,
        blades: 1,
        memories: 1,
        capacity: 8,
        areas: vec![Area {
            domain: DomainId(1),
            region: region.unwrap_or_else(|| unreachable!("regions have such orders")),
            fails: false,
            is_writable: true,
            is_mapped: true,
        }],
        programs: Vec::new(),
        pace: 1_000,
        load: Load::default(),
        weather: Weather {
            loss: 0,
            duplication: 0,
            lateness: 0,
            latest: 0,
            until,
        },
        disturbances: Vec::new(),
        echoes: Vec::new(),
        flaw: None,
    }
}

impl Plan {
    /// The run that a seed stands for: every fifth is a scene, and every second of the others a fight.
    pub fn of_seed(seed: u64) -> Self {
        match seed % 5 {
            4 => scene::plan(seed),
            _ if seed % 2 == 1 => fight::plan(seed),
            _ => general::plan(seed),
        }
    }

    /// That area of the domain's.
    pub(crate) fn area_of(&self, domain: DomainId, region: Region) -> Option<&Area> {
        let is_it = |area: &&Area| area.domain == domain && area.region == region;
        self.areas.iter().find(is_it)
    }

    /// When the last of what goes wrong is over, in nanoseconds.
    pub(crate) fn calm_at(&self) -> u64 {
        let followers = self.echoes.iter().filter_map(|echo| match echo.then {
            Then::Happens(what) => Some((self.weather.until + echo.within, what)),
            Then::Arrives(_) => None,
        });
        let disturbances = self.disturbances.iter().copied().chain(followers);
        let ends = disturbances.map(|(at, what)| match what {
            Disturbance::Change(..) | Disturbance::Mapping(..) => at,
            Disturbance::Hang { lasts, .. }
            | Disturbance::WithoutTc { lasts, .. }
            | Disturbance::Unzeroed { lasts, .. } => at.saturating_add(lasts),
            Disturbance::Exit { back, .. } => at.saturating_add(back),
            Disturbance::Sever { noticed, found, .. } => at.saturating_add(noticed.max(found)),
            Disturbance::Crash { noticed, back, .. } => at.saturating_add(noticed.max(back)),
            // Not beyond the end of the weather.
            Disturbance::Unplug { .. } => at,
        });
        ends.max().unwrap_or(0).max(self.weather.until)
    }

    /// How many things its programs do.
    pub fn operations(&self) -> usize {
        self.programs.iter().map(|program| program.ops.len()).sum()
    }
}
