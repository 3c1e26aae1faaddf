//! A search of a setting's states, and its result.

use std::{
    fs,
    time::{Duration, Instant},
};

use stateright::{Checker, HasDiscoveries, Model};

use crate::{action::Action, model::Protocol, packed::Packed, settings::Named};

/// Threads that search.
const THREADS: usize = 2;

/// The result of a search.
#[derive(Debug)]
pub struct Found {
    /// Distinct states.
    pub states: usize,
    /// Steps from the first state to the deepest.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// The process's memory at the end, in bytes; 0 if unknown.
    pub memory: u64,
    /// Whether all states were searched.
    pub is_complete: bool,
    /// The properties that do not hold, each with a path to the state.
    pub failures: Vec<Failure>,
}

/// A property that does not hold.
#[derive(Debug)]
pub struct Failure {
    /// Which one.
    pub property: &'static str,
    /// The states on a path, each with the action taken in it.
    pub path: Vec<(Packed, Option<Action>)>,
}

/// Searches a setting, the states closest to the first one first, until a property fails or there
/// are no more.
pub fn search(named: &Named) -> Found {
    let began = Instant::now();
    let protocol = Protocol::new(named.setting);
    let mut checker = protocol
        .checker()
        .threads(THREADS)
        .finish_when(HasDiscoveries::AnyFailures);
    if let Some(cut) = named.cut {
        // Counts every visit of a state, also repeated ones.
        checker = checker.target_state_count(cut);
    }
    let checker = checker.spawn_bfs().join();
    let took = began.elapsed();
    let discoveries = checker.discoveries();
    let failures: Vec<_> = discoveries
        .into_iter()
        .map(|(property, path)| Failure {
            property,
            path: path.into_vec(),
        })
        .collect();
    let is_cut = named.cut.is_some_and(|cut| checker.state_count() >= cut);
    Found {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        took,
        memory: resident(),
        is_complete: failures.is_empty() && !is_cut,
        failures,
    }
}

/// This process's memory, in bytes.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next());
    kibibytes
        .and_then(|count| count.parse::<u64>().ok())
        .unwrap_or(0)
        * 1024
}
