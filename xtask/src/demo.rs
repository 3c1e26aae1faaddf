//! `cargo xtask demo`: builds the daemons and the demo, optimized, and becomes the demo.

use std::ffi::OsString;

use anyhow::Result;

use crate::launch::launch;

/// What `cargo xtask demo` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The demo's own arguments: `--graph FILE`, `--compute N` and so on; `--help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// Runs `cargo xtask demo`. Does not return if all goes well.
pub(crate) fn run(args: &Args) -> Result<()> {
    launch("mind-demo", &[], &args.args)
}
