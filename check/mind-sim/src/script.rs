//! Threads whose steps come from the caller, one after the other, and which return the values that
//! they load: a plan's programs have no values.

use crate::plan::Place;

/// A step of such a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Reads a word; [`Script::loaded`] gets the value.
    Load(Place),
    /// Writes a word: into the store buffer, from where it leaves some time later.
    Store(Place, u64),
    /// Reads and writes a word atomically, when the store buffer is empty; [`Script::update`]
    /// returns the new value.
    Update(Place),
    /// Waits until the store buffer is empty.
    Fence,
    /// Does nothing for that long, in nanoseconds.
    Pause(u64),
    /// A barrier: waits until so many threads are at that point. This does not use shared memory,
    /// and store buffers need not be empty.
    Barrier {
        /// Which point; each is used once.
        point: u64,
        /// How many threads, this one too.
        threads: usize,
    },
    /// Ends, once the store buffer is empty.
    End,
}

/// The source of a thread's steps.
pub trait Script {
    /// The next step. The one before is done.
    fn next(&mut self) -> Step;

    /// The value that a load found.
    fn loaded(&mut self, value: u64);

    /// The new value of a word that is updated and has the value `old`.
    fn update(&mut self, old: u64) -> u64;
}
