//! The memory blade: READ, WRITE, atomic operations.

use mind_common::{
    addr::{PAGE_SIZE, Page, Va},
    id::{Connection, DomainId},
    refusal::Refusal,
    serial::Version,
    table::PageTag,
    verdict::Verdict,
    wire::{Atomic, Opcode, Syndrome},
};
use mind_dataplane::harness::{Packet, Run, XdpAction};
use mind_machines::datagram::{Body, PageRequest};

use crate::world::{
    Expect as _, INCARNATION, PAGES, SWITCH, World, acknowledgement, blade, cases, compute, memory,
    pattern, qp,
};

cases![
    a_page_is_read_with_its_version,
    a_page_that_is_being_written_is_not_read,
    a_newer_page_is_stored,
    the_same_version_again_is_acknowledged_and_not_stored,
    an_older_version_is_refused,
    a_page_that_is_being_written_is_not_stored,
    a_page_beyond_the_store_is_refused,
    a_misaligned_or_partial_page_is_refused,
    a_short_read_is_refused_by_memory,
    a_short_write_is_refused_by_memory,
    fetch_add_adds_and_answers_what_was_there,
    compare_and_swap_swaps_when_it_compares,
    compare_and_swap_leaves_what_does_not_compare,
    an_operation_moves_the_version,
    an_operation_that_arrives_twice_is_carried_out_once,
    a_replay_answers_what_was_there_then,
    a_late_duplicate_operation_is_dropped,
    a_blades_next_incarnation_counts_anew,
    a_fenced_page_keeps_its_bytes_and_takes_no_late_write_back,
    an_incarnation_that_is_fenced_operates_no_more,
    an_operation_on_a_page_being_written_is_refused_and_may_come_again,
    a_misaligned_operation_is_refused,
    an_operation_for_no_blade_is_dropped,
    memory_is_passed_what_is_not_for_it,
    memory_answers_the_switch_only,
    memory_answers_requests_only,
    memory_drops_unknown_opcodes,
    memory_drops_what_went_round_too_long,
    memory_drops_what_is_cut_off,
    a_whole_page_survives_the_round_trip,
];

fn ask(message: &Body<&Page>) -> Packet {
    Packet::new(message, SWITCH, memory(0), qp(2))
}

fn at(offset: u64) -> PageRequest {
    PageRequest {
        page: Va(offset),
        domain: DomainId(0),
    }
}

fn read(page: u64) -> Packet {
    ask(&Body::read(at(page * PAGE_SIZE as u64)))
}

fn write(page: u64, version: u32, data: &[u8; PAGE_SIZE]) -> Packet {
    ask(&Body::Write {
        page: at(page * PAGE_SIZE as u64),
        version: Version::new(version),
        data,
    })
}

fn operate(offset: u64, operation: Atomic) -> Packet {
    ask(&Body::Atomic {
        va: Va(offset),
        domain: DomainId(0),
        operation,
    })
}

fn version(world: &World, page: usize) -> Version {
    let tag = world.bed.responder.store().tag(page).expect("a page");
    assert!(!tag.is_writing(), "a page must not stay taken");
    tag.version()
}

fn page(world: &World, number: usize) -> [u8; PAGE_SIZE] {
    world.bed.responder.store().read(number).expect("a page")
}

fn take(world: &World, number: usize) {
    let tag = PageTag::settled(Version::new(10)).writing();
    world
        .bed
        .responder
        .store()
        .set_tag(number, tag)
        .expect("a page");
}

fn word(world: &World, offset: usize) -> u64 {
    let page = page(world, offset / PAGE_SIZE);
    let at = offset % PAGE_SIZE;
    u64::from_ne_bytes(page[at..at + 8].try_into().expect("8 bytes"))
}

/// The answer to request `seq`.
fn answer(run: &Run<XdpAction>, verdict: Verdict, seq: u32) -> Body<&Page> {
    assert_eq!(run.frame.from(), memory(0));
    run.met(verdict).to(SWITCH, qp(2), seq)
}

fn a_page_is_read_with_its_version(world: &mut World) {
    let run = world.serve(&read(3).seq(70));
    let expected = Body::ReadResponse {
        version: Version::new(10),
        data: &pattern(3),
    };
    assert_eq!(answer(&run, Verdict::Read, 70), expected);
}

fn a_page_that_is_being_written_is_not_read(world: &mut World) {
    take(world, 1);
    let run = world.serve(&read(1));
    run.met(Verdict::PageBusy).refused(SWITCH, Refusal::Busy);
}

fn a_newer_page_is_stored(world: &mut World) {
    let data = pattern(0x77);
    let run = world.serve(&write(1, 11, &data).seq(70));
    let expected = Body::Acknowledge {
        syndrome: Syndrome::Ack,
        version: Version::new(11),
    };
    assert_eq!(answer(&run, Verdict::Stored, 70), expected);
    assert_eq!(page(world, 1), data);
    assert_eq!(version(world, 1), Version::new(11));
    assert_eq!(page(world, 0), pattern(0), "its neighbour stays");
    assert_eq!(page(world, 2), pattern(2), "its neighbour stays");
}

fn the_same_version_again_is_acknowledged_and_not_stored(world: &mut World) {
    let run = world.serve(&write(1, 10, &pattern(0x77)));
    let expected = Body::Acknowledge {
        syndrome: Syndrome::Ack,
        version: Version::new(10),
    };
    assert_eq!(answer(&run, Verdict::Duplicate, 1), expected);
    assert_eq!(page(world, 1), pattern(1));
}

fn an_older_version_is_refused(world: &mut World) {
    let run = world.serve(&write(1, 9, &pattern(0x77)));
    run.met(Verdict::Outdated).refused(SWITCH, Refusal::Stale);
    assert_eq!(page(world, 1), pattern(1));
    assert_eq!(version(world, 1), Version::new(10));
}

fn a_page_that_is_being_written_is_not_stored(world: &mut World) {
    take(world, 1);
    let run = world.serve(&write(1, 11, &pattern(0x77)));
    run.met(Verdict::PageBusy).refused(SWITCH, Refusal::Busy);
    assert_eq!(page(world, 1), pattern(1));
}

fn a_page_beyond_the_store_is_refused(world: &mut World) {
    for offset in [PAGES as u64 * PAGE_SIZE as u64, 1 << 44, u64::MAX << 12] {
        let run = world.serve(&ask(&Body::read(at(offset))));
        run.met(Verdict::OutOfRange)
            .refused(SWITCH, Refusal::Unreachable);
    }
}

fn a_misaligned_or_partial_page_is_refused(world: &mut World) {
    for packet in [
        read(1).extended(7, &[8]),
        read(1).extended(12, &2048_u32.to_be_bytes()),
        write(1, 11, &pattern(0)).extended(7, &[8]),
    ] {
        let run = world.serve(&packet);
        run.met(Verdict::Invalid).refused(SWITCH, Refusal::Invalid);
    }
}

fn a_short_read_is_refused_by_memory(world: &mut World) {
    let run = world.serve(&read(1).payload_len(4111));
    run.met(Verdict::Invalid).refused(SWITCH, Refusal::Invalid);
}

fn a_short_write_is_refused_by_memory(world: &mut World) {
    let run = world.serve(&write(1, 11, &pattern(0)).payload_len(4127));
    run.met(Verdict::Invalid).refused(SWITCH, Refusal::Invalid);
    assert_eq!(page(world, 1), pattern(1));
}

fn was(original: u64) -> Body<&'static Page> {
    Body::AtomicAcknowledge {
        syndrome: Syndrome::Ack,
        original,
    }
}

fn fetch_add_adds_and_answers_what_was_there(world: &mut World) {
    let before = word(world, 0x1010);
    let run = world.serve(&operate(0x1010, Atomic::FetchAdd { addend: u64::MAX }));
    assert_eq!(answer(&run, Verdict::Operated, 1), was(before));
    assert_eq!(word(world, 0x1010), before.wrapping_sub(1));
}

fn compare_and_swap_swaps_when_it_compares(world: &mut World) {
    let expected = word(world, 0x1ff8);
    let run = world.serve(&operate(0x1ff8, Atomic::CmpSwap { expected, new: 7 }));
    assert_eq!(answer(&run, Verdict::Operated, 1), was(expected));
    assert_eq!(word(world, 0x1ff8), 7);
}

fn compare_and_swap_leaves_what_does_not_compare(world: &mut World) {
    let before = word(world, 0x1000);
    let expected = before ^ 1;
    let run = world.serve(&operate(0x1000, Atomic::CmpSwap { expected, new: 7 }));
    assert_eq!(answer(&run, Verdict::Operated, 1), was(before));
    assert_eq!(word(world, 0x1000), before);
}

fn an_operation_moves_the_version(world: &mut World) {
    world.serve(&operate(0x1000, Atomic::FetchAdd { addend: 1 }));
    assert_eq!(version(world, 1), Version::new(11));
}

fn an_operation_that_arrives_twice_is_carried_out_once(world: &mut World) {
    let before = word(world, 0x1000);
    let packet = operate(0x1000, Atomic::FetchAdd { addend: 1 });
    world.serve(&packet).met(Verdict::Operated);
    let run = world.serve(&packet);
    assert_eq!(answer(&run, Verdict::Replayed, 1), was(before));
    assert_eq!(word(world, 0x1000), before.wrapping_add(1));
    assert_eq!(version(world, 1), Version::new(11));
}

fn a_replay_answers_what_was_there_then(world: &mut World) {
    let before = word(world, 0x1000);
    let packet = operate(0x1000, Atomic::FetchAdd { addend: 1 });
    world.serve(&packet).met(Verdict::Operated);
    world
        .serve(&write(1, 12, &pattern(0x55)))
        .met(Verdict::Stored);
    let run = world.serve(&packet);
    assert_eq!(answer(&run, Verdict::Replayed, 1), was(before));
}

fn a_late_duplicate_operation_is_dropped(world: &mut World) {
    let packet = operate(0x1000, Atomic::FetchAdd { addend: 1 });
    world.serve(&packet.clone().seq(9)).met(Verdict::Operated);
    let after = word(world, 0x1000);
    world.serve(&packet.seq(8)).met(Verdict::StaleOperation);
    assert_eq!(word(world, 0x1000), after);
}

fn a_blades_next_incarnation_counts_anew(world: &mut World) {
    let incarnation_of = |incarnation| {
        let connection = Connection {
            blade: blade(2),
            incarnation,
        };
        operate(0x1000, Atomic::FetchAdd { addend: 1 }).qp(connection.to_qp())
    };
    world
        .serve(&incarnation_of(INCARNATION).seq(900))
        .met(Verdict::Operated);
    world
        .serve(&incarnation_of(INCARNATION + 1))
        .met(Verdict::Operated);
    let late = world.serve(&incarnation_of(INCARNATION).seq(901));
    late.met(Verdict::StaleOperation);
}

fn a_fenced_page_keeps_its_bytes_and_takes_no_late_write_back(world: &mut World) {
    world.bed.responder.store().fence(1, 2).expect("pages");
    assert_eq!(version(world, 1), Version::new(11));
    assert_eq!(version(world, 3), Version::new(10), "only those");
    // The write-back that the former owner had under way: answered like a repeat.
    let late = world.serve(&write(1, 11, &pattern(0x55)));
    late.met(Verdict::Duplicate);
    assert_eq!(page(world, 1), pattern(1));
    // The next owner's.
    world
        .serve(&write(1, 12, &pattern(0x66)))
        .met(Verdict::Stored);
    assert_eq!(page(world, 1), pattern(0x66));
    assert!(world.bed.responder.store().fence(PAGES, 1).is_err());
}

fn an_incarnation_that_is_fenced_operates_no_more(world: &mut World) {
    let incarnation_of = |incarnation| Connection {
        blade: blade(2),
        incarnation,
    };
    let packet = |incarnation| {
        let packet = operate(0x1000, Atomic::FetchAdd { addend: 1 });
        packet.qp(incarnation_of(incarnation).to_qp())
    };
    for seq in [900, 901] {
        let run = world.serve(&packet(INCARNATION).seq(seq));
        run.met(match seq {
            900 => Verdict::Operated,
            _ => Verdict::StaleOperation,
        });
        world
            .bed
            .responder
            .store()
            .fence_blade(incarnation_of(INCARNATION));
    }
    let late = world.serve(&packet(INCARNATION).seq(900));
    late.met(Verdict::StaleOperation);
    world
        .serve(&packet(INCARNATION + 1).seq(7))
        .met(Verdict::Operated);
    // A fence that comes late does not affect the next incarnation.
    world
        .bed
        .responder
        .store()
        .fence_blade(incarnation_of(INCARNATION));
    world
        .serve(&packet(INCARNATION + 1).seq(8))
        .met(Verdict::Operated);
}

fn an_operation_on_a_page_being_written_is_refused_and_may_come_again(world: &mut World) {
    take(world, 1);
    let packet = operate(0x1000, Atomic::FetchAdd { addend: 1 });
    let run = world.serve(&packet);
    run.met(Verdict::PageBusy).refused(SWITCH, Refusal::Busy);
    let free = PageTag::settled(Version::new(10));
    world
        .bed
        .responder
        .store()
        .set_tag(1, free)
        .expect("a page");
    world.serve(&packet).met(Verdict::Operated);
}

fn a_misaligned_operation_is_refused(world: &mut World) {
    let packet = operate(0x1000, Atomic::FetchAdd { addend: 1 }).extended(7, &[4]);
    let run = world.serve(&packet);
    run.met(Verdict::Invalid).refused(SWITCH, Refusal::Invalid);
}

fn an_operation_for_no_blade_is_dropped(world: &mut World) {
    let packet = operate(0x1000, Atomic::FetchAdd { addend: 1 }).qp(0x00_0540);
    world.serve(&packet).met(Verdict::StaleConnection);
}

fn memory_is_passed_what_is_not_for_it(world: &mut World) {
    let packet = read(1).ip(16, &memory(1).ipv4.octets());
    world.serve(&packet).met(Verdict::Foreign);
    let packet = read(1).udp(2, &[0, 53]);
    world.serve(&packet).met(Verdict::Foreign);
}

fn memory_answers_the_switch_only(world: &mut World) {
    let packet = read(1).ip(12, &compute(0).ipv4.octets());
    world.serve(&packet).met(Verdict::NotFromSwitch);
}

fn memory_answers_requests_only(world: &mut World) {
    for opcode in Opcode::ALL {
        let is_request = matches!(
            opcode,
            Opcode::Read | Opcode::Write | Opcode::CmpSwap | Opcode::FetchAdd
        );
        if !is_request {
            let packet = ask(&acknowledgement()).opcode(opcode as u8);
            world.serve(&packet).met(Verdict::UnexpectedOpcode);
        }
    }
}

fn memory_drops_unknown_opcodes(world: &mut World) {
    let packet = read(1).opcode(0x04);
    world.serve(&packet).met(Verdict::UnknownOpcode);
}

fn memory_drops_what_went_round_too_long(world: &mut World) {
    world.serve(&read(1).ttl(1)).met(Verdict::Expired);
}

fn memory_drops_what_is_cut_off(world: &mut World) {
    world.serve(&read(1).cut_to(4000)).met(Verdict::Truncated);
}

fn a_whole_page_survives_the_round_trip(world: &mut World) {
    let data = pattern(0xee);
    world.serve(&write(2, 11, &data)).met(Verdict::Stored);
    let run = world.serve(&read(2));
    let expected = Body::ReadResponse {
        version: Version::new(11),
        data: &data,
    };
    assert_eq!(answer(&run, Verdict::Read, 1), expected);
}
