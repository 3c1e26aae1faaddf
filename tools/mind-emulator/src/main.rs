//! `mind-emulator`: replays traces of memory accesses and of allocations.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use mind_emulator::alloc;

/// Replays traces of programs through the directory, the policy, the page cache and the allocator of MIND.
#[derive(Parser)]
#[command(version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Replays traces of allocations, and counts entries of the switch's tables.
    Alloc(alloc::Args),
}

/// What errors begin with.
const NAME: &str = "mind-emulator";

fn main() -> ExitCode {
    mind_cli::exit(NAME, try_main(&Args::parse()))
}

fn try_main(args: &Args) -> Result<()> {
    match &args.command {
        Command::Alloc(args) => alloc::run(args),
    }
}
