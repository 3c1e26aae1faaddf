//! `cargo xtask build-and-load`: builds the data plane and the daemons, optimized, and becomes the controller, which
//! loads the data plane on this host's interfaces.

use std::ffi::OsString;

use anyhow::Result;

use crate::launch::launch;

/// What `cargo xtask build-and-load` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What `mind-controller` takes: `--port IFACE...`, `--address A.B.C.D/BITS` and so on; `--help` lists it.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// Runs `cargo xtask build-and-load`. Does not return if all goes well: signals are for the controller, which unloads.
pub(crate) fn run(args: &Args) -> Result<()> {
    launch("mind-controller", &[], &args.args)
}
