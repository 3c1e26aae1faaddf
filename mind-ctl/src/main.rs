//! `mind-ctl`: the controller's daemon and the operator's command line. This file holds the command line only.

mod region;
mod serve;
mod status;

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};

/// Controls a MIND switch.
#[derive(Parser)]
#[command(name = "mind-ctl", version)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Load the data plane onto this host's ports and serve blades and programs, until SIGTERM.
    Serve(serve::Args),
    /// Say what there is: blades, domains, memory, ports.
    Status(status::Args),
    /// Reset, split or merge a region, under traffic; on the switch only.
    Region(region::Args),
}

fn main() -> ExitCode {
    mind_cli::log_to_stderr();
    mind_cli::exit("mind-ctl", run(Cli::parse().verb))
}

fn run(verb: Verb) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the threads for connections")?;
    match verb {
        Verb::Serve(args) => runtime.block_on(serve::run(args)),
        Verb::Status(args) => runtime.block_on(status::run(args)),
        Verb::Region(args) => runtime.block_on(region::run(args)),
    }
}
