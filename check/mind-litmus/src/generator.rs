//! The test that a cycle stands for: whether the cycle can be seen is what its condition asks.
//!
//! The rules are those of the diy tools. Threads, their instructions, locations and registers are
//! taken in the cycle's order; the stores to a location write 1, 2, 3 in the order in which the
//! cycle has them. A load that `Rf` leads to reads that store's value, one that `Fr` leaves reads
//! what is before the store it leads to. The last of two stores is seen in memory in the end; three
//! and more are watched by a thread of their own.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    candidates::{self, Axioms, CandidatesError},
    cycle::{Communication, Cycle, Direction, Edge},
    test::{
        Condition, Fence, Instruction, Location, Observable, Operand, Parts, Proposition,
        Quantifier, Register, Test, TestError, Thread, Width,
    },
};

/// What the condition of a generated test asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Whether the cycle can be seen.
    Cycle,
    /// Whether anything can be seen that coherence forbids, in any of the values.
    Coherence,
}

/// Why there is no test of a cycle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeneratorError {
    /// Communication never is a cycle by itself.
    #[error(
        "the cycle `{0}` cannot be seen: all of it is communication at one location; expected an edge such as PosRR"
    )]
    NoOrder(Cycle),
    /// There are not that many registers.
    #[error("a thread of the cycle `{cycle}` has {loads} loads; expected at most {}", Register::ALL.len())]
    Registers {
        /// The cycle.
        cycle: Cycle,
        /// The loads of the thread.
        loads: usize,
    },
    /// More threads than a test may have.
    #[error(transparent)]
    Test(#[from] TestError),
    /// What coherence allows was not enumerated.
    #[error(transparent)]
    Coherence(#[from] CandidatesError),
}

/// An access of the cycle.
struct Access {
    thread: usize,
    direction: Direction,
    /// Which location, from 0.
    location: usize,
    /// What a store writes; what a load should read, if the cycle says so.
    value: Option<u64>,
    /// Whether `mfence` follows.
    fenced: bool,
}

/// The test called `name` of `cycle`.
///
/// # Errors
///
/// If the cycle cannot be seen by any machine with coherent memory because it contradicts itself,
/// or is too large for a test.
pub fn generate(name: &str, cycle: &Cycle, question: Question) -> Result<Test, GeneratorError> {
    let accesses = accesses(cycle, question)?;
    let mut threads: Vec<Thread> = cycle.threads().map(|_| Thread::default()).collect();
    let mut loads = vec![0; threads.len()];
    let mut expected = Vec::new();
    let mut observed = BTreeSet::new();
    let mut stores: BTreeMap<usize, u64> = BTreeMap::new();
    for access in &accesses {
        let location = location(access.location);
        observed.insert(Observable::Memory(location.clone()));
        let instructions = &mut threads[access.thread].instructions;
        match access.direction {
            Direction::Write => {
                let value = access.value.unwrap_or(0);
                let last = stores.entry(access.location).or_default();
                *last = value.max(*last);
                instructions.push(Instruction::Store {
                    width: Width::Quad,
                    // At most as many as a cycle has edges.
                    value: Operand::Immediate(value as u32),
                    to: location,
                });
            }
            Direction::Read => {
                let thread = access.thread;
                let register = register(cycle, &mut loads[thread])?;
                instructions.push(Instruction::Load {
                    width: Width::Quad,
                    from: location,
                    to: register,
                });
                let observable = Observable::Register { thread, register };
                if question == Question::Coherence {
                    observed.insert(observable.clone());
                }
                expected.extend(access.value.map(|value| (observable, value)));
            }
        }
        if access.fenced {
            instructions.push(Instruction::Fence(Fence::Memory));
        }
    }
    if question == Question::Cycle {
        for (number, last) in stores {
            match last {
                1 => (),
                2 => expected.push((Observable::Memory(location(number)), last)),
                _ => {
                    let thread = threads.len();
                    let (watcher, seen) = watcher(cycle, thread, &location(number), last)?;
                    threads.push(watcher);
                    expected.extend(seen);
                }
            }
        }
    }
    expected.sort();
    let seen = expected.into_iter();
    let condition = Condition {
        quantifier: Quantifier::Exists,
        proposition: Proposition::all(seen.map(|(of, value)| Proposition::Equal(of, value))),
    };
    let mut parts = Parts {
        name: name.to_owned(),
        description: Some(cycle.to_string()),
        info: Vec::new(),
        widths: BTreeMap::new(),
        initial: BTreeMap::new(),
        threads,
        condition,
        observed,
    };
    if question == Question::Coherence {
        parts.condition.proposition = Proposition::Not(Box::new(coherent(&parts)?));
    }
    Ok(Test::new(parts)?)
}

/// That an outcome is one of those that coherence allows.
fn coherent(parts: &Parts) -> Result<Proposition, GeneratorError> {
    let test = Test::new(parts.clone())?;
    let outcomes = candidates::outcomes(&test, Axioms::Coherence)?;
    let one = |outcome: &crate::test::Outcome| {
        let values = test.observed().iter().zip(outcome.values());
        Proposition::all(values.map(|(of, value)| Proposition::Equal(of.clone(), *value)))
    };
    Ok(Proposition::any(outcomes.iter().map(one)))
}

/// A thread that sees the `stores` stores to a location in their order, and what it sees.
fn watcher(
    cycle: &Cycle,
    thread: usize,
    location: &Location,
    stores: u64,
) -> Result<(Thread, Vec<(Observable, u64)>), GeneratorError> {
    let mut watcher = Thread::default();
    let mut seen = Vec::new();
    let mut loads = 0;
    for value in 1..=stores {
        let register = register(cycle, &mut loads)?;
        watcher.instructions.push(Instruction::Load {
            width: Width::Quad,
            from: location.clone(),
            to: register,
        });
        seen.push((Observable::Register { thread, register }, value));
    }
    Ok((watcher, seen))
}

fn register(cycle: &Cycle, loads: &mut usize) -> Result<Register, GeneratorError> {
    let register = Register::ALL.get(*loads).copied();
    *loads += 1;
    register.ok_or_else(|| GeneratorError::Registers {
        cycle: cycle.clone(),
        loads: *loads,
    })
}

/// The name of the location with that number: x, y, z, a to w, then l26 and on.
fn location(number: usize) -> Location {
    let letter = u8::try_from(number).ok().filter(|number| *number < 26);
    let name = match letter {
        Some(number) => char::from(b'a' + (number + 23) % 26).to_string(),
        None => format!("l{number}"),
    };
    name.parse().expect("letters and digits are a name")
}

/// The accesses of the cycle, in its order.
fn accesses(cycle: &Cycle, question: Question) -> Result<Vec<Access>, GeneratorError> {
    let edges = cycle.edges();
    let locations = edges.iter().filter(|edge| edge.changes_location()).count();
    let mut accesses = Vec::new();
    let (mut thread, mut location) = (0, 0);
    for edge in edges {
        accesses.push(Access {
            thread,
            direction: edge.from(),
            location,
            value: None,
            fenced: matches!(edge, Edge::Program { fenced: true, .. }),
        });
        thread += usize::from(edge.is_external());
        if edge.changes_location() {
            location = (location + 1) % locations;
        }
    }
    // A run of accesses to one location begins behind an edge that changes it. What there is of
    // the first location at the end comes before what there is of it at the beginning.
    let last_change = edges.iter().rposition(|edge| edge.changes_location());
    // With one location, memory has the cycle's order up to a place where a thread has another.
    let same = |edge: &Edge| matches!(edge, Edge::Program { same: true, .. });
    let end = match (last_change, question) {
        (Some(edge), _) => edge,
        (None, Question::Coherence) => edges.len() - 1,
        (None, Question::Cycle) => edges
            .iter()
            .position(same)
            .ok_or_else(|| GeneratorError::NoOrder(cycle.clone()))?,
    };
    let mut stores = vec![0; locations.max(1)];
    for step in 1..=edges.len() {
        let number = (end + step) % edges.len();
        let (before, after) = (
            edges[(number + edges.len() - 1) % edges.len()],
            edges[number],
        );
        let access = &mut accesses[number];
        let last = &mut stores[access.location];
        access.value = match access.direction {
            Direction::Write => {
                *last += 1;
                Some(*last)
            }
            // The store that it reads from, or that comes before the one that follows, is the last.
            Direction::Read => {
                let is = |edge, of| matches!(edge, Edge::Communication { kind, .. } if kind == of);
                let said =
                    is(before, Communication::ReadsFrom) || is(after, Communication::FromRead);
                said.then_some(*last)
            }
        };
    }
    Ok(accesses)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generated(cycle: &str, question: Question) -> Result<String, GeneratorError> {
        let cycle = cycle.parse().unwrap();
        generate("A", &cycle, question).map(|test| test.to_string())
    }

    /// The program's table and the condition.
    fn body(cycle: &str, question: Question) -> String {
        let text = generated(cycle, question).unwrap();
        text.split_once("}\n").unwrap().1.to_owned()
    }

    #[test]
    fn stores_are_numbered_as_the_cycle_has_them() {
        // x begins at the end of the cycle.
        let expected = " P0          | P1            ;\n movq $2,(x) | movq (y),%rax ;\n \
                        movq $1,(y) | movq $1,(x)   ;\nexists (1:rax=1 /\\ x=2)\n";
        assert_eq!(body("PodWW Rfe PodRW Coe", Question::Cycle), expected);
    }

    #[test]
    fn fences_are_between_what_they_order() {
        let expected = " P0            | P1            ;\n movq $1,(x)   | movq $1,(y)   ;\n \
                        mfence        | movq (y),%rax ;\n movq (y),%rax | mfence        ;\n\
                        \x20              | movq (y),%rbx ;\n               | movq (x),%rcx ;\n\
                        exists (0:rax=0 /\\ 1:rax=1 /\\ 1:rcx=0)\n";
        let cycle = "MFencedWR Fre Rfi MFencesRR PodRR Fre";
        // What the cycle does not say of a load is not asked.
        assert_eq!(body(cycle, Question::Cycle), expected);
    }

    #[test]
    fn three_stores_to_a_location_have_a_watcher() {
        let text = generated("PodWW Coi Coe PodWW Coe", Question::Cycle).unwrap();
        assert!(
            text.contains("exists (2:rax=1 /\\ 2:rbx=2 /\\ 2:rcx=3 /\\ x=2)"),
            "{text}"
        );
        assert_eq!(text.matches("movq (y),").count(), 3, "{text}");
    }

    #[test]
    fn at_one_location_the_cycle_breaks_where_the_thread_disagrees() {
        // The later load reads from before what the earlier one has read.
        let condition = |cycle| {
            body(cycle, Question::Cycle)
                .lines()
                .last()
                .unwrap()
                .to_owned()
        };
        assert_eq!(condition("Rfe PosRR Fre"), "exists (1:rax=1 /\\ 1:rbx=0)");
        // The first store is the last in memory.
        let coww = " P0          ;\n movq $2,(x) ;\n movq $1,(x) ;\nexists (x=2)\n";
        assert_eq!(body("PosWW Coe", Question::Cycle), coww);
        let error = generated("Coe Coe", Question::Cycle)
            .unwrap_err()
            .to_string();
        assert!(error.contains("all of it is communication"), "{error}");
        let coherent = condition_of_coherence("PosWW Coe");
        assert_eq!(coherent, "exists (not (x=2))");
    }

    fn condition_of_coherence(cycle: &str) -> String {
        body(cycle, Question::Coherence)
            .lines()
            .last()
            .unwrap()
            .to_owned()
    }

    #[test]
    fn what_is_too_large_for_a_test_is_refused() {
        let many = format!("{} Fre PodWR Fre PodWW Rfe", "PosRR ".repeat(20));
        let error = generated(&many, Question::Cycle).unwrap_err();
        assert!(
            error.to_string().contains("16 loads; expected at most 15"),
            "{error}"
        );
        let many = format!("{} Rfe PosRR Fre", "Coe ".repeat(12));
        let error = generated(&many, Question::Coherence).unwrap_err();
        assert!(
            error.to_string().contains("too many candidate executions"),
            "{error}"
        );
        let many = "PodWW Coe ".repeat(32);
        assert!(generated(&many, Question::Cycle).is_ok());
        let many = "PodWW Coe Coe ".repeat(21);
        let error = generated(&many, Question::Cycle).unwrap_err();
        assert!(error.to_string().contains("expected 1 to 32"), "{error}");
    }

    #[test]
    fn locations_have_letters_first() {
        let names: Vec<_> = [0, 1, 2, 3, 25, 26]
            .map(|of| location(of).to_string())
            .into();
        assert_eq!(names, ["x", "y", "z", "a", "w", "l26"]);
    }
}
