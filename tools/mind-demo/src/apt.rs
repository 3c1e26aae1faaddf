//! Reads the machine's package lists with apt's own programs: `apt-get indextargets` says which
//! files there are (apt-get(8)), `apt-helper cat-file` writes them out, however they are compressed.

use std::io::{self, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::{debian, graph::Named};

/// The name of the lists in errors and reports.
const ORIGIN: &str = "apt's package lists";

/// The folder of apt's helper programs.
const HELPER: &str = "/usr/lib/apt/apt-helper";

/// The alternative if there are no lists.
const INSTEAD: &str = "give a graph of your own with --graph FILE";

/// The dependency graph of all packages in the machine's lists.
///
/// # Errors
///
/// When there is no apt, it has no lists, or they cannot be parsed.
pub fn graph() -> Result<Named> {
    let files = lists()?;
    if files.is_empty() {
        bail!(
            "apt has no package lists on this machine; `apt-get update` fetches them, or {INSTEAD}"
        );
    }
    let mut child = Command::new(HELPER)
        .arg("cat-file")
        .args(&files)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {HELPER}; {INSTEAD}"))?;
    let stdout = child.stdout.take().context("a pipe has no end")?;
    let mut stderr = child.stderr.take().context("a pipe has no end")?;
    let said = std::thread::spawn(move || {
        let mut text = String::new();
        stderr.read_to_string(&mut text).ok();
        text
    });
    let named = debian::read(BufReader::with_capacity(1 << 16, stdout), ORIGIN);
    // If reading stopped early, the closed pipe ends it.
    let status = child.wait().context("cannot wait for apt-helper")?;
    let said = said.join().unwrap_or_default();
    if !status.success() && named.is_ok() {
        bail!(
            "`{HELPER} cat-file` failed: {status}: {}; `apt-get update` fetches the lists anew, \
             or {INSTEAD}",
            said.trim()
        );
    }
    Ok(named?)
}

/// The files that hold lists of packages.
fn lists() -> Result<Vec<String>> {
    let mut command = Command::new("apt-get");
    command.args([
        "indextargets",
        "--format",
        "$(FILENAME)",
        "Created-By: Packages",
    ]);
    let output = match command.stdin(Stdio::null()).output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("this machine has no apt-get, so no package lists; {INSTEAD}")
        }
        result => result.context("cannot start `apt-get indextargets`")?,
    };
    if !output.status.success() {
        bail!(
            "`apt-get indextargets` failed: {}: {}; {INSTEAD}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let text = String::from_utf8(output.stdout).context("apt's file names are not UTF-8")?;
    let files = text.lines().filter(|file| Path::new(file).exists());
    Ok(files.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_of_a_debian_machine_are_a_large_graph() {
        if !lists().is_ok_and(|files| !files.is_empty()) {
            eprintln!("skipped: this machine has no package lists of apt");
            return;
        }
        let named = graph().unwrap();
        assert!(named.names.is_sorted(), "packages are numbered by name");
        let libc = named.names.binary_search(&"libc6".to_owned());
        let libc = libc.expect("every archive of Debian for Linux has libc6");
        let offsets = named.graph.offsets();
        let needing = offsets[libc + 1] - offsets[libc];
        assert!(
            needing * 10 > named.names.len() as u64,
            "much of Debian depends on libc6, not just {needing} of {}",
            named.names.len()
        );
    }
}
