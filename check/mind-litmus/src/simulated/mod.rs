//! Runs tests in the simulator: each thread of a copy on a simulated blade with a store buffer in front
//! of its cache, on a network that loses packets, while regions are reset, split and merged.
//!
//! * A batch of copies: [`setup`] draws the blades, the network and its faults, [`assignment`] which participant runs
//!   which thread, [`code`] is what a thread executes, [`participant`] what a participant does from beginning to end.
//! * [`batch`] runs one, [`simulator`] many of them on all processors.
//! * [`run`] is a run from beginning to end.

pub mod assignment;
pub mod batch;
pub mod code;
pub mod participant;
pub mod run;
pub mod setup;
pub mod simulator;
