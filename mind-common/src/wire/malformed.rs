//! Why bytes are not a datagram of this protocol.

/// Why bytes are not a datagram of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Fewer bytes than the opcode needs, or than a BTH has.
    Truncated {
        /// Bytes in the datagram.
        have: usize,
        /// Bytes needed.
        need: usize,
    },
    /// An opcode that is not of this protocol, or one that never leaves the switch.
    Opcode(u8),
    /// A header field has an invalid value.
    Field(&'static str),
}

impl core::fmt::Display for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Truncated { have, need } => {
                write!(f, "truncated: {have} bytes where the opcode takes {need}")
            }
            Self::Opcode(opcode) => {
                write!(f, "opcode {opcode:#04x} is not one that a blade receives")
            }
            Self::Field(name) => write!(f, "header field {name} has an invalid value"),
        }
    }
}

impl core::error::Error for Malformed {}
