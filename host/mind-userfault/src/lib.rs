//! Linux userfaultfd over a shared memfd: how a program's accesses to the window become faults
//! that somebody else resolves.
//!
//! [`Userfault`] is a program's descriptor, made by the program and used by the daemon that
//! resolves its faults. [`Backing`] is the memory behind the window of all programs of a domain
//! on one blade. [`Window`] is a program's view of it.
//!
//! This crate knows the kernel's rules, not the protocol: which fault is resolved how is the
//! daemon's decision. The rules are those of `ioctl_userfaultfd(2)`, and what was observed beyond
//! it is said where it matters.

mod backing;
mod descriptor;
mod error;
mod window;

pub use backing::Backing;
pub use descriptor::{Fault, Kind, Outcome, Userfault};
pub use error::Error;
pub use window::Window;
