//! Programs as the distribution ships them, run by `mind run` on a blade of a testbed: whether they answer what they
//! answer in local memory, and how long they take.
//!
//! * [`catalogue`]: the programs, each a script in `programs/`;
//! * [`script`]: one run of one of them, and [`memory`](script::Outcome::memory), how much it had;
//! * [`measure`]: one of them in local memory and on a blade whose cache holds a part of what it has;
//! * [`report`]: what comes of all of them.

pub mod catalogue;
pub mod measure;
mod memory;
pub mod report;
pub mod script;
