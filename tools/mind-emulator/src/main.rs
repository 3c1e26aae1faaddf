//! `mind-emulator`: replays traces of memory accesses and of allocations.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use mind_emulator::{alloc, generate, run, trace};

/// Replays traces of programs through the directory, the policy, the page cache and the allocator of MIND.
#[derive(Parser)]
#[command(version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Replays memory accesses through directory, policy and page caches, in one mode or several side by side.
    Run(Box<run::Args>),
    /// Generates memory accesses: random, of a key-value store, a graph, a training loop.
    Generate(generate::command::Args),
    /// Makes a trace file of memory accesses that another program has written as text.
    Convert(trace::convert::Args),
    /// Replays traces of allocations, and counts entries of the switch's tables.
    Alloc(alloc::Args),
    /// Maps and unmaps memory at random for long, and measures the room that is lost to fragments.
    AllocLife(alloc::life::Args),
}

/// What errors begin with.
const NAME: &str = "mind-emulator";

fn main() -> ExitCode {
    mind_cli::exit(NAME, try_main(&Args::parse()))
}

fn try_main(args: &Args) -> Result<()> {
    match &args.command {
        Command::Run(args) => run::run(args),
        Command::Generate(args) => generate::command::run(args),
        Command::Convert(args) => trace::convert::run(args),
        Command::Alloc(args) => alloc::run(args),
        Command::AllocLife(args) => alloc::life::run(args),
    }
}
