//! The store-buffer machine of x86-TSO (Sewell, Sarkar, Owens, Zappa Nardelli, Myreen: "x86-TSO: A
//! Rigorous and Usable Programmer's Model for x86 Multiprocessors", CACM 53(7), 2010, section 4),
//! and the sequentially consistent machine (Lamport 1979), which is the same without buffers.
//!
//! Each thread's stores wait in a buffer, first in first out, until they reach memory, at any time.
//! A load takes the newest waiting store of its own thread to that location, else what memory has.
//! `mfence` and locked instructions wait until their thread's buffer is empty; a locked instruction
//! reads and writes memory in one step.

use std::collections::BTreeSet;

use crate::test::{Fence, Instruction, Observable, Operand, Outcome, Register, Test, Width};

/// A memory model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Model {
    /// Sequential consistency.
    Sc,
    /// x86-TSO.
    Tso,
}

/// A machine with a test's program.
#[derive(Debug)]
pub struct Machine<'t> {
    test: &'t Test,
    model: Model,
    threads: Vec<Program>,
    initial: State,
}

/// Where a machine is: memory by number, then for each thread its next instruction, how many of its
/// stores have reached memory, its registers, and the values of the stores that wait.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State(Box<[u64]>);

/// A thread's instructions, and where its part of the state begins.
#[derive(Debug)]
struct Program {
    steps: Vec<Step>,
    /// Place of the number of the next instruction; the next place counts the stores that are done.
    base: usize,
    /// The registers that it uses, in the order of their places.
    registers: Vec<Register>,
    /// The location of each store, in program order.
    stores: Vec<usize>,
    /// Place of the first waiting store's value.
    slots: usize,
    /// How many stores are before each instruction, and at the end.
    issued: Vec<usize>,
}

/// An instruction whose names are places in the state.
#[derive(Clone, Copy, Debug)]
enum Step {
    Load {
        from: usize,
        to: usize,
    },
    Store {
        width: Width,
        value: Value,
    },
    Move {
        width: Width,
        value: Value,
        to: usize,
    },
    Locked {
        width: Width,
        operation: Locked,
        at: usize,
    },
    Drain,
    Nothing,
}

#[derive(Clone, Copy, Debug)]
enum Value {
    Constant(u64),
    Place(usize),
}

#[derive(Clone, Copy, Debug)]
enum Locked {
    Exchange { register: usize },
    FetchAdd { register: usize },
    CompareExchange { new: usize, accumulator: usize },
    Add { value: Value },
}

const NEXT: usize = 0;
const DRAINED: usize = 1;
const REGISTERS: usize = 2;

impl<'t> Machine<'t> {
    /// A machine before it runs `test`.
    pub fn new(test: &'t Test, model: Model) -> Self {
        let mut state: Vec<u64> = test.memory().values().map(|cell| cell.initial).collect();
        let mut threads = Vec::new();
        for (number, thread) in test.threads().iter().enumerate() {
            let base = state.len();
            state.extend([0; REGISTERS]);
            let registers = registers(test, number);
            let initial = |register| thread.initial.get(register).copied().unwrap_or(0);
            state.extend(registers.iter().map(initial));
            let mut program = Program {
                steps: Vec::new(),
                base,
                registers,
                stores: Vec::new(),
                slots: state.len(),
                issued: Vec::new(),
            };
            for instruction in &thread.instructions {
                program.issued.push(program.stores.len());
                program.add(test, instruction);
            }
            program.issued.push(program.stores.len());
            state.extend(program.stores.iter().map(|_| 0));
            threads.push(program);
        }
        Self {
            test,
            model,
            threads,
            initial: State(state.into()),
        }
    }

    /// Where it begins.
    pub const fn initial(&self) -> &State {
        &self.initial
    }

    /// How many bytes a state takes.
    pub fn state_bytes(&self) -> usize {
        size_of_val(&*self.initial.0)
    }

    /// Adds the states that may follow, by one step of one thread or one store that reaches memory.
    /// There are none if and only if the machine has ended.
    ///
    /// If a thread can do what no other thread can see or prevent, and what changes nothing for what
    /// else may happen now (put a store into its buffer, move between registers, pass a fence), then
    /// only that follows: any other order leads to the same ends.
    pub fn successors(&self, state: &State, found: &mut Vec<State>) {
        let begin = found.len();
        for program in &self.threads {
            if let Some((next, unseen)) = program.execute(state, self.model) {
                if unseen {
                    found.truncate(begin);
                    found.push(next);
                    return;
                }
                found.push(next);
            }
            found.extend(program.drain(state));
        }
    }

    /// What is observed when the machine has ended.
    pub fn outcome(&self, state: &State) -> Outcome {
        let memory: Vec<_> = self.test.memory().keys().collect();
        Outcome::new(self.test, |observable| match observable {
            Observable::Memory(location) => {
                let place = memory.binary_search(&location);
                place.map_or(0, |place| state.0[place])
            }
            Observable::Register { thread, register } => {
                state.0[self.threads[*thread].register(*register)]
            }
        })
    }
}

impl Program {
    /// The place of a register that the thread uses.
    fn register(&self, register: Register) -> usize {
        let number = self.registers.binary_search(&register);
        self.base + REGISTERS + number.expect("all registers that a thread uses have a place")
    }

    fn value(&self, operand: Operand) -> Value {
        match operand {
            Operand::Immediate(constant) => Value::Constant(constant.into()),
            Operand::Register(register) => Value::Place(self.register(register)),
        }
    }

    fn add(&mut self, test: &Test, instruction: &Instruction) {
        // A test's memory has all that is accessed.
        let memory: Vec<_> = test.memory().keys().collect();
        let place = |location| memory.binary_search(&location).unwrap_or(0);
        let at = instruction
            .access()
            .map_or(0, |(location, _)| place(location));
        let step = match instruction {
            Instruction::Load { to, .. } => Step::Load {
                from: at,
                to: self.register(*to),
            },
            Instruction::Store { width, value, .. } => {
                self.stores.push(at);
                Step::Store {
                    width: *width,
                    value: self.value(*value),
                }
            }
            Instruction::Move { width, value, to } => Step::Move {
                width: *width,
                value: self.value(*value),
                to: self.register(*to),
            },
            Instruction::Exchange {
                width, register, ..
            } => Step::Locked {
                width: *width,
                operation: Locked::Exchange {
                    register: self.register(*register),
                },
                at,
            },
            Instruction::FetchAdd {
                width, register, ..
            } => Step::Locked {
                width: *width,
                operation: Locked::FetchAdd {
                    register: self.register(*register),
                },
                at,
            },
            Instruction::CompareExchange { width, new, .. } => Step::Locked {
                width: *width,
                operation: Locked::CompareExchange {
                    new: self.register(*new),
                    accumulator: self.register(Register::Rax),
                },
                at,
            },
            Instruction::Add { width, value, .. } => Step::Locked {
                width: *width,
                operation: Locked::Add {
                    value: self.value(*value),
                },
                at,
            },
            Instruction::Fence(Fence::Memory) => Step::Drain,
            Instruction::Fence(Fence::Load | Fence::Store) => Step::Nothing,
        };
        self.steps.push(step);
    }

    /// The thread's stores that wait: those done are below the first number, those to come are from
    /// the second one on.
    fn waiting(&self, state: &State) -> (usize, usize) {
        let next = state.0[self.base + NEXT] as usize;
        (state.0[self.base + DRAINED] as usize, self.issued[next])
    }

    /// The state after the thread's next instruction, if it can be executed, and whether that is
    /// nothing that another thread could see, prevent or depend on.
    fn execute(&self, state: &State, model: Model) -> Option<(State, bool)> {
        let next = state.0[self.base + NEXT] as usize;
        let step = *self.steps.get(next)?;
        let (done, issued) = self.waiting(state);
        let buffer_empty = done == issued;
        let mut after = state.clone();
        let words = &mut after.0;
        words[self.base + NEXT] += 1;
        let read = |value: Value| match value {
            Value::Constant(constant) => constant,
            Value::Place(place) => state.0[place],
        };
        let unseen = match step {
            Step::Load { from, to } => {
                let newest = (done..issued)
                    .rev()
                    .find(|store| self.stores[*store] == from);
                words[to] = newest.map_or(state.0[from], |store| state.0[self.slots + store]);
                false
            }
            Step::Store { width, value } => {
                let value = width.truncate(read(value));
                match model {
                    Model::Tso => words[self.slots + issued] = value,
                    Model::Sc => {
                        words[self.stores[issued]] = value;
                        words[self.base + DRAINED] += 1;
                    }
                }
                model == Model::Tso
            }
            Step::Move { width, value, to } => {
                words[to] = width.truncate(read(value));
                true
            }
            Step::Locked { .. } | Step::Drain if !buffer_empty => return None,
            Step::Locked {
                width,
                operation,
                at,
            } => {
                operation.apply(words, width, at);
                false
            }
            Step::Drain | Step::Nothing => true,
        };
        Some((after, unseen))
    }

    /// The state after the thread's oldest waiting store has reached memory, if one waits.
    fn drain(&self, state: &State) -> Option<State> {
        let (done, issued) = self.waiting(state);
        if done == issued {
            return None;
        }
        let mut after = state.clone();
        let slot = self.slots + done;
        after.0[self.stores[done]] = state.0[slot];
        // States that differ in what is gone are the same.
        after.0[slot] = 0;
        after.0[self.base + DRAINED] += 1;
        Some(after)
    }
}

impl Locked {
    /// Reads and writes the memory at `at`.
    fn apply(self, words: &mut [u64], width: Width, at: usize) {
        let old = words[at];
        match self {
            Self::Exchange { register } => {
                words[at] = width.truncate(words[register]);
                words[register] = old;
            }
            Self::FetchAdd { register } => {
                words[at] = width.truncate(old.wrapping_add(words[register]));
                words[register] = old;
            }
            Self::CompareExchange { new, accumulator } => {
                if old == width.truncate(words[accumulator]) {
                    words[at] = width.truncate(words[new]);
                } else {
                    words[accumulator] = old;
                }
            }
            Self::Add { value } => {
                let value = match value {
                    Value::Constant(constant) => constant,
                    Value::Place(place) => words[place],
                };
                words[at] = width.truncate(old.wrapping_add(value));
            }
        }
    }
}

/// The registers of a thread that matter: those that it uses or that are observed, sorted.
fn registers(test: &Test, thread: usize) -> Vec<Register> {
    let mut registers = BTreeSet::new();
    for instruction in &test.threads()[thread].instructions {
        registers.extend(instruction.registers());
    }
    for observable in test.observed() {
        if let Observable::Register {
            thread: of,
            register,
        } = observable
            && *of == thread
        {
            registers.insert(*register);
        }
    }
    registers.into_iter().collect()
}
