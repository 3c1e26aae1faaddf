//! The parts of MIND as state machines over datagrams: compute blade, memory blade, switch and
//! controller as plain data.
//!
//! A machine does no I/O, reads no clock and draws no random numbers; it can be cloned, compared
//! and hashed, for a simulator and a model checker. It handles one datagram at a time, whole. The
//! compute blade's machine is the one that the agent runs. The switch and the memory blade decide
//! by `mind-common`'s functions, which the eBPF programs call in the same order; a test runs both
//! on the same packets (`mind-dataplane`'s `machines`).
//!
//! * [`compute`]: a compute blade's page cache and requests,
//! * [`datagram`]: datagrams, with a page or what stands for one,
//! * [`switch`]: the directory, the tables beside it, and what becomes of a packet,
//! * [`memory`]: a memory blade's pages,
//! * [`controller`]: registration of blades, and changes of regions,
//! * [`splitting`]: which regions are split, and which are merged again,
//! * [`agreement`]: what controller and switch agree on when the controller rests.
//!
//! Not modelled: a packet's bytes (lengths, checksums, time to live, tags), ports without a device,
//! and races between processors within one packet (the verdicts `contended`, `no-origin` of an
//! invalidation just begun, `torn`).

/// Whether this bug is active; without the feature `mutants` there is none.
macro_rules! seeded {
    ($mutant:ident) => {{
        #[cfg(feature = "mutants")]
        let is_active = crate::mutant::Mutant::$mutant.is_active();
        #[cfg(not(feature = "mutants"))]
        let is_active = false;
        is_active
    }};
}

pub mod agreement;
pub mod compute;
pub mod controller;
pub mod datagram;
pub mod memory;
#[cfg(feature = "mutants")]
pub mod mutant;
pub mod splitting;
pub mod switch;

use mind_common::id::BladeId;

/// A blade, behind a port of the switch of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// The compute blade with that number, in any incarnation.
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
