//! As many compute blades as there can be.

use mind_common::{
    directory::{Source, State, Target},
    id::MAX_BLADES,
    verdict::Verdict,
};
use mind_machines::datagram::{Body, Datagram};

use crate::world::{
    DOMAIN, Expect as _, PAGE, World, acquire, blades, cases, compute, invalidation, memory, qp,
    read, upgrade,
};

cases![
    all_blades_read_a_page_and_are_listed,
    the_last_blade_writes_and_all_others_are_told,
    the_controller_is_handed_all_others,
    the_last_blade_owns_a_page_like_any_other,
];

const LAST: u8 = MAX_BLADES as u8 - 1;

fn all() -> [u8; MAX_BLADES] {
    std::array::from_fn(|number| number as u8)
}

fn place(world: &mut World) {
    let placed = world.bed.switch.place(DOMAIN, blades(all()));
    placed.expect("the domain can be placed");
}

fn all_blades_read_a_page_and_are_listed(world: &mut World) {
    place(world);
    for number in all() {
        assert_eq!(world.word().blades().len(), u32::from(number));
        let run = world.send(number, &read(number, PAGE));
        run.met(Verdict::Fetch).to(memory(0), qp(number), 1);
    }
    let word = world.word();
    assert_eq!(
        (word.state(), word.blades()),
        (State::Shared, blades(all()))
    );
}

fn the_last_blade_writes_and_all_others_are_told(world: &mut World) {
    place(world);
    world.set_word(State::Shared, all());
    let packet = upgrade(LAST, PAGE).seq(50);
    let run = world.send(LAST, &packet);
    run.met(Verdict::PassedUp);
    let passed_up = packet.put(0, run.frame.bytes());
    let run = world.hand_to_tc(LAST, passed_up.bytes(), false);
    assert_eq!(run.1, Some(Verdict::FannedOut));
    for number in 0..LAST {
        let frames = world.sent_to(number);
        assert_eq!(frames.len(), 1, "blade {number} gets one frame");
        assert_eq!(frames[0].to(), compute(number));
        let Datagram {
            envelope,
            body: message,
        } = frames[0].datagram().expect("a message that blades get");
        assert_eq!(envelope.qp, qp(number));
        let expected = invalidation(LAST, 11, Target::Invalid, Source::Grant);
        assert_eq!(message, Body::Invalidate(expected));
    }
    assert!(world.sent_to(LAST).is_empty(), "the requester gets none");
}

fn the_controller_is_handed_all_others(world: &mut World) {
    place(world);
    world.set_word(State::Shared, all());
    let mut copies = world.hand_over(LAST);
    // What an earlier case left.
    copies.take(|_, _| {});
    let run = world.send(LAST, &upgrade(LAST, PAGE));
    assert_eq!(run.verdict, Verdict::HandedOver);
    let mut sent = Vec::new();
    let taken = copies.take(|address, _| sent.push(address));
    assert_eq!((taken.packets, taken.missing), (1, 0));
    let others: Vec<_> = (0..LAST).map(|number| compute(number).ipv4).collect();
    assert_eq!(sent, others);
}

fn the_last_blade_owns_a_page_like_any_other(world: &mut World) {
    place(world);
    let run = world.send(LAST, &acquire(LAST, PAGE));
    run.met(Verdict::Fetch).to(memory(0), qp(LAST), 1);
    let word = world.word();
    assert_eq!(
        (word.state(), word.blades()),
        (State::Modified, blades([LAST]))
    );
    let run = world.send(0, &read(0, PAGE));
    let message = run.met(Verdict::Invalidate).to(compute(LAST), qp(LAST), 1);
    assert!(matches!(message, Body::Invalidate(_)), "{message:?}");
}
