//! The order of a run: limits and transitions by turns, so that other load of the machine affects all of them alike.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use mind_cli::Interrupt;

use super::{
    eviction::{self, Evicting},
    fan_out::FanOut,
    network,
    report::{Measured, MeasuredTransition},
    together,
    transitions::{BATCH, Transitions},
    userfault::{self, Handler},
};
use crate::{
    output::progress,
    samples::{Quantiles, Samples},
    system::{
        blades::{Blades, Setup},
        operator::Operator,
        placement::{Awake, Placement, Sharing},
        task::Task,
        worker::Worker,
    },
};

/// Compute blades.
const COMPUTE: u8 = 3;
/// Bytes that the memory blade offers.
const MEMORY: u64 = 64 << 20;
/// Local faults for each access of a transition: they cost less and vary more.
const LOCAL_PER_ACCESS: usize = 4;
/// Exchanges on the bare network for each access of a transition, before and after.
const EXCHANGES_PER_ACCESS: usize = 2;

/// What is to be measured, and how.
pub(super) struct Run {
    /// Faults of each transition.
    pub(super) samples: usize,
    /// Milliseconds of faults while pages are evicted, for each number of threads.
    pub(super) evict_ms: u64,
    /// Whether a program and the thread that works on its faults share a processor.
    pub(super) placement: Option<Sharing>,
    /// What copies invalidations.
    pub(super) fan_out: FanOut,
}

/// Brings the testbed up, measures, and takes it down.
pub(super) fn measure(run: &Run, interrupt: &Interrupt) -> Result<Measured> {
    let placement = Placement::new(run.placement)?;
    let awake = Awake::hold();
    if let Err(error) = &awake {
        eprintln!("{error:#}: figures include processors' wake-up from idle states");
    }
    // Before and after, since there is one testbed at a time and the machine's speed varies.
    let mut network = Samples::default();
    let exchanges = run.samples * EXCHANGES_PER_ACCESS;
    progress("the bare network");
    network.add(network::measure(&placement, exchanges, interrupt)?);
    let System {
        userfault,
        by_process,
        transitions,
        strays,
        evicting,
    } = system(run, &placement, interrupt)?;
    progress("eight blades at the same pages");
    let together = together::measure(&placement, run.samples, interrupt)?;
    progress("the bare network again");
    network.add(network::measure(&placement, exchanges, interrupt)?);
    progress("");
    Ok(Measured {
        placement: placement.sharing(),
        fan_out: run.fan_out,
        kept_awake: awake.is_ok(),
        userfault,
        by_process,
        network: quantiles(network)?,
        transitions,
        evicting,
        together,
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

fn system(run: &Run, placement: &Placement, interrupt: &Interrupt) -> Result<System> {
    progress("bringing the testbed up");
    let setup = Setup {
        placement,
        compute: COMPUTE,
        memory: MEMORY,
        controller_copies: run.fan_out == FanOut::Controller,
        epoch: None,
    };
    let mut blades = Blades::up(&setup, interrupt)?;
    let mut local = Local {
        by_thread: userfault::start(Handler::Thread, placement, interrupt)?,
        by_process: userfault::start(Handler::Process, placement, interrupt)?,
    };
    let measured = Operator::connect()
        .and_then(|operator| on(&mut blades, &operator, &mut local, run, interrupt));
    measured.map_err(|error| blades.explained(error))
}

/// The workers whose faults are resolved locally.
struct Local {
    by_thread: Worker,
    by_process: Worker,
}

fn on(
    blades: &mut Blades,
    operator: &Operator,
    local: &mut Local,
    run: &Run,
    interrupt: &Interrupt,
) -> Result<System> {
    let mut userfault = Samples::default();
    let mut by_process = Samples::default();
    let mut transitions = Transitions::default();
    // Round by round, so that other load of the machine affects the limit and all transitions
    // alike.
    let batches: Vec<_> = batches(run.samples).collect();
    for (round, &batch) in batches.iter().enumerate() {
        progress(&format!("round {} of {}", round + 1, batches.len()));
        let task = Task::Measure {
            count: batch * LOCAL_PER_ACCESS,
        };
        userfault.add(local.by_thread.times(&task)?);
        by_process.add(local.by_process.times(&task)?);
        transitions.round(blades, operator, batch, interrupt)?;
    }
    progress("evicting");
    let evicting = eviction::measure(blades, run.evict_ms)?;
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
