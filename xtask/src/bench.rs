//! `cargo xtask bench`: builds the eBPF object and the benches, optimized, and runs one of them.

use std::ffi::OsString;

use anyhow::Result;

use crate::object;
use crate::process;
use crate::setup;

/// What `cargo xtask bench` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which bench, and its own arguments: `pipeline [--json]`; `--help` lists them.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// Runs `cargo xtask bench`.
pub(crate) fn run(args: &Args) -> Result<()> {
    let tools = setup::ensure()?;
    object::build(&tools)?;

    let mut cargo = object::host_cargo();
    cargo
        .args([
            "run",
            "--quiet",
            "--release",
            "--package",
            "mind-bench",
            "--",
        ])
        .args(&args.args);
    process::run(&mut cargo)
}
