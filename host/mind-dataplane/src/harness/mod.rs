//! The parts of the packet tests and the bench: frames ([`Packet`], [`Seen`]), a network that
//! exists for the test only ([`Network`]), and the programs, run on single frames without being
//! attached ([`Bed`]). A BPF file system to pin them in ([`Pins`]). And the baseline of the
//! fault bench: programs that decide nothing ([`Bare`]).
//!
//! Not part of the library's interface.

mod bare;
mod bed;
mod frame;
mod network;
mod object;
mod pins;

pub use crate::object::bytes as product_object;
pub use bare::Bare;
pub use bed::{Bed, Run, XdpAction};
pub use frame::{Host, Packet, Seen};
pub use network::{Network, Tap};
pub use pins::Pins;

/// The bytes of the object of benches and tests, for tests that look into it.
pub fn object() -> &'static [u8] {
    object::OBJECT
}
