//! `mind-demo`: the demo's command line, and that of its workers. `cargo xtask demo` builds what it
//! needs and runs it.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand, ValueEnum, value_parser};
use mind_cli::Interrupted;
use mind_demo::demo::{self, Happenings, Options};
use mind_demo::rank::Settings;
use mind_demo::{tables, worker};

/// What errors begin with.
const NAME: &str = "demo";

/// PageRank over one graph in disaggregated shared memory, by a process on each compute blade, and
/// what it cost.
#[derive(Parser)]
#[command(name = "cargo xtask demo", bin_name = "cargo xtask demo", version)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    demo: Demo,
}

#[derive(Subcommand)]
enum Verb {
    /// The process that the demo runs on each compute blade.
    #[command(hide = true)]
    Worker,
}

#[derive(clap::Args)]
struct Demo {
    /// Rank this graph: two names a line, separated by white space; `#` begins a comment. Without
    /// it, the dependency graph of Debian's packages is read from this machine's package lists.
    #[arg(long, value_name = "FILE")]
    graph: Option<PathBuf>,
    /// Compute blades, each with a worker.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = value_parser!(u8).range(1..=32))]
    compute: u8,
    /// Memory blades.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = value_parser!(u8).range(1..=32))]
    memory: u8,
    /// Most iterations.
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = value_parser!(u64).range(1..))]
    iterations: u64,
    /// Stop when all ranks together change by less in an iteration.
    #[arg(long, value_name = "CHANGE", default_value = "1e-10", value_parser = parse_tolerance)]
    tolerance: f64,
    /// Give up when no worker has reported for so long.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = value_parser!(u64).range(1..=86_400))]
    patience: u64,
    /// The form of the result, on stdout. Everything else goes to stderr.
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Json,
}

fn parse_tolerance(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        _ => Err(format!(
            "`{text}` is no change of ranks; expected 0 or more, such as 1e-10"
        )),
    }
}

fn main() -> ExitCode {
    mind_cli::tell_on_stderr(mind_cli::LevelFilter::WARN);
    let cli = Cli::parse();
    if let Some(Verb::Worker) = cli.verb {
        return match worker::main() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error:#}");
                ExitCode::FAILURE
            }
        };
    }
    let happenings = match Happenings::with_signals() {
        Ok(happenings) => happenings,
        Err(error) => return mind_cli::exit(NAME, Err(error)),
    };
    match run(&cli.demo, &happenings) {
        // Errors after an interrupt are caused by it.
        Err(_) if happenings.is_interrupted() => {
            eprintln!("demo: {Interrupted}");
            ExitCode::from(mind_cli::INTERRUPTED)
        }
        result => mind_cli::exit(NAME, result),
    }
}

fn run(args: &Demo, happenings: &Happenings) -> Result<()> {
    let report = demo::run(
        &Options {
            graph: args.graph.clone(),
            compute: args.compute,
            memory: args.memory,
            settings: Settings {
                iterations: args.iterations,
                tolerance: args.tolerance,
            },
            patience: Duration::from_secs(args.patience),
        },
        happenings,
    )?;
    let text = match args.output {
        Format::Text => tables::render(&report),
        Format::Json => {
            let text = serde_json::to_string_pretty(&report).context("cannot write JSON")?;
            format!("{text}\n")
        }
    };
    std::io::stdout()
        .write_all(text.as_bytes())
        .context("cannot write the result to stdout")?;
    match report.fault() {
        None => Ok(()),
        Some(fault) => anyhow::bail!(fault),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
        let cli = Cli::try_parse_from(["demo"]).unwrap();
        assert!(cli.verb.is_none());
        assert_eq!((cli.demo.compute, cli.demo.memory), (2, 2));
        let cli = Cli::try_parse_from(["demo", "worker"]).unwrap();
        assert!(matches!(cli.verb, Some(Verb::Worker)));
    }

    #[test]
    fn values_that_cannot_be_are_refused() {
        for args in [
            ["--compute", "0"],
            ["--compute", "33"],
            ["--memory", "0"],
            ["--iterations", "0"],
            ["--tolerance", "-1"],
            ["--tolerance", "NaN"],
            ["--patience", "0"],
        ] {
            let result = Cli::try_parse_from(["demo", args[0], args[1]]);
            assert!(result.is_err(), "{args:?}");
        }
    }
}
