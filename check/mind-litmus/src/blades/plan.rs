//! Who does what in a batch of copies of a test: drawn by lot from a seed, so that all players and
//! whoever puts their answers together know the same without being told.

use std::time::Duration;

use fastrand::Rng;

use super::layout::{Layout, Place, TooManyVariables};
use crate::test::Test;

/// The longest time that a player waits by lot before it begins: as long as a few faults.
const LONGEST_DELAY: u64 = 32_000;

/// How a player has a page before a copy runs, if nobody takes it away meanwhile.
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
    /// Who plays each thread.
    pub players: Vec<usize>,
    /// How long each thread waits after all have met.
    pub delays: Vec<Duration>,
    /// Who sets the variables before and reads them afterwards.
    pub keeper: usize,
    /// What each player does with each page, all pages of a player together.
    touches: Vec<Touch>,
}

impl Copy {
    /// What `player` does before, with the word that it does it with.
    pub fn touches(&self, player: usize) -> impl Iterator<Item = (usize, Touch)> {
        let pages = self.place.neighbours.len();
        let touches = self.touches.iter().skip(player * pages);
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
    /// Each thread is to be played by somebody else.
    #[error("the test `{test}` has {threads} threads; there are {players} players")]
    Threads {
        /// Its name.
        test: String,
        /// How many it has.
        threads: usize,
        /// Who could play them.
        players: usize,
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
    /// Draws a plan. In as many copies as there are players, each of them plays each thread.
    ///
    /// # Errors
    ///
    /// If there is too little room or there are too few players.
    pub fn new(
        test: &Test,
        layout: Layout,
        copies: usize,
        players: usize,
        seed: u64,
    ) -> Result<Self, PlanError> {
        let (threads, variables) = (test.threads().len(), test.memory().len());
        if threads > players {
            return Err(PlanError::Threads {
                test: test.name().to_owned(),
                threads,
                players,
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
        let mut order: Vec<usize> = (0..players).collect();
        let mut drawn = Vec::with_capacity(copies);
        for (number, place) in places.into_iter().enumerate() {
            let round = number % players;
            if round == 0 {
                random.shuffle(&mut order);
            }
            let pages = place.neighbours.len();
            drawn.push(Copy {
                players: (0..threads)
                    .map(|thread| order[(thread + round) % players])
                    .collect(),
                delays: (0..threads).map(|_| delay(&mut random)).collect(),
                keeper: random.usize(..players),
                touches: (0..players * pages).map(|_| touch(&mut random)).collect(),
                place,
            });
        }
        random.shuffle(&mut drawn);
        Ok(Self { copies: drawn })
    }
}

/// None, or up to a length that is drawn first: the interesting ones may be short or long.
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

    fn plan(name: &str, copies: usize, players: usize, seed: u64) -> Plan {
        Plan::new(&named(name), Layout::OwnPage, copies, players, seed).unwrap()
    }

    #[test]
    fn every_player_plays_every_thread_and_none_plays_two() {
        for players in 3..=6 {
            let plan = plan("WRC", 2 * players, players, 7);
            let mut seen = vec![0; 3 * players];
            for copy in &plan.copies {
                let of: BTreeSet<_> = copy.players.iter().collect();
                assert_eq!(of.len(), 3, "{:?}", copy.players);
                for (thread, player) in copy.players.iter().enumerate() {
                    seen[thread * players + player] += 1;
                }
            }
            assert_eq!(seen, vec![2; 3 * players]);
        }
    }

    #[test]
    fn everybody_draws_the_same() {
        let shown = |seed| format!("{:?}", plan("IRIW", 200, 4, seed));
        assert_eq!(shown(1), shown(1));
        assert_ne!(shown(1), shown(2));
    }

    #[test]
    fn pages_are_had_in_all_ways_and_by_all() {
        let plan = plan("SB", 100, 3, 11);
        for player in 0..3 {
            let touches = plan.copies.iter().flat_map(|copy| copy.touches(player));
            let kinds: Vec<Touch> = touches.map(|(_, touch)| touch).collect();
            assert_eq!(kinds.len(), 200);
            for touch in [Touch::Leave, Touch::Read, Touch::Write] {
                assert!(kinds.contains(&touch), "{touch:?} by {player}");
            }
            assert!(plan.copies.iter().any(|copy| copy.keeper == player));
        }
        let delays = plan.copies.iter().flat_map(|copy| &copy.delays);
        let delays: BTreeSet<_> = delays.collect();
        assert!(delays.len() > 100, "{delays:?}");
        assert!(delays.last().unwrap().as_nanos() < LONGEST_DELAY.into());
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let error = Plan::new(&named("IRIW"), Layout::OnePage, 1, 3, 0).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the test `IRIW` has 4 threads; there are 3 players"
        );
        let error = Plan::new(&named("SB"), Layout::OnePage, 257, 3, 0).unwrap_err();
        assert!(error.to_string().contains("room for 256"), "{error}");
    }
}
