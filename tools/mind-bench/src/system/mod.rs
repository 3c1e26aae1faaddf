//! The system as benches measure it: a testbed with its daemons, and a process on each compute blade that measures.
//!
//! * [`blades`]: the testbed; [`operator`]: requests to its controller; [`placement`]: which thread runs where,
//! * [`worker`]: the bench's side of a process that measures; [`task`]: what it is told; [`program`]: what it does on a
//!   blade. Its command line is in [`crate::worker`].

pub(crate) mod blades;
pub(crate) mod operator;
pub(crate) mod placement;
pub(crate) mod program;
pub(crate) mod task;
pub(crate) mod worker;
