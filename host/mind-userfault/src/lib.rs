//! Linux userfaultfd over a shared memfd: a program's accesses to the window become faults that a
//! daemon resolves.
//!
//! [`Userfault`] is a program's descriptor, made by the program and used by the daemon that
//! resolves its faults. [`Backing`] is the memory behind the window of all programs of a domain
//! on one blade. [`Window`] is a program's view of it.
//!
//! This crate follows the kernel's rules and knows nothing of the protocol: how a fault is resolved
//! is the daemon's decision. The rules are those of `ioctl_userfaultfd(2)`; observations beyond it
//! are noted where they matter.
//!
//! ```no_run
//! use mind_userfault::{Backing, Outcome, Window};
//!
//! // The program maps the window; usually another process resolves its faults.
//! let window = Window::map(Backing::new("example")?)?;
//! let mut faults = Vec::new();
//! window.userfault().read(|fault| faults.push(fault))?;
//! for fault in faults {
//! let outcome = window.userfault().copy(fault.page, &[0; 4096], fault.write);
//! assert!(matches!(outcome, Outcome::Done | Outcome::Exists));
//! }
//! # Ok::<(), mind_userfault::Error>(())
//! ```

mod backing;
mod descriptor;
mod error;
mod window;

pub use backing::Backing;
pub use descriptor::{Fault, Kind, Outcome, Userfault};
pub use error::Error;
pub use window::Window;
