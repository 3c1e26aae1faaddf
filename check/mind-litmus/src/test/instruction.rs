//! What a thread of a test does, one instruction after the other; there are no jumps.

use std::fmt;

use super::{Location, Register};

/// How many bytes an instruction or a memory location has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Width {
    /// 4 bytes: `movl`, `%eax`, `uint32_t`.
    Long,
    /// 8 bytes: `movq`, `%rax`, `uint64_t`.
    Quad,
}

impl Width {
    /// The low bytes of `value`.
    pub const fn truncate(self, value: u64) -> u64 {
        match self {
            Self::Long => value & 0xffff_ffff,
            Self::Quad => value,
        }
    }

    /// In bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Long => 4,
            Self::Quad => 8,
        }
    }

    const fn suffix(self) -> char {
        match self {
            Self::Long => 'l',
            Self::Quad => 'q',
        }
    }
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// A constant; at most [`Operand::LARGEST`].
    Immediate(u32),
    /// A register.
    Register(Register),
}

impl Operand {
    /// The largest immediate: what is sign-extended from 32 bits stays what it is.
    pub const LARGEST: u32 = i32::MAX as u32;

    const fn shown(self, width: Width) -> ShownOperand {
        ShownOperand(self, width)
    }
}

/// A fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fence {
    /// Drains the store buffer.
    Memory,
    /// Orders loads, which write-back memory does anyway.
    Load,
    /// Orders stores, which write-back memory does anyway.
    Store,
}

/// An instruction. A 32-bit result in a register clears the register's upper half.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Instruction {
    /// `mov` from memory.
    Load {
        /// Of the access.
        width: Width,
        /// What is read.
        from: Location,
        /// Where it goes.
        to: Register,
    },
    /// `mov` to memory.
    Store {
        /// Of the access.
        width: Width,
        /// What is written.
        value: Operand,
        /// Where it goes.
        to: Location,
    },
    /// `mov` to a register that reads no memory.
    Move {
        /// Of the operation.
        width: Width,
        /// What is moved.
        value: Operand,
        /// Where it goes.
        to: Register,
    },
    /// `xchg`, which is locked with or without the prefix.
    Exchange {
        /// Of the access.
        width: Width,
        /// What is written, and where what was read goes.
        register: Register,
        /// The memory.
        location: Location,
    },
    /// `lock xadd`: adds the register to memory; what was there before goes to the register.
    FetchAdd {
        /// Of the access.
        width: Width,
        /// What is added, and where what was read goes.
        register: Register,
        /// The memory.
        location: Location,
    },
    /// `lock cmpxchg`: stores `new` if memory is as the accumulator (rax); else memory goes there.
    CompareExchange {
        /// Of the access.
        width: Width,
        /// What is written if it is.
        new: Register,
        /// The memory.
        location: Location,
    },
    /// `lock add`.
    Add {
        /// Of the access.
        width: Width,
        /// What is added.
        value: Operand,
        /// The memory.
        location: Location,
    },
    /// `mfence`, `lfence` or `sfence`.
    Fence(Fence),
}

impl Instruction {
    /// The memory that it accesses, and the access's width.
    pub const fn access(&self) -> Option<(&Location, Width)> {
        match self {
            Self::Load { width, from, .. } => Some((from, *width)),
            Self::Store { width, to, .. } => Some((to, *width)),
            Self::Exchange {
                width, location, ..
            }
            | Self::FetchAdd {
                width, location, ..
            }
            | Self::CompareExchange {
                width, location, ..
            }
            | Self::Add {
                width, location, ..
            } => Some((location, *width)),
            Self::Move { .. } | Self::Fence(_) => None,
        }
    }

    /// The registers that it reads or writes.
    pub fn registers(&self) -> Vec<Register> {
        let of = |operand: &Operand| match operand {
            Operand::Register(register) => Some(*register),
            Operand::Immediate(_) => None,
        };
        match self {
            Self::Load { to, .. } => vec![*to],
            Self::Store { value, .. } | Self::Add { value, .. } => of(value).into_iter().collect(),
            Self::Move { value, to, .. } => of(value).into_iter().chain([*to]).collect(),
            Self::Exchange { register, .. } | Self::FetchAdd { register, .. } => vec![*register],
            Self::CompareExchange { new, .. } => vec![Register::Rax, *new],
            Self::Fence(_) => Vec::new(),
        }
    }

    /// Its constant, if it has one.
    pub(crate) const fn immediate(&self) -> Option<u32> {
        match self {
            Self::Store { value, .. } | Self::Move { value, .. } | Self::Add { value, .. } => {
                match value {
                    Operand::Immediate(constant) => Some(*constant),
                    Operand::Register(_) => None,
                }
            }
            _ => None,
        }
    }
}

struct ShownOperand(Operand, Width);

impl fmt::Display for ShownOperand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Operand::Immediate(constant) => write!(f, "${constant}"),
            Operand::Register(register) => write!(f, "%{}", register.name(self.1)),
        }
    }
}

/// In the syntax of AT&T: sources first.
impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load { width, from, to } => {
                write!(f, "mov{} ({from}),%{}", width.suffix(), to.name(*width))
            }
            Self::Store { width, value, to } => {
                write!(f, "mov{} {},({to})", width.suffix(), value.shown(*width))
            }
            Self::Move { width, value, to } => write!(
                f,
                "mov{} {},%{}",
                width.suffix(),
                value.shown(*width),
                to.name(*width)
            ),
            Self::Exchange {
                width,
                register,
                location,
            } => write!(
                f,
                "xchg{} %{},({location})",
                width.suffix(),
                register.name(*width)
            ),
            Self::FetchAdd {
                width,
                register,
                location,
            } => write!(
                f,
                "lock xadd{} %{},({location})",
                width.suffix(),
                register.name(*width)
            ),
            Self::CompareExchange {
                width,
                new,
                location,
            } => write!(
                f,
                "lock cmpxchg{} %{},({location})",
                width.suffix(),
                new.name(*width)
            ),
            Self::Add {
                width,
                value,
                location,
            } => write!(
                f,
                "lock add{} {},({location})",
                width.suffix(),
                value.shown(*width)
            ),
            Self::Fence(Fence::Memory) => f.write_str("mfence"),
            Self::Fence(Fence::Load) => f.write_str("lfence"),
            Self::Fence(Fence::Store) => f.write_str("sfence"),
        }
    }
}
