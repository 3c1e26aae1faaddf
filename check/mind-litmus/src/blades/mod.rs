//! Runs tests on real blades: each thread of a copy in a process on another compute blade, the
//! variables in memory that they share.
//!
//! * A copy: [`layout`] is where its variables lie, [`plan`] which participant does what, [`code`] what a thread
//!   executes, [`access`] its accesses.
//! * [`participant`] does its part of a batch of copies, [`barrier`] is where participants wait for each other,
//!   [`processors`] where they run.
//! * Processes: [`job`] is the messages between runner and workers, [`worker`] the process on a
//!   blade, [`workers`] the runner, [`gather`] combines the workers' answers.
//! * [`run`] is a run from beginning to end, [`progress`] its progress on stderr.

pub mod access;
pub mod barrier;
pub mod code;
pub mod gather;
pub mod job;
pub mod layout;
pub mod participant;
pub mod plan;
pub mod processors;
pub mod progress;
pub mod run;
pub mod worker;
pub mod workers;
