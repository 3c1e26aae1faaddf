//! `mind-soak`: the endurance run's command line, and that of the processes that it starts on blades. `cargo xtask
//! soak` builds what it needs and runs it.

use std::{io::Write as _, process::ExitCode};

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand, value_parser};
use mind_soak::{
    signals::{Interrupted, Signals},
    soak::{self, Options},
    verdicts, worker,
};

/// What errors begin with.
const NAME: &str = "soak";

/// Four blades read and write shared memory at full speed, every verdict of the switch is caused, every byte checked,
/// and the machine's memory and the kernel's log are watched. Ends with 0 if nothing was wrong, missing or left.
#[derive(Parser)]
#[command(name = "cargo xtask soak", bin_name = "cargo xtask soak", version)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    soak: Soak,
}

#[derive(Subcommand)]
enum Verb {
    /// The process that the soak runs on each blade of the load.
    #[command(hide = true)]
    Worker(worker::Args),
    /// The process that allocates the memory that injected frames ask for.
    #[command(hide = true)]
    Reserve,
}

#[derive(clap::Args)]
struct Soak {
    /// How long the load runs; 0.5 is half a minute.
    #[arg(long, value_name = "N", default_value = "10", value_parser = parse_minutes)]
    minutes: f64,
    /// How often every verdict must come up in ten minutes or more; in less time, in proportion.
    #[arg(long, value_name = "N", default_value_t = verdicts::FULL)]
    paths: u64,
    /// By how much to multiply the threads on each blade, one or more for each kind of work.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u8).range(1..=16))]
    threads: u8,
}

fn parse_minutes(text: &str) -> Result<f64, String> {
    const WEEK: f64 = 7.0 * 24.0 * 60.0;
    match text.parse::<f64>() {
        Ok(minutes) if minutes > 0.0 && minutes <= WEEK => Ok(minutes),
        _ => Err(format!(
            "`{text}` is no time to run; expected minutes, more than 0 and at most {WEEK}"
        )),
    }
}

fn main() -> ExitCode {
    mind_cli::tell_on_stderr(mind_cli::LevelFilter::INFO);
    let cli = Cli::parse();
    let result = match &cli.verb {
        Some(Verb::Worker(args)) => worker::main(args),
        Some(Verb::Reserve) => worker::reserve(),
        None => return soak(&cli.soak),
    };
    mind_cli::exit(NAME, result)
}

fn soak(args: &Soak) -> ExitCode {
    let signals = match Signals::take() {
        Ok(signals) => signals,
        Err(error) => return mind_cli::exit(NAME, Err(error)),
    };
    match run(args, &signals) {
        // Errors after an interrupt are caused by it.
        Err(_) if signals.is_interrupted() => {
            eprintln!("soak: {Interrupted}; nothing is left running");
            ExitCode::from(mind_cli::INTERRUPTED)
        }
        result => mind_cli::exit(NAME, result),
    }
}

fn run(args: &Soak, signals: &Signals) -> Result<()> {
    let options = Options::new(args.minutes, args.paths, args.threads.into());
    let report = soak::run(&options, signals)?;
    std::io::stdout()
        .write_all(report.render().as_bytes())
        .context("cannot write the result to stdout")?;
    match report.faults().len() {
        0 => Ok(()),
        1 => bail!("there is a fault; see above"),
        faults => bail!("there are {faults} faults; see above"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
        let cli = Cli::try_parse_from(["soak"]).unwrap();
        assert!(cli.verb.is_none());
        assert_eq!((cli.soak.minutes, cli.soak.paths), (10.0, 100_000));
        let worker = ["soak", "worker", "--number", "3", "--threads", "2"];
        let cli = Cli::try_parse_from(worker).unwrap();
        assert!(matches!(cli.verb, Some(Verb::Worker(_))));
    }

    #[test]
    fn times_that_cannot_be_are_refused() {
        for minutes in ["0", "-1", "NaN", "inf", "1e9", "ten"] {
            let result = Cli::try_parse_from(["soak", &format!("--minutes={minutes}")]);
            assert!(result.is_err(), "{minutes}");
        }
        let cli = Cli::try_parse_from(["soak", "--minutes=0.5"]).unwrap();
        assert_eq!(cli.soak.minutes, 0.5);
    }
}
