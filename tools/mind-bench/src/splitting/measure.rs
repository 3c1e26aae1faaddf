//! The order of a run: rounds with epochs, then as many without, whose loads are what those of the first are held
//! against.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mind_cli::Interrupt;

use super::{
    report::{FalseInvalidations, Passes, Probe, Report, Slots},
    round::{self, Look, Round, WRITERS},
};
use crate::{
    output::progress,
    samples::Samples,
    system::{
        blades::{Blades, Setup},
        operator::Operator,
        placement::{Awake, Placement},
    },
};

/// What is to be measured.
pub(super) struct Run {
    /// Rounds with epochs, and as many without.
    pub(super) rounds: usize,
    /// Milliseconds of each.
    pub(super) millis: u64,
    /// Regions that are shared.
    pub(super) regions: u64,
    /// Milliseconds of an epoch.
    pub(super) epoch: u32,
}

/// Brings testbeds up, measures, and takes them down.
pub(super) fn measure(run: &Run, interrupt: &Interrupt) -> Result<Report> {
    let placement = Placement::new(None)?;
    let awake = Awake::hold();
    if let Err(error) = &awake {
        eprintln!("{error:#}: figures include processors' wake-up from idle states");
    }
    let with = rounds(run, run.epoch, &placement, interrupt)?;
    let without = rounds(run, 0, &placement, interrupt)?;
    progress("");
    report(run, &with, &without)
}

/// The rounds of a system with such epochs; 0 for none.
fn rounds(
    run: &Run,
    epoch: u32,
    placement: &Placement,
    interrupt: &Interrupt,
) -> Result<Vec<Round>> {
    progress("bringing a testbed up");
    let setup = Setup {
        placement,
        compute: WRITERS as u8 + 1,
        // What a round has freed may not be zeroed yet when the next one begins.
        memory: (2 * round::length(run.regions, run.millis)).next_power_of_two(),
        controller_copies: false,
        epoch: Some(epoch),
    };
    let mut blades = Blades::up(&setup, interrupt)?;
    let measured = Operator::connect().and_then(|operator| {
        (1..=run.rounds)
            .map(|number| {
                interrupt.check()?;
                progress(&format!(
                    "round {number} of {} with epochs of {epoch} ms",
                    run.rounds
                ));
                round::run(&mut blades, &operator, run.regions, run.millis)
            })
            .collect()
    });
    measured.map_err(|error| blades.explained(error))
}

fn report(run: &Run, with: &[Round], without: &[Round]) -> Result<Report> {
    let rates = with.iter().map(Round::falsely_per_s);
    let (first, last): (Vec<_>, Vec<_>) = rates.collect::<Result<Vec<_>>>()?.into_iter().unzip();
    let (passes_first, passes_last): (Vec<_>, Vec<_>) =
        with.iter().map(Round::passes_per_s).unzip();
    let passes_without = without.iter().map(|round| round.passes_per_s().1);
    let looks = || with.iter().flat_map(|round| &round.looks);
    let slots = |look: fn(&Round) -> Option<u32>| {
        let slots = with.iter().filter_map(look).map(f64::from);
        median(slots.collect())
    };
    let total = |count: fn(&Look) -> u64| {
        let counts = looks().map(count);
        counts.clone().max().unwrap_or_default() - counts.min().unwrap_or_default()
    };
    let settled: Vec<Duration> = with.iter().map(Round::settled).collect();
    ensure!(
        settled.iter().any(|settled| !settled.is_zero()),
        "no region was split: take longer --round-ms"
    );
    let during = |rounds: &[Round]| {
        let mut samples = Samples::default();
        for (round, settled) in rounds.iter().zip(&settled) {
            samples.add(round.loads_before(*settled));
        }
        samples
            .quantiles()
            .context("no load was timed while regions were split")
    };
    Ok(Report {
        writers: WRITERS,
        regions: run.regions,
        epoch_ms: run.epoch,
        rounds: run.rounds,
        round_ms: run.millis,
        false_invalidations_per_s: FalseInvalidations::new(median(first), median(last)),
        settled_s: median(settled.iter().map(Duration::as_secs_f64).collect()),
        splits: total(|look| look.splits),
        merges: total(|look| look.merges),
        slots: Slots {
            before: slots(|round| round.looks.first().map(|look| look.slots)),
            most: slots(|round| round.looks.iter().map(|look| look.slots).max()),
            stable: slots(|round| round.looks.last().map(|look| look.slots)),
        },
        passes_per_s: Passes {
            first_second: median(passes_first),
            stable: median(passes_last),
            without: median(passes_without.collect()),
        },
        probe: Probe::new(during(with)?, during(without)?),
    })
}

/// The median; 0 of nothing.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
