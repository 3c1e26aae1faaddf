//! `mind-controller`: the controller's daemon. This file holds its command line only.

mod serve;

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{CommandFactory as _, Parser, Subcommand};
use mind_cli::config::{self, Daemon};

/// The daemon, for its configuration file.
const DAEMONS: [Daemon; 1] = [Daemon {
    name: "mind-controller",
    verb: None,
    examples: &[
        ("port", r#"["eth1", "eth2", "eth3"]"#),
        ("address", r#""198.18.0.1/16""#),
        ("listen", r#""198.18.0.1:4790""#),
        ("metrics", r#""127.0.0.1:9790""#),
        ("slots", "1048576"),
    ],
}];

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
    args: serve::Args,
}

#[derive(Subcommand)]
enum Verb {
    /// Print what a shell needs to complete this command line.
    Completions(mind_cli::manual::Completions),
    /// Write the manual page of this program.
    Man(mind_cli::manual::Man),
}

fn main() -> ExitCode {
    let cli: Cli = config::parse(&DAEMONS);
    mind_cli::log_to_stderr();
    mind_cli::limits::raise_descriptors();
    mind_cli::exit("mind-controller", run(cli))
}

fn run(cli: Cli) -> Result<()> {
    let command = || config::command(Cli::command(), &DAEMONS);
    match cli.verb {
        Some(Verb::Completions(args)) => args.print(command()),
        Some(Verb::Man(args)) => args.write(command()),
        None => serve(cli.args),
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
        config::command(Cli::command(), &DAEMONS).debug_assert();
    }

    #[test]
    fn the_example_of_the_configuration_is_one() {
        assert_eq!(
            config::check_examples(Cli::command(), &DAEMONS).map_err(|error| error.to_string()),
            Ok(())
        );
    }

    #[test]
    fn ports_are_needed_to_serve_and_for_nothing_else() {
        let parsed = |line: &str| Cli::try_parse_from(line.split(' '));
        let cli = parsed("mind-controller --port c0 c1").ok().unwrap();
        assert!(cli.verb.is_none());
        assert!(parsed("mind-controller completions bash").is_ok());
        assert!(parsed("mind-controller --bridge br7").is_err());
    }
}
