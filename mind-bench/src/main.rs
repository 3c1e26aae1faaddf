//! The benches, behind one command line. Each lives in the module of its name.

mod pipeline;

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
    /// What the switch's XDP program costs per packet, by path; without any interface.
    Pipeline(pipeline::Args),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().bench {
        Bench::Pipeline(args) => pipeline::run(&args),
    }
}
