//! What the packet table and the bench are made of: frames that read well ([`Packet`], [`Seen`]),
//! a network that exists for the test only ([`Network`]), and the programs, run on single frames
//! without being attached anywhere ([`Bed`]). And what the fault bench compares with: programs that
//! decide nothing ([`Bare`]).
//!
//! Not part of the library's interface.

mod bare;
mod bed;
mod frame;
mod network;
mod object;

pub use crate::object::bytes as product_object;
pub use bare::Bare;
pub use bed::{Bed, Run, XdpAction};
pub use frame::{Host, Packet, Seen};
pub use network::{Network, Tap};

/// The bytes of the object of benches and tests, for tests that look into it.
pub fn object() -> &'static [u8] {
    object::OBJECT
}
