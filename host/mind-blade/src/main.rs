//! `mind-blade`: the agent of a blade. This file holds the command line; what the agents do is in
//! [`compute`] and [`memory`].

mod compute;
mod controller;
mod interface;
mod memory;

use std::{net::SocketAddr, process::ExitCode};

use anyhow::{Context as _, Result};
use clap::{CommandFactory as _, Parser, Subcommand};
use mind_cli::manual;
use mind_metrics::{Families, page};

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
    /// Print what a shell needs to complete this command line.
    Completions(manual::Completions),
    /// Write manual pages of this program and its verbs.
    Man(manual::Man),
}

/// Options of both roles.
#[derive(clap::Args)]
struct Common {
    /// The blade's name, for people; by default the host's.
    #[arg(long, default_value_t = host_name())]
    name: String,
    /// The interface that leads to the switch.
    #[arg(long, value_name = "IFACE")]
    interface: String,
    /// The controller, as address and port.
    #[arg(long, value_name = "ADDRESS:PORT", env = "MIND_CONTROLLER")]
    controller: std::net::SocketAddrV4,
    /// Where to show metrics to Prometheus, over HTTP; by default nowhere.
    #[arg(long, value_name = "ADDRESS:PORT", env = "MIND_METRICS")]
    metrics: Option<SocketAddr>,
}

impl Common {
    /// Serves the metrics that `gather` returns, if `--metrics` is given.
    async fn show_metrics<G, F>(&self, gather: G) -> Result<()>
    where
        G: Fn() -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Families> + Send + 'static,
    {
        let Some(address) = self.metrics else {
            return Ok(());
        };
        let listener = page::listen(address).await?;
        tokio::spawn(async move {
            if let Err(error) = page::serve(listener, gather).await {
                tracing::error!(%error, "metrics are not shown any more");
            }
        });
        Ok(())
    }
}

fn host_name() -> String {
    let names = rustix::system::uname();
    names.nodename().to_string_lossy().into_owned()
}

fn main() -> ExitCode {
    mind_cli::log_to_stderr();
    mind_cli::exit("mind-blade", run(Cli::parse().role))
}

fn run(role: Role) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("cannot start the threads for control messages")?;
    let result = match role {
        Role::Compute(args) => runtime.block_on(compute::run(args)),
        Role::Memory(args) => runtime.block_on(memory::run(args)),
        Role::Completions(args) => args.print(Cli::command()),
        Role::Man(args) => args.write(Cli::command()),
    };
    // Remaining tasks end with the process; some of them wait for an engine that does not end.
    runtime.shutdown_background();
    result
}
