//! The description of a run: blades, programs' operations, faults. Explicit lists, so that a run
//! can be reduced to what matters; durations and lost packets are drawn from the seed during the
//! run.
//!
//! * `general`: runs with a mix of all disturbances,
//! * `contention`: runs in which all blades access the same few pages,
//! * `requests`: runs with many requests to the controller at once,
//! * `incidents`: what the controller's operations meet in a phase, of the last two,
//! * `sequence`: runs in which blades follow a fixed sequence of steps,
//! * `text`: plans as text.

mod contention;
mod general;
mod incidents;
mod requests;
mod sequence;
pub(crate) mod text;

use mind_common::{
    addr::{PAGE_SHIFT, PAGE_SIZE},
    id::BladeId,
};
use mind_machines::{
    Node,
    controller::{books::memory::GRANULE, phase::Phase},
};

use crate::{
    flaw::Flaw,
    trigger::{Effect, Trigger},
};

/// Words of a page that are simulated; they stand for all 512. A litmus test has as many variables on a page at most.
pub const WORDS: usize = 8;

/// Those of them that the plans of seeds use, the first ones: few, so that threads meet at the same one.
pub(crate) const DRAWN_WORDS: usize = 4;

const _: () = assert!(DRAWN_WORDS <= WORDS);

/// The content of a page.
pub type Image = [u64; WORDS];

/// Milliseconds, in nanoseconds.
pub const MILLISECOND: u64 = 1_000_000;

/// A controller that is to die does so within this time, in nanoseconds.
pub(crate) const DYING: u64 = 5 * MILLISECOND;

/// How long a controller that takes over waits for agents to come back, in nanoseconds.
pub(crate) const GRACE: u64 = 1_000 * MILLISECOND;

/// A quick thread's pace, in nanoseconds.
pub(crate) const QUICK: u64 = 50_000;

/// A word in shared memory. The controller chooses addresses, so a plan names an area by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// In which of the plan's areas.
    pub area: usize,
    /// Which of the area's pages.
    pub page: u64,
    /// Which of the page's words, below [`WORDS`].
    pub word: usize,
}

/// An operation of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Reads a word.
    Load(Place),
    /// Writes a word.
    Store(Place),
    /// Reads and writes a word in one.
    Exchange(Place),
    /// Syncs an area.
    Sync(usize),
    /// Maps, unmaps or protects an area.
    Mapping(Mapping, usize),
    /// Waits until that time, in nanoseconds.
    Until(u64),
}

impl Op {
    /// The area that it concerns, if it concerns one.
    pub(crate) const fn area_mut(&mut self) -> Option<&mut usize> {
        match self {
            Self::Load(place) | Self::Store(place) | Self::Exchange(place) => Some(&mut place.area),
            Self::Sync(area) | Self::Mapping(_, area) => Some(area),
            Self::Until(_) => None,
        }
    }
}

/// What may be done to an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mapping {
    /// It is mapped, zeroed.
    Map,
    /// It is unmapped.
    Unmap,
    /// It may be read only.
    MakeReadOnly,
    /// It may be read and written.
    MakeWritable,
}

/// A thread of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// On which blade.
    pub blade: BladeId,
    /// In which of the plan's protection domains.
    pub domain: usize,
    /// Its operations, in order.
    pub ops: Vec<Op>,
}

/// Memory of a domain, one vma while it is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// The domain that it belongs to.
    pub domain: usize,
    /// The binary logarithm of its pages: an area is one entry of the protection table.
    pub order: u8,
    /// Whether it may be written at first.
    pub is_writable: bool,
    /// Whether it is mapped from the beginning.
    pub is_mapped: bool,
    /// Whether it has a name: it is opened and closed again, and stays until its name is removed.
    pub is_named: bool,
}

impl Area {
    /// How many pages it has.
    pub const fn pages(self) -> u64 {
        1 << self.order
    }

    /// How many bytes it has.
    pub(crate) const fn length(self) -> u64 {
        self.pages() << PAGE_SHIFT
    }
}

/// The faults of the network until they stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkFaults {
    /// Of 1000 packets on a cable, how many are lost.
    pub loss: u32,
    /// Of 1000 packets on a cable, how many are duplicated.
    pub duplication: u32,
    /// Of 1000 packets on a cable, how many are late.
    pub lateness: u32,
    /// How late a packet may be, in nanoseconds.
    pub latest: u64,
    /// Of 1000 packets that reach the switch, how many are held up there after they have read its tables.
    pub hold_ups: u32,
    /// How long at most, in nanoseconds.
    pub longest: u64,
    /// When the faults stop, in nanoseconds.
    pub until: u64,
}

/// Delays of busy daemons and of the controller, until the faults stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// How late a compute blade's daemon receives a fault, at most, in nanoseconds.
    pub faults: u64,
    /// Of 1000 faults, how many are that late; the others are received at once.
    pub late_faults: u32,
    /// How late it handles its timers, at most, in nanoseconds.
    pub timers: u64,
    /// How long a step of the controller takes, at most, in nanoseconds.
    pub controller: u64,
    /// The least residency of a page on a compute blade, in nanoseconds; for the whole run.
    pub residency: u64,
}

impl Default for Load {
    /// No daemon is busy.
    fn default() -> Self {
        Self {
            faults: 20_000,
            late_faults: 1000,
            timers: 20_000,
            controller: 5_000,
            residency: 10_000,
        }
    }
}

/// When the controller dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Moment {
    /// Before an output, after so many others.
    Outputs(u64),
    /// Right after it has answered that something is mapped, or done, after so many other such answers.
    Answers(u64),
    /// Before an output, while an operation waits in that phase.
    Phase(Phase),
}

impl Moment {
    /// When the controller dies at the latest that is to die from `at` on, where the network's faults stop at `until`.
    pub(crate) fn latest(self, at: u64, until: u64) -> u64 {
        match self {
            Self::Outputs(_) | Self::Answers(_) => at + DYING,
            Self::Phase(_) => until.max(at + DYING),
        }
    }
}

/// A disturbance of the system from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Disturbance {
    /// An operator, or the policy, changes the region that a page of an area is in.
    Change(Change, usize, u64),
    /// An area is mapped, unmapped or protected by a program on a blade of its own.
    Mapping(Mapping, usize),
    /// The controller dies, and another one takes over with what was recorded and what the switch's tables say.
    ControllerDies {
        /// When; at its [latest](Moment::latest), if that does not come before.
        moment: Moment,
        /// After how many nanoseconds the other one begins.
        back: u64,
        /// The compute blade whose agent comes back too late, if there is one.
        late: Option<BladeId>,
    },
    /// A memory blade cannot zero pages.
    Unzeroed {
        /// Which.
        memory: u8,
        /// For how long, in nanoseconds.
        lasts: u64,
    },
    /// The agent of a compute blade cannot do what it is told.
    Unable {
        /// Of which blade.
        blade: BladeId,
        /// For how long, in nanoseconds.
        lasts: u64,
    },
    /// An operator asks what compute blades count.
    Counts,
    /// All operators end their connections, whether or not they have their answers.
    OperatorsLeave,
    /// The program in TC is gone from a compute blade's port.
    WithoutTc {
        /// Of which blade.
        blade: BladeId,
        /// For how long, in nanoseconds.
        lasts: u64,
    },
    /// A blade's link is down: no packet passes its cable.
    LinkDown {
        /// Of which blade.
        node: Node,
        /// For how long, in nanoseconds.
        lasts: u64,
    },
    /// The daemon of a compute blade hangs, and goes on where it was; programs run on the pages
    /// that they have.
    Hang {
        /// Of which blade.
        blade: BladeId,
        /// For how long, in nanoseconds.
        lasts: u64,
    },
    /// The first threads of a domain on a compute blade end; pages of others there stay.
    Exit {
        /// On which.
        blade: BladeId,
        /// Of which of the plan's domains.
        domain: usize,
        /// How many; all, if there are no more.
        threads: usize,
        /// After how many nanoseconds they are started again.
        back: u64,
    },
    /// The connection between a compute blade and the controller breaks: messages in both
    /// directions are lost.
    Disconnect {
        /// Of which blade.
        blade: BladeId,
        /// After how many nanoseconds the controller finds out.
        noticed: u64,
        /// After how many nanoseconds the blade finds out, and registers as a new incarnation.
        found: u64,
    },
    /// A memory blade crashes, and comes back empty: its pages are lost.
    MemoryCrash {
        /// Which.
        memory: u8,
        /// After how many nanoseconds the controller finds out.
        noticed: u64,
        /// After how many nanoseconds it registers as a new incarnation.
        back: u64,
    },
    /// A compute blade crashes and loses its state.
    Crash {
        /// Which.
        blade: BladeId,
        /// After how many nanoseconds the controller finds out.
        noticed: u64,
        /// After how many nanoseconds it registers as a new incarnation.
        back: u64,
    },
}

impl Disturbance {
    /// The compute blade that it concerns, if it concerns one.
    pub(crate) const fn blade(self) -> Option<BladeId> {
        match self {
            Self::Crash { blade, .. }
            | Self::Hang { blade, .. }
            | Self::Exit { blade, .. }
            | Self::WithoutTc { blade, .. }
            | Self::Unable { blade, .. }
            | Self::Disconnect { blade, .. }
            | Self::LinkDown {
                node: Node::Compute(blade),
                ..
            } => Some(blade),
            Self::LinkDown { .. }
            | Self::Change(..)
            | Self::Mapping(..)
            | Self::ControllerDies { .. }
            | Self::MemoryCrash { .. }
            | Self::Counts
            | Self::OperatorsLeave
            | Self::Unzeroed { .. } => None,
        }
    }

    /// The area that it concerns, if it concerns one.
    pub(crate) const fn area_mut(&mut self) -> Option<&mut usize> {
        match self {
            Self::Change(_, area, _) | Self::Mapping(_, area) => Some(area),
            Self::ControllerDies { .. }
            | Self::MemoryCrash { .. }
            | Self::Unzeroed { .. }
            | Self::Unable { .. }
            | Self::Counts
            | Self::OperatorsLeave
            | Self::WithoutTc { .. }
            | Self::LinkDown { .. }
            | Self::Hang { .. }
            | Self::Exit { .. }
            | Self::Disconnect { .. }
            | Self::Crash { .. } => None,
        }
    }
}

pub use mind_api::message::{OnLoss, RegionChange as Change};

/// A run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The seed of all random numbers of the run.
    pub seed: u64,
    /// Compute blades.
    pub blades: u8,
    /// Memory blades.
    pub memories: u8,
    /// Pages that a compute blade may cache.
    pub capacity: usize,
    /// The protection domains, by what their readers see when writes are lost.
    pub domains: Vec<OnLoss>,
    /// The domains' memory.
    pub areas: Vec<Area>,
    /// The threads.
    pub programs: Vec<Program>,
    /// The longest pause of a thread between two operations, in nanoseconds.
    pub pace: u64,
    /// The controller splits and merges regions after epochs of this length, in nanoseconds, if at all.
    pub epoch: Option<u64>,
    /// How late daemons and controller are.
    pub load: Load,
    /// The network.
    pub network_faults: NetworkFaults,
    /// The disturbances, with their times in nanoseconds.
    pub disturbances: Vec<(u64, Disturbance)>,
    /// Effects that follow events.
    pub triggers: Vec<Trigger>,
    /// The flaw, if there is one.
    pub flaw: Option<Flaw>,
}

/// The blade with that number, which is below [`mind_common::id::MAX_BLADES`].
pub(crate) const fn blade(number: u8) -> BladeId {
    BladeId::from_low_bits(number as u64)
}

/// The random numbers for one of many purposes, so that one more number of one does not change the
/// others.
pub(crate) fn generator(seed: u64, purpose: u64) -> fastrand::Rng {
    let mut first = fastrand::Rng::with_seed(seed);
    let mixed = first.u64(..) ^ purpose.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    fastrand::Rng::with_seed(mixed)
}

/// The length of the epochs of a seed's run, in one of three runs.
fn epoch(seed: u64) -> Option<u64> {
    let mut random = generator(seed, 8);
    (random.u8(0..3) == 0).then(|| (MILLISECOND / 8) << random.u32(0..5))
}

/// One blade with one area of two pages, without programs and faults.
#[cfg(test)]
pub(crate) fn calm(until: u64) -> Plan {
    Plan {
        seed: 1,
        blades: 1,
        memories: 1,
        capacity: 8,
        domains: vec![OnLoss::LastWritten],
        areas: vec![Area {
            domain: 0,
            order: 1,
            is_writable: true,
            is_mapped: true,
            is_named: false,
        }],
        programs: Vec::new(),
        pace: 1_000,
        epoch: None,
        load: Load::default(),
        network_faults: NetworkFaults {
            loss: 0,
            duplication: 0,
            lateness: 0,
            latest: 0,
            hold_ups: 0,
            longest: 0,
            until,
        },
        disturbances: Vec::new(),
        triggers: Vec::new(),
        flaw: None,
    }
}

impl Plan {
    /// The run of a seed: every fifth is a sequence, and every second of the others has contention; every tenth has many
    /// requests at once.
    pub fn of_seed(seed: u64) -> Self {
        match seed % 10 {
            4 | 9 => sequence::plan(seed),
            2 => requests::plan(seed),
            _ if seed % 2 == 1 => contention::plan(seed),
            _ => general::plan(seed),
        }
    }

    /// Memory that all areas need at once, in pages, as the controller gives it out.
    pub(crate) fn memory_pages(&self) -> u64 {
        let granule = GRANULE / PAGE_SIZE as u64;
        let pages = self.areas.iter().map(|area| area.pages().max(granule));
        pages.sum()
    }

    /// When the last fault or disturbance is over, in nanoseconds.
    pub(crate) fn calm_at(&self) -> u64 {
        let followers = self
            .triggers
            .iter()
            .filter_map(|trigger| match trigger.effect {
                Effect::Happens(what) => Some((self.network_faults.until + trigger.within, what)),
                Effect::Arrives(_) => None,
            });
        let disturbances = self.disturbances.iter().copied().chain(followers);
        let ends = disturbances.map(|(at, what)| match what {
            Disturbance::Change(..)
            | Disturbance::Mapping(..)
            | Disturbance::Counts
            | Disturbance::OperatorsLeave => at,
            Disturbance::Hang { lasts, .. }
            | Disturbance::Unable { lasts, .. }
            | Disturbance::WithoutTc { lasts, .. }
            | Disturbance::Unzeroed { lasts, .. } => at.saturating_add(lasts),
            Disturbance::Exit { back, .. } => at.saturating_add(back),
            Disturbance::ControllerDies { moment, back, .. } => {
                moment.latest(at, self.network_faults.until) + back + GRACE
            }
            Disturbance::Disconnect { noticed, found, .. } => at.saturating_add(noticed.max(found)),
            Disturbance::Crash { noticed, back, .. }
            | Disturbance::MemoryCrash { noticed, back, .. } => {
                at.saturating_add(noticed.max(back))
            }
            // Not beyond the end of the network's faults.
            Disturbance::LinkDown { .. } => at,
        });
        ends.max().unwrap_or(0).max(self.network_faults.until)
    }

    /// How many operations its programs have.
    pub fn operations(&self) -> usize {
        self.programs.iter().map(|program| program.ops.len()).sum()
    }
}
