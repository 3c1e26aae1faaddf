//! `mind`: what users of a compute blade run. This file holds the command line; what `mind run` does is in [`run`].

mod program;
mod refused;
mod run;

use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory as _, Parser, Subcommand};
use mind_cli::LevelFilter;

/// Runs programs on memory of other machines.
#[derive(Parser)]
#[command(name = "mind", version)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run a program as it is, with its larger memory on other machines.
    Run(run::Args),
    /// Print what a shell needs to complete this command line.
    Completions(mind_cli::manual::Completions),
    /// Write manual pages of this program and its verbs.
    Man(mind_cli::manual::Man),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    mind_cli::tell_on_stderr(LevelFilter::WARN);
    mind_cli::exit("mind", run(cli.verb))
}

fn run(verb: Verb) -> Result<()> {
    match verb {
        Verb::Run(args) => run::run(&args),
        Verb::Completions(args) => args.print(Cli::command()),
        Verb::Man(args) => args.write(Cli::command()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
