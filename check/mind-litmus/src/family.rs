//! The project's own collection: all critical cycles up to a size, and the tests of coherence.
//!
//! A cycle is critical (Shasha and Snir, TOPLAS 10(2), 1988; Alglave et al., TOPLAS 2014, section 9)
//! if no part of it is superfluous: a thread has two accesses to different locations, or one; a
//! location has two accesses in different threads, or three if a store is read on the way. So
//! between two threads of two accesses there is `Rf`, `Fr` or `Co`, or a thread with one store that
//! `Fr` or `Co` leads to and `Rf` leaves.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    cycle::{Communication, Cycle, Direction, Edge},
    generator::{self, GeneratorError, Question},
    names,
    test::Test,
};

/// How large the cycles of a collection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The most threads.
    pub threads: usize,
    /// The most edges.
    pub length: usize,
}

/// All critical cycles up to a size, with and without `mfence` in each thread of two accesses; each
/// once, beginning with the thread that its name begins with.
pub fn critical(size: Size) -> BTreeSet<Cycle> {
    let mut found = BTreeSet::new();
    extend(&mut Vec::new(), size, &mut found);
    found
}

/// A thread of a critical cycle.
#[derive(Clone, Copy, Debug)]
enum Member {
    /// One store.
    Store,
    /// Two accesses.
    Pair {
        from: Direction,
        to: Direction,
        fenced: bool,
    },
}

impl Member {
    fn all() -> impl Iterator<Item = Self> {
        const BOTH: [Direction; 2] = [Direction::Write, Direction::Read];
        let pairs = BOTH.into_iter().flat_map(|from| {
            BOTH.into_iter().flat_map(move |to| {
                [false, true].map(move |fenced| Self::Pair { from, to, fenced })
            })
        });
        [Self::Store].into_iter().chain(pairs)
    }

    const fn first(self) -> Direction {
        match self {
            Self::Store => Direction::Write,
            Self::Pair { from, .. } => from,
        }
    }

    const fn last(self) -> Direction {
        match self {
            Self::Store => Direction::Write,
            Self::Pair { to, .. } => to,
        }
    }

    const fn edges(self) -> usize {
        match self {
            Self::Store => 1,
            Self::Pair { .. } => 2,
        }
    }

    /// The edge to the thread after it, if it may be followed by that.
    const fn to(self, next: Self) -> Option<Edge> {
        let kind = match (self.last(), next.first()) {
            (Direction::Write, Direction::Read) => Communication::ReadsFrom,
            (Direction::Read, Direction::Write) => Communication::FromRead,
            (Direction::Write, Direction::Write) => Communication::Coherence,
            // Something must be written between.
            (Direction::Read, Direction::Read) => return None,
        };
        match (self, kind) {
            // Fr or Co, then Co, is Fr or Co.
            (Self::Store, Communication::Coherence) => None,
            _ => Some(Edge::external(kind)),
        }
    }
}

/// Adds all cycles that begin with these threads.
fn extend(members: &mut Vec<Member>, size: Size, found: &mut BTreeSet<Cycle>) {
    if let Some(cycle) = close(members) {
        found.insert(names::normalized(&cycle));
    }
    let edges: usize = members.iter().map(|of| of.edges()).sum();
    if members.len() == size.threads {
        return;
    }
    for next in Member::all() {
        let follows = members.last().is_none_or(|last| last.to(next).is_some());
        if follows && edges + next.edges() <= size.length {
            members.push(next);
            extend(members, size, found);
            members.pop();
        }
    }
}

/// The cycle of these threads, if it is critical.
fn close(members: &[Member]) -> Option<Cycle> {
    let mut edges = Vec::new();
    let next = members.iter().skip(1).chain(members.first());
    for (member, next) in members.iter().zip(next) {
        if let Member::Pair { from, to, fenced } = *member {
            let same = false;
            edges.push(Edge::Program {
                fenced,
                same,
                from,
                to,
            });
        }
        edges.push(member.to(*next)?);
    }
    // Less than two threads of two accesses are no cycle, or one at a single location.
    let pairs = edges.iter().filter(|edge| edge.changes_location()).count();
    (pairs >= 2).then(|| Cycle::new(edges).ok()).flatten()
}

/// The tests of coherence: those that have names, and the critical cycles of two and three threads
/// with all accesses to one location.
pub fn coherence() -> BTreeSet<Cycle> {
    let named = names::COHERENCE
        .iter()
        .filter_map(|(_, cycle)| cycle.parse().ok());
    let critical = critical(Size {
        threads: 3,
        length: 6,
    });
    let at_one_location = critical.iter().filter_map(|cycle| {
        let same = |edge: &Edge| match *edge {
            Edge::Program {
                fenced: false,
                from,
                to,
                ..
            } => Some(Edge::Program {
                fenced: false,
                same: true,
                from,
                to,
            }),
            Edge::Program { fenced: true, .. } => None,
            Edge::Communication { .. } => Some(*edge),
        };
        let edges: Option<Vec<_>> = cycle.edges().iter().map(same).collect();
        Cycle::new(edges?).ok()
    });
    named.chain(at_one_location).collect()
}

/// The test of a cycle under its name. At one location, what is asked is whether memory is coherent.
///
/// # Errors
///
/// If there is none.
pub fn test(cycle: &Cycle) -> Result<Test, GeneratorError> {
    let question = match cycle.has_one_location() {
        true => Question::Coherence,
        false => Question::Cycle,
    };
    generator::generate(&names::name(cycle), cycle, question)
}

/// The collection up to a size, by name.
///
/// # Errors
///
/// If there is no test of one of the cycles; there is of all up to 32 threads.
pub fn collection(size: Size) -> Result<BTreeMap<String, Test>, GeneratorError> {
    let cycles = critical(size).into_iter().chain(coherence());
    let tests = cycles.map(|cycle| test(&cycle).map(|test| (test.name().to_owned(), test)));
    tests.collect()
}

/// The cycle of that name among those of up to four threads.
pub fn named(name: &str) -> Option<Cycle> {
    let size = Size {
        threads: 4,
        length: 8,
    };
    let mut cycles = coherence().into_iter().chain(critical(size));
    cycles.find(|cycle| names::name(cycle) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sized(threads: usize, length: usize) -> BTreeSet<Cycle> {
        critical(Size { threads, length })
    }

    #[test]
    fn there_are_as_many_critical_cycles_as_the_diy_tools_find() {
        // Cumulated: 21 of two threads, 100 of three, 490 of four.
        for (threads, count) in [(1, 0), (2, 21), (3, 121), (4, 611)] {
            assert_eq!(sized(threads, 2 * threads).len(), count);
        }
        assert_eq!(sized(2, 3).len(), 0);
        assert_eq!(sized(4, 4).len(), 21);
    }

    #[test]
    fn no_two_cycles_are_the_same_and_no_two_tests_have_one_name() {
        let cycles = sized(4, 8);
        let all = || cycles.iter().cloned().chain(coherence());
        let normal: BTreeSet<_> = all().map(|cycle| names::normalized(&cycle)).collect();
        assert_eq!(normal.len(), all().count());
        let names: BTreeSet<_> = all().map(|cycle| names::name(&cycle)).collect();
        assert_eq!(names.len(), all().count());
    }

    #[test]
    fn a_critical_cycle_has_nothing_superfluous() {
        for cycle in sized(4, 8) {
            for thread in cycle.threads() {
                let edges = thread.len();
                assert!(edges == 2 || edges == 1, "{cycle}");
            }
            // Communication leads to the next location, or through one store that is read.
            let text = cycle.to_string();
            for twice in [
                "Rfe Rfe", "Rfe Fre", "Rfe Coe", "Coe Coe", "Fre Coe", "Fre Fre",
            ] {
                assert!(!text.contains(twice), "{text}");
            }
        }
    }

    #[test]
    fn names_find_their_cycles() {
        for (name, cycle) in [
            ("SB", "PodWR Fre PodWR Fre"),
            ("ISA2+po+mfence+po", "PodWW Rfe MFencedRW Rfe PodRR Fre"),
            ("CoWR", "PosWR Fre Coe"),
            ("LB+poss", "PosRW Rfe PosRW Rfe"),
        ] {
            assert_eq!(named(name).map(|of| of.to_string()).as_deref(), Some(cycle));
        }
        assert_eq!(named("sb"), None);
    }
}
