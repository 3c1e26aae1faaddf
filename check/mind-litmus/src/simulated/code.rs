//! A thread's program as steps of the simulator: it is interrupted at each access, since the simulator decides when
//! that is made and which value it finds.

use mind_sim::plan::Place;
use mind_sim::script::Step;

use crate::test::{Fence, Instruction, Location, Operand, Register, Test, Width};

/// A thread of a test, at some instruction.
#[derive(Clone, Debug)]
pub struct Code<'t> {
    instructions: &'t [Instruction],
    /// What each instruction accesses; anything for those that access nothing.
    places: Vec<Option<Place>>,
    /// How many instructions it has begun.
    begun: usize,
    registers: [u64; Register::ALL.len()],
}

impl<'t> Code<'t> {
    /// The program of a thread of `test`, on variables at these places.
    pub fn new(test: &'t Test, thread: usize, place: impl Fn(&Location) -> Place) -> Self {
        let thread = &test.threads()[thread];
        let mut registers = [0; Register::ALL.len()];
        for (register, value) in &thread.initial {
            registers[*register as usize] = *value;
        }
        let instructions = &thread.instructions;
        let accesses = instructions.iter().map(Instruction::access);
        Self {
            instructions,
            places: accesses
                .map(|access| access.map(|(location, _)| place(location)))
                .collect(),
            begun: 0,
            registers,
        }
    }

    /// The value of a register.
    pub const fn register(&self, register: Register) -> u64 {
        self.registers[register as usize]
    }

    const fn value(&self, operand: Operand) -> u64 {
        match operand {
            Operand::Immediate(constant) => constant as u64,
            Operand::Register(register) => self.register(register),
        }
    }

    const fn set(&mut self, register: Register, width: Width, value: u64) {
        self.registers[register as usize] = width.truncate(value);
    }

    /// What it does next that others may notice, if it is not at its end.
    pub fn advance(&mut self) -> Option<Step> {
        loop {
            let instruction = self.instructions.get(self.begun)?;
            let place = self.places[self.begun];
            self.begun += 1;
            match (instruction, place) {
                (Instruction::Load { .. }, Some(place)) => return Some(Step::Load(place)),
                (Instruction::Store { width, value, .. }, Some(place)) => {
                    let value = width.truncate(self.value(*value));
                    return Some(Step::Store(place, value));
                }
                (Instruction::Move { width, value, to }, _) => {
                    self.set(*to, *width, self.value(*value));
                }
                (Instruction::Fence(Fence::Memory), _) => return Some(Step::Fence),
                // Others order what is in order.
                (Instruction::Fence(Fence::Load | Fence::Store), _) => {}
                (_, Some(place)) => return Some(Step::Update(place)),
                (_, None) => unreachable!("an instruction that accesses memory has a place"),
            }
        }
    }

    fn current(&self) -> Option<&'t Instruction> {
        self.instructions.get(self.begun.checked_sub(1)?)
    }

    /// What the load that it came to finds.
    pub fn loaded(&mut self, value: u64) {
        if let Some(Instruction::Load { width, to, .. }) = self.current() {
            self.set(*to, *width, value);
        }
    }

    /// What the locked instruction that it came to writes where it finds `old`.
    pub fn update(&mut self, old: u64) -> u64 {
        match self.current() {
            Some(Instruction::Exchange {
                width, register, ..
            }) => {
                let new = width.truncate(self.register(*register));
                self.set(*register, *width, old);
                new
            }
            Some(Instruction::FetchAdd {
                width, register, ..
            }) => {
                let new = width.truncate(old.wrapping_add(self.register(*register)));
                self.set(*register, *width, old);
                new
            }
            Some(Instruction::CompareExchange { width, new, .. }) => {
                if old == width.truncate(self.register(Register::Rax)) {
                    width.truncate(self.register(*new))
                } else {
                    self.set(Register::Rax, *width, old);
                    old
                }
            }
            Some(Instruction::Add { width, value, .. }) => {
                width.truncate(old.wrapping_add(self.value(*value)))
            }
            Some(
                Instruction::Load { .. }
                | Instruction::Store { .. }
                | Instruction::Move { .. }
                | Instruction::Fence(_),
            )
            | None => old,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::every_instruction;
    use crate::test::{Observable, Outcome};

    /// The outcome of a test of one thread.
    fn outcome(test: &Test) -> Outcome {
        let names: Vec<_> = test.memory().keys().collect();
        let number = |location: &Location| names.binary_search(&location).unwrap();
        let mut memory: BTreeMap<_, _> = test
            .memory()
            .values()
            .map(|cell| cell.initial)
            .enumerate()
            .collect();
        let mut code = Code::new(test, 0, |location| Place {
            area: 0,
            page: 0,
            word: number(location),
        });
        while let Some(step) = code.advance() {
            match step {
                Step::Load(place) => code.loaded(memory[&place.word]),
                Step::Store(place, value) => {
                    memory.insert(place.word, value);
                }
                Step::Update(place) => {
                    let new = code.update(memory[&place.word]);
                    memory.insert(place.word, new);
                }
                Step::Fence => {}
                other => panic!("{other:?} is no instruction"),
            }
        }
        Outcome::new(test, |observable| match observable {
            Observable::Register { register, .. } => code.register(*register),
            Observable::Memory(location) => memory[&number(location)],
        })
    }

    #[test]
    fn every_instruction_does_what_the_oracle_says() {
        every_instruction::ends_as_the_oracle_says(outcome);
    }
}
