//! A worker: the process on a compute blade that runs jobs from stdin until stdin ends.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mind_client::{Access, Memory, Open, Process};
use mind_workers::Requests;

use super::access::Processor;
use super::barrier::{Barrier, Mapping, Shared};
use super::job::{Answer, Job};
use super::layout::{ARENA_BYTES, REGION};
use super::participant::{Arena, Participant, ParticipantError};

/// The subcommand that workers are started with.
pub const VERB: &str = "worker";

/// The area that is the arena.
const AREA: &str = "arena";

/// How long another participant may take to come to a step. Not a bound on performance: a fault that takes longer ends
/// its program.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// A worker's command line.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Its number among the participants.
    #[arg(long)]
    number: usize,
    /// The participants' names, in order.
    #[arg(long, value_delimiter = ',')]
    names: Vec<String>,
    /// The memory of the step counters.
    #[arg(long)]
    step_counters: PathBuf,
    /// The memory that is tested.
    #[command(flatten)]
    tested: Tested,
}

#[derive(clap::Args, Debug)]
#[group(required = true, multiple = false)]
struct Tested {
    /// That of a protection domain, on the blade that the environment names.
    #[arg(long)]
    domain: Option<String>,
    /// This machine's own.
    #[arg(long)]
    own: Option<PathBuf>,
}

/// What keeps the arena where it is.
enum Held {
    /// In a protection domain.
    Domain { _process: Process, area: Memory },
    /// In the machine's own memory.
    Own(Mapping),
}

/// Runs jobs until stdin ends.
///
/// # Errors
///
/// What keeps it from running jobs.
pub fn main(args: &Args) -> Result<()> {
    let orders: Requests<Job> = Requests::listen().context("cannot listen to stdin")?;
    let step_counters = Shared::open(&args.step_counters)
        .and_then(|shared| shared.map())
        .with_context(|| {
            format!(
                "cannot map the step counters at {}",
                args.step_counters.display()
            )
        })?
        .into_step_counters();
    ensure!(
        args.number < args.names.len() && args.names.len() <= step_counters.len(),
        "worker {} of {} has no step counter among {}",
        args.number,
        args.names.len(),
        step_counters.len()
    );
    let held = args.tested.hold()?;
    let participant = Participant {
        arena: held.arena()?,
        barrier: Barrier::new(&step_counters[..args.names.len()], args.number, PATIENCE),
    };
    orders.answer(&Answer::Ready)?;
    loop {
        let job = orders.next().context("cannot read a job on stdin")?;
        let seen = participant.run(&job, &mut Processor).map_err(|error| {
            // Numbers are names here.
            let missing = match &error {
                ParticipantError::Missing { source, .. } => {
                    args.names.get(source.participant).cloned()
                }
                ParticipantError::Job(_) => None,
            };
            let error = anyhow::Error::from(error);
            match missing {
                Some(name) => error.context(format!("{name} does not come")),
                None => error,
            }
        })?;
        orders.answer(&Answer::ThreadRun(seen))?;
    }
}

impl Tested {
    fn hold(&self) -> Result<Held> {
        if let Some(path) = &self.own {
            let mapping = Shared::open(path)
                .and_then(|shared| shared.map())
                .with_context(|| format!("cannot map the memory at {}", path.display()))?;
            return Ok(Held::Own(mapping));
        }
        let domain = self
            .domain
            .as_deref()
            .context("no memory is to be tested")?;
        let process = Process::attach(domain).context("cannot attach to the blade")?;
        let length = ARENA_BYTES as u64;
        let area = process
            .open_area(AREA, length, Access::Write, Open::OrCreate)
            .with_context(|| format!("cannot open the area `{AREA}` of {length} bytes"))?;
        Ok(Held::Domain {
            _process: process,
            area,
        })
    }
}

impl Held {
    fn arena(&self) -> Result<Arena> {
        let (first, length) = match self {
            Self::Domain { area, .. } => (area.as_ptr(), area.len()),
            Self::Own(mapping) => (mapping.as_ptr(), mapping.len()),
        };
        ensure!(
            length >= ARENA_BYTES,
            "the arena has {length} bytes; expected {ARENA_BYTES}"
        );
        // Else two variables of a region would lie in two.
        let aligned = (first as usize).is_multiple_of(REGION) || matches!(self, Self::Own(_));
        ensure!(
            aligned,
            "the arena at {first:p} does not begin with a region"
        );
        // SAFETY: it is as long, begins at a page, stays as long as the process (it is never
        // unmapped), and all processes that have it are workers.
        Ok(unsafe { Arena::new(first) })
    }
}
