//! `cargo xtask sim`: builds the simulator, optimized, and becomes it.

use std::ffi::OsString;

use anyhow::Result;

use crate::launch::launch_alone;

/// What `cargo xtask sim` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The simulator's own arguments: `--seeds N` and so on; `--help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// Runs `cargo xtask sim`. Does not return if all goes well.
pub(crate) fn run(args: &Args) -> Result<()> {
    launch_alone("mind-sim", &args.args)
}
