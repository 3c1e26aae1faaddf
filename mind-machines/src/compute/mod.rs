//! The compute blade: its page cache, its requests and timers, its answers to invalidations.
//!
//! [`Blade`] is the whole, as a state machine without I/O: an agent feeds it faults, datagrams
//! and the time, and carries out the [`Action`]s that it returns. The parts:
//!
//! * [`page`]: what happens to one page, as a pure function,
//! * `kinds`: which events of a page tables and counts distinguish,
//! * [`machine`]: many pages, the requests under way, regions that are being given up,
//! * [`retransmission`]: how long to wait for an answer, and to pause after "busy",
//! * [`residency`]: how long a page stays at least before it is given away,
//! * [`eviction`]: which page is evicted when there is no room.
//!
//! Times are nanoseconds of any clock that does not go back.
//!
//! # Example
//!
//! A fault on a page that is not in the cache sends a READ:
//!
//! ```
//! use mind_common::{addr::{Va, WINDOW_BASE}, id::{BladeId, Connection, DomainId}};
//! use mind_machines::{
//! compute::{Access, Action, Blade, Config},
//! datagram::{Body, PageRequest},
//! };
//!
//! let connection = Connection { blade: BladeId::from_low_bits(0), incarnation: 1 };
//! let mut blade = Blade::new(Config::new(connection, 1024));
//! let page = PageRequest { page: Va(WINDOW_BASE), domain: DomainId(7) };
//!
//! let mut actions = Vec::new();
//! blade.fault(0, page, Access::Read, &mut actions);
//! let [Action::Send(datagram)] = &actions[..] else { panic!("one datagram is sent") };
//! assert_eq!(datagram.body, Body::read(page));
//! ```

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
