//! Worker processes: what a tool and the copies of itself that it starts on blades have in common.
//!
//! * [`member`]: the tool's side of a worker: requests go to its stdin, its stdout is read, the end
//!   of its stderr explains its failure. Dropping it kills the worker.
//! * [`requests`]: the worker's side of the same pipes. Its process ends with its stdin.
//! * [`lines`]: a line of JSON each way.
//!
//! Each tool defines its messages, and where a worker runs.

pub mod lines;
pub mod member;
pub mod requests;

pub use member::{Failed, Heard, Member, NotStarted};
pub use requests::Requests;
