//! `mind-ctl`: the operator's command line. What each verb does is in [`operator`]; [`serve`] becomes the daemon.

mod operator;
mod serve;

use std::{ffi::OsString, process::ExitCode};

use anyhow::{Context as _, Result};
use clap::{CommandFactory as _, Parser, Subcommand};

use operator::{Format, blades, check, error, ports, region, regions, status, top, trace, vmas};

/// Controls a MIND switch.
#[derive(Parser)]
#[command(name = "mind-ctl", version)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Become the controller's daemon, `mind-controller`, with these arguments.
    #[command(disable_help_flag = true)]
    Serve(serve::Args),
    /// Say what there is: blades, memory, ports, domains, losses.
    Status(status::Args),
    /// List blades, and how the caches of compute blades do.
    Blades(blades::Args),
    /// List vmas: who may do what with them, and where they are kept.
    Vmas(vmas::Args),
    /// List regions, as the directory has them.
    Regions(regions::Args),
    /// List the switch's ports, and what became of the packets that came in there.
    Ports(ports::Args),
    /// List the ports' counters, one for each verdict.
    Counters(ports::CounterArgs),
    /// Show how blades, ports and the busiest regions do, live.
    Top(top::Args),
    /// Show what the switch does with each packet, live; on the switch only.
    Trace(trace::Args),
    /// Compare the controller's books, the data plane's tables and the blades; fails if they do not agree.
    Check(check::Args),
    /// Reset, split or merge a region, under traffic; on the switch only.
    Region(region::Args),
    /// Print what a shell needs to complete this command line.
    Completions(mind_cli::manual::Completions),
    /// Write manual pages of this program and its verbs.
    Man(mind_cli::manual::Man),
}

impl Verb {
    /// The form of its answer.
    fn format(&self) -> Format {
        let common = match self {
            Self::Serve(_) | Self::Completions(_) | Self::Man(_) => return Format::Text,
            Self::Status(args) => &args.common,
            Self::Blades(args) => &args.common,
            Self::Vmas(args) => &args.common,
            Self::Regions(args) => &args.common,
            Self::Ports(args) => &args.common,
            Self::Counters(args) => &args.common,
            Self::Top(args) => &args.common,
            Self::Trace(args) => &args.common,
            Self::Check(args) => &args.common,
            Self::Region(args) => &args.common,
        };
        common.output
    }
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && wants_json(&arguments) => {
            eprintln!("{}", error::usage(&error));
            return ExitCode::from(2);
        }
        Err(error) => error.exit(),
    };
    mind_cli::log_to_stderr();
    let format = cli.verb.format();
    match run(cli.verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", error::render(&error, format));
            ExitCode::FAILURE
        }
    }
}

/// Whether a command line that cannot be understood asks for JSON.
fn wants_json(arguments: &[OsString]) -> bool {
    let texts: Vec<_> = arguments
        .iter()
        .map(|text| text.to_string_lossy())
        .collect();
    let joined = |text: &str| matches!(text, "-ojson" | "-o=json" | "--output=json");
    texts.iter().any(|text| joined(text))
        || texts
            .windows(2)
            .any(|pair| matches!(&*pair[0], "-o" | "--output") && pair[1] == "json")
}

fn run(verb: Verb) -> Result<()> {
    match verb {
        Verb::Serve(args) => serve::run(&args),
        Verb::Status(args) => block_on(status::run(&args)),
        Verb::Blades(args) => block_on(blades::run(&args)),
        Verb::Vmas(args) => block_on(vmas::run(&args)),
        Verb::Regions(args) => block_on(regions::run(&args)),
        Verb::Ports(args) => block_on(ports::run(&args)),
        Verb::Counters(args) => block_on(ports::run_counters(&args)),
        Verb::Top(args) => block_on(top::run(&args)),
        Verb::Trace(args) => block_on(trace::run(&args)),
        Verb::Check(args) => block_on(check::run(&args)),
        Verb::Region(args) => block_on(region::run(&args)),
        Verb::Completions(args) => args.print(Cli::command()),
        Verb::Man(args) => args.write(Cli::command()),
    }
}

fn block_on(answer: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start what waits for connections")?
        .block_on(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_script_gets_json_even_for_a_wrong_command_line() {
        let wants =
            |text: &str| wants_json(&text.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert!(wants("mind-ctl status --nonsense -o json"));
        assert!(wants("mind-ctl status --output=json --nonsense"));
        assert!(!wants("mind-ctl status --nonsense -o text"));
        let error = Cli::try_parse_from(["mind-ctl", "regions", "--sort", "color"]);
        let text = error::usage(&error.err().unwrap());
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["error"]["code"], "USAGE");
        assert!(
            value["error"]["message"]
                .as_str()
                .unwrap()
                .contains("color")
        );
    }
}
