//! `cargo xtask soak`: builds the daemons and the endurance run, optimized, and becomes the endurance run.

use std::ffi::OsString;

use anyhow::Result;

use crate::launch::launch;

/// What `cargo xtask soak` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The endurance run's own arguments: `--minutes N` and so on; `--help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// Runs `cargo xtask soak`. Does not return if all goes well.
pub(crate) fn run(args: &Args) -> Result<()> {
    launch("mind-soak", &[], &args.args)
}
