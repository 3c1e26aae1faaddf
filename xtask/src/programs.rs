//! `cargo xtask programs`: builds the daemons, `mind run` and what runs programs of the distribution by it, optimized, and
//! becomes the latter.

use std::ffi::OsString;

use anyhow::Result;

use crate::companions;
use crate::debian::Need;
use crate::launch::launch_with;
use crate::setup;

/// What `cargo xtask programs` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The command's own arguments: names of programs, `--json` and so on; `--help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// The programs that the tests do not run.
const MORE: &[Need] = &[Need::Xz, Need::Memtester, Need::NumPy, Need::Sklearn];

/// Runs `cargo xtask programs`. Does not return if all goes well.
pub(crate) fn run(args: &Args) -> Result<()> {
    let unpacked = companions::ensure()?;
    setup::ensure_packages(MORE)?;
    launch_with(
        "mind-programs",
        &["mind-run", "mind-preload"],
        &args.args,
        &[(companions::VARIABLE, unpacked.as_os_str())],
    )
}
