//! What `mind run` loads into a program (`LD_PRELOAD`): the calls of the C library that allocate memory come here, and
//! what is large is mapped in the window, of a protection domain of the process's own.
//!
//! * [`export`]: the functions of the C library that are replaced, and nothing else;
//! * [`malloc`]: which heap serves an allocation, over [`heap`], the allocator; [`local`] is the heap outside the window,
//!   which this library's own code uses as well;
//! * [`memory`]: `mmap` and the calls that change what is mapped, over [`areas`], the table of what is mapped there;
//! * [`blade`]: the process in its protection domain;
//! * [`fork`]: what a child gets;
//! * [`direct`]: files that are opened for direct I/O;
//! * [`start`]: what is done when the library is loaded, and when the process ends.
//!
//! Locks are taken in this order: a heap's growth, the window heap's, the table's, the membership's, the local heap's.
//! While one is held, this library allocates from the local heap only.

#![cfg_attr(
    test,
    allow(
        dead_code,
        reason = "tests replace no functions, which alone use most of this"
    )
)]

mod areas;
mod blade;
mod direct;
#[cfg(not(test))]
mod export;
mod fork;
mod heap;
mod local;
mod log;
mod malloc;
mod memory;
mod own;
mod start;
mod system;

/// What this library's own code, and the crates it is made of, allocate. The tests have no replaced functions.
#[cfg(not(test))]
#[global_allocator]
static ALLOCATOR: local::Own = local::Own;
