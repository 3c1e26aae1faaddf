//! Packets that the switch loses on purpose, for tests: where on its way a packet is lost.

use crate::{verdict::Verdict, wire::Opcode};

/// How many opcodes a byte can hold.
const OPCODES: u32 = 1 << u8::BITS;

/// A point in a packet's way through the switch. Each has a counter in the map: so many packets are
/// still to be dropped there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LossPoint(u32);

impl LossPoint {
    /// How many there are.
    pub const COUNT: u32 = OPCODES + Verdict::ALL.len() as u32;

    /// Before the switch has looked at a packet of that opcode; and a copy that TC is about to send,
    /// which has the opcode INVALIDATE.
    #[inline(always)]
    pub const fn before(opcode: Opcode) -> Self {
        Self::before_raw(opcode as u8)
    }

    /// The same, for an opcode that may be unknown.
    #[inline(always)]
    pub const fn before_raw(opcode: u8) -> Self {
        Self(opcode as u32)
    }

    /// When all is done for a packet with that verdict, and it would be sent.
    #[inline(always)]
    pub const fn after(verdict: Verdict) -> Self {
        Self(OPCODES + verdict.number() as u32)
    }

    /// Its counter's index.
    #[inline(always)]
    pub const fn index(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_places_share_a_counter() {
        let before = (0..=u8::MAX).map(LossPoint::before_raw);
        let after = Verdict::ALL.into_iter().map(LossPoint::after);
        let indices = before.chain(after).map(LossPoint::index);
        assert!(indices.eq(0..LossPoint::COUNT));
    }
}
