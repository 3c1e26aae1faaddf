//! TC: what it multiplies, and what it leaves alone.
//!
//! A test run of a TC program takes frames of one memory page at most, so these are shorter than
//! on the wire.

use mind_common::{
    directory::{Source, State, Target},
    serial::Seq,
    verdict::Verdict,
    wire::{OUTER_LEN, Opcode, SHORT_REQUEST_LEN},
};
use mind_dataplane::harness::Packet;
use mind_machines::datagram::{Body, Datagram};

use crate::world::{
    COMPUTE_BLADES, PAGE, SWITCH, World, cases, compute, invalidation, qp, read, upgrade,
};

cases![
    every_listed_blade_gets_its_own_invalidate,
    a_padded_frame_is_trimmed_first,
    a_blade_that_is_gone_is_left_out_and_counted,
    a_blade_without_a_device_is_left_out_and_counted,
    a_frame_for_nobody_is_consumed,
    frames_of_other_opcodes_are_left_alone,
    frames_for_others_are_left_alone,
    frames_cut_off_are_left_alone,
    frames_at_a_port_without_tc_are_left_alone,
    a_frame_that_was_tagged_comes_from_outside,
];

/// Continue with the next program (`TC_ACT_UNSPEC`).
const LEFT_ALONE: i32 = -1;
/// End here (`TC_ACT_SHOT`).
const SHOT: i32 = 2;

/// What XDP passes up when blade 0 upgrades among blades 0 to 3.
fn passed_up(world: &mut World) -> Packet {
    world.set_word(State::Shared, [0, 1, 2, 3]);
    let packet = upgrade(0, PAGE).seq(50);
    let run = world.send(0, &packet);
    assert_eq!(run.verdict, Verdict::PassedUp);
    packet.put(0, run.frame.bytes())
}

fn got_its_invalidate(world: &mut World, number: u8) {
    let frames = world.sent_to(number);
    assert_eq!(frames.len(), 1, "blade {number} gets one frame");
    let frame = &frames[0];
    assert_eq!(frame.bytes().len(), OUTER_LEN + SHORT_REQUEST_LEN);
    assert_eq!((frame.from(), frame.to()), (SWITCH, compute(number)));
    assert!(frame.has_right_checksum() && frame.has_right_lengths() && frame.has_right_ports());
    let Datagram {
        envelope,
        body: message,
    } = frame.datagram().expect("a message that blades get");
    assert_eq!((envelope.qp, envelope.seq), (qp(number), Seq::new(50)));
    let expected = invalidation(0, 11, Target::Invalid, Source::Grant);
    assert_eq!(message, Body::Invalidate(expected));
}

fn every_listed_blade_gets_its_own_invalidate(world: &mut World) {
    let packet = passed_up(world);
    let run = world.hand_to_tc(0, packet.bytes(), false);
    assert_eq!(run, (SHOT, Some(Verdict::FannedOut)));
    for number in 1..=3 {
        got_its_invalidate(world, number);
    }
    assert!(world.sent_to(0).is_empty(), "the requester gets none");
}

fn a_padded_frame_is_trimmed_first(world: &mut World) {
    let packet = passed_up(world).payload_len(3000);
    let run = world.hand_to_tc(0, packet.bytes(), false);
    assert_eq!(run, (SHOT, Some(Verdict::FannedOut)));
    for number in 1..=3 {
        got_its_invalidate(world, number);
    }
}

fn a_blade_that_is_gone_is_left_out_and_counted(world: &mut World) {
    let packet = passed_up(world);
    world.set_compute(2, false);
    let run = world.hand_to_tc(0, packet.bytes(), false);
    assert_eq!(run, (SHOT, Some(Verdict::DeadBlade)));
    got_its_invalidate(world, 1);
    got_its_invalidate(world, 3);
}

fn a_blade_without_a_device_is_left_out_and_counted(world: &mut World) {
    let packet = passed_up(world);
    world.misplace_compute(1);
    let run = world.hand_to_tc(0, packet.bytes(), false);
    assert_eq!(run, (SHOT, Some(Verdict::CopyFailed)));
    got_its_invalidate(world, 2);
    got_its_invalidate(world, 3);
}

fn a_frame_for_nobody_is_consumed(world: &mut World) {
    let packet = passed_up(world).extended(12, &[0; 4]);
    let run = world.hand_to_tc(0, packet.bytes(), false);
    assert_eq!(run, (SHOT, Some(Verdict::FannedOut)));
}

fn is_left_alone(world: &mut World, packet: &Packet) {
    let run = world.hand_to_tc(0, packet.bytes(), false);
    assert_eq!(run, (LEFT_ALONE, None));
    for number in 0..COMPUTE_BLADES {
        assert!(world.sent_to(number).is_empty());
    }
}

fn frames_of_other_opcodes_are_left_alone(world: &mut World) {
    for opcode in Opcode::ALL {
        if opcode != Opcode::FanOut {
            let packet = passed_up(world).opcode(opcode as u8);
            is_left_alone(world, &packet);
        }
    }
}

fn frames_for_others_are_left_alone(world: &mut World) {
    let packet = passed_up(world).ip(16, &compute(1).ipv4.octets());
    is_left_alone(world, &packet);
    let packet = passed_up(world).udp(2, &[0, 53]);
    is_left_alone(world, &packet);
    let packet = passed_up(world).ip(6, &[0x20, 0]);
    is_left_alone(world, &packet);
    let packet = passed_up(world).vlan();
    is_left_alone(world, &packet);
}

fn frames_cut_off_are_left_alone(world: &mut World) {
    let packet = passed_up(world).cut_to(80);
    is_left_alone(world, &packet);
}

fn frames_at_a_port_without_tc_are_left_alone(world: &mut World) {
    let packet = passed_up(world);
    world.set_fans_out(0, false);
    is_left_alone(world, &packet);
}

fn a_frame_that_was_tagged_comes_from_outside(world: &mut World) {
    // XDP drops it with its tag; were it not for that, the kernel would take the tag off before TC.
    let packet = passed_up(world);
    let run = world.hand_to_tc(0, packet.bytes(), true);
    assert_eq!(run, (SHOT, Some(Verdict::Internal)));
    for number in 0..COMPUTE_BLADES {
        assert!(world.sent_to(number).is_empty());
    }
    let _ = read(0, PAGE);
}
