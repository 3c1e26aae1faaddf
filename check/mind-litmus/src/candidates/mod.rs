//! The candidate executions of a test: every way in which its loads may read from its stores and in
//! which its stores to one location may follow each other (Alglave, Maranget, Tautschnig: "Herding
//! Cats", TOPLAS 36(2), 2014, section 4). Axioms decide which of them a model has; so the
//! outcomes of a model are found without a machine.

mod axioms;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use crate::test::{Fence, Instruction, Location, Outcome, Test};
use axioms::{Relation, relation};

/// The most events of a test: their sets are words.
const MOST_EVENTS: usize = 64;
/// The most candidates that are looked at.
const MOST_CANDIDATES: usize = 1_000_000;

/// Why the candidates of a test are not enumerated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CandidatesError {
    /// Whether it writes depends on what it reads.
    #[error(
        "the test `{0}` has a compare-and-exchange, which may write or not; the axioms want to know"
    )]
    CompareExchange(String),
    /// Too large.
    #[error(
        "the test `{0}` has too many candidate executions; expected fewer accesses to one location"
    )]
    TooMany(String),
}

/// A set of axioms: the relations that must be acyclic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axioms {
    /// For each location, its accesses are in one order that fits program order: "SC per location",
    /// also known as uniproc. What any machine with coherent caches does.
    Coherence,
    /// All accesses are in one order that fits program order.
    Sc,
    /// Coherence, and all but a store and a later load of one thread are in one order, where loads
    /// of what the same thread stored do not count.
    Tso,
}

/// A memory access, or both accesses of a locked instruction.
#[derive(Clone, Debug)]
struct Event {
    thread: usize,
    instruction: usize,
    location: usize,
    reads: bool,
    writes: bool,
}

/// All outcomes of `test` in executions that satisfy the axioms.
///
/// # Errors
///
/// If the test has a compare-and-exchange, or too many accesses.
pub fn outcomes(test: &Test, axioms: Axioms) -> Result<BTreeSet<Outcome>, CandidatesError> {
    let candidates = Candidates::new(test)?;
    let mut outcomes = BTreeSet::new();
    let mut execution = Execution::default();
    candidates.locations(0, &mut execution, &mut |execution| {
        if candidates.satisfies(execution, axioms) {
            outcomes.extend(candidates.outcome(execution));
        }
    });
    Ok(outcomes)
}

/// The events of a test, and what follows from the program alone.
struct Candidates<'t> {
    test: &'t Test,
    locations: Vec<&'t Location>,
    events: Vec<Event>,
    /// Program order.
    po: Relation,
    /// Pairs of program order with `mfence` between.
    fenced: Relation,
}

/// Coherence order and reads-from: for each location its stores in order, for each load its store.
#[derive(Clone, Debug, Default)]
struct Execution {
    order: Vec<Vec<usize>>,
    /// A load that is not here reads the initial value.
    source: BTreeMap<usize, usize>,
}

impl<'t> Candidates<'t> {
    fn new(test: &'t Test) -> Result<Self, CandidatesError> {
        let locations: Vec<_> = test.memory().keys().collect();
        let mut events = Vec::new();
        for (number, thread) in test.threads().iter().enumerate() {
            for (instruction, what) in thread.instructions.iter().enumerate() {
                let (reads, writes) = match what {
                    Instruction::Load { .. } => (true, false),
                    Instruction::Store { .. } => (false, true),
                    Instruction::Exchange { .. }
                    | Instruction::FetchAdd { .. }
                    | Instruction::Add { .. } => (true, true),
                    Instruction::CompareExchange { .. } => {
                        let name = test.name().to_owned();
                        return Err(CandidatesError::CompareExchange(name));
                    }
                    Instruction::Move { .. } | Instruction::Fence(_) => continue,
                };
                let location = what.access().map(|(location, _)| location);
                let location = locations.iter().position(|of| Some(*of) == location);
                events.push(Event {
                    thread: number,
                    instruction,
                    location: location.unwrap_or(0),
                    reads,
                    writes,
                });
            }
        }
        let candidates = Self {
            test,
            locations,
            po: relation(&events, |one, two| {
                one.thread == two.thread && one.instruction < two.instruction
            }),
            fenced: relation(&events, |one, two| {
                one.thread == two.thread
                    && test.threads()[one.thread]
                        .instructions
                        .get(one.instruction..two.instruction)
                        .is_some_and(|between| between.contains(&Instruction::Fence(Fence::Memory)))
            }),
            events,
        };
        if candidates.events.len() > MOST_EVENTS || candidates.count() > MOST_CANDIDATES {
            return Err(CandidatesError::TooMany(test.name().to_owned()));
        }
        Ok(candidates)
    }

    fn writers(&self, location: usize) -> Vec<usize> {
        let writes = |of: &usize| self.events[*of].writes && self.events[*of].location == location;
        (0..self.events.len()).filter(writes).collect()
    }

    /// Locked instructions are not among them: what these read follows from the order of stores.
    fn readers(&self, location: usize) -> Vec<usize> {
        let reads = |of: &usize| !self.events[*of].writes && self.events[*of].location == location;
        (0..self.events.len()).filter(reads).collect()
    }

    /// The orders of these stores to one location that fit program order, as in all models.
    fn orders(&self, writers: &[usize]) -> Vec<Vec<usize>> {
        let Some(last) = writers.len().checked_sub(1) else {
            return vec![Vec::new()];
        };
        let mut all = Vec::new();
        for place in 0..=last {
            let writer = writers[place];
            // Some later one of the same thread would come before it.
            if writers[place + 1..]
                .iter()
                .any(|of| self.events[*of].thread == self.events[writer].thread)
            {
                continue;
            }
            let mut rest = writers.to_vec();
            rest.remove(place);
            for mut order in self.orders(&rest) {
                order.push(writer);
                all.push(order);
            }
        }
        all
    }

    /// How many candidates there are.
    fn count(&self) -> usize {
        let mut count = 1_usize;
        for location in 0..self.locations.len() {
            let writers = self.writers(location);
            // Of so many stores of a thread, after so many of all threads, each interleaving.
            let mut before = BTreeMap::new();
            for (all, writer) in writers.iter().enumerate() {
                let own = before.entry(self.events[*writer].thread).or_insert(0_usize);
                *own += 1;
                count = count.saturating_mul(all + 1) / *own;
            }
            for _ in self.readers(location) {
                count = count.saturating_mul(writers.len() + 1);
            }
        }
        count
    }

    /// Calls `found` with every completion of an execution in which the locations before this one
    /// are decided.
    fn locations(
        &self,
        location: usize,
        execution: &mut Execution,
        found: &mut impl FnMut(&Execution),
    ) {
        if location == self.locations.len() {
            found(execution);
            return;
        }
        let writers = self.writers(location);
        let readers = self.readers(location);
        for order in self.orders(&writers) {
            // A locked instruction's store follows at once what its load reads.
            for pair in order.windows(2).filter(|pair| self.events[pair[1]].reads) {
                execution.source.insert(pair[1], pair[0]);
            }
            execution.order.push(order);
            self.sources(&writers, &readers, location, execution, found);
            for writer in execution.order.pop().unwrap_or_default() {
                execution.source.remove(&writer);
            }
        }
    }

    /// The same where these readers of the location are not decided yet.
    fn sources(
        &self,
        writers: &[usize],
        readers: &[usize],
        location: usize,
        execution: &mut Execution,
        found: &mut impl FnMut(&Execution),
    ) {
        let Some((reader, rest)) = readers.split_first() else {
            self.locations(location + 1, execution, found);
            return;
        };
        self.sources(writers, rest, location, execution, found);
        for writer in writers {
            execution.source.insert(*reader, *writer);
            self.sources(writers, rest, location, execution, found);
            execution.source.remove(reader);
        }
    }
}
