//! One batch: so many copies of a test in one run of the simulator.

use fastrand::Rng;
use mind_sim::script::Script;
use mind_sim::{Failure, Flaw, run_scripts};

use super::assignment::Assignment;
use super::participant::{Participant, Seen};
use super::setup::{Deployment, plan};
use crate::{
    blades::layout::Layout,
    test::{Observable, Outcome, Test},
};

/// What a batch is, next to its seed.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'t> {
    /// The test.
    pub test: &'t Test,
    /// Where its variables are.
    pub layout: Layout,
    /// The flaw, if there is one; its effects are ignored here.
    pub flaw: Option<Flaw>,
}

/// Why a batch has no outcomes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The simulator found a failure, independent of the outcomes.
    #[error("the simulator stops a batch (drawn from {seed}): {failure}")]
    Failure {
        /// What the batch is drawn from.
        seed: u64,
        /// The failure.
        failure: Failure,
    },
    /// A participant did not finish, and the simulator found no failure.
    #[error("a batch (drawn from {seed}) ends without all the values of copy {copy}")]
    Missing {
        /// What the batch is drawn from.
        seed: u64,
        /// Of which copy.
        copy: usize,
    },
}

impl Setting<'_> {
    /// Runs so many copies in one run of the simulator that is drawn from `seed`.
    ///
    /// # Errors
    ///
    /// If the simulator finds a failure; with a flaw, only if copies do not end.
    pub fn run(&self, copies: usize, seed: u64) -> Result<Vec<Outcome>, BatchError> {
        let mut random = Rng::with_seed(seed);
        let deployment = Deployment::draw(self.test.threads().len(), &mut random);
        let participants = deployment.participants.len();
        let assignment = Assignment::new(self.test, self.layout, copies, participants, &mut random);
        let plan = plan(&deployment, assignment.areas, self.flaw, &mut random);
        let mut participant: Vec<_> = (0..participants)
            .map(|number| Participant::new(self.test, &assignment, number, participants))
            .collect();
        let scripts = participant
            .iter_mut()
            .map(|participant| participant as &mut dyn Script);
        let outcome = run_scripts(&plan, scripts.collect(), self.flaw.is_some());
        if let Some(failure) = outcome.failure {
            return Err(BatchError::Failure { seed, failure });
        }
        let seen = participant
            .into_iter()
            .map(Participant::into_seen)
            .collect();
        self.gather(copies, seen)
            .map_err(|copy| BatchError::Missing { seed, copy })
    }

    /// The outcome of each copy, or the number of one that has none.
    fn gather(&self, copies: usize, seen: Vec<Seen>) -> Result<Vec<Outcome>, usize> {
        let (threads, memory) = (self.test.threads().len(), self.test.memory());
        let mut codes = vec![None; copies * threads];
        let mut values = vec![None; copies * memory.len()];
        for Seen { ran, read } in seen {
            for part in ran {
                codes[part.copy * threads + part.thread] = Some(part.code);
            }
            for (copy, variable, value) in read {
                values[copy * memory.len() + variable] = Some(value);
            }
        }
        let outcome = |copy: usize| {
            let codes: Option<Vec<_>> = codes[copy * threads..][..threads]
                .iter()
                .map(Option::as_ref)
                .collect();
            let values: Option<Vec<u64>> = values[copy * memory.len()..][..memory.len()]
                .iter()
                .copied()
                .collect();
            let (codes, values) = codes.zip(values).ok_or(copy)?;
            let value = |observable: &Observable| match observable {
                Observable::Register { thread, register } => codes[*thread].register(*register),
                Observable::Memory(location) => {
                    let place = memory.keys().position(|of| of == location);
                    place.map_or(0, |place| values[place])
                }
            };
            Ok(Outcome::new(self.test, value))
        };
        (0..copies).map(outcome).collect()
    }
}
