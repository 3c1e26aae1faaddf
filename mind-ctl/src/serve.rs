//! `mind-ctl serve`: becomes the controller's daemon, a program of its own, so that this one needs nothing of it.

use std::{
    ffi::OsString,
    io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

/// The daemon's name as a program.
const DAEMON: &str = "mind-controller";

/// What `mind-ctl serve` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What `mind-controller` takes: `--port IFACE...`, `--address A.B.C.D/BITS` and so on; `--help` lists it.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// Runs `mind-ctl serve`. Returns only if the daemon cannot be started.
pub(crate) fn run(args: &Args) -> Result<()> {
    let own = std::env::current_exe().context("cannot tell where this program lies")?;
    let program = beside(&own);
    let error = Command::new(&program).args(&args.args).exec();
    let shown = program.display();
    Err(match error.kind() {
        io::ErrorKind::NotFound => anyhow::anyhow!(
            "the daemon {DAEMON} is neither in {} nor on the path: install it beside mind-ctl, or build it with \
             `cargo xtask build`",
            own.parent().unwrap_or(Path::new("/")).display()
        ),
        _ => anyhow::Error::new(error).context(format!("cannot start {shown}")),
    })
}

/// The daemon in the folder of the program `own`; if it is not there, the one that the path has.
fn beside(own: &Path) -> PathBuf {
    let program = own.with_file_name(DAEMON);
    match program.exists() {
        true => program,
        false => DAEMON.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemon_beside_this_program_comes_before_the_one_on_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("mind-ctl");
        assert_eq!(beside(&own), PathBuf::from(DAEMON));
        let program = folder.path().join(DAEMON);
        std::fs::write(&program, "").unwrap();
        assert_eq!(beside(&own), program);
    }
}
