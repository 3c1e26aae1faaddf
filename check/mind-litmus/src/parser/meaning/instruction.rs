//! What an instruction means: mnemonics, suffixes, and the operands that each can have.

use std::collections::BTreeMap;

use super::Reader;
use crate::{
    parser::{
        error::ParseError,
        head::Syntax,
        program::{Operand as Operands, Written},
    },
    test::{Fence, Instruction, Location, Operand, Register, Width},
};

impl Reader<'_> {
    /// The instruction, or nothing for `nop`. `widths` says how wide a location is that is accessed
    /// by an instruction that does not.
    pub(super) fn instruction(
        &self,
        written: &Written<'_>,
        widths: &BTreeMap<Location, Width>,
    ) -> Result<Option<Instruction>, ParseError> {
        let mnemonic = written.mnemonic.value.to_ascii_lowercase();
        let span = &written.mnemonic.span;
        let fence = match mnemonic.as_str() {
            "mfence" => Some(Fence::Memory),
            "lfence" => Some(Fence::Load),
            "sfence" => Some(Fence::Store),
            _ => None,
        };
        let bare = written.operands.is_empty() && !written.lock;
        if fence.is_some() || written.is_nothing() {
            if !bare {
                let problem = format!("`{mnemonic}` has neither operands nor `lock`");
                return Err(self.wrong(span, problem));
            }
            return Ok(fence.map(Instruction::Fence));
        }
        let Some((operation, suffix)) = Operation::named(&mnemonic) else {
            let problem = format!(
                "expected mov, xchg, mfence, lfence, sfence, nop, or `lock` and one of xadd, cmpxchg, add, inc \
                 (with `l` or `q` for 32 or 64 bits); found `{mnemonic}`"
            );
            return Err(self.wrong(span, problem));
        };
        let operands = self.operands(written)?;
        let width = self.width(suffix, written, widths)?;
        self.meaning(operation, width, written, &operands).map(Some)
    }

    /// The operands, sources first.
    fn operands(&self, written: &Written<'_>) -> Result<Vec<Seen>, ParseError> {
        let mut operands = Vec::new();
        for operand in &written.operands {
            operands.push(match operand.value {
                Operands::Immediate(value) => match u32::try_from(value) {
                    Ok(value) if value <= Operand::LARGEST => Seen::Immediate(value),
                    _ => {
                        let problem =
                            format!("expected a constant of at most {}", Operand::LARGEST);
                        return Err(self.wrong(&operand.span, problem));
                    }
                },
                Operands::Register(name) => Seen::Register(self.register(name, &operand.span)?.0),
                Operands::Memory(name) => Seen::Memory(self.location(name, &operand.span)?),
            });
        }
        if self.syntax == Syntax::Intel {
            operands.reverse();
        }
        Ok(operands)
    }

    /// How wide an instruction is: by its suffix, by its registers, or by the location it accesses.
    fn width(
        &self,
        suffix: Option<Width>,
        written: &Written<'_>,
        widths: &BTreeMap<Location, Width>,
    ) -> Result<Width, ParseError> {
        let mut found = suffix;
        for operand in &written.operands {
            if let Operands::Register(name) = operand.value {
                let (_, width) = self.register(name, &operand.span)?;
                if *found.get_or_insert(width) != width {
                    let problem = format!(
                        "`{name}` has {} bytes, as the rest of the instruction has not",
                        width.bytes()
                    );
                    return Err(self.wrong(&operand.span, problem));
                }
            }
        }
        let of_location = || {
            written
                .operands
                .iter()
                .find_map(|operand| match operand.value {
                    Operands::Memory(name) => widths.get(&name.parse().ok()?).copied(),
                    _ => None,
                })
        };
        Ok(found.or_else(of_location).unwrap_or(Width::Long))
    }

    fn meaning(
        &self,
        operation: Operation,
        width: Width,
        written: &Written<'_>,
        operands: &[Seen],
    ) -> Result<Instruction, ParseError> {
        let span = &written.mnemonic.span;
        let mnemonic = written.mnemonic.value;
        let value = operands.first().and_then(Seen::value);
        let instruction = match (operation, operands, value) {
            (Operation::Mov, [Seen::Memory(from), Seen::Register(to)], _) => Instruction::Load {
                width,
                from: from.clone(),
                to: *to,
            },
            (Operation::Mov, [_, Seen::Memory(to)], Some(value)) => Instruction::Store {
                width,
                value,
                to: to.clone(),
            },
            (Operation::Mov, [_, Seen::Register(to)], Some(value)) => {
                let to = *to;
                Instruction::Move { width, value, to }
            }
            (
                Operation::Xchg,
                [Seen::Register(register), Seen::Memory(location)]
                | [Seen::Memory(location), Seen::Register(register)],
                _,
            ) => Instruction::Exchange {
                width,
                register: *register,
                location: location.clone(),
            },
            (Operation::Xadd, [Seen::Register(register), Seen::Memory(location)], _) => {
                Instruction::FetchAdd {
                    width,
                    register: *register,
                    location: location.clone(),
                }
            }
            (Operation::Cmpxchg, [Seen::Register(new), Seen::Memory(location)], _) => {
                Instruction::CompareExchange {
                    width,
                    new: *new,
                    location: location.clone(),
                }
            }
            (Operation::Add, [_, Seen::Memory(location)], Some(value)) => Instruction::Add {
                width,
                value,
                location: location.clone(),
            },
            (Operation::Inc, [Seen::Memory(location)], _) => Instruction::Add {
                width,
                value: Operand::Immediate(1),
                location: location.clone(),
            },
            _ => {
                let expected = operation.usage();
                let problem =
                    format!("`{mnemonic}` cannot have these operands; expected {expected}");
                return Err(self.wrong(span, problem));
            }
        };
        match (operation, written.lock) {
            (Operation::Mov, true) => {
                Err(self.wrong(span, format!("`{mnemonic}` cannot have `lock`")))
            }
            // With memory, xchg is locked in any case.
            (Operation::Mov, false) | (Operation::Xchg, _) | (_, true) => Ok(instruction),
            (_, false) => {
                let problem = format!(
                    "`{mnemonic}` of memory without `lock` is not atomic, and not supported"
                );
                Err(self.wrong(span, problem))
            }
        }
    }
}

/// What a mnemonic without its suffix stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Mov,
    Xchg,
    Xadd,
    Cmpxchg,
    Add,
    Inc,
}

impl Operation {
    /// The operation and the width that a mnemonic in lower case says.
    fn named(mnemonic: &str) -> Option<(Self, Option<Width>)> {
        const NAMES: [(&str, Operation); 6] = [
            ("mov", Operation::Mov),
            ("xchg", Operation::Xchg),
            ("xadd", Operation::Xadd),
            ("cmpxchg", Operation::Cmpxchg),
            ("add", Operation::Add),
            ("inc", Operation::Inc),
        ];
        NAMES.into_iter().find_map(|(name, operation)| {
            let width = match mnemonic.strip_prefix(name)? {
                "" => None,
                "l" => Some(Width::Long),
                "q" => Some(Width::Quad),
                _ => return None,
            };
            Some((operation, width))
        })
    }

    /// Its operands, as AT&T writes them.
    const fn usage(self) -> &'static str {
        match self {
            Self::Mov => "`(x),%rax`, `$1,(x)`, `%rax,(x)`, `$1,%rax` or `%rax,%rbx`",
            Self::Xchg => "`%rax,(x)` or `(x),%rax`",
            Self::Xadd | Self::Cmpxchg => "`%rbx,(x)`",
            Self::Add => "`$1,(x)` or `%rax,(x)`",
            Self::Inc => "`(x)`",
        }
    }
}

/// An operand whose name is known.
enum Seen {
    Immediate(u32),
    Register(Register),
    Memory(Location),
}

impl Seen {
    /// What it is if it is not memory.
    const fn value(&self) -> Option<Operand> {
        match self {
            Self::Immediate(constant) => Some(Operand::Immediate(*constant)),
            Self::Register(register) => Some(Operand::Register(*register)),
            Self::Memory(_) => None,
        }
    }
}
