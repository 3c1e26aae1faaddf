//! Whether everybody who waits gets what it waits for once faults stop: from a state that a run came to,
//! all that happens by itself is searched to the end, and from each of those states one must be
//! reachable in which nothing is under way.
//!
//! So there is no loop that cannot be left; a schedule that takes, of what is possible again and
//! again, each thing at some time, leaves them all.

use std::collections::{HashMap, VecDeque};

use crate::{
    action::{actions, progress},
    canonical::canonical,
    property::is_quiet,
    setting::Setting,
    step::step,
    world::World,
};

/// What came of searching on from states of runs.
#[derive(Debug, Default)]
pub struct Outcome {
    /// States that were begun from.
    pub samples: usize,
    /// States that were found from there, each sample's by themselves.
    pub states: usize,
    /// Samples that were left since there was no end to them within the limit.
    pub cut: usize,
    /// A state from which nothing leads to rest.
    pub stuck: Option<Box<World>>,
}

/// How much is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Samples {
    /// Runs.
    pub runs: u64,
    /// The longest one's steps.
    pub steps: usize,
    /// States from one sample on.
    pub most: usize,
}

/// Seconds' worth.
pub const SAMPLES: Samples = Samples {
    runs: 30,
    steps: 60,
    most: 60_000,
};

/// Takes runs at random, the same ones every time, and searches on from where each ends.
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

/// Where a run at random of so many steps ends; it ends earlier if nothing can happen any more.
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
    /// Rest can be reached from each of so many.
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
