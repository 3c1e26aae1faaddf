//! How soon regions are split that blades share falsely, and what that costs others: four blades each write one page of
//! every region, and a fifth one times loads of memory that is its own.
//!
//! * [`measure`]: the order of a run, with epochs and without,
//! * [`round`]: one round and what is computed of it,
//! * [`report`]: the results.

mod measure;
mod report;
mod round;

use anyhow::{Context as _, Result, ensure};
use mind_cli::Interrupt;

use measure::{Run, measure};

use crate::output;

/// What `cargo xtask bench splitting` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print JSON: `false_invalidations_per_s.{first_second,stable,ratio}`, `slots.{before,most,stable}`,
    /// `probe.{with,without}.{p50_us,p99_us,count}`, `probe.p99_ratio` and more.
    #[arg(long)]
    json: bool,
    /// Rounds with epochs, and as many without.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Milliseconds of a round: 2,000 or more.
    #[arg(long, default_value_t = 5_000)]
    round_ms: u64,
    /// Regions of four pages.
    #[arg(long, default_value_t = 200)]
    regions: u64,
    /// Milliseconds of an epoch.
    #[arg(long, default_value_t = 100)]
    epoch: u32,
}

/// Runs `cargo xtask bench splitting`. When it returns, however it does, nothing of it is left.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(args.rounds > 0, "--rounds must be 1 or more");
    ensure!(args.round_ms >= 2_000, "--round-ms must be 2000 or more");
    ensure!(
        (1..=round::MOST_REGIONS).contains(&args.regions),
        "--regions must be 1 to {}",
        round::MOST_REGIONS
    );
    ensure!(args.epoch > 0, "--epoch must be 1 or more");
    let interrupt = Interrupt::with_signals().context("cannot take Ctrl-C")?;
    let run = Run {
        rounds: args.rounds,
        millis: args.round_ms,
        regions: args.regions,
        epoch: args.epoch,
    };
    let report = measure(&run, &interrupt);
    // Errors after an interrupt are caused by it.
    interrupt.check()?;
    let report = report?;
    output::print(&report, args.json, || report.text(), report.complaints())
}
