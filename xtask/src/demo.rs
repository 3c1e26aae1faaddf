//! `cargo xtask demo`: builds the daemons and the demo, optimized, and becomes the demo.

use std::ffi::OsString;
use std::process::Command;

use anyhow::Result;

use crate::process;
use crate::release;

/// What the demo runs. The demo looks for the daemons beside itself.
const PACKAGES: [&str; 3] = ["mind-blade", "mind-ctl", "mind-demo"];

/// What `cargo xtask demo` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The demo's own arguments: `--graph FILE`, `--compute N` and so on; `--help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// Runs `cargo xtask demo`. Does not return if all goes well: signals are for the demo, which cleans up.
pub(crate) fn run(args: &Args) -> Result<()> {
    let program = release::build(&PACKAGES, "mind-demo")?;
    Err(process::exec(Command::new(program).args(&args.args)))
}
