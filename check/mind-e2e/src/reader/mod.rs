//! Readers of captured packets: this project's own code, tshark and Scapy. Each names the fields of a packet
//! differently; here they get the same names, so that they can be compared.

mod own;
mod scapy;
mod tshark;

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use mind_common::wire::Opcode;

pub use own::own;
pub use scapy::scapy;
pub use tshark::{Script, command as tshark_command, tshark};

/// A packet as read: the value of each field that the reader knows.
pub type Fields = BTreeMap<String, u64>;

/// Fields of the headers that every packet has.
const COMMON: [&str; 5] = ["opcode", "qp", "psn", "attempt", "length"];

/// The fields that a reader without the manufacturer's opcodes can read.
#[must_use]
pub fn without_coherence(fields: &Fields) -> Fields {
    let mut fields = fields.clone();
    if fields.get("opcode") >= Some(&u64::from(Opcode::Acquire as u8)) {
        fields.retain(|name, _| COMMON.contains(&name.as_str()));
    }
    fields
}

/// Checks that a reader reads each packet as expected.
///
/// # Errors
///
/// When it does not: which packet, and both readings.
pub fn compare(reader: &str, said: &[Fields], expected: &[Fields]) -> Result<()> {
    ensure!(
        said.len() == expected.len(),
        "{reader} reads {} packets instead of {}",
        said.len(),
        expected.len()
    );
    for (number, (said, expected)) in said.iter().zip(expected).enumerate() {
        ensure!(
            said == expected,
            "{reader} reads packet {} as\n{said:x?} instead of\n{expected:x?}",
            number + 1
        );
    }
    Ok(())
}
