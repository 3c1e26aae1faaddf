//! Frames of other protocols, corrupted frames, and frames from the wrong port.

use mind_common::{
    addr::WINDOW_BASE,
    directory::{Source, State, Target},
    id::Connection,
    refusal::Refusal,
    table::HEADERS_LEN,
    verdict::Verdict,
    wire::Opcode,
};
use mind_machines::datagram::Body;

use crate::world::{
    Expect as _, INCARNATION, PAGE, SWITCH, World, ack, ack_fetch, acknowledgement, blade, cases,
    compute, forward, from_memory, invalidation, operate, pattern, qp, read, upgrade, write_back,
};
use mind_common::wire::Atomic;
use mind_dataplane::harness::Packet;

cases![
    arp_is_foreign,
    a_frame_shorter_than_our_headers_is_foreign,
    ipv6_is_foreign,
    tcp_is_foreign,
    another_udp_port_is_foreign,
    a_switch_without_identity_takes_nothing_for_its_own,
    a_foreign_frame_at_no_port_is_passed,
    ours_at_no_port_is_dropped,
    ours_at_a_port_of_nothing_is_dropped,
    headers_cut_off_are_dropped,
    a_frame_shorter_than_its_lengths_is_dropped,
    lengths_that_disagree_are_dropped,
    a_datagram_without_room_for_a_message_is_dropped,
    a_read_shorter_than_its_answer_is_refused,
    a_write_without_its_page_is_refused,
    an_answer_too_short_to_complete_is_dropped,
    a_forward_without_its_page_is_dropped,
    an_unknown_opcode_is_dropped,
    the_internal_opcode_is_dropped_at_a_compute_port,
    the_internal_opcode_is_dropped_at_a_memory_port,
    a_compute_blade_may_not_answer_as_memory_does,
    a_compute_blade_may_not_invalidate,
    a_memory_blade_may_not_ask,
    a_memory_blade_may_not_answer_invalidations,
    another_blades_connection_is_an_impostors,
    an_earlier_incarnation_is_an_impostors,
    memorys_answer_to_an_earlier_incarnation_is_dropped,
    memorys_answer_to_a_blade_that_is_gone_is_dropped,
    memorys_answer_to_no_blade_is_dropped,
    a_frame_that_went_round_too_long_is_dropped,
    a_corrupted_header_stays_corrupted,
    a_page_outside_of_the_window_is_refused,
    a_misaligned_page_is_refused,
    a_wrong_length_is_refused,
    a_misaligned_word_is_refused,
    a_coherence_header_that_nobody_sends_is_dropped,
    memorys_answers_reach_who_asked,
    memorys_atomic_answers_reach_who_asked,
    pages_from_memory_reach_who_asked,
];

fn is_foreign(world: &mut World, packet: &Packet) {
    world.send(0, packet).met(Verdict::Foreign);
}

fn arp_is_foreign(world: &mut World) {
    is_foreign(world, &read(0, PAGE).put(12, &[0x08, 0x06]));
}

fn a_frame_shorter_than_our_headers_is_foreign(world: &mut World) {
    is_foreign(world, &read(0, PAGE).put(12, &[0x08, 0x06]).cut_to(14));
    is_foreign(world, &read(0, PAGE).ip(9, &[6]).cut_to(41));
}

fn ipv6_is_foreign(world: &mut World) {
    is_foreign(world, &read(0, PAGE).put(12, &[0x86, 0xdd]));
}

fn tcp_is_foreign(world: &mut World) {
    is_foreign(world, &read(0, PAGE).ip(9, &[6]));
}

fn another_udp_port_is_foreign(world: &mut World) {
    is_foreign(world, &read(0, PAGE).udp(2, &4792_u16.to_be_bytes()));
}

fn a_switch_without_identity_takes_nothing_for_its_own(world: &mut World) {
    let no_address = std::net::Ipv4Addr::UNSPECIFIED;
    world
        .bed
        .switch
        .set_identity(no_address, [0; 6])
        .expect("the identity can be set");
    is_foreign(world, &read(0, PAGE).ip(9, &[6]));
    world.send(0, &read(0, PAGE)).met(Verdict::Bypass);
}

fn a_foreign_frame_at_no_port_is_passed(world: &mut World) {
    let arp = read(0, PAGE).put(12, &[0x08, 0x06]);
    world.send_at(World::NO_PORT, &arp).met(Verdict::Foreign);
}

fn ours_at_no_port_is_dropped(world: &mut World) {
    let run = world.send_at(World::NO_PORT, &read(0, PAGE));
    run.met(Verdict::UnknownPort);
}

fn ours_at_a_port_of_nothing_is_dropped(world: &mut World) {
    let port = world.port(0);
    let nothing = mind_common::table::Port::default();
    world
        .bed
        .switch
        .set_port(port, nothing)
        .expect("a port can be cleared");
    world.send(0, &read(0, PAGE)).met(Verdict::UnknownPort);
}

fn headers_cut_off_are_dropped(world: &mut World) {
    for len in [42, 54, HEADERS_LEN - 1] {
        let packet = upgrade(0, PAGE).cut_to(len);
        world.send(0, &packet).met(Verdict::Truncated);
    }
}

fn a_frame_shorter_than_its_lengths_is_dropped(world: &mut World) {
    let packet = read(0, PAGE).cut_to(4000);
    world.send(0, &packet).met(Verdict::Truncated);
}

fn lengths_that_disagree_are_dropped(world: &mut World) {
    let packet = read(0, PAGE).udp(4, &100_u16.to_be_bytes());
    world.send(0, &packet).met(Verdict::Truncated);
    let packet = read(0, PAGE).ip(2, &100_u16.to_be_bytes());
    world.send(0, &packet).met(Verdict::Truncated);
}

fn a_datagram_without_room_for_a_message_is_dropped(world: &mut World) {
    // The frame is long enough; the datagram in it is not.
    let packet = upgrade(0, PAGE)
        .udp(4, &20_u16.to_be_bytes())
        .ip(2, &40_u16.to_be_bytes());
    world.send(0, &packet).met(Verdict::Truncated);
}

fn a_read_shorter_than_its_answer_is_refused(world: &mut World) {
    let packet = read(0, PAGE).payload_len(4111);
    let run = world.send(0, &packet);
    run.met(Verdict::Invalid)
        .refused(compute(0), Refusal::Invalid);
    assert_eq!(world.word().state(), State::Invalid);
}

fn a_write_without_its_page_is_refused(world: &mut World) {
    world.set_word(State::Modified, [0]);
    let packet = write_back(0, PAGE, 1, &pattern(0)).payload_len(4127);
    let run = world.send(0, &packet);
    run.met(Verdict::Invalid)
        .refused(compute(0), Refusal::Invalid);
}

fn an_answer_too_short_to_complete_is_dropped(world: &mut World) {
    world.set_busy(State::SharedToModified, 0, [1]);
    let answer = invalidation(0, 10, Target::Invalid, Source::Fetch);
    let packet = ack_fetch(1, answer).payload_len(1000);
    world.send(1, &packet).met(Verdict::Truncated);
    assert_eq!(world.word().state(), State::SharedToModified);
}

fn a_forward_without_its_page_is_dropped(world: &mut World) {
    world.set_busy(State::ModifiedToModified, 0, [1]);
    let answer = invalidation(0, 10, Target::Invalid, Source::Forward);
    let packet = forward(1, answer, &pattern(0)).payload_len(4139);
    world.send(1, &packet).met(Verdict::Truncated);
    assert_eq!(world.word().state(), State::ModifiedToModified);
}

fn an_unknown_opcode_is_dropped(world: &mut World) {
    for opcode in [0x00, 0x04, 0xc7, 0xff] {
        let packet = upgrade(0, PAGE).opcode(opcode);
        world.send(0, &packet).met(Verdict::UnknownOpcode);
    }
}

fn the_internal_opcode_is_dropped_at_a_compute_port(world: &mut World) {
    let packet = upgrade(0, PAGE).opcode(Opcode::FanOut as u8);
    world.send(0, &packet).met(Verdict::Internal);
}

fn the_internal_opcode_is_dropped_at_a_memory_port(world: &mut World) {
    let packet = from_memory(0, 0, &acknowledgement()).opcode(Opcode::FanOut as u8);
    world.send_from_memory(0, &packet).met(Verdict::Internal);
}

fn a_compute_blade_may_not_answer_as_memory_does(world: &mut World) {
    for opcode in [
        Opcode::ReadResponse,
        Opcode::Acknowledge,
        Opcode::AtomicAcknowledge,
    ] {
        let packet = upgrade(0, PAGE).opcode(opcode as u8);
        world.send(0, &packet).met(Verdict::UnexpectedOpcode);
    }
}

fn a_compute_blade_may_not_invalidate(world: &mut World) {
    let packet = upgrade(0, PAGE).opcode(Opcode::Invalidate as u8);
    world.send(0, &packet).met(Verdict::UnexpectedOpcode);
}

fn a_memory_blade_may_not_ask(world: &mut World) {
    for opcode in [
        Opcode::Read,
        Opcode::Acquire,
        Opcode::Write,
        Opcode::FetchAdd,
    ] {
        let packet = read(0, PAGE).opcode(opcode as u8);
        let run = world.send_from_memory(0, &packet);
        run.met(Verdict::UnexpectedOpcode);
    }
}

fn a_memory_blade_may_not_answer_invalidations(world: &mut World) {
    world.set_busy(State::SharedToModified, 0, [1]);
    let packet = ack(1, invalidation(0, 10, Target::Invalid, Source::Grant));
    let run = world.send_from_memory(0, &packet);
    run.met(Verdict::UnexpectedOpcode);
    assert_eq!(world.word().state(), State::SharedToModified);
}

fn another_blades_connection_is_an_impostors(world: &mut World) {
    world.send(0, &read(1, PAGE)).met(Verdict::Impostor);
    assert_eq!(world.word().state(), State::Invalid);
}

fn an_earlier_incarnation_is_an_impostors(world: &mut World) {
    let earlier = Connection {
        blade: blade(0),
        incarnation: INCARNATION - 1,
    };
    let packet = read(0, PAGE).qp(earlier.to_qp());
    world.send(0, &packet).met(Verdict::Impostor);
}

fn memorys_answer_to_an_earlier_incarnation_is_dropped(world: &mut World) {
    let earlier = Connection {
        blade: blade(2),
        incarnation: INCARNATION - 1,
    };
    let packet = from_memory(0, 2, &acknowledgement()).qp(earlier.to_qp());
    let run = world.send_from_memory(0, &packet);
    run.met(Verdict::StaleConnection);
}

fn memorys_answer_to_a_blade_that_is_gone_is_dropped(world: &mut World) {
    world.set_compute(2, false);
    let packet = from_memory(0, 2, &acknowledgement());
    let run = world.send_from_memory(0, &packet);
    run.met(Verdict::StaleConnection);
}

fn memorys_answer_to_no_blade_is_dropped(world: &mut World) {
    let packet = from_memory(0, 2, &acknowledgement()).qp(0x00_0540);
    let run = world.send_from_memory(0, &packet);
    run.met(Verdict::StaleConnection);
}

fn a_frame_that_went_round_too_long_is_dropped(world: &mut World) {
    for ttl in [0, 1] {
        world.send(0, &read(0, PAGE).ttl(ttl)).met(Verdict::Expired);
    }
    assert_eq!(world.word().state(), State::Invalid);
}

fn a_corrupted_header_stays_corrupted(world: &mut World) {
    // A bit of the identification turned on the way: the checksum must not be made right.
    let packet = read(0, PAGE).put(14 + 4, &[0x10]);
    let port = world.port(0);
    let run = world
        .bed
        .ingress(port, packet.bytes())
        .expect("the kernel runs the program");
    run.met(Verdict::Fetch);
    assert!(!run.frame.has_right_checksum());
}

fn is_invalid(world: &mut World, packet: &Packet) {
    let run = world.send(0, packet);
    run.met(Verdict::Invalid)
        .refused(compute(0), Refusal::Invalid);
}

fn a_page_outside_of_the_window_is_refused(world: &mut World) {
    let above = (WINDOW_BASE + mind_common::addr::WINDOW_SIZE).to_be_bytes();
    for va in [
        (WINDOW_BASE - 4096).to_be_bytes(),
        above,
        [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xf0, 0],
    ] {
        is_invalid(world, &read(0, PAGE).extended(0, &va));
    }
}

fn a_misaligned_page_is_refused(world: &mut World) {
    let va = (PAGE.0 + 8).to_be_bytes();
    is_invalid(world, &read(0, PAGE).extended(0, &va));
}

fn a_wrong_length_is_refused(world: &mut World) {
    for len in [0_u32, 4095, 8192, u32::MAX] {
        is_invalid(world, &read(0, PAGE).extended(12, &len.to_be_bytes()));
    }
}

fn a_misaligned_word_is_refused(world: &mut World) {
    let va = (PAGE.0 + 4).to_be_bytes();
    let packet = operate(0, PAGE, Atomic::FetchAdd { addend: 1 }).extended(0, &va);
    is_invalid(world, &packet);
}

fn a_coherence_header_that_nobody_sends_is_dropped(world: &mut World) {
    let good = || ack(1, invalidation(0, 10, Target::Invalid, Source::Grant));
    // Address, order, requester, target, source.
    for corrupted in [
        good().extended(7, &[1]),
        good().extended(0, &[0xff]),
        good().extended(20, &[10]),
        good().extended(21, &[32]),
        good().extended(22, &[2]),
        good().extended(23, &[3]),
    ] {
        world.set_busy(State::SharedToModified, 0, [1]);
        world.send(1, &corrupted).met(Verdict::Malformed);
        assert_eq!(world.word().state(), State::SharedToModified);
    }
}

fn memorys_answers_reach_who_asked(world: &mut World) {
    let packet = from_memory(1, 2, &acknowledgement()).seq(77);
    let run = world.send_from_memory(1, &packet);
    let message = run.met(Verdict::Delivered).to(compute(2), qp(2), 77);
    assert_eq!(message, acknowledgement());
    assert_eq!(run.frame.from(), SWITCH);
}

fn memorys_atomic_answers_reach_who_asked(world: &mut World) {
    let answer = Body::AtomicAcknowledge {
        syndrome: mind_common::wire::Syndrome::Ack,
        original: 42,
    };
    let run = world.send_from_memory(0, &from_memory(0, 3, &answer));
    let message = run.met(Verdict::Delivered).to(compute(3), qp(3), 1);
    assert_eq!(message, answer);
}

fn pages_from_memory_reach_who_asked(world: &mut World) {
    let data = pattern(9);
    let answer = Body::ReadResponse {
        version: mind_common::serial::Version::new(3),
        data: &data,
    };
    let run = world.send_from_memory(0, &from_memory(0, 1, &answer));
    assert_eq!(run.met(Verdict::Delivered).to(compute(1), qp(1), 1), answer);
}
