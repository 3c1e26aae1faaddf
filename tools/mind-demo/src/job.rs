//! The messages between the demo and its workers. To a worker: its job as a line of JSON on stdin,
//! to the first one also the graph; it ends with stdin. From a worker: events as lines of JSON on
//! stdout, and after the last one the ranks, if the job asks for them.

use std::io::{self, Read, Write};
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{layout::Layout, rank::Settings};

/// The protection domain of the workers.
pub const DOMAIN: &str = "pagerank";

/// The worker that brings the graph into memory.
pub const LOADER: usize = 0;

/// A worker's job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its number.
    pub worker: usize,
    /// Vertices of the graph.
    pub vertices: usize,
    /// Edges of the graph.
    pub edges: usize,
    /// The blocks of each worker.
    pub owners: Vec<Range<usize>>,
    /// Most iterations.
    pub iterations: u64,
    /// Enough when all ranks together changed by less.
    pub tolerance: f64,
    /// How long another worker may not respond, in milliseconds.
    pub patience_ms: u64,
}

impl Job {
    /// The sizes of the job's memory.
    pub fn layout(&self) -> Layout {
        Layout {
            vertices: self.vertices,
            edges: self.edges,
            workers: self.owners.len(),
        }
    }

    /// When to stop.
    pub fn settings(&self) -> Settings {
        Settings {
            iterations: self.iterations,
            tolerance: self.tolerance,
        }
    }
}

/// A worker's event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// It is in the protection domain and has the areas.
    Attached,
    /// It is at work, and that takes long.
    Alive,
    /// The graph is in memory, and all workers know.
    Loaded,
    /// All workers have done an iteration.
    Iteration {
        /// Its number, from 1.
        number: u64,
        /// By how much all ranks together changed.
        delta: f64,
    },
    /// It is done.
    Done(Done),
}

/// A worker's result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// Iterations done.
    pub iterations: u64,
    /// By how much all ranks together changed in the last one.
    pub delta: f64,
    /// Its accesses to shared memory.
    pub accesses: u64,
    /// How long the iterations took.
    pub nanos: u64,
    /// The hash of all ranks, as its blade sees them.
    pub digest: u64,
    /// How many ranks follow, as 64-bit floating point, little-endian.
    pub ranks: usize,
}

/// Sends ranks.
///
/// # Errors
///
/// Those of `to`.
pub fn send_ranks(mut to: impl Write, ranks: &[f64]) -> io::Result<()> {
    for rank in ranks {
        to.write_all(&rank.to_le_bytes())?;
    }
    to.flush()
}

/// Receives `count` ranks.
///
/// # Errors
///
/// Those of `from`; `UnexpectedEof` when it ends before.
pub fn receive_ranks(from: &mut impl Read, count: usize) -> io::Result<Vec<f64>> {
    (0..count)
        .map(|_| {
            let mut bytes = [0; size_of::<f64>()];
            from.read_exact(&mut bytes)?;
            Ok(f64::from_le_bytes(bytes))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mind_workers::lines;

    #[test]
    fn events_and_ranks_share_a_stream() {
        let done = Event::Done(Done {
            iterations: 3,
            delta: 1e-9,
            accesses: 5,
            nanos: 7,
            digest: u64::MAX,
            ranks: 2,
        });
        let mut bytes = Vec::new();
        lines::send(&mut bytes, &Event::Attached).unwrap();
        lines::send(&mut bytes, &done).unwrap();
        // A byte like the end of a line does not end the ranks.
        let ranks = [f64::from_bits(0x0a0a_0a0a_0a0a_0a0a), 1.0 / 3.0];
        send_ranks(&mut bytes, &ranks).unwrap();

        let mut from = bytes.as_slice();
        assert_eq!(lines::receive(&mut from).unwrap(), Some(Event::Attached));
        assert_eq!(lines::receive(&mut from).unwrap(), Some(done));
        assert_eq!(receive_ranks(&mut from, 2).unwrap(), ranks);
        assert_eq!(lines::receive::<Event>(&mut from).unwrap(), None);
        assert!(receive_ranks(&mut from, 1).is_err());
    }
}
