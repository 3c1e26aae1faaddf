//! The daemons that a bench has on its testbed.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use netns_setup::paths;

/// Last lines of a log that a failure shows.
const TAIL: usize = 10;

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

/// The error, with the last warnings and errors of the logs of these daemons of a testbed, which go with it.
pub(crate) fn explained<'a>(
    error: &anyhow::Error,
    daemons: impl IntoIterator<Item = &'a str>,
) -> anyhow::Error {
    let mut text = format!("{error:#}");
    for name in daemons {
        let log = fs::read(paths::log(name)).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines = complaints(&log);
        if !lines.is_empty() {
            let lines = lines.join("\n  ");
            text.push_str(&format!("\n{name} has warned:\n  {lines}"));
        }
    }
    anyhow::Error::msg(text)
}

/// The last warnings and errors of a log.
fn complaints(log: &str) -> Vec<&str> {
    let is_complaint = |line: &&str| {
        ["WARN", "ERROR", "panicked"]
            .iter()
            .any(|word| line.contains(word))
    };
    let lines: Vec<_> = log.lines().filter(is_complaint).collect();
    lines[lines.len().saturating_sub(TAIL)..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_complaints_of_a_log_are_kept() {
        let log = "1 INFO ready\n2  WARN late\n3 \u{1b}[31mERROR\u{1b}[0m lost\n4 INFO done\n";
        assert_eq!(complaints(log).len(), 2);
        let long: String = (0..30).map(|number| format!("WARN {number}\n")).collect();
        assert_eq!(complaints(&long).first(), Some(&"WARN 20"));
    }
}
