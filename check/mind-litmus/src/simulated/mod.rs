//! Runs tests in the simulator: each thread of a copy on a simulated blade with a store buffer in front
//! of its cache, on a network that loses packets, while regions are reset, split and merged.
//!
//! * What a batch of copies is: [`setup`] draws the blades, the network and what goes wrong, [`cast`] who
//!   plays what and where, [`code`] is what a thread executes, [`actor`] what a player does from
//!   beginning to end.
//! * [`batch`] runs one, [`simulator`] many of them on all processors.
//! * [`run`] is the order of it all.

pub mod actor;
pub mod batch;
pub mod cast;
pub mod code;
pub mod run;
pub mod setup;
pub mod simulator;
