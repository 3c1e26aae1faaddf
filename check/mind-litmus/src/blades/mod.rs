//! Runs tests on real blades: each thread of a copy in a process on another compute blade, the
//! variables in memory that they share.
//!
//! * What a copy is: [`layout`] says where its variables lie, [`plan`] who does what, [`code`] is what
//!   a thread executes, [`access`] its accesses.
//! * [`player`] plays its part of a batch of copies, [`meeting`] is where players wait for each other,
//!   [`processors`] where they run.
//! * Processes: [`job`] is what runner and workers say to each other, [`worker`] the process on a
//!   blade, [`company`] the runner, [`gather`] puts together what workers saw.
//! * [`run`] is the order of it all, [`progress`] what is said meanwhile.

pub mod access;
pub mod code;
pub mod company;
pub mod gather;
pub mod job;
pub mod layout;
pub mod meeting;
pub mod plan;
pub mod player;
pub mod processors;
pub mod progress;
pub mod run;
pub mod worker;
