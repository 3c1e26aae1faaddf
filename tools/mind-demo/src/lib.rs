//! The demo: PageRank over one graph and one rank vector in disaggregated shared memory, by one
//! process on each compute blade, compared with the same in one process's private memory.
//!
//! * Graphs: [`graph`] is one, [`edges`] and [`debian`] read some, [`apt`] finds Debian's.
//! * The job, on memory that may be shared or private: [`layout`] says what lies where, [`memory`]
//!   accesses it, [`barrier`] keeps workers in step, [`rank`] computes, [`private`] does so alone.
//! * [`job`] is what demo and workers say to each other, [`worker`] the process on a blade, [`crew`]
//!   the demo's hold on those processes, [`complaints`] what the daemons say when something fails.
//! * The result: [`observe`] asks the system, [`report`] adds up, [`tables`] shows, [`progress`] says
//!   what goes on meanwhile.
//! * [`demo`] is the order of it all.

pub mod apt;
pub mod barrier;
pub mod complaints;
pub mod crew;
pub mod debian;
pub mod demo;
pub mod edges;
pub mod graph;
pub mod job;
pub mod layout;
pub mod memory;
pub mod observe;
pub mod private;
pub mod progress;
pub mod rank;
pub mod report;
pub mod tables;
pub mod worker;
