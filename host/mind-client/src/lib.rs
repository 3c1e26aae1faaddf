//! Programs on MIND: memory that is the same for all processes of a protection domain, on all
//! blades, and larger than any of them.
//!
//! ```no_run
//! use mind_client::{Access, Open, Process};
//!
//! let process = Process::attach("weather")?;
//! let ranks = process.open_area("ranks", 1 << 30, Access::Write, Open::OrCreate)?;
//! // SAFETY: the area has that many bytes, and its words are accessed atomically by everybody.
//! let first = unsafe { &*ranks.as_ptr().cast::<std::sync::atomic::AtomicU64>() };
//! first.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
//! # Ok::<(), mind_client::Error>(())
//! ```
//!
//! Memory behaves as shared memory between threads does: coherent, totally ordered stores (TSO),
//! atomic instructions included, pointers valid on every blade. What it may not: be used by a
//! child after `fork`, or be pinned for direct I/O (see the README).
//!
//! No handler of signals is installed, and none of the program's runs on the thread that works for it here.
//!
//! What goes wrong with an access is a signal, as with any memory: SIGSEGV where the domain has no
//! permission, SIGBUS where the memory can't be reached any more.

mod error;
mod guard;
mod memory;
mod process;
mod thread;

pub use error::Error;
pub use memory::Memory;
pub use mind_api::message::{Access, OnLoss, Open};
pub use process::{Process, SOCKET_VARIABLE};
