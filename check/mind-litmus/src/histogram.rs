//! How often each outcome of a test was seen.

use std::collections::BTreeMap;

use crate::test::Outcome;

/// Outcomes of one test, with counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram(BTreeMap<Outcome, u64>);

impl Histogram {
    /// Counts `outcome` as many times.
    pub fn add(&mut self, outcome: Outcome, times: u64) {
        *self.0.entry(outcome).or_default() += times;
    }

    /// How often `outcome` was seen.
    pub fn count(&self, outcome: &Outcome) -> u64 {
        self.0.get(outcome).copied().unwrap_or(0)
    }

    /// How many outcomes were counted, equal ones each time.
    pub fn copies(&self) -> u64 {
        self.0.values().sum()
    }

    /// The different outcomes that were seen, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (&Outcome, u64)> {
        let seen = self.0.iter().filter(|(_, count)| **count > 0);
        seen.map(|(outcome, count)| (outcome, *count))
    }
}

impl FromIterator<Outcome> for Histogram {
    fn from_iter<T: IntoIterator<Item = Outcome>>(outcomes: T) -> Self {
        let mut histogram = Self::default();
        for outcome in outcomes {
            histogram.add(outcome, 1);
        }
        histogram
    }
}
