//! `cargo xtask bench`: builds the eBPF object, the daemons and the benches, optimized, and becomes one of the benches.

use std::ffi::OsString;

use anyhow::Result;

use crate::launch::launch;

/// What `cargo xtask bench` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which bench, and its own arguments: `pipeline`, `fault`, `testbed`, `control`, `splitting`, each with `--json`; `--help` lists them.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// Runs `cargo xtask bench`. Does not return if all goes well.
pub(crate) fn run(args: &Args) -> Result<()> {
    launch("mind-bench", &[], &args.args)
}
