//! `cargo xtask mutants`: builds the protocol with bugs in it that can be switched on, optimized and apart from all
//! else, and runs what looks for them.

use std::ffi::OsString;

use anyhow::Result;

use crate::launch::launch_apart;

/// What `cargo xtask mutants` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The hunt's own arguments: `--only TEXT` and so on; `--help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// Runs `cargo xtask mutants`. Does not return if all goes well.
pub(crate) fn run(args: &Args) -> Result<()> {
    launch_apart("mind-mutants", "mutants", &args.args)
}
