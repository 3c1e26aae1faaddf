//! The oracle: all outcomes that a memory model allows, by walking through every state of its
//! machine.

use std::collections::{BTreeSet, HashSet};

use serde::Serialize;

use crate::{
    machine::{Machine, Model},
    test::{Outcome, Test},
};

/// The most bytes of states that are kept: what was visited must be known again.
const MOST_BYTES: usize = 256 << 20;

/// A test with too many states.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the test `{test}` is too large for the oracle, which has visited {states} states of it; \
     one of fewer threads or instructions can be decided"
)]
pub struct TooLarge {
    /// Its name.
    pub test: String,
    /// How many states were visited.
    pub states: usize,
}

/// All outcomes of `test` in a model.
///
/// # Errors
///
/// If there are too many states.
pub fn outcomes(test: &Test, model: Model) -> Result<BTreeSet<Outcome>, TooLarge> {
    let machine = Machine::new(test, model);
    let most = MOST_BYTES / machine.state_bytes();
    let mut outcomes = BTreeSet::new();
    let mut seen = HashSet::from([machine.initial().clone()]);
    let mut open = vec![machine.initial().clone()];
    let mut following = Vec::new();
    while let Some(state) = open.pop() {
        machine.successors(&state, &mut following);
        if following.is_empty() {
            outcomes.insert(machine.outcome(&state));
        }
        for next in following.drain(..) {
            if seen.insert(next.clone()) {
                open.push(next);
            }
        }
        if seen.len() > most {
            return Err(TooLarge {
                test: test.name().to_owned(),
                states: seen.len(),
            });
        }
    }
    Ok(outcomes)
}

/// What the models say about an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Judgement {
    /// Allowed by sequential consistency, hence by TSO.
    Sequential,
    /// Allowed by TSO and not by sequential consistency.
    TsoOnly,
    /// Not allowed by TSO.
    Forbidden,
}

impl Judgement {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sequential => "allowed",
            Self::TsoOnly => "allowed, TSO only",
            Self::Forbidden => "FORBIDDEN",
        }
    }
}

/// In how many outcomes of a test the proposition of its condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reach {
    /// In none: forbidden.
    Never,
    /// In some.
    Sometimes,
    /// In all.
    Always,
}

impl Reach {
    /// In one word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Sometimes => "sometimes",
            Self::Always => "always",
        }
    }
}

/// What a test's outcomes may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    tso: BTreeSet<Outcome>,
    sc: BTreeSet<Outcome>,
}

impl Allowed {
    /// Asks the oracle.
    ///
    /// # Errors
    ///
    /// If there are too many states.
    pub fn of(test: &Test) -> Result<Self, TooLarge> {
        Ok(Self {
            tso: outcomes(test, Model::Tso)?,
            sc: outcomes(test, Model::Sc)?,
        })
    }

    /// What a model allows.
    pub const fn outcomes(&self, model: Model) -> &BTreeSet<Outcome> {
        match model {
            Model::Sc => &self.sc,
            Model::Tso => &self.tso,
        }
    }

    /// What the models say about an outcome.
    pub fn judge(&self, outcome: &Outcome) -> Judgement {
        if self.sc.contains(outcome) {
            Judgement::Sequential
        } else if self.tso.contains(outcome) {
            Judgement::TsoOnly
        } else {
            Judgement::Forbidden
        }
    }

    /// In how many outcomes of `test` its condition's proposition holds, in a model.
    pub fn reach(&self, test: &Test, model: Model) -> Reach {
        let outcomes = self.outcomes(model);
        match outcomes.iter().filter(|of| test.holds_in(of)).count() {
            0 => Reach::Never,
            all if all == outcomes.len() => Reach::Always,
            _ => Reach::Sometimes,
        }
    }
}
