//! `cargo xtask`: the project's own commands. This file holds the command line only; each command lives in the module
//! of its name.

mod bench;
mod bpf_linker;
mod build;
mod companions;
mod debian;
mod demo;
mod docs;
mod install;
mod launch;
mod lint;
mod load;
mod model;
mod mutants;
mod object;
mod package;
mod process;
mod programs;
mod setup;
mod sim;
mod soak;
mod test;
mod toolchain;
mod vm;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Sets up the machine, builds, lints and tests MIND on eBPF.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Install what building and testing needs and this machine lacks. The other commands call it by themselves.
    Setup,
    /// Build the eBPF object and the host crates.
    Build(build::Args),
    /// Build everything, optimized, and install programs, the library for C, manual pages and completions.
    Install(install::Args),
    /// Build everything, optimized, and make a Debian package of it, in `target/package`.
    Package(package::Args),
    /// Check the formatting and run clippy; any warning fails.
    Lint,
    /// Build everything, optimized, and run PageRank over one graph in shared memory on a testbed; shows what it cost.
    #[command(disable_help_flag = true)]
    Demo(demo::Args),
    /// Build the data plane and the controller, optimized, and run them on ports of this host, until Ctrl-C.
    #[command(name = "build-and-load", disable_help_flag = true)]
    Load(load::Args),
    /// Build the simulator, optimized, and run it: one run of the whole system under a virtual clock for each seed.
    #[command(disable_help_flag = true)]
    Sim(sim::Args),
    /// Build the protocol's model, optimized, and search its states exhaustively: small settings, or
    /// with `--full` large ones, which take minutes.
    Model(model::Args),
    /// Build the protocol with bugs that can be switched on, optimized, and have the model and the simulator look for
    /// each; fails if one survives both.
    #[command(disable_help_flag = true)]
    Mutants(mutants::Args),
    /// Build everything, optimized, and run blades at full speed for minutes, every path of the switch taken and every
    /// byte checked; fails if anything is wrong, missing or left.
    #[command(disable_help_flag = true)]
    Soak(soak::Args),
    /// Build everything, optimized, and run programs of the distribution in local memory and on a blade of a testbed:
    /// whether they answer the same, and how long they take.
    #[command(disable_help_flag = true)]
    Programs(programs::Args),
    /// Build everything and run all tests.
    Test(test::Args),
    /// Run a command as root in a virtual machine on a Debian kernel; by default the live tests.
    Vm(vm::Args),
    /// Build everything, optimized, and run a bench.
    Bench(bench::Args),
    /// Build the book in `target/book`, with a reference of commands, configuration and metrics made from the code;
    /// fails if a link is broken.
    Docs(docs::Args),
    /// Run the benches and write their figures, and on what they were measured, into README.md.
    Readme,
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Setup => setup::run(),
        Command::Build(args) => build::run(&args),
        Command::Install(args) => install::run(&args),
        Command::Package(args) => package::run(&args),
        Command::Lint => lint::run(),
        Command::Demo(args) => demo::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Model(args) => model::run(&args),
        Command::Mutants(args) => mutants::run(&args),
        Command::Soak(args) => soak::run(&args),
        Command::Programs(args) => programs::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Vm(args) => return vm::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Docs(args) => docs::run(&args),
        Command::Readme => docs::readme(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            process::exit_code(&error)
        }
    }
}
