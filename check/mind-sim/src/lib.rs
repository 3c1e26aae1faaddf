//! MIND under a virtual clock, from one seed: compute blades with programs, memory blades, the
//! switch and the controller, on a network that loses, repeats, delays and reorders packets until
//! its faults stop. All decisions of blades, directory and memory are made by the code that the
//! daemons and the switch run (`mind-common`, through `mind-machines`); this crate adds time,
//! random numbers, programs, and the check of every load.
//!
//! * [`plan`]: the description of a run,
//! * [`trace`]: the records of a run, [`history`]: the records of one page,
//! * `world`: the system and its clock,
//! * [`trigger`]: effects that follow events,
//! * [`script`]: threads whose steps come from the caller,
//! * [`coverage`]: what of the two machines was covered,
//! * [`batch`]: many seeds,
//! * [`shrink`]: reduces a failing run,
//! * `flaw`: machines that are broken on purpose.

pub mod batch;
pub mod coverage;
mod flaw;
pub mod history;
pub mod plan;
pub mod script;
mod shrink;
pub mod trace;
pub mod trigger;
mod world;

use mind_common::{addr::Va, id::BladeId, refusal::Refusal};

use mind_machines::agreement::Disagreement;

use coverage::Coverage;
pub use flaw::Flaw;
use plan::Plan;
use script::Script;
pub use shrink::shrink;
use trace::Record;
pub use world::Wrong;

/// A failure of a run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Memory is not what it must be.
    #[error("{0}: {1}")]
    Wrong(BladeId, Wrong),
    /// A blade writes a page of which others have copies.
    #[error("{blade} gets {page} while {other} has it, and one of them may write")]
    Shared {
        /// Which page.
        page: Va,
        /// The blade that gets it.
        blade: BladeId,
        /// The blade that has it.
        other: BladeId,
    },
    /// A domain that chose to fail after losses reads what was written before them.
    #[error("{0} gets {1} without its last writes, though its domain chose to fail then")]
    Older(BladeId, Va),
    /// A page is sent while programs may write it, or without being there.
    #[error("{0} sends {1}, which is not a protected copy")]
    Unprotected(BladeId, Va),
    /// A page is installed without having come.
    #[error("{0} installs {1}, which no packet brought")]
    NoData(BladeId, Va),
    /// An action on a copy that does not exist.
    #[error("{0} has no copy of {1}, which it is to change")]
    NotHere(BladeId, Va),
    /// Memory refused a write-back of a registered blade.
    #[error("{0} may not write back {1}, though it is registered")]
    Refused(BladeId, Va),
    /// A program accesses a page of another domain.
    #[error("{0} lets a program access {1}, which is not its domain's")]
    Foreign(BladeId, Va),
    /// An access failed without a reason.
    #[error("an access of {0} to {1} fails: {2:?}")]
    Refusal(BladeId, Va, Refusal),
    /// The run does not end.
    #[error("it does not end: threads {0:?} have not finished")]
    Endless(Vec<usize>),
    /// No event is left, and threads wait.
    #[error("nothing happens any more: threads {0:?} have not finished")]
    Stuck(Vec<usize>),
    /// A blade registered again, and the state of a thread with a script there is lost.
    #[error("{0} has lost its state, and threads with scripts were there")]
    Gone(BladeId),
    /// No event is left, and something is under way.
    #[error("nothing happens any more, and something is under way: {0}")]
    Busy(String),
    /// The directory does not list a copy.
    #[error("{0} has {1}, of which the directory says {2}")]
    Unlisted(BladeId, Va, String),
    /// A copy differs from the last write.
    #[error("{0} has another {1} than was written last, when all is quiet or it is cut off")]
    Disagrees(String, Va),
    /// Controller and switch do not agree, though the controller has nothing to do.
    #[error("the controller has nothing to do, and {0}")]
    Disagreement(Disagreement),
    /// An access is denied that was promised.
    #[error(
        "{0} is denied {1}, which was answered as mapped, and whose end no program has asked for"
    )]
    Denied(BladeId, Va),
    /// The switch allows something else than was promised.
    #[error(
        "{0} was answered as mapped, no program has asked for its end, and the switch allows something else than was answered"
    )]
    Broken(Va),
    /// A page is written that was to be read only.
    #[error("a program on {0} writes {1}, which was answered as read-only")]
    Written(BladeId, Va),
    /// A named area is not where it was.
    #[error(
        "area `{0}` is not found at {1}, where it was, though no program has asked to remove its name"
    )]
    Forgotten(String, Va),
    /// Writes were lost, and the controller does not report it.
    #[error("writes to {0} are lost, and the controller does not report it")]
    Silent(Va),
}

impl Failure {
    /// Whether it is that threads do not finish.
    const fn is_end(&self) -> bool {
        matches!(self, Self::Endless(_) | Self::Stuck(_) | Self::Gone(_))
    }
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The hash of all records.
    pub hash: u64,
    /// How many events there were.
    pub events: u64,
    /// When the last thread had finished, in nanoseconds of virtual time.
    pub virtual_nanos: u64,
    /// How long after the faults stopped that was, in nanoseconds.
    pub recovery_nanos: u64,
    /// What went wrong, if something did.
    pub failure: Option<Failure>,
    /// What of the machines it covered.
    pub coverage: Coverage,
    /// The records, if they were to be kept.
    pub records: Vec<Record>,
}

/// Runs a plan; keeps the records if `is_traced`.
pub fn run(plan: &Plan, is_traced: bool) -> Outcome {
    world::World::new(plan, is_traced).run()
}

/// Runs a plan whose first programs run these scripts. If `persists`, the run goes on when memory is wrong, and fails
/// only if scripts do not finish.
///
/// # Panics
///
/// If there are more scripts than programs, or an area is not mapped from the beginning.
pub fn run_scripts<'a>(
    plan: &'a Plan,
    scripts: Vec<&'a mut (dyn Script + 'a)>,
    persists: bool,
) -> Outcome {
    assert!(
        scripts.len() <= plan.programs.len(),
        "there are more scripts than programs in the plan"
    );
    assert!(
        plan.areas.iter().all(|area| area.is_mapped),
        "scripts access areas that are mapped from the beginning"
    );
    let mut world = world::World::new(plan, false);
    world.scripted = world::scripted::scripted(plan, scripts);
    world.persists = persists;
    world.run()
}
