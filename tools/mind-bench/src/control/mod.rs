//! What the controller takes to answer: the real daemon with its maps, records and sockets, on a testbed whose blades
//! are stand-ins that answer orders at once and hold no pages, so that sizes are not this machine's.
//!
//! * [`measure`]: the order of a run,
//! * [`bed`]: the testbed with the daemon, [`stand_in`]: what registers in place of a blade,
//! * [`program`]: requests, and how long they take,
//! * [`hung`]: a blade that holds pages which others want and does not answer,
//! * [`limits`]: what no request can be faster than,
//! * [`report`]: the results.

mod bed;
mod hung;
mod limits;
mod measure;
mod program;
mod report;
mod stand_in;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mind_cli::Interrupt;
use netns_setup::plan::MAX_BLADES;

use measure::{Run, measure};
use report::Report;

use crate::output;

/// What `cargo xtask bench control` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print JSON: `map_us.{4k,1g,256g}.{p50,p99}`, `map_at_vmas_us.{1,1000,100000}.p99`, the same of `unmap`,
    /// `protect`, `open` and `attach`, `ops_per_s`, `hung.{status,metrics,map}_ms.p99` and more.
    #[arg(long)]
    json: bool,
    /// Requests of each kind, at each number of vmas and of each size.
    #[arg(long, default_value_t = 500)]
    samples: usize,
    /// Numbers of vmas that are in place while requests are measured, in this order.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 1_000, 100_000])]
    vmas: Vec<usize>,
    /// How long it may take to put all of them in place, in seconds; then the numbers beyond are reported as missing.
    #[arg(long, default_value_t = 300)]
    fill_seconds: u64,
    /// How long to count operations of 8 clients, in milliseconds.
    #[arg(long, default_value_t = 2_000)]
    rate_ms: u64,
    /// Compute blades. Requests come from eleven of them; the last one hangs.
    #[arg(long, default_value_t = MAX_BLADES, value_parser = clap::value_parser!(u8).range(12..=i64::from(MAX_BLADES)))]
    compute: u8,
    /// Memory blades.
    #[arg(long, default_value_t = MAX_BLADES, value_parser = clap::value_parser!(u8).range(1..=i64::from(MAX_BLADES)))]
    memory: u8,
    /// Directory slots: as many as there are by default at first, so that the data plane is not replaced while more and
    /// more memory is offered.
    #[arg(long, default_value_t = 262_144)]
    slots: u32,
}

/// Runs `cargo xtask bench control`. When it returns, however it does, no testbed is left.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(args.samples > 0, "--samples must be 1 or more");
    ensure!(
        !args.vmas.is_empty() && args.vmas[0] > 0 && args.vmas.is_sorted(),
        "--vmas must be numbers from 1 on, none less than the one before"
    );
    ensure!(args.rate_ms > 0, "--rate-ms must be 1 or more");
    let interrupt = Interrupt::with_signals().context("cannot take Ctrl-C")?;
    let run = Run {
        samples: args.samples,
        vmas: args.vmas.clone(),
        fill: Duration::from_secs(args.fill_seconds),
        rate: Duration::from_millis(args.rate_ms),
        compute: args.compute,
        memory: args.memory,
        slots: args.slots,
    };
    let measured = measure(&run, &interrupt);
    // Errors after an interrupt are caused by it.
    interrupt.check()?;
    let report = Report::new(measured?);
    output::print(&report, args.json, || report.text(), report.complaints())
}
