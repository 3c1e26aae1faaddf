//! Replays traces of allocations through the controller and its tables, and through page tables instead: how many entries
//! a switch needs for them, and how evenly memory blades are loaded (MIND, SOSP 2021, section 7.2, figure 7).
//!
//! * [`trace`]: a trace as text; [`sources`]: which files are traces; [`request`]: what of a trace is asked for,
//! * [`live`]: the controller with a switch; [`paging`]: page tables; [`fairness`]: Jain's index,
//! * [`replay`]: one trace through all of them; [`report`]: what came of it,
//! * [`life`]: memory that is allocated and freed at random for long, and how much of it fragments make unusable.

pub mod fairness;
pub mod life;
pub mod live;
pub mod paging;
pub mod replay;
pub mod report;
pub mod request;
pub mod sources;
pub mod trace;

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use mind_common::{addr::SLICE_SHIFT, id::MAX_BLADES};

use replay::Rack;
use report::Report;
use request::Kind;

/// Which traces, and on how much memory.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A trace; or a program's folder, with its mapping at start in `initial-map.txt` and a trace in each other `.txt`;
    /// or a folder of such folders.
    #[arg(required = true, value_name = "FILE|FOLDER")]
    traces: Vec<PathBuf>,
    /// How many memory blades, up to 32.
    #[arg(long, value_name = "N", default_value_t = 8,
        value_parser = clap::value_parser!(u8).range(1..=MAX_BLADES as i64))]
    blades: u8,
    /// Memory of each, up to 512G.
    #[arg(long, value_name = "SIZE", default_value = "512G", value_parser = mind_cli::whole_pages)]
    blade_size: u64,
    /// Leave out memory that programs reserve, or files that they map.
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    without: Vec<Kind>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// So many memory blades of that size.
///
/// # Errors
///
/// That is more memory than a blade can have.
fn rack(blades: u8, blade_size: u64) -> Result<Rack> {
    ensure!(
        blade_size <= 1 << SLICE_SHIFT,
        "--blade-size: {blade_size} bytes are more than a memory blade's part of the address space; give up to {}G",
        1_u64 << (SLICE_SHIFT - 30)
    );
    Ok(Rack { blades, blade_size })
}

/// Replays them and prints the table.
///
/// # Errors
///
/// A trace cannot be read, or asks for more memory than there is.
pub fn run(args: &Args) -> Result<()> {
    let rack = rack(args.blades, args.blade_size)?;
    let mut sources = Vec::new();
    for path in &args.traces {
        sources.extend(sources::find(path)?);
    }
    let bar = bar(sources.len() as u64, "traces")?;
    let mut traces = Vec::new();
    for source in &sources {
        traces.push(replay::replay(source, rack, &args.without)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let report = Report {
        blades: rack.blades,
        blade_bytes: rack.blade_size,
        traces,
    };
    print(args.json, &report, || report.text())
}

/// A bar on standard error, where that is a terminal.
fn bar(length: u64, what: &str) -> Result<ProgressBar> {
    let bar = ProgressBar::new(length);
    let template = format!("{{wide_bar}} {{human_pos}} of {{human_len}} {what}, {{eta}} left");
    let style = ProgressStyle::with_template(&template).context("cannot draw a progress bar")?;
    bar.set_style(style);
    Ok(bar)
}

/// Prints a report: for machines, or the `text` for people.
fn print(
    is_json: bool,
    report: &impl serde::Serialize,
    text: impl FnOnce() -> String,
) -> Result<()> {
    let text = match is_json {
        true => serde_json::to_string_pretty(report).context("cannot write JSON")?,
        false => text(),
    };
    mind_cli::print(&text).context("cannot write the report")
}
