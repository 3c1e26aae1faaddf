//! `mind-blade`: the agent of a blade. This file holds the command line; what the agents do is in
//! [`compute`] and [`memory`].

mod compute;
mod controller;
mod interface;
mod memory;

use std::{io::IsTerminal as _, process::ExitCode};

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

/// The agent of a compute blade or a memory blade. It runs until SIGTERM.
#[derive(Parser)]
#[command(name = "mind-blade", version)]
struct Cli {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Keep the page cache of this host's programs.
    Compute(compute::Args),
    /// Offer memory of this host.
    Memory(memory::Args),
}

/// What both take.
#[derive(clap::Args)]
struct Common {
    /// The blade's name, for people.
    #[arg(long)]
    name: String,
    /// The interface that leads to the switch.
    #[arg(long)]
    interface: String,
    /// The controller, as address and port.
    #[arg(long)]
    controller: std::net::SocketAddrV4,
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
    match run(Cli::parse().role) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mind-blade: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(role: Role) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("cannot start the threads for control messages")?;
    match role {
        Role::Compute(args) => runtime.block_on(compute::run(args)),
        Role::Memory(args) => runtime.block_on(memory::run(args)),
    }
}
