//! Third-party programs that tests examine the system with.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// Finds one: in the folder `MIND_COMPANIONS`, where `cargo xtask test` unpacks those that are not to be installed, or
/// on the path.
///
/// # Errors
///
/// When it is in neither.
pub fn find(name: &str) -> Result<PathBuf> {
    let unpacked = std::env::var_os("MIND_COMPANIONS").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = unpacked.into_iter().chain(std::env::split_paths(&path));
    let is_there = |program: &PathBuf| Path::is_file(program);
    match folders.map(|folder| folder.join(name)).find(is_there) {
        Some(program) => Ok(program),
        None => bail!("this test needs the program {name}; `cargo xtask test` fetches it"),
    }
}
