//! An access, and where accesses come from: one stream for each thread.

use mind_common::{
    addr::{PAGE_SHIFT, Va, WINDOW_BASE},
    id::BladeId,
};

use super::Error;

/// Consecutive accesses of a thread to one page, collapsed.
///
/// The first is a load or a store. After a load come loads only; what comes after a store, loads or stores, needs no
/// other permission than the store did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Nanoseconds for which the thread computed before it, since its last access was over.
    pub gap: u64,
    /// The page: number 0 is the first of the window.
    pub page: u32,
    /// Whether the first is a store.
    pub is_write: bool,
    /// How many; at least 1.
    pub count: u32,
}

/// The first address of a page.
pub const fn va(page: u32) -> Va {
    Va(WINDOW_BASE + ((page as u64) << PAGE_SHIFT))
}

/// The page of an address of the window.
pub const fn page_of(va: Va) -> u32 {
    (va.0.wrapping_sub(WINDOW_BASE) >> PAGE_SHIFT) as u32
}

/// What a trace is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Compute blades; 1 to 32.
    pub blades: u8,
    /// On which blade each thread runs.
    pub threads: Vec<BladeId>,
    /// One more than the greatest page number.
    pub pages: u64,
    /// Pages that are accessed, if that is known.
    pub footprint: Option<u64>,
    /// How many accesses there are.
    pub accesses: u64,
}

/// Accesses, thread by thread: each thread's in the order of its program. What comes first of two threads is decided by
/// the one that replays them.
pub trait Source {
    /// What it is a trace of.
    fn shape(&self) -> &Shape;

    /// The next access of a thread; `None` when it has no more.
    ///
    /// # Errors
    ///
    /// When the trace cannot be read.
    fn next(&mut self, thread: usize) -> Result<Option<Access>, Error>;
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn shape(&self) -> &Shape {
        (**self).shape()
    }

    fn next(&mut self, thread: usize) -> Result<Option<Access>, Error> {
        (**self).next(thread)
    }
}
