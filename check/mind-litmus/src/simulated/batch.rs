//! One batch: so many copies of a test in one run of the simulator.

use fastrand::Rng;
use mind_sim::script::Script;
use mind_sim::{Failure, Flaw, play};

use super::actor::{Actor, Seen};
use super::cast::Cast;
use super::setup::{Company, plan};
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
    /// What is broken on purpose, whatever comes of it.
    pub flaw: Option<Flaw>,
}

/// Why a batch has no outcomes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The simulator saw that something is wrong, whatever the outcomes are.
    #[error("the simulator stops a batch (drawn from {seed}): {failure}")]
    Failure {
        /// What the batch is drawn from.
        seed: u64,
        /// What it saw.
        failure: Failure,
    },
    /// Somebody did not finish, and nobody complains.
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
    /// If the simulator sees that something is wrong; but if there is a flaw, only if copies do not
    /// come to their end.
    pub fn run(&self, copies: usize, seed: u64) -> Result<Vec<Outcome>, BatchError> {
        let mut random = Rng::with_seed(seed);
        let company = Company::draw(self.test.threads().len(), &mut random);
        let players = company.players.len();
        let memories = company.memories;
        let cast = Cast::new(
            self.test,
            self.layout,
            copies,
            players,
            memories,
            &mut random,
        );
        let plan = plan(&company, &cast.regions, self.flaw, &mut random);
        let mut actors: Vec<_> = (0..players)
            .map(|number| Actor::new(self.test, &cast, number, players))
            .collect();
        let scripts = actors.iter_mut().map(|actor| actor as &mut dyn Script);
        let outcome = play(&plan, scripts.collect(), self.flaw.is_some());
        if let Some(failure) = outcome.failure {
            return Err(BatchError::Failure { seed, failure });
        }
        let seen = actors.into_iter().map(Actor::into_seen).collect();
        self.gather(copies, seen)
            .map_err(|copy| BatchError::Missing { seed, copy })
    }

    /// The outcome of each copy, or the number of one that has none.
    fn gather(&self, copies: usize, seen: Vec<Seen>) -> Result<Vec<Outcome>, usize> {
        let (threads, memory) = (self.test.threads().len(), self.test.memory());
        let mut codes = vec![None; copies * threads];
        let mut values = vec![None; copies * memory.len()];
        for Seen { played, read } in seen {
            for part in played {
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
