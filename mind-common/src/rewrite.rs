//! What the switch and the memory blades write over a packet's transport headers when they turn
//! it into another one: pure functions from the old header to the new.
//!
//! What TC sends for a packet that XDP passed up follows from the packet alone: [`fan_out`]. So does what the controller
//! sends for one that XDP handed over to it: [`copies`].

use crate::{
    directory::Transition,
    id::{BladeId, BladeSet, Connection, MAX_BLADES},
    serial::Seq,
    table::HandedOver,
    wire::{Bth, Opcode},
};

/// The header of an INVALIDATE to the blade at `connection`, because of the request with number
/// `seq`.
#[inline(always)]
pub const fn invalidate(connection: Connection, seq: Seq) -> Bth {
    Bth::new(Opcode::Invalidate, connection.to_qp(), seq)
}

/// The header of a packet that XDP passes up to TC: it becomes an INVALIDATE to each blade that
/// its coherence header lists, because of the request with number `seq`.
#[inline(always)]
pub const fn pass_up(request: &Bth, seq: Seq) -> Bth {
    Bth::new(Opcode::FanOut, request.dest_qp(), seq)
}

/// The header of what answers a request: same connection, same number, and whatever the switch
/// wrote into the place of the attempt.
#[inline(always)]
pub const fn answer(request: &Bth, opcode: Opcode) -> Bth {
    let mut bth = Bth::new(opcode, request.dest_qp(), request.seq());
    bth.set_attempt(request.attempt());
    bth
}

/// The header that a request gets when the directory grants it at once; `transition` tells the
/// requester which transition it caused.
#[inline(always)]
pub const fn granted(request: &Bth, opcode: Opcode, transition: Transition) -> Bth {
    let mut bth = Bth::new(opcode, request.dest_qp(), request.seq());
    bth.set_attempt(transition as u8);
    bth
}

/// The header of what completes a request when the last answer to its invalidation is in: the
/// answer's number is the request's, the connection is the requester's, `transition` tells it which
/// transition it caused.
#[inline(always)]
pub const fn complete(
    answer: &Bth,
    opcode: Opcode,
    requester: Connection,
    transition: Transition,
) -> Bth {
    let mut bth = Bth::new(opcode, requester.to_qp(), answer.seq());
    bth.set_attempt(transition as u8);
    bth
}

/// The blade that copy `number`, from 0 to 31, of a packet that XDP passed up for the blades in
/// `pending` goes to; `None` where there is no such copy. The copies differ only in their
/// destination: the rest of their headers is that of the packet, made an INVALIDATE.
///
/// Copies are numbered as blades are, rather than one after the other, so that the kernel's
/// verifier, which walks every way through the loop over them, finds few.
#[inline(always)]
pub const fn fan_out(pending: BladeSet, number: u8) -> Option<BladeId> {
    match BladeId::new(number) {
        Some(blade) if pending.contains(blade) => Some(blade),
        _ => None,
    }
}

/// The datagrams that the controller sends for what XDP handed over to it: the same as TC's copies. `connection` says
/// which connection a blade has, if it is there; those that are not get none.
pub fn copies(
    packet: HandedOver,
    mut connection: impl FnMut(BladeId) -> Option<Connection>,
) -> impl Iterator<Item = (BladeId, Option<HandedOver>)> {
    let pending = BladeSet::from_bits(packet.ceth.pending.get());
    (0..MAX_BLADES as u8).filter_map(move |number| {
        let blade = fan_out(pending, number)?;
        let copy = connection(blade).map(|connection| HandedOver {
            bth: invalidate(connection, packet.bth.seq()),
            ..packet
        });
        Some((blade, copy))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        addr::{Region, Va, WINDOW_BASE},
        directory::{Source, Target},
        serial::Episode,
        wire::{Ceth, Invalidation},
    };
    use proptest::prelude::*;
    use std::vec::Vec;

    fn connection(blade: u8, incarnation: u16) -> Connection {
        Connection {
            blade: BladeId::new(blade).expect("a blade's number"),
            incarnation,
        }
    }

    #[test]
    fn an_answer_goes_to_the_requester_under_the_same_number() {
        let mut request = Bth::new(Opcode::Read, connection(3, 7).to_qp(), Seq::new(99));
        request.set_attempt(5);
        let answer = answer(&request, Opcode::ReadResponse);
        assert_eq!(answer.opcode, Opcode::ReadResponse as u8);
        assert_eq!(answer.dest_qp(), connection(3, 7).to_qp());
        assert_eq!(answer.seq(), Seq::new(99));
        assert_eq!(answer.attempt(), 5);
        let granted = granted(&request, Opcode::Read, Transition::SharedToShared);
        assert_eq!(granted.attempt(), Transition::SharedToShared as u8);
    }

    #[test]
    fn a_completion_goes_to_the_requester_under_the_requests_number() {
        let last = Bth::new(Opcode::InvalidateAck, connection(1, 2).to_qp(), Seq::new(5));
        let done = complete(
            &last,
            Opcode::Acknowledge,
            connection(9, 4),
            Transition::SharedToModified,
        );
        assert_eq!(done.attempt(), Transition::SharedToModified as u8);
        assert_eq!(done.dest_qp(), connection(9, 4).to_qp());
        assert_eq!(done.seq(), Seq::new(5));
    }

    #[test]
    fn the_controller_sends_what_tc_would() {
        let request = Bth::new(Opcode::Upgrade, connection(0, 1).to_qp(), Seq::new(50));
        let invalidation = Invalidation {
            page: Va(WINDOW_BASE),
            region: Region::containing(Va(WINDOW_BASE), 2).expect("a small order"),
            slot: 7,
            episode: Episode::new(3),
            requester: BladeId::from_low_bits(0),
            target: Target::Invalid,
            source: Source::Grant,
        };
        let blades = BladeSet::from_bits(0b1011_0000);
        let packet = HandedOver {
            bth: pass_up(&request, request.seq()),
            ceth: Ceth::new(&invalidation, blades),
        };
        let there = |blade: BladeId| (blade.get() != 5).then(|| connection(blade.get(), 9));
        let sent: Vec<_> = copies(packet, there).collect();
        let blades: Vec<_> = sent.iter().map(|(blade, _)| blade.get()).collect();
        assert_eq!(blades, [4, 5, 7]);
        assert_eq!(sent[1].1, None, "one that is gone gets none");
        let copy = sent[2].1.expect("a copy for blade 7");
        assert_eq!(copy.bth.opcode, Opcode::Invalidate as u8);
        assert_eq!(
            (copy.bth.dest_qp(), copy.bth.seq()),
            (connection(7, 9).to_qp(), Seq::new(50))
        );
        assert_eq!(copy.ceth.invalidation(), Ok(invalidation));
    }

    proptest! {
        #[test]
        fn every_listed_blade_gets_exactly_one_copy(bits: u32) {
            let pending = BladeSet::from_bits(bits);
            let sent: Vec<_> = (0..=u8::MAX).filter_map(|copy| fan_out(pending, copy)).collect();
            let listed: Vec<_> = BladeSet::from_bits(bits).iter().collect();
            prop_assert_eq!(sent, listed);
        }
    }
}
