//! The order of a run: the limits, sizes, numbers of vmas, operations of several clients, a hung blade; and the limits
//! again, since the machine's speed varies.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use mind_cli::Interrupt;
use mind_connection::ClientError;
use tokio::task::JoinSet;

use super::{
    bed::{Bed, MEMORY},
    hung::{self, Hung},
    limits,
    program::{Outcome, Outcomes, Pair, Program, Rate, map_and_unmap, rate},
};
use crate::{output::progress, samples::Samples};

/// Sizes that are mapped: their keys, and bytes.
pub(super) const SIZES: [(&str, u64); 3] = [("4k", 4 << 10), ("1g", 1 << 30), ("256g", 256 << 30)];
/// The bytes of a vma that is there to be in the way: a granule of memory, so that many need few protection entries.
const FILLING: u64 = 16 << 10;
/// Programs that are there at once, for the rate of operations and to fill: one on each of the first compute blades.
pub(super) const CLIENTS: usize = 8;
/// The compute blades of the pair whose requests are measured.
const PAIR: (usize, usize) = (8, 9);
/// The blade that the round trip is measured from.
const NEAR: &str = "c0";

/// What is to be measured.
pub(super) struct Run {
    /// Requests of each kind.
    pub(super) samples: usize,
    /// Numbers of vmas.
    pub(super) vmas: Vec<usize>,
    /// How long it may take to put them in place.
    pub(super) fill: Duration,
    /// How long operations are counted.
    pub(super) rate: Duration,
    pub(super) compute: u8,
    pub(super) memory: u8,
    pub(super) slots: u32,
}

/// What was measured.
#[derive(Default)]
pub(super) struct Measured {
    pub(super) commits: Samples,
    pub(super) round_trips: Samples,
    /// Maps and unmaps, by the key of the size.
    pub(super) sizes: BTreeMap<&'static str, (Outcome, Outcome)>,
    /// By number of vmas.
    pub(super) at_vmas: BTreeMap<usize, AtVmas>,
    pub(super) rate: Rate,
    pub(super) hung: Hung,
}

/// What was measured with so many vmas in place.
pub(super) enum AtVmas {
    /// Requests, by kind.
    Measured(Outcomes),
    /// There were not so many: how many there were, and why.
    Missing(usize, String),
}

/// Brings the testbed up, measures, and takes it down.
pub(super) fn measure(run: &Run, interrupt: &Interrupt) -> Result<Measured> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the threads for connections")?;
    let measured = runtime.block_on(async {
        progress("bringing the testbed up");
        let mut bed = Bed::up((run.compute, run.memory), run.slots, interrupt).await?;
        let measured = on(&mut bed, run, interrupt).await;
        measured.map_err(|error| bed.explained(&error))
    });
    progress("");
    measured
}

async fn on(bed: &mut Bed, run: &Run, interrupt: &Interrupt) -> Result<Measured> {
    let mut measured = Measured::default();
    add_limits(bed, run.samples, &mut measured)?;

    let mut pair = Pair::enter((bed.compute(PAIR.0), bed.compute(PAIR.1)), "measured").await?;
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        // Each in a domain of its own.
        clients.push(Program::enter(bed.compute(number), &format!("client{number}"), 1).await?);
    }

    // The area is the one vma that is in place.
    for (key, length) in SIZES {
        interrupt.check()?;
        progress(&format!("maps of {key}"));
        let count = times(length, run.samples, bed.memory_blades());
        let outcomes = map_and_unmap(pair.first(), length, count).await?;
        measured.sizes.insert(key, outcomes);
        bed.quiet(interrupt).await?;
    }

    let fillers = fillers(bed).await?;
    let deadline = Instant::now() + run.fill;
    let mut there = 1;
    let mut full = None;
    for &vmas in &run.vmas {
        if full.is_none() && there < vmas {
            progress(&format!("{vmas} vmas"));
            let (more, why) = fill(&fillers, vmas - there, deadline, interrupt).await?;
            there += more;
            full = why;
        }
        let at = match &full {
            Some(why) if there < vmas => AtVmas::Missing(there, why.clone()),
            _ => {
                let mut outcomes = Outcomes::new();
                for turn in 0..run.samples {
                    interrupt.check()?;
                    if turn % 50 == 0 {
                        progress(&format!("{there} vmas: turn {turn} of {}", run.samples));
                    }
                    pair.turn(&mut outcomes).await?;
                }
                AtVmas::Measured(outcomes)
            }
        };
        measured.at_vmas.insert(vmas, at);
    }

    interrupt.check()?;
    progress("operations of several clients");
    let end = Instant::now() + run.rate;
    measured.rate = rate(&clients, move || Instant::now() >= end).await?;

    progress("a blade that hangs");
    measured.hung = hung::measure(bed, &mut pair, &clients, interrupt).await?;
    add_limits(bed, run.samples, &mut measured)?;
    Ok(measured)
}

fn add_limits(bed: &Bed, count: usize, measured: &mut Measured) -> Result<()> {
    progress("limits");
    measured.commits.add(limits::commits(count)?);
    let times = limits::round_trips(bed.testbed(), NEAR, count)?;
    measured.round_trips.add(times);
    Ok(())
}

/// How often a size is mapped: at most as often as half of the memory holds it, so that no map waits for memory that is
/// still to be zeroed because it was mapped before.
fn times(length: u64, samples: usize, memory_blades: usize) -> usize {
    let room = MEMORY.saturating_mul(memory_blades as u64) / 2 / length;
    samples
        .min(usize::try_from(room).unwrap_or(usize::MAX))
        .max(1)
}

/// Programs of one domain that put vmas in place.
async fn fillers(bed: &Bed) -> Result<Vec<Program>, ClientError> {
    let mut fillers = Vec::new();
    for number in 0..CLIENTS {
        fillers.push(Program::enter(bed.compute(number), "measured", 2).await?);
    }
    Ok(fillers)
}

/// Maps so many more vmas; how many there are more now, and why not all.
async fn fill(
    fillers: &[Program],
    count: usize,
    deadline: Instant,
    interrupt: &Interrupt,
) -> Result<(usize, Option<String>)> {
    let mut clients = JoinSet::new();
    for (program, share) in fillers.iter().zip(shares(count, fillers.len())) {
        let (program, interrupt) = (program.clone(), interrupt.clone());
        clients.spawn(async move {
            let mut outcome = Outcome::default();
            let mut mapped = 0;
            while mapped < share {
                if Instant::now() >= deadline {
                    let late = || "the time to put them in place is over".to_owned();
                    outcome.refused.get_or_insert_with(late);
                    break;
                }
                if interrupt.is_wanted() || outcome.note((0, program.map(FILLING).await))?.is_none()
                {
                    break;
                }
                mapped += 1;
            }
            Ok::<_, ClientError>((mapped, outcome.refused))
        });
    }
    let (mut sum, mut why) = (0, None);
    while let Some(client) = clients.join_next().await {
        let (mapped, refused) = client??;
        sum += mapped;
        why = why.or(refused);
    }
    interrupt.check()?;
    Ok((sum, why))
}

/// A number in as many parts of almost the same size.
fn shares(count: usize, parts: usize) -> impl Iterator<Item = usize> {
    (0..parts).map(move |part| count * (part + 1) / parts - count * part / parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_all_of_it_and_differ_by_one_at_most() {
        for count in [0, 1, 7, 8, 999, 99_000] {
            let shares: Vec<_> = shares(count, CLIENTS).collect();
            assert_eq!((shares.len(), shares.iter().sum()), (CLIENTS, count));
            let (least, most) = (shares.iter().min(), shares.iter().max());
            assert!(most.expect("8 of them") - least.expect("8 of them") <= 1);
        }
    }

    #[test]
    fn large_sizes_are_mapped_as_often_as_half_of_the_memory_holds_them() {
        assert_eq!(times(4 << 10, 500, 32), 500);
        assert_eq!(times(256 << 30, 500, 32), 32);
        assert_eq!(times(256 << 30, 500, 1), 1);
    }
}
