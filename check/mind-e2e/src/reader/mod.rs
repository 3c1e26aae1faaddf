//! Who reads captured packets: this project's own code, tshark and Scapy. Each says the same fields of a packet in its
//! own way; here they get the same names, so that what they say can be compared.

mod own;
mod scapy;
mod tshark;

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use mind_common::wire::Opcode;

pub use own::own;
pub use scapy::scapy;
pub use tshark::{Script, command as tshark_command, tshark};

/// What a reader says of one packet: the value of each field that it knows.
pub type Fields = BTreeMap<String, u64>;

/// Fields of the headers that every packet has.
const COMMON: [&str; 5] = ["opcode", "qp", "psn", "attempt", "length"];

/// What a reader that does not know the manufacturer's opcodes can say of a packet.
#[must_use]
pub fn without_coherence(fields: &Fields) -> Fields {
    let mut fields = fields.clone();
    if fields.get("opcode") >= Some(&u64::from(Opcode::Acquire as u8)) {
        fields.retain(|name, _| COMMON.contains(&name.as_str()));
    }
    fields
}

/// Checks that a reader says of each packet what it should.
///
/// # Errors
///
/// When it does not: which packet, and what both say.
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
