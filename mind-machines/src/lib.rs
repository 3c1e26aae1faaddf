//! The nodes of MIND as state machines over messages: what the switch's programs, a memory blade's
//! responder and the controller do, as plain data.
//!
//! For a simulator and a model checker: a node can be cloned, compared and hashed, does no I/O,
//! reads no clock and throws no dice. Each handles one message at a time, whole. What it decides is
//! decided by `mind-common`'s functions, the ones that the real programs call, in the order in
//! which those call them; a test runs both on the same packets (`mind-dataplane`'s `nodes`).
//!
//! * [`datagram`]: datagrams, with as much of a page as somebody wants to follow,
//! * [`switch`]: the directory, the tables beside it, and what becomes of a packet,
//! * [`memory`]: a memory blade's pages,
//! * [`controller`]: who is there, and what becomes of regions.
//!
//! What is not here: what a packet looks like in bytes (lengths, checksums, time to live, tags),
//! ports without a device, and what only processors at work at the same time can do
//! to each other within one packet (`contended`, `no-origin` of an invalidation just begun,
//! `torn`).

pub mod compute;
pub mod controller;
pub mod datagram;
pub mod memory;
#[cfg(feature = "mutants")]
pub mod mutant;
pub mod switch;

use mind_common::id::BladeId;

/// A host on the network, behind a port of the switch of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// The compute blade with that number, in whichever life.
    Compute(BladeId),
    /// The memory blade with that number.
    Memory(u8),
}

impl core::fmt::Display for Node {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Compute(blade) => write!(f, "{blade}"),
            Self::Memory(number) => write!(f, "m{number}"),
        }
    }
}
