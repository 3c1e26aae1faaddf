//! Whether every request completes once faults stop: from a state at the end of a random run, all states that follow
//! without faults are searched, and from each of them a quiet state, in which nothing is under way, must be reachable.
//!
//! So there is no loop that cannot be left; a fair schedule, which takes every action that stays
//! possible at some time, leaves them all.

use std::collections::{HashMap, VecDeque};

use crate::{
    action::{actions, progress},
    canonical::canonical,
    property::is_quiet,
    setting::Setting,
    step::step,
    world::World,
};

/// The result of searching on from the states of runs.
#[derive(Debug, Default)]
pub struct Outcome {
    /// States that searches began from.
    pub samples: usize,
    /// States that were found, summed over the searches.
    pub states: usize,
    /// Searches that were cut at the limit.
    pub cut: usize,
    /// A state from which no quiet state can be reached.
    pub stuck: Option<Box<World>>,
}

/// The limits of the check.
#[derive(Clone, Copy, Debug)]
pub struct Samples {
    /// Runs.
    pub runs: u64,
    /// Steps of the longest run.
    pub steps: usize,
    /// States of one search.
    pub most: usize,
}

/// Seconds' worth.
pub const SAMPLES: Samples = Samples {
    runs: 30,
    steps: 60,
    most: 60_000,
};

/// Makes random runs, the same ones every time, and searches on from where each ends.
pub fn sample(setting: &Setting, samples: Samples) -> Outcome {
    let mut outcome = Outcome::default();
    for run in 0..samples.runs {
        let mut random = fastrand::Rng::with_seed(run);
        let length = random.usize(1..=samples.steps);
        let world = walk(setting, &mut random, length);
        if world.violation.is_some() {
            continue;
        }
        outcome.samples += 1;
        match search(world, samples.most) {
            Found::Rest(states) => outcome.states += states,
            Found::TooMany => outcome.cut += 1,
            Found::Stuck(world) => {
                outcome.stuck = Some(world);
                return outcome;
            }
        }
    }
    outcome
}

/// The state after a random run of so many steps; the run ends earlier if no action is possible any
/// more.
pub fn walk(setting: &Setting, random: &mut fastrand::Rng, steps: usize) -> World {
    let mut world = World::new(setting);
    canonical(&mut world);
    for _ in 0..steps {
        let mut next = Vec::new();
        actions(&world, &mut next);
        let Some(action) = random.choice(&next) else {
            break;
        };
        world = step(&world, action).unwrap_or(world);
    }
    world
}

enum Found {
    /// A quiet state can be reached from each of so many.
    Rest(usize),
    TooMany,
    Stuck(Box<World>),
}

fn search(first: World, most: usize) -> Found {
    let mut numbers = HashMap::from([(first.clone(), 0)]);
    let mut before: Vec<Vec<usize>> = vec![Vec::new()];
    let mut resting = Vec::new();
    let mut open = VecDeque::from([(0, first)]);
    while let Some((number, world)) = open.pop_front() {
        if is_quiet(&world) {
            resting.push(number);
            continue;
        }
        let mut next = Vec::new();
        progress(&world, &mut next);
        for after in next.iter().filter_map(|action| step(&world, action)) {
            let known = numbers.get(&after).copied();
            let to = known.unwrap_or(before.len());
            if known.is_none() {
                if to == most {
                    return Found::TooMany;
                }
                numbers.insert(after.clone(), to);
                before.push(Vec::new());
                open.push_back((to, after));
            }
            before[to].push(number);
        }
    }
    let mut reaches = vec![false; before.len()];
    while let Some(number) = resting.pop() {
        if !std::mem::replace(&mut reaches[number], true) {
            resting.extend(&before[number]);
        }
    }
    let stuck = numbers.into_iter().find(|(_, number)| !reaches[*number]);
    match stuck {
        Some((world, _)) => Found::Stuck(Box::new(world)),
        None => Found::Rest(reaches.len()),
    }
}
