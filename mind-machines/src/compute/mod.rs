//! The compute blade: its page cache, its requests and timers, its answers to invalidations.
//!
//! [`Blade`] is the whole, as a state machine without I/O: an agent feeds it faults, datagrams
//! and the time, and carries out the [`Action`]s that it returns. The parts:
//!
//! * [`page`]: what happens to one page, as a pure function,
//! * `kinds`: what tables and counts tell apart of that,
//! * [`machine`]: many pages, the requests under way, regions that are being given up,
//! * [`retransmission`]: how long to wait for an answer, and before asking again,
//! * [`residency`]: how long a page stays before it is given away,
//! * [`eviction`]: which page goes when there is no room.
//!
//! Times are nanoseconds of any clock that does not go back.

pub mod eviction;
mod kinds;
pub mod machine;
pub mod page;
pub mod residency;
pub mod retransmission;

#[cfg(feature = "model")]
pub use machine::model;
pub use machine::{Action, Blade, Config, Counters};
pub use page::Access;
