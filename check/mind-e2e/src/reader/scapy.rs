//! Scapy, a packet library of Python's, with its own module for RoCEv2.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};

use super::Fields;

/// Where Debian's Python is, for which Debian's package of Scapy is made.
const PYTHON: &str = "/usr/bin/python3";

/// Reads a capture file with Scapy.
///
/// # Errors
///
/// When it is not there or fails.
pub fn scapy(capture: &Path) -> Result<Vec<Fields>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/reader/with_scapy.py");
    let output = Command::new(PYTHON)
        .arg(script)
        .arg(capture)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {PYTHON}"))?;
    ensure!(
        output.status.success(),
        "Scapy ends with {} (`cargo xtask test` installs it): {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout)?;
    let packets = text.lines().map(serde_json::from_str::<Fields>);
    packets
        .collect::<std::result::Result<_, _>>()
        .context("what Scapy says of a packet is no JSON object of numbers")
}
