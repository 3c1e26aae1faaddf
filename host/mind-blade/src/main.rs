//! `mind-blade`: the agent of a blade. This file holds the command line; what the agents do is in
//! [`compute`] and [`memory`].

mod compute;
mod controller;
mod interface;
mod memory;

use std::{net::SocketAddr, process::ExitCode};

use anyhow::{Context as _, Result};
use clap::{CommandFactory as _, Parser, Subcommand};
use mind_cli::{
    config::{self, Daemon},
    manual,
};
use mind_metrics::{Families, page};

/// The daemons, for their configuration files.
const DAEMONS: [Daemon; 2] = [
    Daemon {
        name: "mind-blade-compute",
        verb: Some("compute"),
        examples: &[
            ("name", r#""c0""#),
            ("interface", r#""eth0""#),
            ("controller", r#""198.18.0.1:4790""#),
            ("metrics", r#""127.0.0.1:9791""#),
            ("cache", r#""1G""#),
        ],
    },
    Daemon {
        name: "mind-blade-memory",
        verb: Some("memory"),
        examples: &[
            ("name", r#""m0""#),
            ("interface", r#""eth0""#),
            ("controller", r#""198.18.0.1:4790""#),
            ("metrics", r#""127.0.0.1:9792""#),
            ("size", r#""16G""#),
        ],
    },
];

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
    #[arg(long, default_value_t = host_name(), hide_default_value = true)]
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
        tokio::spawn(page::serve(listener, gather));
        Ok(())
    }
}

fn host_name() -> String {
    let names = rustix::system::uname();
    names.nodename().to_string_lossy().into_owned()
}

fn main() -> ExitCode {
    let cli: Cli = config::parse(&DAEMONS);
    mind_cli::log_to_stderr();
    mind_cli::exit("mind-blade", run(cli.role))
}

fn run(role: Role) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("cannot start the threads for control messages")?;
    let command = || config::command(Cli::command(), &DAEMONS);
    let result = match role {
        Role::Compute(args) => runtime.block_on(compute::run(args)),
        Role::Memory(args) => runtime.block_on(memory::run(args)),
        Role::Completions(args) => args.print(command()),
        Role::Man(args) => args.write(command()),
    };
    // Remaining tasks end with the process; some of them wait for an engine that does not end.
    runtime.shutdown_background();
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        config::command(Cli::command(), &DAEMONS).debug_assert();
    }

    #[test]
    fn the_examples_of_the_configurations_are_some() {
        assert_eq!(
            config::check_examples(Cli::command(), &DAEMONS).map_err(|error| error.to_string()),
            Ok(())
        );
    }
}
