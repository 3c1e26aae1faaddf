//! Runs the model and the simulator against the active bug.

use std::fmt;

use mind_model::{
    liveness::{SAMPLES, sample},
    search::search,
    settings::{FULL, Named, QUICK},
};
use mind_sim::batch::run_seeds;

/// Seeds that are run before their results are checked.
const BATCH: u64 = 20;
/// Seeds that are run at the same time.
const WORKERS: usize = 2;
/// States that each setting is searched for before one is searched for more.
const ROUNDS: [usize; 2] = [20_000, 200_000];

/// Which settings of the model are searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settings {
    /// In the quick settings.
    Quick,
    /// In the full ones as well.
    All,
}

/// How a bug was detected, and after how many states or seeds.
pub(crate) enum Detection {
    /// A property of the model does not hold.
    Property {
        /// Which one.
        property: &'static str,
        /// In which setting.
        setting: &'static str,
        /// Distinct states, of the settings before it as well.
        states: usize,
    },
    /// A seed of the simulator fails.
    Seed {
        /// The message.
        failure: String,
        /// Seeds, with it.
        seeds: u64,
    },
}

impl fmt::Display for Detection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Property {
                property,
                setting,
                states,
            } => write!(f, "{property} ({setting}; {states} states)"),
            Self::Seed { failure, seeds } => write!(f, "{failure} ({seeds} seeds)"),
        }
    }
}

/// Searches the settings with this in their names, the quick ones or all, each for at most so many
/// states; first for fewer, as most bugs are close to the first state of some setting.
pub(crate) fn by_model(settings: Settings, within: &str, most: usize) -> Option<Detection> {
    let full = match settings {
        Settings::Quick => &[],
        Settings::All => FULL,
    };
    let settings = QUICK.iter().chain(full);
    let settings = settings.filter(|named| named.name.contains(within));
    let mut states = 0;
    let rounds = ROUNDS.into_iter().filter(|states| *states < most);
    for most in rounds.chain([most]) {
        for named in settings.clone() {
            let cut = named.cut.map_or(most, |cut| cut.min(most));
            let found = search(&Named {
                cut: Some(cut),
                ..*named
            });
            states += found.states;
            if let Some(failure) = found.failures.first() {
                return Some(Detection::Property {
                    property: failure.property,
                    setting: named.name,
                    states,
                });
            }
        }
    }
    for named in settings {
        let outcome = sample(&named.setting, SAMPLES);
        states += outcome.states;
        if outcome.stuck.is_some() {
            return Some(Detection::Property {
                property: "once faults stop, every request completes",
                setting: named.name,
                states,
            });
        }
    }
    None
}

/// Runs seeds from 0 on.
pub(crate) fn by_simulator(most: u64) -> Option<Detection> {
    (0..most).step_by(BATCH as usize).find_map(|first| {
        let batch = run_seeds(first, BATCH.min(most - first), WORKERS, &|| ());
        let (seed, failure) = batch.failures.iter().min_by_key(|(seed, _)| *seed)?;
        Some(Detection::Seed {
            failure: failure.to_string(),
            seeds: seed + 1,
        })
    })
}
