//! The values of an execution, from which store each load reads.

use super::{Candidates, Event, Execution};
use crate::test::{Instruction, Observable, Operand, Outcome, Register};

impl Candidates<'_> {
    /// What is observed in the end; nothing if a value comes out of thin air: its computation needs
    /// itself.
    pub(super) fn outcome(&self, execution: &Execution) -> Option<Outcome> {
        let depth = self
            .test
            .threads()
            .iter()
            .map(|of| of.instructions.len())
            .sum();
        let mut whole = true;
        let outcome = Outcome::new(self.test, |observable| {
            let value = match observable {
                Observable::Memory(location) => {
                    let number = self.locations.iter().position(|of| *of == location);
                    let last = number.and_then(|of| execution.order[of].last());
                    match last {
                        Some(last) => self.written(execution, *last, depth),
                        None => Some(self.test.memory()[location].initial),
                    }
                }
                Observable::Register { thread, register } => {
                    let end = self.test.threads()[*thread].instructions.len();
                    self.register(execution, *thread, *register, end, depth)
                }
            };
            whole &= value.is_some();
            value.unwrap_or(0)
        });
        whole.then_some(outcome)
    }

    fn event(&self, thread: usize, instruction: usize) -> Option<usize> {
        let is = |of: &Event| of.thread == thread && of.instruction == instruction;
        self.events.iter().position(is)
    }

    /// What the load of `event` reads.
    fn read(&self, execution: &Execution, event: usize, depth: usize) -> Option<u64> {
        match execution.source.get(&event) {
            Some(writer) => self.written(execution, *writer, depth),
            None => {
                let location = self.locations[self.events[event].location];
                Some(self.test.memory()[location].initial)
            }
        }
    }

    /// What the store of `event` writes.
    fn written(&self, execution: &Execution, event: usize, depth: usize) -> Option<u64> {
        // Each instruction's value is needed once on the way, or it needs itself.
        let depth = depth.checked_sub(1)?;
        let Event {
            thread,
            instruction,
            ..
        } = self.events[event];
        let register = |register| self.register(execution, thread, register, instruction, depth);
        let operand = |operand: &Operand| match operand {
            Operand::Immediate(constant) => Some((*constant).into()),
            Operand::Register(of) => register(*of),
        };
        let read = || self.read(execution, event, depth);
        match &self.test.threads()[thread].instructions[instruction] {
            Instruction::Store { width, value, .. } => Some(width.truncate(operand(value)?)),
            Instruction::Exchange {
                width,
                register: of,
                ..
            } => Some(width.truncate(register(*of)?)),
            Instruction::FetchAdd {
                width,
                register: of,
                ..
            } => Some(width.truncate(read()?.wrapping_add(register(*of)?))),
            Instruction::Add { width, value, .. } => {
                Some(width.truncate(read()?.wrapping_add(operand(value)?)))
            }
            Instruction::Load { .. }
            | Instruction::Move { .. }
            | Instruction::CompareExchange { .. }
            | Instruction::Fence(_) => None,
        }
    }

    /// What a register is before an instruction.
    fn register(
        &self,
        execution: &Execution,
        thread: usize,
        register: Register,
        before: usize,
        depth: usize,
    ) -> Option<u64> {
        let program = &self.test.threads()[thread];
        for (number, instruction) in program.instructions[..before].iter().enumerate().rev() {
            match instruction {
                Instruction::Load { to, .. } if *to == register => {
                    return self.read(execution, self.event(thread, number)?, depth);
                }
                Instruction::Exchange { register: of, .. }
                | Instruction::FetchAdd { register: of, .. }
                    if *of == register =>
                {
                    return self.read(execution, self.event(thread, number)?, depth);
                }
                Instruction::Move { width, value, to } if *to == register => {
                    return Some(width.truncate(match value {
                        Operand::Immediate(constant) => (*constant).into(),
                        Operand::Register(of) => {
                            self.register(execution, thread, *of, number, depth)?
                        }
                    }));
                }
                _ => (),
            }
        }
        Some(program.initial.get(&register).copied().unwrap_or(0))
    }
}
