//! READ, ACQUIRE and UPGRADE: the transitions of the directory, and what is refused.

use mind_common::{
    addr::{PAGE_SIZE, Page, Region, Va},
    directory::{Origin, Prior, Source, State, Target, Transition},
    id::{BladeSet, DomainId},
    refusal::Refusal,
    serial::{Episode, Seq},
    verdict::Verdict,
    wire::{Ceth, Invalidation, Opcode, Syndrome},
};
use mind_dataplane::Taken;
use mind_machines::datagram::{Body, Datagram, PageRequest};
use zerocopy::FromBytes as _;

use crate::world::{
    ABSENT, BLOCKLESS, Expect as _, OFFSET, OUTLIER, OUTLIER_OFFSET, PAGE, READ_ONLY, SLOTLESS,
    SWITCH, UNPERMITTED, UNSERVED, World, acknowledgement, acquire, blade, blades, cases, compute,
    invalidation, memory, qp, read, upgrade,
};

cases![
    reading_an_uncached_page_fetches_it,
    reading_a_shared_page_fetches_it,
    reading_again_as_a_sharer_fetches_it_and_changes_nothing,
    reading_ones_own_modified_page_fetches_it,
    acquiring_an_uncached_page_fetches_it,
    acquiring_as_the_only_sharer_fetches_it,
    acquiring_ones_own_page_fetches_it,
    upgrading_as_the_only_sharer_is_granted,
    upgrading_ones_own_page_is_granted,
    a_page_is_fetched_under_the_requests_number_on_its_connection,
    a_page_is_fetched_from_where_it_is_kept,
    a_longer_prefix_overrides_translation,
    what_follows_the_headers_stays,
    grants_are_counted_as_accesses,
    upgrading_without_a_copy_is_refused,
    upgrading_somebody_elses_page_is_refused,
    acquiring_from_one_sharer_invalidates_it,
    acquiring_from_three_sharers_is_passed_up,
    upgrading_among_three_sharers_is_passed_up,
    reading_from_an_owner_makes_it_share,
    acquiring_from_an_owner_takes_it,
    what_began_an_episode_is_noted,
    a_busy_region_refuses,
    a_held_region_refuses,
    a_region_whose_writes_are_lost_is_out_of_reach,
    a_free_slot_refuses,
    a_repeat_on_a_busy_region_repeats_what_is_owed,
    somebody_elses_repeat_carries_the_first_requests_number_and_page,
    a_repeat_to_several_is_passed_up,
    a_repeat_whose_origin_is_not_noted_is_refused,
    a_late_note_does_not_replace_a_later_one,
    several_without_tc_are_dropped,
    several_are_handed_over_where_the_port_says_so,
    what_the_controller_does_not_take_is_dropped,
    a_sharer_that_is_gone_is_counted,
    a_sharer_without_a_device_is_counted,
    a_domain_that_is_not_placed_is_refused,
    a_domain_beyond_the_table_is_refused,
    reading_without_a_permission_is_refused,
    writing_a_read_only_page_is_refused,
    reading_a_read_only_page_is_served,
    a_page_without_a_slot_is_refused,
    a_page_in_a_block_without_a_table_is_refused,
    a_page_that_no_memory_blade_serves_is_refused,
    a_page_of_a_memory_blade_that_is_gone_is_refused,
    a_slot_of_another_region_is_refused,
    a_denied_request_changes_no_word,
];

/// The READ that memory blade 0 gets for a page kept at `offset`.
fn fetched(offset: u64) -> Body<&'static Page> {
    Body::read(PageRequest {
        page: Va(offset),
        domain: DomainId(0),
    })
}

fn reading_an_uncached_page_fetches_it(world: &mut World) {
    let run = world.send(0, &read(0, PAGE));
    let message = run.met(Verdict::Fetch).to(memory(0), qp(0), 1);
    assert_eq!(message, fetched(OFFSET));
    assert_eq!(run.frame.from(), SWITCH);
    let word = world.word();
    assert_eq!((word.state(), word.blades()), (State::Shared, blades([0])));
}

fn reading_a_shared_page_fetches_it(world: &mut World) {
    world.set_word(State::Shared, [1, 3]);
    world.send(0, &read(0, PAGE)).met(Verdict::Fetch);
    let word = world.word();
    assert_eq!(word.state(), State::Shared);
    assert_eq!(word.blades(), blades([0, 1, 3]));
}

fn reading_again_as_a_sharer_fetches_it_and_changes_nothing(world: &mut World) {
    world.set_word(State::Shared, [0, 1]);
    let before = world.word();
    let run = world.send(0, &read(0, PAGE));
    run.met(Verdict::Fetch).by(Transition::SharedToShared);
    assert_eq!(world.word(), before);
}

fn reading_ones_own_modified_page_fetches_it(world: &mut World) {
    world.set_word(State::Modified, [0]);
    let before = world.word();
    world.send(0, &read(0, PAGE)).met(Verdict::Fetch);
    assert_eq!(world.word(), before);
}

fn owner_is_blade_0(world: &World) {
    let word = world.word();
    assert_eq!(word.state(), State::Modified);
    assert_eq!(word.blades(), blades([0]));
}

fn acquiring_an_uncached_page_fetches_it(world: &mut World) {
    let run = world.send(0, &acquire(0, PAGE));
    let run = run.met(Verdict::Fetch).by(Transition::InvalidToModified);
    let message = run.to(memory(0), qp(0), 1);
    // Memory knows no ACQUIRE.
    assert_eq!(message, fetched(OFFSET));
    owner_is_blade_0(world);
}

fn acquiring_as_the_only_sharer_fetches_it(world: &mut World) {
    world.set_word(State::Shared, [0]);
    let run = world.send(0, &acquire(0, PAGE));
    run.met(Verdict::Fetch).by(Transition::SharedToModified);
    owner_is_blade_0(world);
}

fn acquiring_ones_own_page_fetches_it(world: &mut World) {
    world.set_word(State::Modified, [0]);
    world.send(0, &acquire(0, PAGE)).met(Verdict::Fetch);
    owner_is_blade_0(world);
}

fn upgrading_as_the_only_sharer_is_granted(world: &mut World) {
    world.set_word(State::Shared, [0]);
    let run = world.send(0, &upgrade(0, PAGE).seq(9));
    let run = run.met(Verdict::Grant).by(Transition::SharedToModified);
    let message = run.to(compute(0), qp(0), 9);
    assert_eq!(message, acknowledgement());
    owner_is_blade_0(world);
}

fn upgrading_ones_own_page_is_granted(world: &mut World) {
    world.set_word(State::Modified, [0]);
    world.send(0, &upgrade(0, PAGE)).met(Verdict::Grant);
    owner_is_blade_0(world);
}

fn a_page_is_fetched_under_the_requests_number_on_its_connection(world: &mut World) {
    let packet = read(2, PAGE).seq(0xab_cdef).attempt(3);
    let run = world.send(2, &packet);
    run.met(Verdict::Fetch).to(memory(0), qp(2), 0xab_cdef);
}

fn a_page_is_fetched_from_where_it_is_kept(world: &mut World) {
    let third = Va(PAGE.0 + 3 * PAGE_SIZE as u64);
    let run = world.send(0, &read(0, third));
    let message = run.met(Verdict::Fetch).to(memory(0), qp(0), 1);
    assert_eq!(message, fetched(OFFSET + 3 * PAGE_SIZE as u64));
}

fn a_longer_prefix_overrides_translation(world: &mut World) {
    let run = world.send(0, &read(0, OUTLIER));
    let message = run.met(Verdict::Fetch).to(memory(1), qp(0), 1);
    assert_eq!(message, fetched(OUTLIER_OFFSET));
}

fn what_follows_the_headers_stays(world: &mut World) {
    let mark = [0xa5; 100];
    let packet = read(0, PAGE).put(4000, &mark);
    let run = world.send(0, &packet);
    assert_eq!(run.met(Verdict::Fetch).frame.bytes()[4000..4100], mark);
}

fn grants_are_counted_as_accesses(world: &mut World) {
    for _ in 0..3 {
        world.send(0, &read(0, PAGE)).met(Verdict::Fetch);
    }
    assert_eq!(world.slot().accesses(), 3);
    assert_eq!(world.slot().invalidations(), 0);
}

fn has_no_copy(world: &mut World) {
    let before = world.word();
    let run = world.send(0, &upgrade(0, PAGE));
    run.met(Verdict::NoCopy)
        .refused(compute(0), Refusal::NoCopy);
    assert_eq!(world.word(), before);
}

fn upgrading_without_a_copy_is_refused(world: &mut World) {
    has_no_copy(world);
    world.set_word(State::Shared, [1]);
    has_no_copy(world);
}

fn upgrading_somebody_elses_page_is_refused(world: &mut World) {
    world.set_word(State::Modified, [1]);
    has_no_copy(world);
}

/// An INVALIDATE went to blade `to`, for request `seq`.
fn is_invalidated(
    run: &mind_dataplane::harness::Run<mind_dataplane::harness::XdpAction>,
    to: u8,
    seq: u32,
    expected: Invalidation,
) {
    let message = run.met(Verdict::Invalidate).to(compute(to), qp(to), seq);
    assert_eq!(message, Body::Invalidate(expected));
}

fn acquiring_from_one_sharer_invalidates_it(world: &mut World) {
    world.set_word(State::Shared, [0, 3]);
    let run = world.send(0, &acquire(0, PAGE).seq(50));
    let expected = invalidation(0, 11, Target::Invalid, Source::Fetch);
    is_invalidated(&run, 3, 50, expected);
    let word = world.word();
    assert_eq!(word.state(), State::SharedToModified);
    assert_eq!((word.requester(), word.blades()), (blade(0), blades([3])));
    assert_eq!(word.episode(), Episode::new(11));
}

/// The frame is for TC: an INVALIDATE to each of `listed`, for request `seq`.
fn is_passed_up(
    run: &mind_dataplane::harness::Run<mind_dataplane::harness::XdpAction>,
    listed: BladeSet,
    seq: [u8; 3],
    expected: Invalidation,
) {
    run.met(Verdict::PassedUp);
    assert_eq!(run.frame.opcode(), Opcode::FanOut as u8);
    assert_eq!(run.frame.payload()[9..12], seq);
    let (ceth, _) = Ceth::read_from_prefix(&run.frame.payload()[12..]).expect("a header");
    assert_eq!(ceth, Ceth::new(&expected, listed));
    assert_eq!(run.frame.to(), SWITCH, "TC knows it by the address");
}

fn acquiring_from_three_sharers_is_passed_up(world: &mut World) {
    world.set_word(State::Shared, [1, 2, 3]);
    let run = world.send(0, &acquire(0, PAGE).seq(50));
    let expected = invalidation(0, 11, Target::Invalid, Source::Fetch);
    is_passed_up(&run, blades([1, 2, 3]), [0, 0, 50], expected);
    assert_eq!(world.word().state(), State::SharedToModified);
    assert_eq!(world.slot().invalidations(), 1);
}

fn upgrading_among_three_sharers_is_passed_up(world: &mut World) {
    world.set_word(State::Shared, [0, 1, 2]);
    let run = world.send(0, &upgrade(0, PAGE));
    let expected = invalidation(0, 11, Target::Invalid, Source::Grant);
    is_passed_up(&run, blades([1, 2]), [0, 0, 1], expected);
}

fn reading_from_an_owner_makes_it_share(world: &mut World) {
    world.set_word(State::Modified, [2]);
    let run = world.send(0, &read(0, PAGE));
    let expected = invalidation(0, 11, Target::Shared, Source::Forward);
    is_invalidated(&run, 2, 1, expected);
    assert_eq!(world.word().state(), State::ModifiedToShared);
}

fn acquiring_from_an_owner_takes_it(world: &mut World) {
    world.set_word(State::Modified, [2]);
    let run = world.send(0, &acquire(0, PAGE));
    let expected = invalidation(0, 11, Target::Invalid, Source::Forward);
    is_invalidated(&run, 2, 1, expected);
    assert_eq!(world.word().state(), State::ModifiedToModified);
}

fn what_began_an_episode_is_noted(world: &mut World) {
    world.set_word(State::Modified, [2]);
    let second = Va(PAGE.0 + PAGE_SIZE as u64);
    world.send(0, &read(0, second).seq(900));
    let noted = Origin::new(Episode::new(11), Seq::new(900), second);
    assert_eq!(world.slot().origin(), noted);
}

fn is_busy(world: &mut World) {
    let before = world.word();
    let run = world.send(0, &read(0, PAGE));
    run.met(Verdict::Busy).refused(compute(0), Refusal::Busy);
    assert_eq!(world.word(), before);
}

fn a_busy_region_refuses(world: &mut World) {
    for state in [
        State::SharedToModified,
        State::ModifiedToShared,
        State::ModifiedToModified,
    ] {
        world.set_busy(state, 1, [2]);
        is_busy(world);
    }
}

fn a_held_region_refuses(world: &mut World) {
    for was in [Prior::Invalid, Prior::Shared, Prior::Modified] {
        world.set_held(was, [2]);
        is_busy(world);
    }
}

fn a_region_whose_writes_are_lost_is_out_of_reach(world: &mut World) {
    world.set_held(Prior::Lost, []);
    let before = world.word();
    for packet in [read(0, PAGE), acquire(0, PAGE), upgrade(0, PAGE)] {
        let run = world.send(0, &packet);
        run.met(Verdict::Lost)
            .refused(compute(0), Refusal::Unreachable);
    }
    assert_eq!(world.word(), before);
}

fn a_free_slot_refuses(world: &mut World) {
    world.set_word(State::Free, []);
    is_busy(world);
}

fn a_repeat_on_a_busy_region_repeats_what_is_owed(world: &mut World) {
    world.set_word(State::Modified, [2]);
    world.send(0, &read(0, PAGE).seq(50));
    let before = world.word();
    let run = world.send(0, &read(0, PAGE).seq(50).attempt(1));
    let expected = invalidation(0, 11, Target::Shared, Source::Forward);
    is_invalidated(&run, 2, 50, expected);
    assert_eq!(world.word(), before);
    assert_eq!(world.slot().invalidations(), 1);
}

fn somebody_elses_repeat_carries_the_first_requests_number_and_page(world: &mut World) {
    world.set_word(State::Modified, [2]);
    world.send(0, &acquire(0, PAGE).seq(50));
    let second = Va(PAGE.0 + PAGE_SIZE as u64);
    let run = world.send(3, &read(3, second).seq(800).attempt(1));
    let expected = invalidation(0, 11, Target::Invalid, Source::Forward);
    is_invalidated(&run, 2, 50, expected);
}

fn a_repeat_to_several_is_passed_up(world: &mut World) {
    world.set_word(State::Shared, [1, 2, 3]);
    world.send(0, &acquire(0, PAGE).seq(50));
    let run = world.send(0, &acquire(0, PAGE).seq(51).attempt(1));
    // The word does not say whether the page is wanted, too; it does for both.
    let expected = invalidation(0, 11, Target::Invalid, Source::Fetch);
    is_passed_up(&run, blades([1, 2, 3]), [0, 0, 50], expected);
}

fn a_repeat_whose_origin_is_not_noted_is_refused(world: &mut World) {
    // The word says episode 10, and nothing was noted for it.
    world.set_busy(State::ModifiedToShared, 0, [2]);
    let run = world.send(0, &read(0, PAGE).attempt(1));
    run.met(Verdict::NoOrigin)
        .refused(compute(0), Refusal::Busy);
}

fn a_late_note_does_not_replace_a_later_one(world: &mut World) {
    // The state that a processor finds which was delayed between swapping the word and noting its
    // request.
    let slot = world.slot();
    let region = Region::containing(PAGE, 2).expect("order 2 is a region's");
    let later = Origin::new(Episode::new(12), Seq::new(7), PAGE);
    let mut fresh = mind_common::table::Slot::new(slot.word(), region);
    fresh.origin = later.raw();
    slot.reset(fresh);
    world.set_word(State::Modified, [2]);
    world
        .send(0, &read(0, PAGE).seq(50))
        .met(Verdict::Invalidate);
    assert_eq!(world.slot().origin(), later);
}

fn several_without_tc_are_dropped(world: &mut World) {
    world.set_fans_out(0, false);
    world.set_word(State::Shared, [1, 2]);
    world.send(0, &acquire(0, PAGE)).met(Verdict::NoFanOut);
}

fn several_are_handed_over_where_the_port_says_so(world: &mut World) {
    let mut copies = world.hand_over(0);
    world.set_compute(2, false);
    world.set_word(State::Shared, [1, 2, 3]);
    let run = world.send(0, &acquire(0, PAGE).seq(50));
    run.met(Verdict::HandedOver);
    let mut sent = Vec::new();
    let taken = copies.take(|address, payload| sent.push((address, payload.to_vec())));
    assert_eq!((taken.packets, taken.copies, taken.missing), (1, 2, 1));
    for ((address, payload), number) in sent.into_iter().zip([1, 3]) {
        assert_eq!(address, compute(number).ipv4);
        let Datagram {
            envelope,
            body: message,
        } = Datagram::parse(&payload).expect("a message that blades get");
        assert_eq!((envelope.qp, envelope.seq), (qp(number), Seq::new(50)));
        let expected = invalidation(0, 11, Target::Invalid, Source::Fetch);
        assert_eq!(message, Body::Invalidate(expected));
    }
    assert_eq!(copies.take(|_, _| {}), Taken::default());
}

fn what_the_controller_does_not_take_is_dropped(world: &mut World) {
    /// More than the ring has room for.
    const MANY: usize = 6_000;
    let mut copies = world.hand_over(0);
    for handed_over in 0..MANY {
        world.set_word(State::Shared, [1, 2]);
        let run = world.send(0, &acquire(0, PAGE));
        if run.verdict == Verdict::HandOverFull {
            assert_eq!(copies.take(|_, _| {}).packets, handed_over as u64);
            world.set_word(State::Shared, [1, 2]);
            world.send(0, &acquire(0, PAGE)).met(Verdict::HandedOver);
            return;
        }
        run.met(Verdict::HandedOver);
    }
    panic!("{MANY} packets are taken over");
}

fn a_sharer_that_is_gone_is_counted(world: &mut World) {
    world.set_compute(2, false);
    world.set_word(State::Modified, [2]);
    world.send(0, &read(0, PAGE)).met(Verdict::DeadBlade);
}

fn a_sharer_without_a_device_is_counted(world: &mut World) {
    world.misplace_compute(2);
    world.set_word(State::Modified, [2]);
    world.send(0, &read(0, PAGE)).met(Verdict::NoDevice);
}

fn a_domain_that_is_not_placed_is_refused(world: &mut World) {
    let packet = read(0, PAGE).extended(8, &UNPERMITTED.0.to_be_bytes());
    let run = world.send(0, &packet);
    run.met(Verdict::NotPlaced)
        .refused(compute(0), Refusal::Denied);
}

fn a_domain_beyond_the_table_is_refused(world: &mut World) {
    let packet = read(0, PAGE).extended(8, &u32::MAX.to_be_bytes());
    let run = world.send(0, &packet);
    run.met(Verdict::NotPlaced)
        .refused(compute(0), Refusal::Denied);
}

fn is_protected(world: &mut World, from: u8, packet: &mind_dataplane::harness::Packet) {
    let run = world.send(from, packet);
    run.met(Verdict::Protected)
        .refused(compute(from), Refusal::Denied);
}

fn reading_without_a_permission_is_refused(world: &mut World) {
    let packet = read(1, PAGE).extended(8, &UNPERMITTED.0.to_be_bytes());
    is_protected(world, 1, &packet);
}

fn writing_a_read_only_page_is_refused(world: &mut World) {
    is_protected(world, 0, &acquire(0, READ_ONLY));
    is_protected(world, 0, &upgrade(0, READ_ONLY));
}

fn reading_a_read_only_page_is_served(world: &mut World) {
    world.send(0, &read(0, READ_ONLY)).met(Verdict::Fetch);
}

fn has_no_slot(world: &mut World, page: Va) {
    let run = world.send(0, &read(0, page));
    run.met(Verdict::NoSlot).refused(compute(0), Refusal::Busy);
}

fn a_page_without_a_slot_is_refused(world: &mut World) {
    has_no_slot(world, SLOTLESS);
}

fn a_page_in_a_block_without_a_table_is_refused(world: &mut World) {
    has_no_slot(world, BLOCKLESS);
}

fn has_no_memory(world: &mut World, page: Va, slot: u32) {
    let run = world.send(0, &read(0, page));
    run.met(Verdict::NoMemory)
        .refused(compute(0), Refusal::Unreachable);
    let slot = world.bed.switch.directory().slot(slot).expect("a slot");
    assert_eq!(
        slot.word().state(),
        State::Invalid,
        "nothing was given away"
    );
}

fn a_page_that_no_memory_blade_serves_is_refused(world: &mut World) {
    has_no_memory(world, UNSERVED, 5);
}

fn a_page_of_a_memory_blade_that_is_gone_is_refused(world: &mut World) {
    has_no_memory(world, ABSENT, 4);
}

fn a_slot_of_another_region_is_refused(world: &mut World) {
    let elsewhere = Region::containing(READ_ONLY, 0).expect("order 0 is a region's");
    world.slot().set_region(elsewhere);
    let run = world.send(0, &read(0, PAGE));
    run.met(Verdict::Moved).refused(compute(0), Refusal::Busy);
    assert_eq!(world.word().state(), State::Invalid);
}

fn a_denied_request_changes_no_word(world: &mut World) {
    world.set_word_of(2, State::Shared, [1]);
    world
        .send(0, &acquire(0, READ_ONLY))
        .met(Verdict::Protected);
    let slot = world.bed.switch.directory().slot(2).expect("a slot");
    assert_eq!(slot.word().blades(), blades([1]));
    assert_eq!(Syndrome::Refused(Refusal::Denied).to_u8(), 0x62);
}
