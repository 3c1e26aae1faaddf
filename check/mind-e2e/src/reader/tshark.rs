//! Wireshark without a window.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};

use super::Fields;
use crate::companion;

/// Whether tshark gets the dissector of `contrib/wireshark`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// As it is installed.
    Without,
    /// With the dissector.
    With,
}

/// This one is bytes to it, hexadecimal without a prefix, and is there twice: as a header and as what is in it.
const IMMEDIATE: &str = "infiniband.immdt";

/// Its names of what it knows itself.
const RDMA: &[(&str, &str)] = &[
    ("opcode", "infiniband.bth.opcode"),
    ("qp", "infiniband.bth.destqp"),
    ("psn", "infiniband.bth.psn"),
    ("attempt", "infiniband.bth.reserved7"),
    ("va", "infiniband.reth.va"),
    ("domain", "infiniband.reth.r_key"),
    ("bytes", "infiniband.reth.dmalen"),
    ("immediate", IMMEDIATE),
    ("syndrome", "infiniband.aeth.syndrome"),
    ("msn", "infiniband.aeth.msn"),
    ("original", "infiniband.atomicacketh.origremdt"),
    ("swap_or_add", "infiniband.atomiceth.swapdt"),
    ("compare", "infiniband.atomiceth.cmpdt"),
];

/// Names of the dissector.
const COHERENCE: &[(&str, &str)] = &[
    ("va", "mind.va"),
    ("domain", "mind.domain"),
    ("bytes", "mind.len"),
    ("episode", "mind.episode"),
    ("pending", "mind.pending"),
    ("version", "mind.version"),
    ("order", "mind.order"),
    ("requester", "mind.requester"),
    ("target", "mind.target"),
    ("source", "mind.source"),
    ("dropped", "mind.dropped"),
    ("flushed", "mind.flushed"),
    ("slot", "mind.slot"),
];

/// Fields of warnings, of tshark or of a dissector in Lua.
const COMPLAINTS: [&str; 2] = ["_ws.malformed", "_ws.lua.error"];

/// Reads a capture file with tshark.
///
/// # Errors
///
/// When it is not there or fails, or complains of a packet.
pub fn tshark(capture: &Path, script: Script) -> Result<Vec<Fields>> {
    let mut wanted = RDMA.to_vec();
    let mut command = command(script)?;
    command
        .arg("-r")
        .arg(capture)
        .args(["-n", "-Y", "udp.dstport == 4791 and not icmp"])
        .args(["-T", "fields", "-E", "separator=|"])
        .args(["-e", "udp.length"]);
    for field in COMPLAINTS {
        command.args(["-e", field]);
    }
    if script == Script::With {
        wanted.extend_from_slice(COHERENCE);
    }
    for (_, field) in &wanted {
        command.args(["-e", field]);
    }
    let output = command.output().context("cannot run tshark")?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success() && !complaints.contains("Lua"),
        "tshark ends with {}: {complaints}",
        output.status
    );
    let text = String::from_utf8(output.stdout)?;
    let packets = text.lines().enumerate().map(|(number, line)| {
        fields(line, &wanted).with_context(|| format!("tshark's packet {}, `{line}`", number + 1))
    });
    packets.collect()
}

/// The command for tshark, with the settings of `contrib/wireshark` and without a user's.
///
/// # Errors
///
/// When it is not there.
pub fn command(script: Script) -> Result<Command> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/wireshark");
    let mut command = Command::new(companion::find("tshark")?);
    command.stdin(Stdio::null());
    if script == Script::With {
        let dissector = folder.join("mind.lua");
        command
            .arg("-X")
            .arg(format!("lua_script:{}", dissector.display()));
    }
    command.env("WIRESHARK_CONFIG_DIR", folder);
    Ok(command)
}

/// Parses a line: the length, warnings and the wanted fields.
fn fields(line: &str, wanted: &[(&str, &str)]) -> Result<Fields> {
    let mut values = line.split('|');
    let length = number(values.next().context("no line")?)?;
    let mut fields = Fields::new();
    fields.insert("length".to_owned(), length - 8);
    for field in COMPLAINTS {
        let complaint = values.next().unwrap_or_default();
        ensure!(complaint.is_empty(), "{field}: {complaint}");
    }
    for (&(name, field), value) in wanted.iter().zip(values) {
        if value.is_empty() {
            continue;
        }
        let value = match value.split_once(',') {
            Some((header, value)) if field == IMMEDIATE && header == value => {
                number(&format!("0x{value}"))
            }
            _ => number(value),
        };
        let value = value.with_context(|| format!("the field {field}"))?;
        let before = fields.insert(name.to_owned(), value);
        ensure!(before.is_none(), "two fields say {name}");
    }
    Ok(fields)
}

/// A number as tshark writes it: decimal, or hexadecimal with a prefix.
fn number(text: &str) -> Result<u64> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.with_context(|| format!("`{text}` is no number"))
}
