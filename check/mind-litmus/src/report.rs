//! What was seen of tests, judged by the oracle; and whether it is right.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::{
    histogram::Histogram,
    machine::Model,
    oracle::{Allowed, Judgement},
    test::{Outcome, Test},
};

/// The exit code if all outcomes were allowed.
pub const RIGHT: u8 = 0;
/// The exit code if an outcome was forbidden, there was none at all, or a test could not be run.
pub const WRONG: u8 = 1;

/// An outcome and what is to be said about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The values, by the names of what was observed.
    pub values: BTreeMap<String, u64>,
    /// How often it was seen; 0 for what is allowed and was never seen.
    pub count: u64,
    /// What the models say.
    pub judgement: Judgement,
    /// Whether the proposition of the test's condition holds in it.
    pub condition: bool,
}

/// A test in one setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Judged {
    /// The test's name.
    pub name: String,
    /// Where it was run.
    pub setting: String,
    /// How many copies were run.
    pub copies: u64,
    /// What is observed, in the order of the test.
    pub observed: Vec<String>,
    /// The outcomes that were seen or are allowed, forbidden ones first.
    pub outcomes: Vec<Row>,
}

impl Judged {
    /// Holds what was seen of `test` against what is allowed.
    pub fn new(test: &Test, allowed: &Allowed, setting: &str, seen: &Histogram) -> Self {
        let outcomes: BTreeSet<&Outcome> = seen
            .iter()
            .map(|(outcome, _)| outcome)
            .chain(allowed.outcomes(Model::Tso))
            .collect();
        let observed: Vec<_> = test.observed().iter().map(ToString::to_string).collect();
        let row = |outcome: &Outcome| Row {
            values: observed
                .iter()
                .cloned()
                .zip(outcome.values().iter().copied())
                .collect(),
            count: seen.count(outcome),
            judgement: allowed.judge(outcome),
            condition: test.holds_in(outcome),
        };
        let mut outcomes: Vec<_> = outcomes.into_iter().map(row).collect();
        outcomes.sort_by_key(|row| row.judgement != Judgement::Forbidden);
        Self {
            name: test.name().to_owned(),
            setting: setting.to_owned(),
            copies: seen.copies(),
            observed,
            outcomes,
        }
    }

    /// How many copies had an outcome that is forbidden.
    pub fn forbidden(&self) -> u64 {
        let rows = self.outcomes.iter();
        let forbidden = rows.filter(|row| row.judgement == Judgement::Forbidden);
        forbidden.map(|row| row.count).sum()
    }

    /// How many outcomes are allowed and were never seen.
    pub fn never_seen(&self) -> usize {
        self.outcomes.iter().filter(|row| row.count == 0).count()
    }

    /// What is wrong with it, if anything is.
    pub fn fault(&self) -> Option<String> {
        let Self { name, setting, .. } = self;
        match (self.copies, self.forbidden()) {
            (0, _) => Some(format!(
                "`{name}` ({setting}) has no outcome: nothing was run"
            )),
            (_, 0) => None,
            (copies, forbidden) => Some(format!(
                "`{name}` ({setting}): {forbidden} of {copies} copies had an outcome that x86-TSO forbids"
            )),
        }
    }
}

/// A test that could not be run, or not to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotRun {
    /// The test's name; of a file that has no test in it, its path.
    pub name: String,
    /// Where it could not be run; none if that is so wherever it was to be.
    pub setting: Option<String>,
    /// Why.
    pub reason: String,
}

impl NotRun {
    /// What is wrong with it.
    pub fn fault(&self) -> String {
        let Self { name, reason, .. } = self;
        match &self.setting {
            Some(setting) => format!("`{name}` ({setting}) could not be run: {reason}"),
            None => format!("`{name}` could not be run: {reason}"),
        }
    }
}

/// All that was run, or should have been.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Tests in their settings.
    pub tests: Vec<Judged>,
    /// Tests that could not be run.
    pub not_run: Vec<NotRun>,
}

impl Report {
    /// What is wrong, one sentence for each test.
    pub fn faults(&self) -> Vec<String> {
        let judged = self.tests.iter().filter_map(Judged::fault);
        judged
            .chain(self.not_run.iter().map(NotRun::fault))
            .collect()
    }

    /// [`RIGHT`] if each test has outcomes, and allowed ones only; else, and if there is no test or
    /// one could not be run, [`WRONG`].
    pub fn exit_code(&self) -> u8 {
        match self.tests.is_empty() || !self.faults().is_empty() {
            true => WRONG,
            false => RIGHT,
        }
    }
}
