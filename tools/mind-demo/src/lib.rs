//! The demo: PageRank over one graph and one rank vector in disaggregated shared memory, by one
//! process on each compute blade, compared with the same in one process's private memory.
//!
//! * Graphs: [`graph`] is one, [`edges`] and [`debian`] read some, [`apt`] finds Debian's.
//! * The job, on memory that may be shared or private: [`layout`] is what lies where, [`memory`]
//!   accesses it, [`barrier`] keeps workers in step, [`rank`] computes, [`private`] does so alone.
//! * [`job`] is the messages between demo and workers, [`worker`] the process on a blade, [`workers`] the demo's side
//!   of those processes, [`log_excerpts`] what the daemons logged when something fails.
//! * The result: [`observe`] reads the system's counters, [`report`] adds up, [`tables`] prints,
//!   [`progress`] shows progress meanwhile.
//! * [`demo`] is the run from beginning to end.

pub mod apt;
pub mod barrier;
pub mod debian;
pub mod demo;
pub mod edges;
pub mod graph;
pub mod job;
pub mod layout;
pub mod log_excerpts;
pub mod memory;
pub mod observe;
pub mod private;
pub mod progress;
pub mod rank;
pub mod report;
pub mod tables;
pub mod worker;
pub mod workers;
