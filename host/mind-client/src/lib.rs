//! Programs on MIND: memory that is the same for all processes of a protection domain, on all
//! blades, and larger than any of them.
//!
//! ```no_run
//! use mind_client::{Access, Open, Process};
//!
//! let process = Process::attach("weather")?;
//! let ranks = process.open_area("ranks", 1 << 30, Access::Write, Open::OrCreate)?;
//! // SAFETY: the area has that many bytes, and all programs access its words by atomic instructions.
//! let first = unsafe { &*ranks.as_ptr().cast::<std::sync::atomic::AtomicU64>() };
//! first.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
//! # Ok::<(), mind_client::Error>(())
//! ```
//!
//! Memory behaves as shared memory between threads does: it is coherent, stores are totally ordered (TSO), atomic
//! instructions work, and pointers are valid on every blade. A child after `fork` has none of it, and it must not be
//! pinned for direct I/O.
//!
//! The library installs no signal handler, and its one thread, `mind-guard`, blocks all signals.
//!
//! An access that fails is a signal, as with any memory: SIGSEGV where the domain has no permission, SIGBUS where the
//! memory cannot be reached any more. A call that fails returns an [`Error`].

mod builder;
mod error;
mod guard;
mod memory;
mod process;
mod thread;

pub use builder::Builder;
pub use error::Error;
pub use memory::Memory;
pub use mind_api::message::{Access, OnLoss, Open};
pub use process::{Process, SOCKET_VARIABLE};
