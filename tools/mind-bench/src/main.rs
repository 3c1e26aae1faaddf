//! The benches, behind one command line. Each lives in the module of its name; what they share is in [`system`],
//! [`daemons`], [`output`] and [`samples`].

mod control;
mod daemons;
mod fault;
mod output;
mod pipeline;
mod samples;
mod splitting;
mod system;
mod testbed;
mod worker;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measures MIND on eBPF.
#[derive(Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench", version)]
struct Cli {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// What the XDP programs of the switch and of a memory blade cost per packet, by path; without any interface.
    Pipeline(pipeline::Args),
    /// How long a remote page fault takes, by transition, beside the lower limits; on a testbed of
    /// this machine.
    Fault(fault::Args),
    /// How long a testbed of this machine takes to come up and to go down.
    Testbed(testbed::Args),
    /// What the controller takes to map, unmap, protect, open and attach, also while a blade hangs; on a testbed of this
    /// machine whose blades hold no pages.
    Control(control::Args),
    /// How soon regions are split that blades share falsely, and what that costs others; on a testbed of this machine.
    Splitting(splitting::Args),
    /// The process that benches run on each compute blade.
    #[command(name = system::task::WORKER, hide = true)]
    Worker(worker::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().bench {
        Bench::Pipeline(args) => pipeline::run(&args),
        Bench::Fault(args) => {
            mind_cli::tell_on_stderr(mind_cli::LevelFilter::WARN);
            fault::run(&args)
        }
        Bench::Testbed(args) => testbed::run(&args),
        Bench::Control(args) => {
            mind_cli::tell_on_stderr(mind_cli::LevelFilter::WARN);
            control::run(&args)
        }
        Bench::Splitting(args) => {
            mind_cli::tell_on_stderr(mind_cli::LevelFilter::WARN);
            splitting::run(&args)
        }
        Bench::Worker(args) => worker::main(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(if error.is::<mind_cli::Interrupted>() {
                mind_cli::INTERRUPTED
            } else {
                1
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
        let worker = "--cpu=1 userfault --engine=0 --handler=process".split(' ');
        let worker = ["bench", system::task::WORKER].into_iter().chain(worker);
        assert!(Cli::try_parse_from(worker).is_ok());
        assert!(Cli::try_parse_from(["bench", "control", "--vmas", "1,10"]).is_ok());
        assert!(Cli::try_parse_from(["bench", "control", "--compute", "33"]).is_err());
        assert!(Cli::try_parse_from(["bench", "fault", "--placement", "across"]).is_ok());
        assert!(Cli::try_parse_from(["bench", "fault", "--placement", "over"]).is_err());
    }
}
