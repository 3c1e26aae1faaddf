//! The base transport header, first in every datagram (IBTA volume 1, section 9.2).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::opcode::Opcode;
use crate::serial::Seq;

/// The default partition, of which every port is a full member.
const DEFAULT_PKEY: [u8; 2] = [0xff, 0xff];

/// Base transport header.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Bth {
    /// See [`Opcode`].
    pub opcode: u8,
    /// Solicited event, migration, pad count, header version: all 0 here.
    pub flags: u8,
    /// Partition key.
    pub pkey: [u8; 2],
    /// Congestion bits and reserved bits: all 0 here.
    pub reserved: u8,
    dest_qp: [u8; 3],
    ack_attempt: u8,
    psn: [u8; 3],
}

/// The largest attempt that fits its seven bits.
pub const MAX_ATTEMPT: u8 = 0x7f;

impl Bth {
    /// A header with these fields and everything else at its default.
    #[inline(always)]
    pub const fn new(opcode: Opcode, dest_qp: u32, seq: Seq) -> Self {
        let mut bth = Self {
            opcode: opcode as u8,
            flags: 0,
            pkey: DEFAULT_PKEY,
            reserved: 0,
            dest_qp: [0; 3],
            ack_attempt: 0,
            psn: [0; 3],
        };
        bth.set_dest_qp(dest_qp);
        bth.set_seq(seq);
        bth
    }

    /// The destination queue pair, 24 bits: see [`Connection`](crate::id::Connection).
    #[inline(always)]
    pub const fn dest_qp(&self) -> u32 {
        let [a, b, c] = self.dest_qp;
        (a as u32) << 16 | (b as u32) << 8 | c as u32
    }

    /// Sets the destination queue pair to the low 24 bits of `qp`.
    #[inline(always)]
    pub const fn set_dest_qp(&mut self, qp: u32) {
        self.dest_qp = [(qp >> 16) as u8, (qp >> 8) as u8, qp as u8];
    }

    /// The packet sequence number: the request's number, in the request and in everything that
    /// answers it.
    #[inline(always)]
    pub const fn seq(&self) -> Seq {
        let [a, b, c] = self.psn;
        Seq::new((a as u32) << 16 | (b as u32) << 8 | c as u32)
    }

    /// Sets the packet sequence number.
    #[inline(always)]
    pub const fn set_seq(&mut self, seq: Seq) {
        let psn = seq.get();
        self.psn = [(psn >> 16) as u8, (psn >> 8) as u8, psn as u8];
    }

    /// How often this request was sent before without an answer, 0 to 127; carried in the seven
    /// reserved bits beside the acknowledge-request bit. From 1 on, a switch that finds the region
    /// busy repeats the invalidations that are not answered yet.
    #[inline(always)]
    pub const fn attempt(&self) -> u8 {
        self.ack_attempt & MAX_ATTEMPT
    }

    /// Sets the attempt; from 127 on it stays 127.
    #[inline(always)]
    pub const fn set_attempt(&mut self, attempt: u8) {
        let attempt = if attempt > MAX_ATTEMPT {
            MAX_ATTEMPT
        } else {
            attempt
        };
        self.ack_attempt = self.ack_attempt & !MAX_ATTEMPT | attempt;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_these_bytes() {
        let mut bth = Bth::new(Opcode::Read, 0x01_0203, Seq::new(0x0a_0b0c));
        bth.set_attempt(3);
        assert_eq!(
            bth.as_bytes(),
            [0x0c, 0, 0xff, 0xff, 0, 1, 2, 3, 3, 0x0a, 0x0b, 0x0c]
        );
        assert_eq!(bth.dest_qp(), 0x01_0203);
        assert_eq!(bth.seq(), Seq::new(0x0a_0b0c));
        assert_eq!(bth.attempt(), 3);
    }

    #[test]
    fn an_attempt_saturates_and_leaves_the_acknowledge_bit_alone() {
        let bytes = [0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0];
        let mut bth = Bth::read_from_bytes(&bytes).expect("a header has 12 bytes");
        bth.set_attempt(200);
        assert_eq!(bth.attempt(), 127);
        assert_eq!(bth.as_bytes()[8], 0xff);
    }
}
