//! `mind-sim`: runs seeds, shows the progress and the results. A failing seed is reduced, and its
//! history printed.

use std::{
    io::Write as _,
    num::NonZero,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use mind_sim::{
    Failure, Flaw,
    batch::{Batch, run_plans},
    coverage::Pair,
    history,
    plan::Plan,
    run, shrink,
};
use serde_json::json;

/// Runs blades, switch, memory and controller under a virtual clock on a bad network, one run for
/// each seed, and checks every load.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// How many seeds; from 2000 on, it fails if a pair is not covered.
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    seeds: u64,
    /// The first of them.
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// How many at the same time; by default one for each processor.
    #[arg(long, value_name = "N")]
    workers: Option<NonZero<usize>>,
    /// Show how often each possible pair was covered.
    #[arg(long)]
    coverage: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Break a machine on purpose, to check that it is found.
    #[arg(long)]
    flaw: Option<Flaw>,
}

/// What errors begin with.
const NAME: &str = "mind-sim";
/// So many seeds cover every possible pair.
const ENOUGH: u64 = 2_000;
/// How many runs may be tried to reduce a seed.
const RUNS: usize = 5_000;

fn main() -> ExitCode {
    mind_cli::exit(NAME, try_main(&Args::parse()))
}

fn try_main(args: &Args) -> Result<()> {
    let workers = match args.workers {
        Some(workers) => workers,
        None => thread::available_parallelism().context("cannot count processors")?,
    };
    let bar = ProgressBar::new(args.seeds);
    let template = "{wide_bar} {human_pos} of {human_len} seeds, {per_sec}, {eta} left";
    bar.set_style(ProgressStyle::with_template(template).context("cannot draw a progress bar")?);
    let began = Instant::now();
    let plan = |seed| Plan {
        flaw: args.flaw,
        ..Plan::of_seed(seed)
    };
    let batch = run_plans(args.seed, args.seeds, workers.get(), &plan, &|| bar.inc(1));
    let took = began.elapsed();
    bar.finish_and_clear();
    report(&batch, took, args.json)?;
    if args.coverage && !args.json {
        show_coverage(&batch)?;
    }
    let Some((seed, failure)) = batch.failures.first() else {
        return check_coverage(&batch);
    };
    let (small, failure) = shrink(&plan(*seed), failure, RUNS);
    show_failure(*seed, &small, &failure)?;
    bail!("{} of {} seeds failed", batch.failures.len(), batch.seeds)
}

/// Prints a run, reduced, and the history of the page that its failure is about.
fn show_failure(seed: u64, plan: &Plan, failure: &Failure) -> Result<()> {
    let mut out = std::io::stderr().lock();
    writeln!(out, "seed {seed}, cut down: {failure}\n{plan}")?;
    let records = run(plan, true).records;
    match history::page(failure, &records) {
        Some(page) => writeln!(
            out,
            "what happened to {page}:\n{}",
            history::table(plan, page, &records)
        )?,
        None => {
            for record in records {
                writeln!(out, "{:>12} {:?}", record.at, record.what)?;
            }
        }
    }
    Ok(())
}

/// Fails if pairs came that cannot, or are missing after a number of seeds that should cover all.
fn check_coverage(batch: &Batch) -> Result<()> {
    let unexpected = listed(&batch.coverage.unexpected());
    ensure!(
        unexpected.is_empty(),
        "there was what cannot happen: {unexpected}; if it can, take the reason why not out of \
         check/mind-sim/src/coverage/never.rs"
    );
    let missing = listed(&batch.coverage.missing());
    ensure!(
        batch.seeds < ENOUGH || missing.is_empty(),
        "{} seeds did not reach what {ENOUGH} do: {missing}; bring it about in a plan, or give the reason \
         why it cannot happen in check/mind-sim/src/coverage/never.rs",
        batch.seeds,
    );
    Ok(())
}

fn listed(pairs: &[Pair]) -> String {
    let pairs: Vec<_> = pairs.iter().map(ToString::to_string).collect();
    pairs.join("; ")
}

fn show_coverage(batch: &Batch) -> Result<()> {
    let mut pairs: Vec<_> = Pair::all()
        .filter(|pair| pair.impossible().is_none())
        .map(|pair| (batch.coverage.of(pair), pair))
        .collect();
    pairs.sort_by_key(|(count, _)| *count);
    let mut out = std::io::stdout().lock();
    for (count, pair) in pairs {
        writeln!(out, "{count:>10} {pair}")?;
    }
    Ok(())
}

fn report(batch: &Batch, took: Duration, as_json: bool) -> Result<()> {
    let seconds = took.as_secs_f64();
    let virtual_seconds = Duration::from_nanos(batch.virtual_nanos).as_secs_f64();
    let recovery = Duration::from_nanos(batch.recovery_nanos).as_secs_f64();
    let per_minute = batch.seeds as f64 * 60.0 / seconds;
    let (reached, possible) = batch.coverage.reached();
    let missing = batch.coverage.missing();
    let missing: Vec<_> = missing.iter().map(ToString::to_string).collect();
    let mut out = std::io::stdout().lock();
    if as_json {
        let failures: Vec<_> = batch
            .failures
            .iter()
            .map(|(seed, failure)| json!({ "seed": seed, "failure": failure.to_string() }))
            .collect();
        let report = json!({
            "seeds": batch.seeds,
            "operations": batch.operations,
            "events": batch.events,
            "virtual_seconds": virtual_seconds,
            "recovery_seconds": recovery,
            "real_seconds": seconds,
            "seeds_per_minute": per_minute,
            "coverage": { "reached": reached, "possible": possible, "missing": missing },
            "hash": format!("{:016x}", batch.hash),
            "failures": failures,
        });
        writeln!(out, "{report}")?;
        return Ok(());
    }
    writeln!(
        out,
        "{} seeds, {} operations, {} events: {per_minute:.0} seeds a minute, {:.1} s of virtual \
         time in each real second; hash {:016x}",
        batch.seeds,
        batch.operations,
        batch.events,
        virtual_seconds / seconds,
        batch.hash,
    )?;
    writeln!(
        out,
        "all programs finished within {recovery:.3} s of virtual time after faults had stopped; \
         {reached} of {possible} pairs of a state and what can happen to it were reached"
    )?;
    for pair in missing {
        writeln!(out, "not reached: {pair}")?;
    }
    for (seed, failure) in &batch.failures {
        writeln!(out, "seed {seed}: {failure}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_seeds_that_leave_a_pair_out_fail_and_name_it() {
        let nothing = |seeds| Batch {
            seeds,
            ..Batch::default()
        };
        assert!(check_coverage(&nothing(ENOUGH - 1)).is_ok());
        let wrong = check_coverage(&nothing(ENOUGH)).unwrap_err().to_string();
        let missing = Batch::default().coverage.missing();
        assert!(!missing.is_empty());
        for pair in missing {
            assert!(wrong.contains(&pair.to_string()), "{pair}: {wrong}");
        }
    }
}
