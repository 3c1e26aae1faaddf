//! The daemons that a bench has on its testbed.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};

/// The folder with the daemons of this build: this program's.
///
/// # Errors
///
/// When one is missing.
pub(crate) fn folder() -> Result<PathBuf> {
    let program = std::env::current_exe().context("cannot tell where this program lies")?;
    let folder = program.parent().context("this program lies nowhere")?;
    for name in ["mind-controller", "mind-blade"] {
        ensure!(
            folder.join(name).exists(),
            "{name} is not in {}: `cargo xtask bench` builds it",
            folder.display()
        );
    }
    Ok(folder.to_owned())
}
