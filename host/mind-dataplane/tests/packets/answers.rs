//! Answers to an INVALIDATE: counted, completed, or stale.

use mind_common::{
    directory::{Source, State, Target, Transition},
    id::DomainId,
    serial::Version,
    verdict::Verdict,
    wire::Cost,
};
use mind_machines::datagram::{Body, PageRequest};

use crate::world::{
    Expect as _, OFFSET, PAGE, SLOTLESS, UNSERVED, World, ack, ack_fetch, acknowledgement, blade,
    blades, cases, compute, forward, invalidation, memory, pattern, qp,
};
use mind_common::addr::{Region, Va};

cases![
    an_answer_among_several_is_counted,
    the_last_bare_answer_becomes_the_requesters_acknowledgement,
    the_last_padded_answer_becomes_a_read_in_the_requesters_name,
    an_owners_page_goes_on_to_who_will_share_it,
    an_owners_page_goes_on_to_the_next_owner,
    an_owner_that_has_dropped_the_page_has_it_read_from_memory,
    what_an_answer_cost_is_charged_to_the_slot,
    a_stale_answer_costs_nothing,
    an_answer_to_an_earlier_episode_is_stale,
    an_answer_for_another_requester_is_stale,
    a_second_answer_is_stale,
    an_answer_of_a_blade_that_was_not_asked_is_stale,
    an_answer_about_a_settled_region_is_stale,
    an_answer_about_a_page_without_a_slot_is_stale,
    an_answer_about_a_region_that_moved_is_stale,
    an_answer_for_a_requester_that_is_gone_settles_the_word,
    an_answer_that_nobody_could_read_for_settles_nothing,
];

fn an_answer_among_several_is_counted(world: &mut World) {
    world.set_busy(State::SharedToModified, 0, [1, 2]);
    let answer = ack(1, invalidation(0, 10, Target::Invalid, Source::Grant));
    world.send(1, &answer).met(Verdict::Counted);
    let word = world.word();
    assert_eq!(word.state(), State::SharedToModified);
    assert_eq!(word.blades(), blades([2]));
    assert_eq!(word.requester(), blade(0));
}

fn the_last_bare_answer_becomes_the_requesters_acknowledgement(world: &mut World) {
    world.set_busy(State::SharedToModified, 0, [1]);
    let answer = ack(1, invalidation(0, 10, Target::Invalid, Source::Grant)).seq(50);
    let run = world.send(1, &answer);
    let run = run.met(Verdict::Granted).by(Transition::SharedToModified);
    let message = run.to(compute(0), qp(0), 50);
    assert_eq!(message, acknowledgement());
    let word = world.word();
    assert_eq!(
        (word.state(), word.blades()),
        (State::Modified, blades([0]))
    );
}

fn is_read_for_blade_0(world: &mut World, state: State, target: Target) {
    world.set_busy(state, 0, [1]);
    let answer = ack_fetch(1, invalidation(0, 10, target, Source::Fetch)).seq(50);
    let run = world.send(1, &answer);
    let message = run.met(Verdict::Fetched).to(memory(0), qp(0), 50);
    let expected = PageRequest {
        page: Va(OFFSET),
        domain: DomainId(0),
    };
    assert_eq!(message, Body::read(expected));
}

fn the_last_padded_answer_becomes_a_read_in_the_requesters_name(world: &mut World) {
    is_read_for_blade_0(world, State::SharedToModified, Target::Invalid);
    let word = world.word();
    assert_eq!(
        (word.state(), word.blades()),
        (State::Modified, blades([0]))
    );
}

fn an_owner_that_has_dropped_the_page_has_it_read_from_memory(world: &mut World) {
    is_read_for_blade_0(world, State::ModifiedToShared, Target::Shared);
    let word = world.word();
    assert_eq!(word.state(), State::Shared);
    assert_eq!(word.blades(), blades([0, 1]));
}

fn page_goes_on(world: &mut World, state: State, target: Target) {
    world.set_busy(state, 0, [1]);
    let data = pattern(4);
    let asked = invalidation(0, 10, target, Source::Forward);
    let run = world.send(1, &forward(1, asked, &data).seq(50));
    let message = run.met(Verdict::PageForwarded).to(compute(0), qp(0), 50);
    let expected = Body::Forward {
        invalidation: asked,
        cost: Cost::default(),
        version: Version::new(7),
        data: &data,
    };
    assert_eq!(message, expected);
}

fn an_owners_page_goes_on_to_who_will_share_it(world: &mut World) {
    page_goes_on(world, State::ModifiedToShared, Target::Shared);
    let word = world.word();
    assert_eq!(word.state(), State::Shared);
    assert_eq!(word.blades(), blades([0, 1]));
}

fn an_owners_page_goes_on_to_the_next_owner(world: &mut World) {
    page_goes_on(world, State::ModifiedToModified, Target::Invalid);
    let word = world.word();
    assert_eq!(
        (word.state(), word.blades()),
        (State::Modified, blades([0]))
    );
}

fn what_an_answer_cost_is_charged_to_the_slot(world: &mut World) {
    world.set_busy(State::SharedToModified, 0, [1, 2]);
    let asked = invalidation(0, 10, Target::Invalid, Source::Grant);
    world.send(1, &ack(1, asked)).met(Verdict::Counted);
    world.send(2, &ack(2, asked)).met(Verdict::Granted);
    let slot = world.slot();
    assert_eq!((slot.dropped(), slot.flushed()), (6, 2));
}

/// Blade 1's answer to `episode` for `requester` changes nothing.
fn is_stale(world: &mut World, requester: u8, episode: u32) {
    let before = world.word();
    let asked = invalidation(requester, episode, Target::Invalid, Source::Grant);
    world.send(1, &ack(1, asked)).met(Verdict::StaleAnswer);
    assert_eq!(world.word(), before);
    let slot = world.slot();
    assert_eq!((slot.dropped(), slot.flushed()), (0, 0));
}

fn a_stale_answer_costs_nothing(world: &mut World) {
    world.set_word(State::Shared, [1]);
    is_stale(world, 0, 10);
}

fn an_answer_to_an_earlier_episode_is_stale(world: &mut World) {
    world.set_busy(State::SharedToModified, 0, [1]);
    is_stale(world, 0, 9);
}

fn an_answer_for_another_requester_is_stale(world: &mut World) {
    world.set_busy(State::SharedToModified, 0, [1]);
    is_stale(world, 2, 10);
}

fn a_second_answer_is_stale(world: &mut World) {
    world.set_busy(State::SharedToModified, 0, [1, 2]);
    let asked = invalidation(0, 10, Target::Invalid, Source::Grant);
    world.send(1, &ack(1, asked)).met(Verdict::Counted);
    world.send(1, &ack(1, asked)).met(Verdict::StaleAnswer);
    assert_eq!(world.word().blades(), blades([2]));
}

fn an_answer_of_a_blade_that_was_not_asked_is_stale(world: &mut World) {
    world.set_busy(State::SharedToModified, 0, [2]);
    is_stale(world, 0, 10);
}

fn an_answer_about_a_settled_region_is_stale(world: &mut World) {
    for state in [
        State::Invalid,
        State::Shared,
        State::Modified,
        State::Locked,
    ] {
        world.set_word(state, [1]);
        is_stale(world, 0, 10);
    }
}

fn an_answer_about_a_page_without_a_slot_is_stale(world: &mut World) {
    let mut asked = invalidation(0, 10, Target::Invalid, Source::Grant);
    asked.page = SLOTLESS;
    world.send(1, &ack(1, asked)).met(Verdict::StaleAnswer);
}

fn an_answer_about_a_region_that_moved_is_stale(world: &mut World) {
    world.set_busy(State::SharedToModified, 0, [1]);
    let elsewhere = Region::containing(SLOTLESS, 0).expect("order 0 is a region's");
    world.slot().set_region(elsewhere);
    is_stale(world, 0, 10);
}

fn an_answer_for_a_requester_that_is_gone_settles_the_word(world: &mut World) {
    world.set_busy(State::SharedToModified, 0, [1]);
    world.set_compute(0, false);
    let asked = invalidation(0, 10, Target::Invalid, Source::Grant);
    world.send(1, &ack(1, asked)).met(Verdict::DeadBlade);
    // Every blade has answered; the controller settles what the lost owner leaves.
    assert_eq!(world.word().state(), State::Modified);
}

fn an_answer_that_nobody_could_read_for_settles_nothing(world: &mut World) {
    let mut asked = invalidation(0, 10, Target::Invalid, Source::Fetch);
    asked.page = UNSERVED;
    world.send(1, &ack_fetch(1, asked)).met(Verdict::DeadBlade);
    assert_eq!(PAGE.page(), PAGE);
}
