//! `cargo xtask build`: the eBPF object, then the host crates.

use anyhow::Result;

use crate::object;
use crate::process;
use crate::setup;

/// What `cargo xtask build` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Optimize the host crates; the eBPF object always is.
    #[arg(long)]
    release: bool,
}

/// Runs `cargo xtask build`.
pub(crate) fn run(args: &Args) -> Result<()> {
    build(args.release)
}

/// Builds everything, optimized.
pub(crate) fn release() -> Result<()> {
    build(true)
}

fn build(release: bool) -> Result<()> {
    let tools = setup::ensure()?;
    let object = object::build(&tools)?;
    process::step(format_args!("the eBPF object is {}", object.display()));

    let mut cargo = object::host_cargo();
    cargo.arg("build").args(object::HOST_CRATES);
    if release {
        cargo.arg("--release");
    }
    process::run(&mut cargo)
}
