//! Packets that the switch loses on purpose.

use mind_common::{
    directory::State, losses::LossPoint, refusal::Refusal, verdict::Verdict, wire::Opcode,
};

use crate::world::{Expect as _, PAGE, World, blades, cases, compute, read};

cases![
    a_packet_can_be_lost_before_the_switch_has_seen_it,
    a_packet_can_be_lost_when_all_is_done_for_it,
    no_packet_is_lost_in_a_switch_that_was_not_loaded_for_it,
];

fn a_packet_can_be_lost_before_the_switch_has_seen_it(world: &mut World) {
    world.losing(|world| {
        let place = LossPoint::before(Opcode::Read);
        world.bed.switch.lose(place, 2).expect("a counter");
        for left in [1, 0] {
            world.send(0, &read(0, PAGE)).lost();
            assert_eq!(world.bed.switch.to_lose(place).expect("a counter"), left);
            assert_eq!(world.word().state(), State::Invalid);
        }
        world.send(0, &read(0, PAGE)).met(Verdict::Fetch);
    });
}

fn a_packet_can_be_lost_when_all_is_done_for_it(world: &mut World) {
    world.losing(|world| {
        let place = LossPoint::after(Verdict::Fetch);
        world.bed.switch.lose(place, 1).expect("a counter");
        world.send(0, &read(0, PAGE)).lost();
        assert_eq!(world.word().state(), State::Shared);
        assert_eq!(world.word().blades(), blades([0]));
        // So its repeat finds that out, and comes through.
        world.send(0, &read(0, PAGE).attempt(1)).met(Verdict::Fetch);
        // A refusal as well.
        let place = LossPoint::after(Verdict::Busy);
        world.bed.switch.lose(place, 1).expect("a counter");
        world.set_busy(State::ModifiedToShared, 1, [2]);
        world.send(0, &read(0, PAGE)).lost();
        let run = world.send(0, &read(0, PAGE));
        run.met(Verdict::Busy).refused(compute(0), Refusal::Busy);
    });
}

fn no_packet_is_lost_in_a_switch_that_was_not_loaded_for_it(world: &mut World) {
    let place = LossPoint::before(Opcode::Read);
    world.bed.switch.lose(place, 1).expect("a counter");
    world.send(0, &read(0, PAGE)).met(Verdict::Fetch);
    assert_eq!(world.bed.switch.to_lose(place).expect("a counter"), 1);
    world.bed.switch.lose(place, 0).expect("a counter");
}
