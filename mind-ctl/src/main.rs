//! `mind-ctl`: the controller's daemon and the operator's command line. This file holds the command line only.

mod serve;
mod status;

use std::{io::IsTerminal as _, process::ExitCode};

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

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
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(
            EnvFilter::builder()
                .with_default_directive(tracing::Level::INFO.into())
                .with_env_var("MIND_LOG")
                .from_env_lossy(),
        )
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    match run(Cli::parse().verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mind-ctl: {error:#}");
            ExitCode::FAILURE
        }
    }
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
    }
}
