//! The messages between the soak and its workers, in lines. To a worker: `go`, `stop`, what all of them did (JSON), and
//! the end of its input, at which it ends. From a worker: `ready`, then [`Event`]s in JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The line that starts the load.
pub const GO: &str = "go";
/// The line that ends the load.
pub const STOP: &str = "stop";

/// What a worker's threads did, by the name of the kind of work.
pub type Done = BTreeMap<String, u64>;

/// What a worker reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// How much it has done so far.
    Progress {
        /// Operations on shared memory.
        operations: u64,
    },
    /// It found an error.
    Wrong {
        /// What is wrong, where, and what should be there.
        what: String,
    },
    /// It has stopped.
    Stopped {
        /// What it did.
        done: Done,
    },
    /// It has checked all shared memory, with all workers stopped.
    Verified,
}

/// The memory that is reserved for injected frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Its protection domain.
    pub domain: u32,
    /// First address of pages that may be written and that only injected frames ask for.
    pub va: u64,
}

/// What all of `workers` did together.
pub fn total<'a>(workers: impl IntoIterator<Item = &'a Done>) -> Done {
    let mut total = Done::new();
    for (work, count) in workers.into_iter().flatten() {
        *total.entry(work.clone()).or_default() += count;
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_workers_did_adds_up() {
        let done = |lanes: u64, sweep: u64| -> Done {
            [("lanes".to_owned(), lanes), ("sweep".to_owned(), sweep)].into()
        };
        assert_eq!(total([&done(1, 2), &done(10, 20)]), done(11, 22));
    }

    #[test]
    fn events_are_lines() {
        let event = Event::Wrong {
            what: "one\ntwo".to_owned(),
        };
        let line = serde_json::to_string(&event).unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event);
    }
}
