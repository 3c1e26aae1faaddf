//! The records of traced packets.

use mind_common::{
    directory::State,
    trace::{Record, Tracing},
    verdict::Verdict,
    wire::Opcode,
};

use crate::world::{Expect as _, PAGE, World, acquire, blade, cases, qp};

cases![
    nobody_is_told_of_what_nobody_traces,
    a_record_has_what_came_the_verdict_and_both_words,
    only_what_is_asked_for_is_told,
    what_is_not_for_the_switch_has_a_verdict_alone,
    records_that_find_no_room_are_counted,
];

/// The records of the packets that `send` sends.
fn records(world: &mut World, send: impl FnOnce(&mut World)) -> Vec<Record> {
    let switch = &world.bed.switch;
    let mut traces = switch.open_traces().expect("the ring can be opened again");
    send(world);
    std::iter::from_fn(|| traces.take()).collect()
}

fn nobody_is_told_of_what_nobody_traces(world: &mut World) {
    world.trace(Tracing::default());
    let told = records(world, |world| {
        world.send(0, &acquire(0, PAGE)).met(Verdict::Fetch);
    });
    assert_eq!(told, []);
}

fn a_record_has_what_came_the_verdict_and_both_words(world: &mut World) {
    world.trace(Tracing::EVERYTHING);
    world.set_word(State::Modified, [2]);
    let before = world.word();
    let told = records(world, |world| {
        world
            .send(0, &acquire(0, PAGE).seq(50))
            .met(Verdict::Invalidate);
    });
    let after = world.word();
    world.trace(Tracing::default());
    let [record] = told[..] else {
        panic!("{told:?}");
    };
    assert_eq!(record.verdict(), Some(Verdict::Invalidate));
    assert_eq!(record.opcode(), Some(Opcode::Acquire));
    assert_eq!(record.blade(), Some(blade(0)));
    assert_eq!((record.qp, record.psn), (qp(0), 50));
    assert_eq!(record.va(), Some(PAGE));
    assert_eq!(record.words(), Some((before, after)));
    assert_ne!(record.when, 0);
}

fn only_what_is_asked_for_is_told(world: &mut World) {
    for (blade, first, count) in [(0, PAGE.0, 1), (1, PAGE.0, 0), (0, PAGE.0 + 1, 0)] {
        world.trace(Tracing {
            blade,
            first,
            ..Tracing::EVERYTHING
        });
        let told = records(world, |world| {
            world.send(0, &acquire(0, PAGE));
        });
        assert_eq!(told.len(), count, "{blade} {first:#x} {told:?}");
    }
    world.trace(Tracing::default());
}

fn what_is_not_for_the_switch_has_a_verdict_alone(world: &mut World) {
    world.trace(Tracing::EVERYTHING);
    let told = records(world, |world| {
        // A record of ours comes before: nothing of it is left.
        world.send(0, &acquire(0, PAGE));
        let other_port = acquire(0, PAGE).udp(2, &53_u16.to_be_bytes());
        world.send(0, &other_port).met(Verdict::Foreign);
    });
    world.trace(Tracing::default());
    let [_, record] = told[..] else {
        panic!("{told:?}");
    };
    assert_eq!(record.verdict(), Some(Verdict::Foreign));
    assert_eq!(
        (record.opcode(), record.va(), record.words()),
        (None, None, None)
    );
}

fn records_that_find_no_room_are_counted(world: &mut World) {
    const SENT: u32 = 20_000;
    let lost = |world: &World| {
        let control = world.bed.switch.open_trace_control();
        let control = control.expect("maps can be opened again");
        control.lost().expect("it can be read")
    };
    world.trace(Tracing::EVERYTHING);
    let before = lost(world);
    let mut sent = 0;
    let told = records(world, |world| {
        let counters = world.send_often(0, &acquire(0, PAGE), SENT);
        sent = counters.iter().map(|(_, packets)| packets).sum();
    });
    world.trace(Tracing::default());
    assert!(!told.is_empty() && told.len() < SENT as usize);
    assert_eq!(lost(world) - before + told.len() as u64, sent);
}
