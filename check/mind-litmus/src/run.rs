//! `mind-litmus run`: arguments, output, exit code.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{ValueEnum, value_parser};
use mind_cli::{Interrupt, Interrupted};
use mind_litmus::blades::layout::Layout;
use mind_litmus::report::{NotRun, Report, WRONG};
use mind_litmus::{blades, runner, simulated, tables};
use mind_sim::Flaw;
use serde_json::json;

use crate::{NAME, answer, answer_json, tests};

/// What `mind-litmus run`, and `mind-litmus` without a verb, take.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Cycles (`PodWR Fre PodWR Fre`), names of tests of the collection (`SB`), files, or folders that
    /// have `*.litmus` files in them.
    #[arg(required = true, value_name = "PATH|NAME|CYCLE")]
    what: Vec<String>,
    /// How many copies of each test to run with each layout.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = value_parser!(u64).range(1..))]
    iterations: u64,
    /// Where the variables of a copy lie.
    #[arg(long, value_enum, default_value_t = Choice::All)]
    layout: Choice,
    /// Draw the assignment of threads, places, delays and the state of pages from this number, as
    /// an earlier run did; how threads then overlap is not repeated.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Run in the memory of this machine, without blades: what MIND is to be like.
    #[arg(long)]
    own_memory: bool,
    /// Run in the simulator: blades under a virtual clock, on a network that loses packets, while
    /// regions are reset, split and merged. A seed does the same again.
    #[arg(long, conflicts_with = "own_memory")]
    sim: bool,
    /// Break a part of the simulated system, to check that it is found.
    #[arg(long, value_enum, hide = true, requires = "sim")]
    flaw: Option<Broken>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What may be broken on purpose.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Broken {
    /// The directory forgets one of many sharers.
    ForgottenSharer,
    /// Programs may write on while their page is written back.
    NoProtection,
    /// Memory keeps what it had.
    LostStores,
    /// Stores leave store buffers in any order.
    UnorderedStores,
}

impl Broken {
    const fn flaw(self) -> Flaw {
        match self {
            Self::ForgottenSharer => Flaw::ForgottenSharer,
            Self::NoProtection => Flaw::NoProtection,
            Self::LostStores => Flaw::LostStores,
            Self::UnorderedStores => Flaw::UnorderedStores,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Choice {
    /// Each variable on a page in a region of its own.
    OwnPage,
    /// On two pages of one region.
    OneRegion,
    /// On one page.
    OnePage,
    /// All of these, one after the other.
    All,
}

impl Choice {
    fn layouts(self) -> Vec<Layout> {
        match self {
            Self::OwnPage => vec![Layout::OwnPage],
            Self::OneRegion => vec![Layout::OneRegion],
            Self::OnePage => vec![Layout::OnePage],
            Self::All => Layout::ALL.to_vec(),
        }
    }
}

/// Runs tests; the exit code is 0 if all that was seen is allowed, 1 if not or if a test could not be
/// run, 130 after Ctrl-C.
pub(crate) fn main(args: &Args) -> ExitCode {
    let interrupt = match Interrupt::with_signals().context("cannot take Ctrl-C") {
        Ok(interrupt) => interrupt,
        Err(error) => return mind_cli::exit(NAME, Err(error)),
    };
    match report(args, &interrupt) {
        // Errors after an interrupt are caused by it.
        Err(_) if interrupt.is_wanted() => {
            eprintln!("{NAME}: {Interrupted}");
            ExitCode::from(mind_cli::INTERRUPTED)
        }
        Err(error) => mind_cli::exit(NAME, Err(error)),
        Ok(report) => {
            for fault in report.faults() {
                eprintln!("{NAME}: {fault}");
            }
            ExitCode::from(report.exit_code())
        }
    }
}

const _: () = assert!(WRONG == 1, "as for what cannot be run");

fn report(args: &Args, interrupt: &Interrupt) -> Result<Report> {
    let mut all = Vec::new();
    let mut unread = Vec::new();
    for what in &args.what {
        for test in tests(what)? {
            match test {
                Ok(test) => all.push(test),
                Err(error) => unread.push(NotRun {
                    name: error.path().display().to_string(),
                    setting: None,
                    reason: runner::text(&error),
                }),
            }
        }
    }
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    let (iterations, layouts) = (args.iterations, args.layout.layouts());
    let mut report = if all.is_empty() {
        Report::default()
    } else if args.sim {
        let options = simulated::run::Options {
            iterations,
            layouts,
            seed,
            flaw: args.flaw.map(Broken::flaw),
        };
        simulated::run::run(&all, &options, interrupt)?
    } else {
        let options = blades::run::Options {
            iterations,
            layouts,
            seed,
            own_memory: args.own_memory,
        };
        blades::run::run(&all, &options, interrupt)?
    };
    report.not_run.extend(unread);
    if args.json {
        let Report { tests, not_run } = &report;
        answer_json(&json!({ "seed": seed, "tests": tests, "not_run": not_run }))?;
    } else {
        answer(&tables::report(&report))?;
    }
    Ok(report)
}
