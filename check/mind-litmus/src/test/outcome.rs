//! Where a run of a test ended.

use std::fmt;

use super::{Observable, Test};

/// The values of what a test observes, in the order of [`Test::observed`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Outcome(Vec<u64>);

impl Outcome {
    /// The outcome of `test` that has these values.
    pub fn new(test: &Test, value: impl FnMut(&Observable) -> u64) -> Self {
        Self(test.observed().iter().map(value).collect())
    }

    /// The values, in the order of [`Test::observed`].
    pub fn values(&self) -> &[u64] {
        &self.0
    }

    /// What `observable` is in this outcome of `test`; 0 if it is not observed, and no test's
    /// condition mentions such.
    pub fn value(&self, test: &Test, observable: &Observable) -> u64 {
        let place = test.observed().binary_search(observable);
        let value = place.ok().and_then(|place| self.0.get(place));
        value.copied().unwrap_or(0)
    }

    /// The outcome with names, such as `0:rax=1 x=2`.
    pub fn shown<'a>(&'a self, test: &'a Test) -> impl fmt::Display + 'a {
        fmt::from_fn(|f| {
            for (number, (observable, value)) in test.observed().iter().zip(&self.0).enumerate() {
                let space = if number > 0 { " " } else { "" };
                write!(f, "{space}{observable}={value}")?;
            }
            Ok(())
        })
    }
}
