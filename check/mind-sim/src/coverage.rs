//! What of the machines was covered: pairs of every kind of directory word and every event of a word, of every phase of
//! a page and every event of a page, and of every phase of the controller's operations and what they meet there. Counted
//! at each packet, each step of the controller, each [step](mind_machines::compute::Action::Stepped) of a page, and
//! whenever an operation goes on or the controller dies.

mod never;
mod word;

use std::{collections::BTreeMap, fmt};

use mind_machines::{
    compute::page::{Event, Phase},
    controller::phase::{self, Incident},
};

pub use word::{Happening, Kind};

/// Kinds of words by events.
type Words = [[u64; Happening::ALL.len()]; Kind::ALL.len()];
/// Phases of pages by events.
type Pages = [[u64; Event::KINDS.len()]; Phase::ALL.len()];
/// Phases of the controller's operations by what they meet.
type Operations = BTreeMap<(phase::Phase, Incident), u64>;

/// A state and an event in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pair {
    /// To a word of the directory.
    Word(Kind, Happening),
    /// To a page on a blade.
    Page(Phase, Event),
    /// To an operation of the controller's.
    Operation(phase::Phase, Incident),
}

impl Pair {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let words = Kind::ALL.into_iter().flat_map(|kind| {
            let all = Happening::ALL.into_iter();
            all.map(move |happening| Self::Word(kind, happening))
        });
        let pages = Phase::ALL.into_iter().flat_map(|phase| {
            let all = Event::KINDS.into_iter();
            all.map(move |event| Self::Page(phase, event))
        });
        let operations = phase::Phase::ALL.iter().flat_map(|phase| {
            let all = Incident::ALL.iter();
            all.map(|incident| Self::Operation(*phase, *incident))
        });
        words.chain(pages).chain(operations)
    }

    /// Whether the other one is counted as the same pair.
    pub(crate) fn is_like(self, other: Self) -> bool {
        match (self, other) {
            (Self::Page(phase, event), Self::Page(of, another)) => {
                phase == of && event.kind() == another.kind()
            }
            _ => self == other,
        }
    }

    /// In which phases an operation can meet that.
    pub(crate) fn phases_with(incident: Incident) -> Vec<phase::Phase> {
        let all = phase::Phase::ALL.iter().copied();
        let is_possible = |phase: &phase::Phase| {
            let pair = Self::Operation(*phase, incident);
            pair.impossible().is_none()
        };
        all.filter(is_possible).collect()
    }

    /// Why it is impossible, if it is.
    pub fn impossible(self) -> Option<&'static str> {
        never::why(self)
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(kind, happening) => write!(f, "word {kind}: {happening}"),
            Self::Page(phase, event) => write!(f, "page {phase:?}: {event:?}"),
            Self::Operation(phase, incident) => write!(f, "operation {phase:?}: {incident:?}"),
        }
    }
}

/// How often each pair happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    words: Words,
    pages: Pages,
    operations: Operations,
}

fn place<T: PartialEq>(all: &[T], one: &T) -> Option<usize> {
    all.iter().position(|other| other == one)
}

impl Coverage {
    fn cell(&mut self, pair: Pair) -> Option<&mut u64> {
        match pair {
            Pair::Word(kind, happening) => {
                let row = self.words.get_mut(place(&Kind::ALL, &kind)?)?;
                row.get_mut(place(&Happening::ALL, &happening)?)
            }
            Pair::Page(phase, event) => {
                let row = self.pages.get_mut(place(&Phase::ALL, &phase)?)?;
                row.get_mut(place(&Event::KINDS, &event.kind())?)
            }
            Pair::Operation(phase, incident) => {
                Some(self.operations.entry((phase, incident)).or_default())
            }
        }
    }

    /// Counts the pair.
    pub(crate) fn count(&mut self, pair: Pair) {
        if let Some(cell) = self.cell(pair) {
            *cell += 1;
        }
    }

    /// How often it happened.
    pub fn of(&self, pair: Pair) -> u64 {
        let mut counted = self.clone();
        counted.cell(pair).map_or(0, |cell| *cell)
    }

    /// Adds the counts of other runs.
    pub fn add(&mut self, other: &Self) {
        let mine = self.words.as_flattened_mut().iter_mut();
        let mine = mine.chain(self.pages.as_flattened_mut());
        let theirs = other.words.as_flattened().iter();
        let theirs = theirs.chain(other.pages.as_flattened());
        mine.zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
        for (pair, count) in &other.operations {
            *self.operations.entry(*pair).or_default() += count;
        }
    }

    /// How many pairs can happen, and how many of them did.
    pub fn reached(&self) -> (usize, usize) {
        let possible = Pair::all().filter(|pair| pair.impossible().is_none());
        let possible: Vec<_> = possible.collect();
        let reached = possible.iter().filter(|pair| self.of(**pair) > 0);
        (reached.count(), possible.len())
    }

    /// Pairs that can happen and did not.
    pub fn missing(&self) -> Vec<Pair> {
        let missing = Pair::all().filter(|pair| pair.impossible().is_none() && self.of(*pair) == 0);
        missing.collect()
    }

    /// Pairs that happened though they cannot.
    pub fn unexpected(&self) -> Vec<Pair> {
        let wrong = Pair::all().filter(|pair| pair.impossible().is_some() && self.of(*pair) > 0);
        wrong.collect()
    }
}

#[cfg(test)]
mod tests {
    use mind_common::{directory::State, serial::Version};

    use super::*;

    const DATA: Pair = Pair::Page(Phase::Reading, Event::Data(Version::new(7)));

    #[test]
    fn what_happened_is_counted_in_its_own_cell_and_added() {
        let mut coverage = Coverage::default();
        let taken = Pair::Word(Kind::of_state(State::Shared), Happening::Taken);
        coverage.count(DATA);
        coverage.count(taken);
        let mut both = coverage.clone();
        both.add(&coverage);
        let seen: Vec<_> = Pair::all().filter(|pair| both.of(*pair) > 0).collect();
        assert_eq!(seen.len(), 2, "{seen:?}");
        assert_eq!((both.of(DATA), both.of(taken)), (2, 2));
    }

    #[test]
    fn what_can_happen_and_did_not_is_missing() {
        let mut coverage = Coverage::default();
        let (none, all) = coverage.reached();
        assert_eq!((none, coverage.missing().len()), (0, all));
        coverage.count(DATA);
        assert_eq!(coverage.reached(), (1, all));
        assert_eq!(coverage.missing().len(), all - 1);
        assert!(coverage.unexpected().is_empty());
    }
}
