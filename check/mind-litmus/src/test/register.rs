//! The general-purpose registers of x86-64, by their 64-bit and 32-bit names.

use super::Width;

/// A general-purpose register. The stack pointer is left out: no test uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Register {
    Rax,
    Rbx,
    Rcx,
    Rdx,
    Rsi,
    Rdi,
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    R15,
    Rbp,
}

impl Register {
    /// All of them, in the order in which a generated test takes them.
    pub const ALL: [Self; 15] = [
        Self::Rax,
        Self::Rbx,
        Self::Rcx,
        Self::Rdx,
        Self::Rsi,
        Self::Rdi,
        Self::R8,
        Self::R9,
        Self::R10,
        Self::R11,
        Self::R12,
        Self::R13,
        Self::R14,
        Self::R15,
        Self::Rbp,
    ];

    /// Its name as an operand of that width, without `%`.
    pub const fn name(self, width: Width) -> &'static str {
        let (quad, long) = match self {
            Self::Rax => ("rax", "eax"),
            Self::Rbx => ("rbx", "ebx"),
            Self::Rcx => ("rcx", "ecx"),
            Self::Rdx => ("rdx", "edx"),
            Self::Rsi => ("rsi", "esi"),
            Self::Rdi => ("rdi", "edi"),
            Self::R8 => ("r8", "r8d"),
            Self::R9 => ("r9", "r9d"),
            Self::R10 => ("r10", "r10d"),
            Self::R11 => ("r11", "r11d"),
            Self::R12 => ("r12", "r12d"),
            Self::R13 => ("r13", "r13d"),
            Self::R14 => ("r14", "r14d"),
            Self::R15 => ("r15", "r15d"),
            Self::Rbp => ("rbp", "ebp"),
        };
        match width {
            Width::Quad => quad,
            Width::Long => long,
        }
    }

    /// The register of that name, in any case, and the width that the name stands for.
    pub fn named(name: &str) -> Option<(Self, Width)> {
        let with_width = |register: Self| {
            [Width::Quad, Width::Long]
                .into_iter()
                .find(|width| register.name(*width).eq_ignore_ascii_case(name))
                .map(|width| (register, width))
        };
        Self::ALL.into_iter().find_map(with_width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_finds_its_register() {
        for register in Register::ALL {
            for width in [Width::Quad, Width::Long] {
                let name = register.name(width);
                assert_eq!(Register::named(name), Some((register, width)));
                let upper = name.to_uppercase();
                assert_eq!(Register::named(&upper), Some((register, width)));
            }
        }
        for none in ["", "rsp", "ax", "r16", "x", "xmm0"] {
            assert_eq!(Register::named(none), None, "{none}");
        }
    }
}
