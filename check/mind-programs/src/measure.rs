//! One program in local memory and on a blade, in turns.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use mind_api::program::BladeReport;
use mind_e2e::{Bed, bed};
use netns_setup::Options;

use crate::{
    catalogue::Program,
    report::Row,
    script::{Limits, Outcome, Prepared},
};

/// The compute blade.
const BLADE: &str = "c0";

/// Bytes that each of the memory blades offers; all programs have less together.
const MEMORY: u64 = 1 << 30;

/// The smallest cache that is tried, in bytes: a program's faults of one instruction must fit.
const LEAST_CACHE: u64 = 1 << 20;

/// How often a program is run each way, and with how much of its memory in the cache.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// How often.
    pub rounds: usize,
    /// The cache, in hundredths of its memory.
    pub cache_percent: u64,
    /// What stands for the program's own `$SCALE`, if anything does.
    pub scale: Option<u32>,
}

/// Runs a program in local memory, and as often on a blade of a testbed that is brought up for it, with `mind run`'s own
/// choices.
///
/// # Errors
///
/// When a run fails, or there is no testbed.
pub fn measure(program: &Program, choice: &Choice, limits: &Limits<'_>) -> Result<Row> {
    let scale = choice.scale.unwrap_or(program.scale);
    let prepared = Prepared::new(program, scale, limits)?;
    let first = prepared.run(limits)?;
    let cache = cache_of(first.memory, choice.cache_percent);
    let bed = Bed::with(&Options {
        compute: 1,
        memory: 2,
        memory_size: MEMORY,
        cache,
        ..Options::default()
    })
    .context("cannot bring a testbed up")?;
    let mind = bed::need(&bed::programs()?, "mind")?;

    let mut local = vec![first];
    let mut blade = Vec::new();
    let before = bed.report(BLADE)?;
    for round in 0..choice.rounds {
        if round > 0 {
            local.push(prepared.run(limits)?);
        }
        blade.push(on_blade(&prepared, &bed, &mind, limits)?);
    }
    let counted = Counted::between(&before, &bed.report(BLADE)?, choice.rounds as u64);
    for outcome in local.iter().chain(&blade) {
        compare(&local[0], outcome)?;
    }
    Ok(Row {
        name: program.name,
        scale,
        memory_bytes: local[0].memory,
        cache_bytes: cache,
        local_s: median(&local),
        blade_s: median(&blade),
        counted,
    })
}

/// A run on a blade.
fn on_blade(
    prepared: &Prepared<'_>,
    bed: &Bed,
    mind: &Path,
    limits: &Limits<'_>,
) -> Result<Outcome> {
    prepared.run_on_blade(mind, "", limits, |command| {
        bed.testbed().spawn(BLADE, command)
    })
}

/// A cache that holds a part of a program's memory, in whole pages.
fn cache_of(memory: u64, percent: u64) -> u64 {
    let wanted = memory.saturating_mul(percent) / 100;
    wanted.max(LEAST_CACHE).next_multiple_of(4096)
}

/// Fails if the second run has not answered as the first.
///
/// # Errors
///
/// With both answers' lines that differ first.
pub fn compare(first: &Outcome, second: &Outcome) -> Result<()> {
    ensure!(!first.answer.is_empty(), "there is no answer");
    if first.answer == second.answer {
        return Ok(());
    }
    let [first, second] = [first, second].map(|outcome| String::from_utf8_lossy(&outcome.answer));
    let mut lines = first.lines().zip(second.lines());
    match lines.find(|(first, second)| first != second) {
        Some((first, second)) => bail!("answers {second:?}, and {first:?} in local memory"),
        None => bail!(
            "answers in {} lines, and in {} in local memory",
            second.lines().count(),
            first.lines().count()
        ),
    }
}

/// What a blade has counted, for each run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Counted {
    /// Page faults.
    pub faults: u64,
    /// Page faults that found the page on the blade.
    pub hits: u64,
    /// Requests of pages.
    pub requests: u64,
    /// Pages that made room.
    pub evictions: u64,
}

impl Counted {
    fn between(before: &BladeReport, after: &BladeReport, runs: u64) -> Self {
        let each = |of: fn(&BladeReport) -> u64| of(after).saturating_sub(of(before)) / runs;
        Self {
            faults: each(|report| report.faults),
            hits: each(|report| report.hits),
            requests: each(|report| report.requests),
            evictions: each(|report| report.evictions),
        }
    }
}

/// The median of the runs' times, in seconds; of an even number of them, the longer of the two in the middle.
fn median(runs: &[Outcome]) -> f64 {
    let mut times: Vec<Duration> = runs.iter().map(|run| run.took).collect();
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(answer: &str, seconds: u64) -> Outcome {
        Outcome {
            answer: answer.into(),
            took: Duration::from_secs(seconds),
            memory: 0,
        }
    }

    #[test]
    fn another_answer_is_an_error_that_shows_both() {
        let first = outcome("1\n2\n", 1);
        assert!(compare(&first, &outcome("1\n2\n", 9)).is_ok());
        let error = compare(&first, &outcome("1\n3\n", 1)).unwrap_err();
        assert_eq!(error.to_string(), r#"answers "3", and "2" in local memory"#);
        let error = compare(&first, &outcome("1\n", 1)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "answers in 1 lines, and in 2 in local memory"
        );
        // Silence is no answer, even twice.
        assert!(compare(&outcome("", 1), &outcome("", 1)).is_err());
    }

    #[test]
    fn a_cache_is_a_part_of_the_memory_and_never_too_small() {
        assert_eq!(cache_of(400 << 20, 25), 100 << 20);
        assert_eq!(cache_of(0, 25), LEAST_CACHE);
        assert_eq!(cache_of((400 << 20) + 1000, 25) % 4096, 0);
    }

    #[test]
    fn the_median_is_a_time_that_was_taken() {
        let runs = [3, 1, 7].map(|seconds| outcome("", seconds));
        assert_eq!(median(&runs), 3.0);
        assert_eq!(median(&runs[..1]), 3.0);
    }
}
