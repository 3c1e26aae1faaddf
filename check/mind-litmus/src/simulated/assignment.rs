//! Which participant runs which thread in a batch of copies, and where the variables are: drawn at
//! random.

use std::ops::Range;

use fastrand::Rng;
use mind_common::addr::INITIAL_REGION_ORDER;
use mind_sim::plan::{Place, WORDS};

use crate::{
    blades::{
        layout::{Layout, TooManyVariables},
        plan::Touch,
    },
    test::Test,
};

/// The binary logarithm of the longest random wait of a copy's threads before they begin, in
/// nanoseconds: from much less than a fault takes to the time of many.
const LONGEST_DELAY: std::ops::RangeInclusive<u32> = 10..=19;

/// A copy of a test.
#[derive(Clone, Debug)]
pub struct Copy {
    /// Where its variables are, in the order of the test's memory.
    pub places: Vec<Place>,
    /// Which participant runs each thread.
    pub participants: Vec<usize>,
    /// How long each thread waits after the barrier, in nanoseconds.
    pub delays: Vec<u64>,
    /// How long a thread waits at most between two of its steps, in nanoseconds; 0: not at all.
    pub pause: u64,
    /// For how long each of these pauses is.
    pub random: Rng,
    /// The participant that sets the variables before and reads them afterwards.
    pub observer: usize,
    /// Whether variables that begin as zero are set, too.
    pub sets_zeros: bool,
    /// What participants do with which page before, in any order.
    pub touches: Vec<(usize, Place, Touch)>,
}

/// A batch of copies, in the order in which they run.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// The copies.
    pub copies: Vec<Copy>,
    /// The areas in which they lie, each of one region.
    pub areas: usize,
}

/// The most variables of a copy.
const fn most_variables(layout: Layout) -> usize {
    match layout {
        Layout::OwnPage => usize::MAX,
        Layout::OneRegion => 2 * WORDS,
        Layout::OnePage => WORDS,
    }
}

/// Whether a copy of the test fits into simulated pages, which have few words.
///
/// # Errors
///
/// If not.
pub fn check(test: &Test, layout: Layout) -> Result<(), TooManyVariables> {
    let (variables, most) = (test.memory().len(), most_variables(layout));
    if variables <= most {
        return Ok(());
    }
    Err(TooManyVariables {
        test: test.name().to_owned(),
        variables,
        layout,
        most,
    })
}

impl Assignment {
    /// Draws the assignment of that many copies to so many participants.
    ///
    /// # Panics
    ///
    /// If there are fewer participants than threads, or no place for the variables: see [`check`].
    pub fn new(
        test: &Test,
        layout: Layout,
        copies: usize,
        participants: usize,
        random: &mut Rng,
    ) -> Self {
        let variables = test.memory().len();
        let mut assignment = Self {
            copies: Vec::with_capacity(copies),
            areas: 0,
        };
        let mut order: Vec<usize> = (0..participants).collect();
        for _ in 0..copies {
            let first = assignment.areas;
            assignment.areas += match layout {
                Layout::OwnPage => variables.max(1),
                Layout::OneRegion | Layout::OnePage => 1,
            };
            let pages = pages(first..assignment.areas, layout, variables, random);
            let places = places(&pages, variables, random);
            random.shuffle(&mut order);
            let threads = test.threads().len();
            assert!(
                threads <= participants,
                "each thread is run by another participant"
            );
            assignment.copies.push(Copy {
                touches: touches(&places, participants, random),
                places,
                participants: order[..threads].to_vec(),
                delays: delays(threads, random),
                pause: pause(random),
                random: random.fork(),
                observer: random.usize(..participants),
                sets_zeros: random.bool(),
            });
        }
        random.shuffle(&mut assignment.copies);
        assignment
    }
}

/// The pages that variables take by turns: of which area, and which of it.
fn pages(
    areas: Range<usize>,
    layout: Layout,
    variables: usize,
    random: &mut Rng,
) -> Vec<(usize, u64)> {
    let taken = match layout {
        Layout::OneRegion if variables > 1 => 2,
        Layout::OwnPage | Layout::OneRegion | Layout::OnePage => 1,
    };
    let of_area = |area| {
        let pages = 1 << INITIAL_REGION_ORDER;
        let mut numbers: Vec<u64> = (0..pages).collect();
        random.shuffle(&mut numbers);
        let numbers = numbers.into_iter().take(taken);
        numbers.map(move |number| (area, number))
    };
    areas.flat_map(of_area).collect()
}

fn places(pages: &[(usize, u64)], variables: usize, random: &mut Rng) -> Vec<Place> {
    let mut words: Vec<Vec<usize>> = Vec::new();
    for _ in pages {
        let mut of_page: Vec<usize> = (0..WORDS).collect();
        random.shuffle(&mut of_page);
        words.push(of_page);
    }
    let place = |variable: usize| {
        let (turn, number) = (variable % pages.len(), variable / pages.len());
        let (area, page) = pages[turn];
        Place {
            area,
            page,
            word: words[turn][number],
        }
    };
    (0..variables).map(place).collect()
}

fn touches(places: &[Place], participants: usize, random: &mut Rng) -> Vec<(usize, Place, Touch)> {
    let mut touches = Vec::new();
    for place in places {
        for participant in 0..participants {
            let touch = match random.u32(..8) {
                0..4 => continue,
                4..7 => Touch::Read,
                _ => Touch::Write,
            };
            touches.push((participant, *place, touch));
        }
    }
    random.shuffle(&mut touches);
    touches
}

/// For half of the copies none: what is seen depends on how steps of threads follow each other closely, and on what
/// happens between those that do not.
fn pause(random: &mut Rng) -> u64 {
    if random.bool() {
        0
    } else {
        1 << random.u32(LONGEST_DELAY)
    }
}

/// One for each thread; for a quarter of the threads none.
fn delays(threads: usize, random: &mut Rng) -> Vec<u64> {
    let longest = 1 << random.u32(LONGEST_DELAY);
    let delay = |_| match random.u8(..4) {
        0 => 0,
        _ => random.u64(..longest),
    };
    (0..threads).map(delay).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::family;

    fn named(name: &str) -> Test {
        family::test(&family::named(name).unwrap()).unwrap()
    }

    #[test]
    fn variables_lie_as_their_layout_says_and_copies_share_nothing() {
        let mut random = Rng::with_seed(1);
        for layout in Layout::ALL {
            let assignment = Assignment::new(&named("ISA2"), layout, 40, 5, &mut random);
            let mut taken = BTreeSet::new();
            for copy in &assignment.copies {
                let words: BTreeSet<_> = copy.places.iter().collect();
                let pages: BTreeSet<_> = copy.places.iter().map(|at| (at.area, at.page)).collect();
                let areas: BTreeSet<_> = copy.places.iter().map(|at| at.area).collect();
                let expected = match layout {
                    Layout::OwnPage => (3, 3),
                    Layout::OneRegion => (2, 1),
                    Layout::OnePage => (1, 1),
                };
                assert_eq!((pages.len(), areas.len()), expected, "{layout}");
                assert_eq!(words.len(), 3, "each variable has a word of its own");
                assert!(copy.places.iter().all(|place| place.word < WORDS));
                assert!(areas.last() < Some(&assignment.areas));
                assert!(areas.into_iter().all(|area| taken.insert(area)));
            }
        }
    }

    #[test]
    fn every_participant_runs_every_thread_and_none_two_of_a_copy() {
        let assignment = Assignment::new(
            &named("SB"),
            Layout::OwnPage,
            200,
            3,
            &mut Rng::with_seed(2),
        );
        let assignments: BTreeSet<_> = assignment
            .copies
            .iter()
            .map(|copy| &copy.participants)
            .collect();
        assert_eq!(assignments.len(), 6, "all pairs, both ways round");
        assert!(
            assignments
                .iter()
                .all(|participants| participants[0] != participants[1])
        );
        for participant in 0..3 {
            assert!(
                assignment
                    .copies
                    .iter()
                    .any(|copy| copy.observer == participant)
            );
            for touch in [Touch::Read, Touch::Write] {
                let mut touches = assignment.copies.iter().flat_map(|copy| &copy.touches);
                assert!(touches.any(|(of, _, what)| (*of, *what) == (participant, touch)));
            }
        }
        for zeros in [true, false] {
            assert!(
                assignment
                    .copies
                    .iter()
                    .any(|copy| copy.sets_zeros == zeros)
            );
        }
    }
}
