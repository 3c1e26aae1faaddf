//! `mind-programs`: runs programs of the distribution on a blade and says what came of it. `cargo xtask programs` builds
//! and installs what it needs and runs it.

use std::{process::ExitCode, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Parser, value_parser};
use mind_cli::Interrupt;
use mind_programs::{
    catalogue::{self, Program},
    measure::{self, Choice},
    report::{Failure, Report},
    script::Limits,
};

/// What errors begin with.
const NAME: &str = "programs";

/// Runs programs as the distribution ships them in local memory and, by `mind run`, on a blade whose cache holds a part
/// of their memory. Fails if one does not answer the same both times.
#[derive(Parser)]
#[command(
    name = "cargo xtask programs",
    bin_name = "cargo xtask programs",
    version
)]
struct Cli {
    /// Those to run; all, if none are named.
    #[arg(value_name = "PROGRAM", value_parser = named)]
    programs: Vec<&'static Program>,
    /// Say what there are, and run none.
    #[arg(long)]
    list: bool,
    /// Print JSON: `passed` and `failed`, each a list by `name`.
    #[arg(long)]
    json: bool,
    /// Runs each way, in turns; times are medians.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u16).range(1..))]
    rounds: u16,
    /// The cache, in hundredths of a program's memory.
    #[arg(long, value_name = "PERCENT", default_value_t = 25, value_parser = value_parser!(u64).range(1..=1000))]
    cache: u64,
    /// How much each has to do, in place of its own choice: 1 takes a second or less in local memory.
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    scale: Option<u32>,
    /// How long a run may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = value_parser!(u64).range(1..=86_400))]
    patience: u64,
}

fn named(name: &str) -> Result<&'static Program, String> {
    Program::named(name).ok_or_else(|| {
        let names: Vec<_> = catalogue::ALL.iter().map(|program| program.name).collect();
        format!("there are {}", names.join(", "))
    })
}

fn main() -> ExitCode {
    mind_cli::tell_on_stderr(mind_cli::LevelFilter::WARN);
    mind_cli::exit(NAME, run(&Cli::parse()))
}

fn run(args: &Cli) -> Result<()> {
    if args.list {
        for program in catalogue::ALL {
            mind_cli::print(&format!("{:10} {}", program.name, program.about()))?;
        }
        return Ok(());
    }
    let interrupt = Interrupt::with_signals().context("cannot take Ctrl-C")?;
    let limits = Limits {
        patience: Duration::from_secs(args.patience),
        interrupt: &interrupt,
    };
    let choice = Choice {
        rounds: args.rounds.into(),
        cache_percent: args.cache,
        scale: args.scale,
    };
    let mut report = Report {
        rounds: choice.rounds,
        cache_percent: choice.cache_percent,
        ..Report::default()
    };
    let chosen: Vec<_> = match args.programs.as_slice() {
        [] => catalogue::ALL.iter().collect(),
        chosen => chosen.to_vec(),
    };
    for program in chosen {
        match measure::measure(program, &choice, &limits) {
            Ok(row) => {
                eprintln!("{NAME}: {}", row.line());
                report.passed.push(row);
            }
            Err(error) => {
                // Errors after an interrupt are caused by it.
                interrupt.check()?;
                report.failed.push(Failure {
                    name: program.name,
                    error: format!("{error:#}"),
                });
            }
        }
    }
    let text = match args.json {
        true => serde_json::to_string_pretty(&report).context("cannot write JSON")?,
        false => report.text(),
    };
    mind_cli::print(&text)?;
    let complaints = report.complaints();
    ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
    if report.passed.is_empty() {
        bail!("there was nothing to run");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
        let cli = Cli::try_parse_from(["programs", "redis", "xz"]).unwrap();
        assert_eq!(cli.programs.len(), 2);
        for wrong in ["--rounds=0", "--cache=0", "--scale=0", "nonsense"] {
            assert!(Cli::try_parse_from(["programs", wrong]).is_err(), "{wrong}");
        }
    }
}
