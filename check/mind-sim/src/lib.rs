//! MIND under a virtual clock, from one seed: compute blades with programs, memory blades, the
//! switch and the controller, on a network that loses, repeats, delays and reorders packets until
//! its faults stop. Everything that blades, directory and memory decide is decided by the code
//! that the daemons and the switch run (`mind-common`, by way of `mind-machines`); what is here is
//! time, chance, programs, and the check of every load.
//!
//! * [`plan`]: what a run is,
//! * [`trace`]: what happened in it, [`history`]: of that, what happened to a page,
//! * `world`: the system, as time goes on,
//! * [`echo`]: what follows when something happens,
//! * [`script`]: threads that are told from outside what to do,
//! * [`coverage`]: what of the two machines was reached,
//! * [`batch`]: many seeds,
//! * [`shrink`]: cuts a run that fails down,
//! * `flaw`: nodes that are broken on purpose.

pub mod batch;
pub mod coverage;
pub mod echo;
mod flaw;
pub mod history;
pub mod plan;
pub mod script;
mod shrink;
pub mod trace;
mod world;

use mind_common::{addr::Va, id::BladeId, refusal::Refusal};

use coverage::Coverage;
pub use flaw::Flaw;
use plan::Plan;
use script::Script;
pub use shrink::shrink;
use trace::Record;
pub use world::Wrong;

/// What a run must not show.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Memory is not what it must be.
    #[error("{0}: {1}")]
    Wrong(BladeId, Wrong),
    /// Somebody writes a page of which others have copies.
    #[error("{blade} gets {page} while {other} has it, and one of them may write")]
    Shared {
        /// Which page.
        page: Va,
        /// Who gets it.
        blade: BladeId,
        /// Who has it.
        other: BladeId,
    },
    /// A domain that chose to fail after losses reads what was written before them.
    #[error("{0} gets {1} without its last writes, though its domain chose to fail then")]
    Older(BladeId, Va),
    /// A page is sent while programs may write it, or without being there.
    #[error("{0} sends {1}, which is not a copy that stays as it is")]
    Unprotected(BladeId, Va),
    /// A page is installed without having come.
    #[error("{0} installs {1}, which no packet brought")]
    NoData(BladeId, Va),
    /// Something is done to a copy that is not there.
    #[error("{0} has no copy of {1}, of which it disposes")]
    NotHere(BladeId, Va),
    /// Memory refused what a blade wrote that nobody sent away.
    #[error("{0} may not write back {1}, though it is one of us")]
    Refused(BladeId, Va),
    /// A program sees what is not its domain's.
    #[error("{0} lets a program access {1}, which is not its domain's")]
    Foreign(BladeId, Va),
    /// An access failed for no reason.
    #[error("an access of {0} to {1} fails: {2:?}")]
    Refusal(BladeId, Va, Refusal),
    /// It goes on and on.
    #[error("it does not end: threads {0:?} have not finished")]
    Endless(Vec<usize>),
    /// Nothing happens any more, and somebody waits.
    #[error("nothing happens any more: threads {0:?} have not finished")]
    Stuck(Vec<usize>),
    /// A blade came back, but what a thread with a script had done there is gone.
    #[error("{0} is not what it was, and threads with scripts were there")]
    Gone(BladeId),
    /// Nothing happens any more, and something is under way.
    #[error("nothing happens any more, and something is under way: {0}")]
    Busy(String),
    /// The directory does not know of a copy.
    #[error("{0} has {1}, of which the directory says {2}")]
    Unlisted(BladeId, Va, String),
    /// A copy is not what was written last.
    #[error("{0} has another {1} than was written last, when all is quiet or it is cut off")]
    Disagrees(String, Va),
    /// Writes were lost, and nobody was told.
    #[error("writes to {0} are lost, and the controller does not report it")]
    Silent(Va),
}

impl Failure {
    /// Whether threads do not come to their end.
    const fn is_end(&self) -> bool {
        matches!(self, Self::Endless(_) | Self::Stuck(_) | Self::Gone(_))
    }
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Of everything that happened.
    pub hash: u64,
    /// How many events there were.
    pub events: u64,
    /// When the last thread had finished, in nanoseconds of virtual time.
    pub virtual_nanos: u64,
    /// How long after the faults stopped that was, in nanoseconds.
    pub recovery_nanos: u64,
    /// What went wrong, if something did.
    pub failure: Option<Failure>,
    /// What of the machines it reached.
    pub coverage: Coverage,
    /// What happened, if that was to be kept.
    pub records: Vec<Record>,
}

/// Runs a plan; keeps a record of what happens if `is_traced`.
pub fn run(plan: &Plan, is_traced: bool) -> Outcome {
    world::World::new(plan, is_traced).run()
}

/// Runs a plan of which the first programs are played by these scripts. If `persists`, the run goes on
/// when memory is wrong, and only what keeps scripts from their end fails it.
///
/// # Panics
///
/// If there are more scripts than programs.
pub fn play<'a>(
    plan: &'a Plan,
    scripts: Vec<&'a mut (dyn Script + 'a)>,
    persists: bool,
) -> Outcome {
    assert!(
        scripts.len() <= plan.programs.len(),
        "each script is played where a program of the plan is"
    );
    let mut world = world::World::new(plan, false);
    world.players = world::player::players(plan, scripts);
    world.persists = persists;
    world.run()
}
