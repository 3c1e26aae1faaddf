//! Why bytes are no datagram of ours.

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Fewer bytes than the opcode needs, or than a BTH has.
    Truncated {
        /// Bytes there are.
        have: usize,
        /// Bytes it takes.
        need: usize,
    },
    /// No opcode of ours, or one that never leaves the switch.
    Opcode(u8),
    /// A header field has a value that nobody sends.
    Field(&'static str),
}

impl core::fmt::Display for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Truncated { have, need } => {
                write!(f, "truncated: {have} bytes where the opcode takes {need}")
            }
            Self::Opcode(opcode) => write!(f, "opcode {opcode:#04x} is none that a blade gets"),
            Self::Field(name) => write!(f, "header field {name} has a value that nobody sends"),
        }
    }
}

impl core::error::Error for Malformed {}
