//! Names of tests, by the scheme of the diy tools ("A diy Seven tutorial", "A note on test names"):
//! the family says what each thread begins and ends with, in the order that is smallest (`WW+RR`),
//! and many families have a nickname (`MP`); then come tags for what is between a thread's
//! accesses, unless that is plain program order everywhere (`MP+po+mfence`).

use crate::cycle::{Cycle, Direction, Edge};

/// Families with a nickname: those of Sarkar et al., PLDI 2011, and Alglave et al., TOPLAS 2014.
const FAMILIES: [(&str, &str); 29] = [
    ("SB", "WR+WR"),
    ("MP", "WW+RR"),
    ("LB", "RW+RW"),
    ("R", "WW+WR"),
    ("S", "WW+RW"),
    ("2+2W", "WW+WW"),
    ("3.SB", "WR+WR+WR"),
    ("3.LB", "RW+RW+RW"),
    ("3.2W", "WW+WW+WW"),
    ("WRC", "W+RW+RR"),
    ("WWC", "W+RW+RW"),
    ("RWC", "W+RR+WR"),
    ("WRW+WR", "W+RW+WR"),
    ("WRR+2W", "W+RR+WW"),
    ("WRW+2W", "W+RW+WW"),
    ("ISA2", "WW+RW+RR"),
    ("W+RWC", "WW+RR+WR"),
    ("Z6.0", "WW+RW+WR"),
    ("Z6.1", "WW+WW+RW"),
    ("Z6.2", "WW+RW+RW"),
    ("Z6.3", "WW+WW+RR"),
    ("Z6.4", "WW+WR+WR"),
    ("Z6.5", "WW+WW+WR"),
    ("IRIW", "W+RR+W+RR"),
    ("IRRWIW", "W+RR+W+RW"),
    ("IRWIW", "W+RW+W+RW"),
    ("4.SB", "WR+WR+WR+WR"),
    ("4.LB", "RW+RW+RW+RW"),
    ("4.2W", "WW+WW+WW+WW"),
];

/// The tests of coherence that have names of their own, with their cycles.
pub const COHERENCE: [(&str, &str); 7] = [
    ("CoWW", "PosWW Coe"),
    ("CoRW1", "PosRW Rfe"),
    ("CoWR0", "PosWR Fre"),
    ("CoRR", "Rfe PosRR Fre"),
    ("CoRW2", "Rfe PosRW Coe"),
    ("CoWR", "PosWR Fre Coe"),
    ("CO-SBI", "Rfi PosRR Fre Rfi PosRR Fre"),
];

/// What a thread begins and ends with. The order is that of the naming scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ends {
    W,
    WW,
    RR,
    RW,
    WR,
    R,
}

impl Ends {
    fn of(thread: &[Edge]) -> Self {
        // The last edge leaves the thread: it comes from the thread's last access.
        let first = thread.first().map(|edge| edge.from());
        let last = thread.last().map(|edge| edge.from());
        match (first, last, thread.len()) {
            (Some(Direction::Write), _, 1) => Self::W,
            (Some(Direction::Read), _, 1) => Self::R,
            (Some(Direction::Write), Some(Direction::Write), _) => Self::WW,
            (Some(Direction::Write), _, _) => Self::WR,
            (_, Some(Direction::Write), _) => Self::RW,
            _ => Self::RR,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::W => "W",
            Self::WW => "WW",
            Self::RR => "RR",
            Self::RW => "RW",
            Self::WR => "WR",
            Self::R => "R",
        }
    }
}

/// What is between a thread's accesses; nothing for a thread of one access.
fn tag(thread: &[Edge]) -> Option<String> {
    let (_, inner) = thread.split_last()?;
    let tags: Vec<_> = inner.iter().map(|edge| edge.tag()).collect();
    (!tags.is_empty()).then(|| tags.join("-"))
}

/// The same cycle, beginning with the thread with which it is smallest: by what the threads begin
/// and end with, then by their tags, then by their edges.
pub fn normalized(cycle: &Cycle) -> Cycle {
    let key = |cycle: &Cycle| {
        let ends: Vec<_> = cycle.threads().map(Ends::of).collect();
        let tags: Vec<_> = cycle.threads().map(tag).collect();
        (ends, tags)
    };
    let threads = cycle.threads().count();
    let turned = (0..threads).map(|thread| cycle.beginning_with(thread));
    let smallest = turned.min_by_key(|cycle| (key(cycle), cycle.clone()));
    smallest.unwrap_or_else(|| cycle.clone())
}

/// The name of a cycle's test, whichever thread it begins with.
pub fn name(cycle: &Cycle) -> String {
    let cycle = normalized(cycle);
    let is = |text: &str| text.parse().is_ok_and(|of| normalized(&of) == cycle);
    if let Some((name, _)) = COHERENCE.iter().find(|(_, text)| is(text)) {
        return (*name).to_owned();
    }
    let ends: Vec<_> = cycle.threads().map(|of| Ends::of(of).name()).collect();
    let ends = ends.join("+");
    let nickname = FAMILIES.iter().find(|(_, of)| *of == ends);
    let family = nickname.map_or(ends.as_str(), |(name, _)| name);
    let tags: Vec<_> = cycle.threads().filter_map(tag).collect();
    match tags.split_first() {
        None => family.to_owned(),
        Some((first, rest)) if rest.iter().all(|tag| tag == first) => {
            if first == "po" {
                family.to_owned()
            } else if rest.is_empty() {
                format!("{family}+{first}")
            } else {
                format!("{family}+{first}s")
            }
        }
        Some(_) => format!("{family}+{}", tags.join("+")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_have_the_names_that_people_know() {
        for (cycle, expected) in [
            ("PodWR Fre PodWR Fre", "SB"),
            ("Fre PodWR Fre MFencedWR", "SB+mfence+po"),
            ("MFencedRR Fre MFencedWW Rfe", "MP+mfences"),
            ("MFencedRR Fre PodWW Rfe", "MP+po+mfence"),
            ("PodRR Fre Rfe PodRR Fre Rfe", "IRIW"),
            ("Rfe PosRW Rfe PosRR Fre", "WRC+poss"),
            ("Rfe PodRR Fre PodWW Rfe PodRW Coe", "W+RR+WW+RW"),
            ("PodWW Rfe PodRW Rfi PodRR Fre", "MP+po+po-rfi-po"),
            ("Rfi PodRR Fre Rfi PodRR Fre", "SB+rfi-pos"),
            ("Fre Rfe PosRR", "CoRR"),
            ("PosRW Coe Rfe", "CoRW2"),
            ("Rfe MFencesRR Fre", "W+RR+mfences"),
        ] {
            assert_eq!(name(&cycle.parse().unwrap()), expected, "{cycle}");
        }
    }

    #[test]
    fn no_family_has_two_names() {
        for (number, (name, family)) in FAMILIES.iter().enumerate() {
            let others = FAMILIES[..number].iter();
            for (other, of) in others {
                assert!(name != other && family != of, "{name} and {other}");
            }
        }
    }

    #[test]
    fn the_name_does_not_depend_on_where_a_cycle_begins() {
        let cycle: Cycle = "PodWW Rfe MFencedRW Coe PodWR Fre".parse().unwrap();
        for thread in 0..3 {
            let turned = cycle.beginning_with(thread);
            assert_eq!(normalized(&turned), normalized(&cycle));
            assert_eq!(name(&turned), "Z6.0+po+mfence+po");
        }
    }
}
