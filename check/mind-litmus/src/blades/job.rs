//! What the runner and its workers say to each other, a line of JSON each way: a batch of copies is
//! played by all workers at once, and each says what it saw.

use serde::{Deserialize, Serialize};

use super::layout::Layout;
use super::plan::{Plan, PlanError};
use crate::{
    parser::{self, ParseError},
    test::Test,
};

/// The batch that all workers are to play.
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
    /// The last step to which players have come.
    pub step: u64,
}

/// What a worker says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// It has its memory.
    Ready,
    /// It has played a batch.
    Played(Seen),
}

/// What a player saw of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The observed registers of each copy's thread that it played, in the plan's order.
    pub registers: Vec<Vec<u64>>,
    /// The observed variables of each copy of which it was the keeper, in the plan's order.
    pub memory: Vec<Vec<u64>>,
}

/// A job that makes no sense.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The test cannot be read.
    #[error("cannot read the test of a job")]
    Test(#[from] ParseError),
    /// It cannot be played.
    #[error("cannot plan a job")]
    Plan(#[from] PlanError),
}

impl Job {
    /// The test, and who does what in it.
    ///
    /// # Errors
    ///
    /// If it makes no sense.
    pub fn plan(&self, players: usize) -> Result<(Test, Plan), JobError> {
        let test = parser::parse(&self.test)?;
        let plan = Plan::new(&test, self.layout, self.copies, players, self.seed)?;
        Ok((test, plan))
    }

    /// The last step to which players come in it.
    pub const fn last_step(&self) -> u64 {
        self.played_step() + 1
    }

    /// The step after which variables and pages are as they should be.
    pub(super) const fn set_step(&self) -> u64 {
        self.step + 1
    }

    /// The step at which all are ready to play.
    pub(super) const fn prepared_step(&self) -> u64 {
        self.step + 2
    }

    /// The step at which those who play a copy meet.
    pub(super) const fn copy_step(&self, number: usize) -> u64 {
        self.prepared_step() + 1 + number as u64
    }

    /// The step after which all threads have ended.
    pub(super) const fn played_step(&self) -> u64 {
        self.copy_step(self.copies)
    }
}
