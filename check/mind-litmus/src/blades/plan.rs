//! Which participant does what in a batch of copies of a test: drawn from a seed, so that all participants and the
//! runner derive the same plan without exchanging it.

use std::time::Duration;

use fastrand::Rng;

use super::layout::{Layout, Place, TooManyVariables};
use crate::test::Test;

/// The longest random wait of a participant before it begins: as long as a few faults.
const LONGEST_DELAY: u64 = 32_000;

/// How a participant has a page before a copy runs, unless another takes it away meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// As it is: as a rule, not at all.
    Leave,
    /// Shared: it reads the neighbour.
    Read,
    /// Owned: it writes the neighbour.
    Write,
}

/// A copy of a test.
#[derive(Clone, Debug)]
pub struct Copy {
    /// Where its variables lie.
    pub place: Place,
    /// Which participant runs each thread.
    pub participants: Vec<usize>,
    /// How long each thread waits after the barrier.
    pub delays: Vec<Duration>,
    /// The participant that sets the variables before and reads them afterwards.
    pub observer: usize,
    /// What each participant does with each page, all pages of a participant together.
    touches: Vec<Touch>,
}

impl Copy {
    /// What `participant` does before, and with which word.
    pub fn touches(&self, participant: usize) -> impl Iterator<Item = (usize, Touch)> {
        let pages = self.place.neighbours.len();
        let touches = self.touches.iter().skip(participant * pages);
        self.place.neighbours.iter().copied().zip(touches.copied())
    }
}

/// A batch of copies, in the order in which they run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The copies.
    pub copies: Vec<Copy>,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The variables do not fit.
    #[error(transparent)]
    Variables(#[from] TooManyVariables),
    /// Each thread is to be run by another participant.
    #[error("the test `{test}` has {threads} threads; there are {participants} participants")]
    Threads {
        /// Its name.
        test: String,
        /// How many it has.
        threads: usize,
        /// How many participants there are.
        participants: usize,
    },
    /// More copies than there is room for.
    #[error("{copies} copies of the test `{test}` are too many; there is room for {most} at once")]
    Copies {
        /// Its name.
        test: String,
        /// How many are wanted.
        copies: usize,
        /// How many there may be.
        most: usize,
    },
}

impl Plan {
    /// Draws a plan. In as many copies as there are participants, each of them runs each thread
    /// once.
    ///
    /// # Errors
    ///
    /// If there is too little room or there are too few participants.
    pub fn new(
        test: &Test,
        layout: Layout,
        copies: usize,
        participants: usize,
        seed: u64,
    ) -> Result<Self, PlanError> {
        let (threads, variables) = (test.threads().len(), test.memory().len());
        if threads > participants {
            return Err(PlanError::Threads {
                test: test.name().to_owned(),
                threads,
                participants,
            });
        }
        let most = layout.copies(test.name(), variables)?;
        if copies > most {
            return Err(PlanError::Copies {
                test: test.name().to_owned(),
                copies,
                most,
            });
        }
        let mut random = Rng::with_seed(seed);
        let places = layout.places(copies, variables, &mut random);
        let mut order: Vec<usize> = (0..participants).collect();
        let mut drawn = Vec::with_capacity(copies);
        for (number, place) in places.into_iter().enumerate() {
            let round = number % participants;
            if round == 0 {
                random.shuffle(&mut order);
            }
            let pages = place.neighbours.len();
            drawn.push(Copy {
                participants: (0..threads)
                    .map(|thread| order[(thread + round) % participants])
                    .collect(),
                delays: (0..threads).map(|_| delay(&mut random)).collect(),
                observer: random.usize(..participants),
                touches: (0..participants * pages)
                    .map(|_| touch(&mut random))
                    .collect(),
                place,
            });
        }
        random.shuffle(&mut drawn);
        Ok(Self { copies: drawn })
    }
}

/// None, or up to a length that is drawn first: short and long delays matter.
fn delay(random: &mut Rng) -> Duration {
    let longest = LONGEST_DELAY >> random.u32(..8);
    match random.bool() {
        true => Duration::ZERO,
        false => Duration::from_nanos(random.u64(..longest)),
    }
}

fn touch(random: &mut Rng) -> Touch {
    match random.u32(..8) {
        0..4 => Touch::Leave,
        4..7 => Touch::Read,
        _ => Touch::Write,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::family;

    fn named(name: &str) -> Test {
        family::test(&family::named(name).unwrap()).unwrap()
    }

    fn plan(name: &str, copies: usize, participants: usize, seed: u64) -> Plan {
        Plan::new(&named(name), Layout::OwnPage, copies, participants, seed).unwrap()
    }

    #[test]
    fn every_participant_runs_every_thread_and_none_runs_two() {
        for participants in 3..=6 {
            let plan = plan("WRC", 2 * participants, participants, 7);
            let mut seen = vec![0; 3 * participants];
            for copy in &plan.copies {
                let of: BTreeSet<_> = copy.participants.iter().collect();
                assert_eq!(of.len(), 3, "{:?}", copy.participants);
                for (thread, participant) in copy.participants.iter().enumerate() {
                    seen[thread * participants + participant] += 1;
                }
            }
            assert_eq!(seen, vec![2; 3 * participants]);
        }
    }

    #[test]
    fn every_participant_draws_the_same() {
        let shown = |seed| format!("{:?}", plan("IRIW", 200, 4, seed));
        assert_eq!(shown(1), shown(1));
        assert_ne!(shown(1), shown(2));
    }

    #[test]
    fn every_participant_has_pages_in_every_state() {
        let plan = plan("SB", 100, 3, 11);
        for participant in 0..3 {
            let touches = plan
                .copies
                .iter()
                .flat_map(|copy| copy.touches(participant));
            let kinds: Vec<Touch> = touches.map(|(_, touch)| touch).collect();
            assert_eq!(kinds.len(), 200);
            for touch in [Touch::Leave, Touch::Read, Touch::Write] {
                assert!(kinds.contains(&touch), "{touch:?} by {participant}");
            }
            assert!(plan.copies.iter().any(|copy| copy.observer == participant));
        }
        let delays = plan.copies.iter().flat_map(|copy| &copy.delays);
        let delays: BTreeSet<_> = delays.collect();
        assert!(delays.len() > 100, "{delays:?}");
        assert!(delays.last().unwrap().as_nanos() < LONGEST_DELAY.into());
    }

    #[test]
    fn impossible_plans_are_refused() {
        let error = Plan::new(&named("IRIW"), Layout::OnePage, 1, 3, 0).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the test `IRIW` has 4 threads; there are 3 participants"
        );
        let error = Plan::new(&named("SB"), Layout::OnePage, 257, 3, 0).unwrap_err();
        assert!(error.to_string().contains("room for 256"), "{error}");
    }
}
