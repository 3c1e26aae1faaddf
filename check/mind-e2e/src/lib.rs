//! What the end-to-end tests are made of.
//!
//! * [`bed`]: a testbed with all its daemons,
//! * [`operator`]: an operator's connection to the controller,
//! * [`program`]: a program on one of its blades; what it does is in `src/program`,
//! * [`domain`]: a protection domain and the programs in it,
//! * [`load`]: programs on several blades that count,
//! * [`area`]: shared memory as such programs see it,
//! * [`companion`]: third-party programs that examine the system,
//! * [`capture`]: packets into a file, off a blade's wire or made here,
//! * [`reader`]: readers of such a file,
//! * [`suite`]: tests that share a testbed, one after the other.
//!
//! The daemons are those of the same build (`cargo xtask build`).

pub mod area;
pub mod bed;
pub mod capture;
pub mod companion;
pub mod domain;
pub mod load;
pub mod operator;
pub mod program;
pub mod reader;
pub mod suite;

pub use bed::Bed;
pub use domain::Domain;
pub use load::Load;
pub use operator::Operator;
pub use program::Program;

use std::time::Duration;

/// Whether this runs in the project's virtual machine, where everything takes tens of times longer.
pub fn in_vm() -> bool {
    std::env::var_os("MIND_VM").is_some()
}

/// A tenth of `count` in a virtual machine, so that the tests end.
pub fn scaled(count: u64) -> u64 {
    if in_vm() { count.div_ceil(10) } else { count }
}

/// How long anything may take before a test gives up. Not a bound on performance.
pub fn patience() -> Duration {
    Duration::from_secs(if in_vm() { 600 } else { 60 })
}
