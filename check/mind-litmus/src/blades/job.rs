//! The messages between the runner and its workers, a line of JSON each way: all workers run a
//! batch of copies at once, and each answers what it saw.

use serde::{Deserialize, Serialize};

use super::layout::Layout;
use super::plan::{Plan, PlanError};
use crate::{
    parser::{self, ParseError},
    test::Test,
};

/// The batch that all workers are to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The test, as the text of a `.litmus` file.
    pub test: String,
    /// Where its variables lie.
    pub layout: Layout,
    /// How many copies.
    pub copies: usize,
    /// What the plan is drawn from.
    pub seed: u64,
    /// The last step to which participants have come.
    pub step: u64,
}

/// A worker's message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// It has its memory.
    Ready,
    /// It has run a batch.
    ThreadRun(Seen),
}

/// What a participant saw of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The observed registers of each copy's thread that it ran, in the plan's order.
    pub registers: Vec<Vec<u64>>,
    /// The observed variables of each copy of which it was the observer, in the plan's order.
    pub memory: Vec<Vec<u64>>,
}

/// An invalid job.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The test cannot be read.
    #[error("cannot read the test of a job")]
    Test(#[from] ParseError),
    /// It cannot be run.
    #[error("cannot plan a job")]
    Plan(#[from] PlanError),
}

impl Job {
    /// The test, and the plan of the batch.
    ///
    /// # Errors
    ///
    /// If it is invalid.
    pub fn plan(&self, participants: usize) -> Result<(Test, Plan), JobError> {
        let test = parser::parse(&self.test)?;
        let plan = Plan::new(&test, self.layout, self.copies, participants, self.seed)?;
        Ok((test, plan))
    }

    /// The last step to which participants come in it.
    pub const fn last_step(&self) -> u64 {
        self.ran_step() + 1
    }

    /// The step after which variables and pages are prepared.
    pub(super) const fn set_step(&self) -> u64 {
        self.step + 1
    }

    /// The step at which all are ready to run.
    pub(super) const fn prepared_step(&self) -> u64 {
        self.step + 2
    }

    /// The step of the barrier between the participants of a copy.
    pub(super) const fn copy_step(&self, number: usize) -> u64 {
        self.prepared_step() + 1 + number as u64
    }

    /// The step after which all threads have ended.
    pub(super) const fn ran_step(&self) -> u64 {
        self.copy_step(self.copies)
    }
}
