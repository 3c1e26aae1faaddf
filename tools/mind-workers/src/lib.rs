//! Worker processes: what a tool and the copies of itself that it starts on blades have in common.
//!
//! * [`member`]: a worker as the tool sees it. Its stdin tells it what to do, its stdout is listened
//!   to, the end of its stderr explains its failure. It is killed when its value goes.
//! * [`orders`]: the same pipes as the worker sees them. Its process ends with its stdin.
//! * [`lines`]: a line of JSON each way.
//!
//! What is said is for each tool to define, and so is where a worker runs.

pub mod lines;
pub mod member;
pub mod orders;

pub use member::{Failed, Heard, Member, NotStarted};
pub use orders::Orders;
