//! A thread's program, decoded before it runs: names are resolved to addresses and numbers, so that
//! little time passes between two accesses.

use super::access::Accesses;
use crate::test::{Fence, Instruction, Location, Operand, Register, Test, Width};

/// The values of a thread's registers, by [`Register`].
pub type Registers = [u64; Register::ALL.len()];

/// The register that `cmpxchg` compares with.
const ACCUMULATOR: usize = Register::Rax as usize;

/// What is stored or moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Constant(u64),
    Register(usize),
}

impl Value {
    fn new(operand: Operand) -> Self {
        match operand {
            Operand::Immediate(constant) => Self::Constant(constant.into()),
            Operand::Register(register) => Self::Register(register as usize),
        }
    }

    #[inline(always)]
    fn read(self, registers: &Registers) -> u64 {
        match self {
            Self::Constant(constant) => constant,
            Self::Register(register) => registers[register],
        }
    }
}

/// What an instruction does with the memory at its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Load { to: usize },
    Store { value: Value },
    Exchange { register: usize },
    FetchAdd { register: usize },
    CompareExchange { new: usize },
    Add { value: Value },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Access {
        at: *mut u8,
        width: Width,
        operation: Operation,
    },
    Move {
        width: Width,
        value: Value,
        to: usize,
    },
    Fence(Fence),
}

/// A program that can be run once.
#[derive(Clone, Debug)]
pub struct Code {
    steps: Vec<Step>,
    registers: Registers,
}

impl Code {
    /// The program of a thread of `test`, on variables at these addresses.
    pub fn new(test: &Test, thread: usize, address: impl Fn(&Location) -> *mut u8) -> Self {
        let thread = &test.threads()[thread];
        let mut registers = Registers::default();
        for (register, value) in &thread.initial {
            registers[*register as usize] = *value;
        }
        let access = |location: &Location, width: Width, operation| Step::Access {
            at: address(location),
            width,
            operation,
        };
        let step = |instruction: &Instruction| match instruction {
            Instruction::Load { width, from, to } => {
                let to = *to as usize;
                access(from, *width, Operation::Load { to })
            }
            Instruction::Store { width, value, to } => {
                let value = Value::new(*value);
                access(to, *width, Operation::Store { value })
            }
            Instruction::Move { width, value, to } => Step::Move {
                width: *width,
                value: Value::new(*value),
                to: *to as usize,
            },
            Instruction::Exchange {
                width,
                register,
                location,
            } => {
                let register = *register as usize;
                access(location, *width, Operation::Exchange { register })
            }
            Instruction::FetchAdd {
                width,
                register,
                location,
            } => {
                let register = *register as usize;
                access(location, *width, Operation::FetchAdd { register })
            }
            Instruction::CompareExchange {
                width,
                new,
                location,
            } => {
                let new = *new as usize;
                access(location, *width, Operation::CompareExchange { new })
            }
            Instruction::Add {
                width,
                value,
                location,
            } => {
                let value = Value::new(*value);
                access(location, *width, Operation::Add { value })
            }
            Instruction::Fence(fence) => Step::Fence(*fence),
        };
        Self {
            steps: thread.instructions.iter().map(step).collect(),
            registers,
        }
    }

    /// The value of a register.
    pub fn register(&self, register: Register) -> u64 {
        self.registers[register as usize]
    }

    /// Runs it; the registers are then as they end.
    ///
    /// # Safety
    ///
    /// The addresses that it was made with are such as [`Accesses`] demands.
    #[inline]
    pub unsafe fn run(&mut self, memory: &mut impl Accesses) {
        let registers = &mut self.registers;
        for step in &self.steps {
            match *step {
                Step::Access {
                    at,
                    width,
                    operation,
                } => {
                    // SAFETY: the caller's guarantee.
                    unsafe { perform(at, width, operation, registers, memory) }
                }
                Step::Move { width, value, to } => {
                    registers[to] = width.truncate(value.read(registers));
                }
                Step::Fence(fence) => memory.fence(fence),
            }
        }
        memory.end();
    }
}

/// # Safety
///
/// As [`Accesses`] demands.
#[inline(always)]
unsafe fn perform(
    at: *mut u8,
    width: Width,
    operation: Operation,
    registers: &mut Registers,
    memory: &mut impl Accesses,
) {
    // SAFETY: the caller's guarantee.
    unsafe {
        match operation {
            Operation::Load { to } => registers[to] = memory.load(at, width),
            Operation::Store { value } => memory.store(at, width, value.read(registers)),
            Operation::Exchange { register } => {
                registers[register] = memory.exchange(at, width, registers[register]);
            }
            Operation::FetchAdd { register } => {
                registers[register] = memory.fetch_add(at, width, registers[register]);
            }
            Operation::CompareExchange { new } => {
                let expected = registers[ACCUMULATOR];
                registers[ACCUMULATOR] =
                    memory.compare_exchange(at, width, expected, registers[new]);
            }
            Operation::Add { value } => memory.add(at, width, value.read(registers)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::blades::access::Processor;
    use crate::every_instruction;
    use crate::test::{Observable, Outcome};

    /// The outcome of a test of one thread, on memory of this thread's own.
    fn outcome(test: &Test) -> Outcome {
        let mut cells: Vec<u64> = test.memory().values().map(|cell| cell.initial).collect();
        let addresses: BTreeMap<_, *mut u8> = test
            .memory()
            .keys()
            .zip(cells.iter_mut().map(|cell| (&raw mut *cell).cast()))
            .collect();
        let mut code = Code::new(test, 0, |location| addresses[location]);
        // SAFETY: each variable has eight bytes that only this thread accesses.
        unsafe { code.run(&mut Processor) };
        Outcome::new(test, |observable| match observable {
            Observable::Register { register, .. } => code.register(*register),
            Observable::Memory(location) => {
                // SAFETY: as above.
                unsafe { Processor.load(addresses[location], test.memory()[location].width) }
            }
        })
    }

    #[test]
    fn every_instruction_does_what_the_oracle_says() {
        every_instruction::ends_as_the_oracle_says(outcome);
    }
}
