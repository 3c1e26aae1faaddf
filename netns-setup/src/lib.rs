//! The testbed: a switch, compute blades and memory blades on one machine, each a network namespace.
//!
//! # Layout
//!
//! | What | Where |
//! |---|---|
//! | switch | namespace `mind-sw`, with the bridge `br0` (198.18.0.1/16) |
//! | compute blade `c3` | namespace `mind-c3`: `eth0`, 198.18.1.4/16, 02:4d:49:4e:01:03 |
//! | memory blade `m3` | namespace `mind-m3`: `eth0`, 198.18.2.4/16, 02:4d:49:4e:02:03 |
//! | the switch's port to `c3`, `m3` | `c3`, `m3` in `mind-sw`, enslaved to `br0`; 02:4d:49:4e:81:03, …:82:03 |
//!
//! All addresses lie in 198.18.0.0/15, which is reserved for such tests (RFC 2544). All links are
//! veth pairs of MTU 9000. Both ends have GRO on, without which a frame that XDP redirects into a
//! veth is dropped, and transmit checksums off, since XDP forwards a partial checksum as it is.
//! IPv6 is off. The namespaces are seen by `ip netns`.
//!
//! State lies in `/run/mind`: `state.json`, a bpffs at `bpf`, the blades' `sockets`, the services'
//! `logs`. `/run/mind.lock` is held while a testbed is brought up or down. There is at most one
//! testbed on a machine. While there is one, the kernel does not group processes by session (see
//! [`scheduler`]).
//!
//! # Parts
//!
//! [`plan`] is what a testbed consists of and [`condition`] the condition of what is found on the
//! machine; both are pure. [`Testbed`] brings it up and down, by [`mod@namespace`], [`link`],
//! [`program`], [`service`] and [`scheduler`]; `halt` handles Ctrl-C meanwhile.

pub mod condition;
pub mod error;
mod halt;
pub mod link;
pub mod namespace;
pub mod paths;
pub mod plan;
pub mod program;
pub mod scheduler;
pub mod service;
pub mod state;
pub mod testbed;

pub use error::{Error, Result};
pub use plan::{Blade, Kind, Plan};
pub use testbed::{Options, Testbed};
