//! `mind-controller`: the controller's daemon. This file holds its command line only.

mod serve;

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{CommandFactory as _, Parser, Subcommand};

/// Loads the data plane onto this host's ports and serves blades, programs and operators, until SIGTERM.
#[derive(Parser)]
#[command(
    name = "mind-controller",
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
struct Cli {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    args: Option<serve::Args>,
}

#[derive(Subcommand)]
enum Verb {
    /// Print what a shell needs to complete this command line.
    Completions(mind_cli::manual::Completions),
    /// Write the manual page of this program.
    Man(mind_cli::manual::Man),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    mind_cli::log_to_stderr();
    mind_cli::exit("mind-controller", run(cli))
}

fn run(cli: Cli) -> Result<()> {
    match (cli.verb, cli.args) {
        (Some(Verb::Completions(args)), _) => args.print(Cli::command()),
        (Some(Verb::Man(args)), _) => args.write(Cli::command()),
        (None, Some(args)) => serve(args),
        (None, None) => Cli::command()
            .error(
                clap::error::ErrorKind::MissingRequiredArgument,
                "the ports of the switch are missing: name them with --port IFACE...",
            )
            .exit(),
    }
}

fn serve(args: serve::Args) -> Result<()> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the threads for connections")?
        .block_on(serve::run(args))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn ports_are_needed_to_serve_and_for_nothing_else() {
        let parsed = |line: &str| Cli::try_parse_from(line.split(' '));
        let cli = parsed("mind-controller --port c0 c1").ok().unwrap();
        assert!(cli.verb.is_none() && cli.args.is_some());
        assert!(parsed("mind-controller completions bash").is_ok());
        assert!(parsed("mind-controller --bridge br7").is_err());
    }
}
