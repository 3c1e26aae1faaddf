//! What a remote page fault costs, as the thread that faults sees it: every transition between two
//! compute blades, beside the lower limits of a fault's time, measured in the same run on the same
//! processors.
//!
//! * [`placement`]: which thread runs where,
//! * [`userfault`] and [`network`]: the two limits,
//! * [`blades`]: the system that is measured; [`transitions`] and [`eviction`]: what is measured,
//! * [`worker`]: the processes that measure ([`program`], and those of the limits); [`task`]: what
//!   they are told; [`workers`]: how the bench sees them,
//! * [`samples`] and [`report`]: the results.

mod blades;
mod eviction;
mod network;
mod placement;
mod program;
mod report;
mod samples;
mod task;
mod transitions;
mod userfault;
pub(crate) mod worker;
mod workers;

use std::{
    collections::BTreeMap,
    io::{IsTerminal as _, Write as _},
};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use serde::Serialize;

use blades::Blades;
use eviction::Evicting;
use mind_workers::Interrupt;
use placement::{Awake, Placement, Sharing};
use report::{Measured, MeasuredTransition, Report};
use samples::{Quantiles, Samples};
use task::Task;
use transitions::{BATCH, Transitions};
use userfault::Handler;
use workers::Worker;

/// The subcommand that workers are started with.
pub(crate) const WORKER: &str = "fault-worker";

/// Local faults for each access of a transition: they cost less and vary more.
const LOCAL_PER_ACCESS: usize = 4;
/// Exchanges on the bare network for each access of a transition, before and after.
const EXCHANGES_PER_ACCESS: usize = 2;

/// What `cargo xtask bench fault` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print JSON: `limits.userfault_us`, `limits.network_us`,
    /// `transitions.<name>.{p50_us,p99_us,count}`, `evicting_faults_per_s.{t1,t8}` and more.
    #[arg(long)]
    json: bool,
    /// Faults of each transition.
    #[arg(long, default_value_t = 5000)]
    samples: usize,
    /// Milliseconds of faults while pages are evicted, for each number of threads.
    #[arg(long, default_value_t = 2000)]
    evict_ms: u64,
    /// Whether a program and the thread that handles its faults share a processor; in the limits as
    /// in the system. By default they do not, where there are two, as Linux would have it: it wakes
    /// a thread on a processor that is idle.
    #[arg(long, value_enum)]
    placement: Option<Sharing>,
    /// What copies an invalidation for several blades.
    #[arg(long, value_enum, default_value_t = FanOut::Switch)]
    fan_out: FanOut,
}

/// What copies an invalidation for several blades.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FanOut {
    /// The switch's TC program.
    Switch,
    /// The controller.
    Controller,
}

/// Runs `cargo xtask bench fault`. When it returns, however it does, nothing of it is left.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(args.samples > 0, "--samples must be 1 or more");
    ensure!(args.evict_ms > 0, "--evict-ms must be 1 or more");
    let interrupt = Interrupt::with_signals().context("cannot take Ctrl-C")?;
    let measured = measure(args, &interrupt);
    // Errors after an interrupt are caused by it.
    interrupt.check()?;
    let report = Report::new(measured?);
    if args.json {
        serde_json::to_writer_pretty(std::io::stdout(), &report)?;
        writeln!(std::io::stdout())?;
    } else {
        writeln!(std::io::stdout(), "{}", report.text())?;
    }
    if report.strays > 0 {
        eprintln!(
            "{} accesses caused another transition of the directory than they should have",
            report.strays
        );
    }
    for complaint in report.complaints() {
        eprintln!("{complaint}");
    }
    Ok(())
}

fn measure(args: &Args, interrupt: &Interrupt) -> Result<Measured> {
    let placement = Placement::new(args.placement)?;
    let awake = Awake::hold();
    if let Err(error) = &awake {
        eprintln!("{error:#}: figures include processors' wake-up from idle states");
    }
    // Before and after, since there is one testbed at a time and the machine's speed varies.
    let mut network = Samples::default();
    let exchanges = args.samples * EXCHANGES_PER_ACCESS;
    progress("the bare network");
    network.add(network::measure(&placement, exchanges, interrupt)?);
    let System {
        userfault,
        by_process,
        transitions,
        strays,
        evicting,
    } = system(args, &placement, interrupt)?;
    progress("the bare network again");
    network.add(network::measure(&placement, exchanges, interrupt)?);
    progress("");
    Ok(Measured {
        placement: placement.sharing(),
        fan_out: args.fan_out,
        kept_awake: awake.is_ok(),
        userfault,
        by_process,
        network: quantiles(network)?,
        transitions,
        evicting,
        strays,
    })
}

/// What is measured while the system is there.
struct System {
    userfault: Quantiles,
    by_process: Quantiles,
    transitions: BTreeMap<String, MeasuredTransition>,
    strays: usize,
    evicting: Evicting,
}

fn system(args: &Args, placement: &Placement, interrupt: &Interrupt) -> Result<System> {
    progress("bringing the testbed up");
    let mut blades = Blades::up(placement, args.fan_out == FanOut::Controller, interrupt)?;
    let mut local = Local {
        by_thread: userfault::start(Handler::Thread, placement, interrupt)?,
        by_process: userfault::start(Handler::Process, placement, interrupt)?,
    };
    let measured = on(&mut blades, &mut local, args, interrupt);
    measured.map_err(|error| blades.explained(error))
}

/// The workers whose faults are resolved locally.
struct Local {
    by_thread: Worker,
    by_process: Worker,
}

fn on(
    blades: &mut Blades,
    local: &mut Local,
    args: &Args,
    interrupt: &Interrupt,
) -> Result<System> {
    let mut userfault = Samples::default();
    let mut by_process = Samples::default();
    let mut transitions = Transitions::default();
    // Round by round, so that other load of the machine affects the limit and all transitions
    // alike.
    let batches: Vec<_> = batches(args.samples).collect();
    for (round, &batch) in batches.iter().enumerate() {
        progress(&format!("round {} of {}", round + 1, batches.len()));
        let task = Task::Measure {
            count: batch * LOCAL_PER_ACCESS,
        };
        userfault.add(local.by_thread.times(&task)?);
        by_process.add(local.by_process.times(&task)?);
        transitions.round(blades, batch, interrupt)?;
    }
    progress("evicting");
    let evicting = eviction::measure(blades, args.evict_ms)?;
    let Transitions {
        samples,
        mut agent_us,
        strays,
    } = transitions;
    let transition = |(name, samples): (String, Samples)| -> Result<_> {
        let transition = MeasuredTransition {
            times: quantiles(samples)?,
            agent_p50_us: agent_us.remove(&name).unwrap_or(0.0),
        };
        Ok((name, transition))
    };
    Ok(System {
        userfault: quantiles(userfault)?,
        by_process: quantiles(by_process)?,
        transitions: samples.into_iter().map(transition).collect::<Result<_>>()?,
        strays,
        evicting,
    })
}

/// The rounds' sizes: as few as the batch's size allows, and of almost the same size.
fn batches(samples: usize) -> impl Iterator<Item = usize> {
    let rounds = samples.div_ceil(BATCH);
    (0..rounds).map(move |round| samples * (round + 1) / rounds - samples * round / rounds)
}

fn quantiles(samples: Samples) -> Result<Quantiles> {
    samples.quantiles().context("nothing was measured")
}

/// Prints progress, on a terminal.
fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        // Over whatever was there.
        eprint!("\r\x1b[K{text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_all_samples_and_never_too_large() {
        for samples in [1, 249, 250, 251, 5000, 5001, 12_345] {
            let batches: Vec<_> = batches(samples).collect();
            assert_eq!(batches.iter().sum::<usize>(), samples);
            assert!(batches.iter().all(|batch| (1..=BATCH).contains(batch)));
            assert_eq!(batches.len(), samples.div_ceil(BATCH));
        }
    }
}
