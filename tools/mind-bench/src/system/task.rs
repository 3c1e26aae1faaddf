//! The messages between the bench and its workers: a line of JSON each way, an answer to every
//! task. A worker ends with its stdin.

use anyhow::Result;
use serde::{Deserialize, Serialize};

/// The subcommand that workers are started with.
pub(crate) const WORKER: &str = "worker";

/// The protection domain of the workers on blades.
pub(crate) const DOMAIN: &str = "bench";

/// What a thread does with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Access {
    /// Load a word of it.
    Read,
    /// Store a word into it.
    Write,
}

/// A worker's task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "task", rename_all = "snake_case")]
pub(crate) enum Task {
    /// Measure so many of what this worker measures: a limit.
    Measure {
        /// How many.
        count: usize,
    },
    /// Allocate memory for all workers on blades.
    Map {
        /// Bytes.
        length: u64,
    },
    /// Free what it allocated.
    Unmap,
    /// Access one page after the other, and time each access.
    Touch {
        /// The first one's address.
        first: u64,
        /// From one page to the next, in bytes.
        stride: u64,
        /// How many pages.
        count: usize,
        /// What to do with each.
        access: Access,
    },
    /// Access pages at random, by several threads at once, every other access a store.
    RandomAccess {
        /// The first page's address.
        first: u64,
        /// How many pages.
        pages: u64,
        /// Threads.
        threads: u64,
        /// How long, in milliseconds.
        millis: u64,
    },
    /// Store into a word of each of these pages in turn, over and over, with a short pause after each time.
    WriteEach {
        /// The first page's address.
        first: u64,
        /// From one page to the next, in bytes.
        stride: u64,
        /// How many pages.
        count: u64,
        /// How long, in milliseconds.
        millis: u64,
    },
    /// Load a word of one page after the other, with a short pause after each, and time each load.
    Probe {
        /// The first page's address.
        first: u64,
        /// From one page to the next, in bytes.
        stride: u64,
        /// How many pages at most.
        count: u64,
        /// How long, in milliseconds.
        millis: u64,
    },
}

/// A worker's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(crate) enum Answer {
    /// It is ready for tasks.
    Ready,
    /// [`Task::Map`]: where the memory is.
    Mapped {
        /// Its first address.
        first: u64,
    },
    /// [`Task::Unmap`] is done.
    Unmapped,
    /// [`Task::Measure`], [`Task::Touch`]: how long each took, in nanoseconds.
    Times {
        /// In order.
        nanos: Vec<u64>,
    },
    /// [`Task::WriteEach`]: when each time was over, in nanoseconds since the task began.
    Wrote {
        /// In order.
        at: Vec<u64>,
    },
    /// [`Task::Probe`]: the loads.
    Probed {
        /// When each began, in nanoseconds since the task began.
        at: Vec<u64>,
        /// How long each took, in nanoseconds.
        nanos: Vec<u64>,
    },
    /// [`Task::RandomAccess`] is done.
    Roamed {
        /// How long it took, in nanoseconds.
        nanos: u64,
    },
}

/// The part of a worker that carries tasks out.
pub(crate) trait Serve {
    /// Carries a task out.
    fn serve(&mut self, task: &Task) -> Result<Answer>;
}

/// The error about a task for another role.
pub(crate) fn misplaced(task: &Task) -> anyhow::Error {
    anyhow::anyhow!("this worker cannot do {task:?}")
}
