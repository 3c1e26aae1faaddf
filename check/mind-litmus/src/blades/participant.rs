//! A participant: does its part of a batch, in memory that it shares with the others by any means.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::access::{Accesses, Processor};
use super::barrier::{Barrier, Missing};
use super::code::Code;
use super::job::{Job, JobError, Seen};
use super::layout::{ARENA_BYTES, Place};
use super::plan::{Copy, Plan, Touch};
use super::processors::Processors;
use crate::test::{Location, Observable, Register, Test, Width};

/// Why a participant does not finish.
#[derive(Debug, thiserror::Error)]
pub enum ParticipantError {
    /// The job is invalid.
    #[error(transparent)]
    Job(#[from] JobError),
    /// Another participant does not come.
    #[error("cannot go on with {doing} of the test `{test}`")]
    Missing {
        /// What it was doing.
        doing: String,
        /// Its name.
        test: String,
        /// The participant that is missing.
        source: Missing,
    },
}

/// The memory that is tested: [`ARENA_BYTES`] that all participants see at addresses of their own.
#[derive(Clone, Copy, Debug)]
pub struct Arena(*mut u8);

impl Arena {
    /// The arena that begins at `first`.
    ///
    /// # Safety
    ///
    /// It has [`ARENA_BYTES`], begins at a multiple of 8, is mapped for reading and writing for as
    /// long as this value or a copy of it is used, and is accessed by participants only.
    pub const unsafe fn new(first: *mut u8) -> Self {
        Self(first)
    }

    fn at(self, place: usize) -> *mut u8 {
        assert!(place < ARENA_BYTES, "{place} is not in the arena");
        self.0.wrapping_add(place)
    }
}

/// A participant's memory and barrier.
#[derive(Clone, Copy, Debug)]
pub struct Participant<'a> {
    /// What is tested.
    pub arena: Arena,
    /// The barrier between participants.
    pub barrier: Barrier<'a>,
}

impl Participant<'_> {
    /// Does its part of a job; the tests' own accesses are made by `memory`.
    ///
    /// # Errors
    ///
    /// If the job is invalid, or another participant does not come.
    pub fn run(&self, job: &Job, memory: &mut impl Accesses) -> Result<Seen, ParticipantError> {
        let (test, plan) = job.plan(self.barrier.participants())?;
        // Called only when a participant is missing: no work is to come between barrier and test.
        let missing = |doing: &dyn std::fmt::Display, source| ParticipantError::Missing {
            doing: doing.to_string(),
            test: test.name().to_owned(),
            source,
        };
        let all = || 0..self.barrier.participants();
        let own_copies = || {
            let copies = plan.copies.iter();
            copies.filter(|copy| copy.observer == self.barrier.own())
        };

        own_copies().for_each(|copy| self.set(&test, &copy.place));
        self.barrier
            .wait(all(), job.set_step())
            .map_err(|source| missing(&"setting variables", source))?;
        self.touch(&plan);
        let mut parts = self.parts(&test, &plan);
        self.barrier
            .wait(all(), job.prepared_step())
            .map_err(|source| missing(&"preparing pages", source))?;
        let mut processors = Processors::allowed();
        for part in &mut parts {
            processors.take(part.thread);
            self.barrier
                .wait_closely(&part.copy.participants, job.copy_step(part.number))
                .map_err(|source| {
                    let number = part.number + 1;
                    missing(&format_args!("copy {number} of {}", job.copies), source)
                })?;
            wait(part.delay);
            // SAFETY: the arena is such as `Arena::new` demands, variables are aligned to the largest
            // width and share no cache line.
            unsafe { part.code.run(memory) };
        }
        drop(processors);
        self.barrier
            .wait(all(), job.ran_step())
            .map_err(|source| missing(&"reading variables", source))?;
        Ok(Seen {
            registers: parts.iter().map(|part| part.registers(&test)).collect(),
            memory: own_copies()
                .map(|copy| self.read(&test, &copy.place))
                .collect(),
        })
    }

    /// Gives the variables of a copy their initial values.
    fn set(&self, test: &Test, place: &Place) {
        for (cell, variable) in test.memory().values().zip(&place.variables) {
            // SAFETY: as in `run`.
            unsafe { Processor.store(self.arena.at(*variable), cell.width, cell.initial) };
        }
    }

    /// The observed variables of a copy.
    fn read(&self, test: &Test, place: &Place) -> Vec<u64> {
        let addresses = self.addresses(test, place);
        let observed = test.observed().iter();
        observed
            .filter_map(|observable| match observable {
                Observable::Memory(location) => Some(location),
                Observable::Register { .. } => None,
            })
            .map(|location| {
                let width = test.memory()[location].width;
                // SAFETY: as in `run`.
                unsafe { Processor.load(addresses[location], width) }
            })
            .collect()
    }

    /// Brings pages into the state that the plan wants; of several participants that access a page at once, the last
    /// one wins. Each begins at another page.
    fn touch(&self, plan: &Plan) {
        let own = self.barrier.own();
        let (after, before) = {
            let first = plan.copies.len() * own / self.barrier.participants();
            let (before, after) = plan.copies.split_at(first);
            (after, before)
        };
        for copy in after.iter().chain(before) {
            for (neighbour, touch) in copy.touches(own) {
                let at = self.arena.at(neighbour);
                // SAFETY: as in `run`; the value is not used.
                unsafe {
                    match touch {
                        Touch::Leave => {}
                        Touch::Read => {
                            Processor.load(at, Width::Quad);
                        }
                        Touch::Write => Processor.store(at, Width::Quad, own as u64),
                    }
                }
            }
        }
    }

    /// The threads that this participant runs, decoded.
    fn parts<'p>(&self, test: &Test, plan: &'p Plan) -> Vec<Part<'p>> {
        let own = self.barrier.own();
        let copies = plan.copies.iter().enumerate();
        copies
            .filter_map(|(number, copy)| {
                let thread = copy
                    .participants
                    .iter()
                    .position(|participant| *participant == own)?;
                let addresses = self.addresses(test, &copy.place);
                Some(Part {
                    number,
                    copy,
                    thread,
                    delay: copy.delays[thread],
                    code: Code::new(test, thread, |location| addresses[location]),
                })
            })
            .collect()
    }

    fn addresses<'t>(&self, test: &'t Test, place: &Place) -> BTreeMap<&'t Location, *mut u8> {
        let places = place.variables.iter().map(|place| self.arena.at(*place));
        test.memory().keys().zip(places).collect()
    }
}

/// A participant's part of a copy.
struct Part<'p> {
    /// The copy's number in the plan.
    number: usize,
    copy: &'p Copy,
    thread: usize,
    delay: Duration,
    code: Code,
}

impl Part<'_> {
    fn registers(&self, test: &Test) -> Vec<u64> {
        observed_registers(test, self.thread)
            .map(|register| self.code.register(register))
            .collect()
    }
}

/// The registers of a thread that a test observes.
pub(super) fn observed_registers(test: &Test, thread: usize) -> impl Iterator<Item = Register> {
    let observed = test.observed().iter();
    observed.filter_map(move |observable| match observable {
        Observable::Register {
            thread: of,
            register,
        } if *of == thread => Some(*register),
        Observable::Register { .. } | Observable::Memory(_) => None,
    })
}

/// Waits without yielding the processor: it is for microseconds.
fn wait(time: Duration) {
    if time.is_zero() {
        return;
    }
    let begin = Instant::now();
    while begin.elapsed() < time {
        std::hint::spin_loop();
    }
}
