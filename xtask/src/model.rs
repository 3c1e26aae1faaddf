//! `cargo xtask model`: builds the model checker, optimized, and becomes it.

use std::ffi::OsString;

use anyhow::Result;

use crate::launch::launch_alone;

/// What `cargo xtask model` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The model checker's own arguments: `--full` and so on; `--help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// Runs `cargo xtask model`. Does not return if all goes well.
pub(crate) fn run(args: &Args) -> Result<()> {
    launch_alone("mind-model", &args.args)
}
