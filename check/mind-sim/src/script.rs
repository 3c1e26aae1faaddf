//! Threads that are told from outside what to do, one step after the other, and that tell what they
//! found: what a run's plan says of programs is not enough where values matter.

use crate::plan::Place;

/// What such a thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Reads a word; [`Script::loaded`] is told what is there.
    Load(Place),
    /// Writes a word: into the store buffer, from where it leaves some time later.
    Store(Place, u64),
    /// Reads and writes a word in one, when the store buffer is empty; [`Script::update`] says what
    /// is written.
    Update(Place),
    /// Waits until the store buffer is empty.
    Fence,
    /// Does nothing for that long, in nanoseconds.
    Pause(u64),
    /// Waits until so many threads are at that point. This is not done by way of shared memory, and
    /// store buffers need not be empty.
    Meet {
        /// Which point; each is for one time.
        point: u64,
        /// How many threads, this one too.
        threads: usize,
    },
    /// Nothing any more, once the store buffer is empty.
    End,
}

/// What a thread does.
pub trait Script {
    /// The next step. The one before has been taken.
    fn next(&mut self) -> Step;

    /// What a load found.
    fn loaded(&mut self, value: u64);

    /// A word is updated that has this value: its new one.
    fn update(&mut self, old: u64) -> u64;
}
