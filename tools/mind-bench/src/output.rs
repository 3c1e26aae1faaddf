//! What every bench prints: how far it is, on a terminal, and its report.

use std::io::{self, IsTerminal as _, Write as _};

use anyhow::Result;
use serde::Serialize;

/// Prints how far a bench is, in place of what it printed of that before, where standard error is a terminal. Empty,
/// it leaves an empty line to write on.
pub(crate) fn progress(text: &str) {
    if io::stderr().is_terminal() {
        eprint!("\r\x1b[K{text}");
    }
}

/// Prints a report on standard output: for machines, or the `text` for people; and on standard error what of it is not
/// as it should be.
///
/// # Errors
///
/// When standard output cannot be written.
pub(crate) fn print(
    report: &impl Serialize,
    is_json: bool,
    text: impl FnOnce() -> String,
    complaints: impl IntoIterator<Item = String>,
) -> Result<()> {
    let mut out = io::stdout().lock();
    if is_json {
        serde_json::to_writer_pretty(&mut out, report)?;
        writeln!(out)?;
    } else {
        writeln!(out, "{}", text())?;
    }
    drop(out);
    for complaint in complaints {
        eprintln!("{complaint}");
    }
    Ok(())
}
