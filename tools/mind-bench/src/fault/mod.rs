//! What a remote page fault costs, as the thread that faults sees it: every transition between two
//! compute blades, beside the lower limits of a fault's time, measured in the same run on the same
//! processors.
//!
//! * [`measure`]: the order of a run,
//! * [`fan_out`]: what copies invalidations,
//! * [`userfault`] and [`network`]: the two limits,
//! * [`transitions`], [`eviction`] and [`together`]: what is measured of the system ([`crate::system`]),
//! * [`report`]: the results.

mod eviction;
mod fan_out;
mod measure;
mod network;
mod report;
mod together;
mod transitions;
mod userfault;

pub(crate) use network::Requester;
pub(crate) use userfault::{Handler, Local};

use anyhow::{Context as _, Result, ensure};
use mind_cli::Interrupt;

use fan_out::FanOut;
use measure::{Run, measure};
use report::Report;

use crate::{output, system::placement::Sharing};

/// What `cargo xtask bench fault` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print JSON: `limits.userfault_us`, `limits.network_us`,
    /// `transitions.<name>.{p50_us,p99_us,count}`, `evicting_faults_per_s.{t1,t8}`,
    /// `together.{first_touch,i_s}.{p50_us,p99_us,count}` and more.
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

/// Runs `cargo xtask bench fault`. When it returns, however it does, nothing of it is left.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(args.samples > 0, "--samples must be 1 or more");
    ensure!(args.evict_ms > 0, "--evict-ms must be 1 or more");
    let interrupt = Interrupt::with_signals().context("cannot take Ctrl-C")?;
    let run = Run {
        samples: args.samples,
        evict_ms: args.evict_ms,
        placement: args.placement,
        fan_out: args.fan_out,
    };
    let measured = measure(&run, &interrupt);
    // Errors after an interrupt are caused by it.
    interrupt.check()?;
    let report = Report::new(measured?);
    output::print(&report, args.json, || report.text(), report.complaints())
}
