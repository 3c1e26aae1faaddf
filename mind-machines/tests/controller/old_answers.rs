//! Answers of blades to invalidations from before a region was split or merged: they count for nothing after it.

use mind_api::message::{OnLoss, RegionChange, Request};
use mind_common::{
    addr::Va,
    directory::Want,
    id::{Connection, DomainId},
    verdict::Verdict,
    wire::Cost,
};
use mind_machines::{
    Node,
    datagram::{Body, Datagram, Envelope, PageRequest},
};

use crate::world::{World, blade};

/// Compute blades in the order in which they want the page.
fn turns() -> impl Iterator<Item = u8> {
    (0..60u8).map(|turn| {
        let turn = u32::from(turn);
        ((turn * turn / 7 + turn / 5) % 3) as u8
    })
}

#[test]
fn an_answer_from_before_a_split_counts_for_nothing_after_it() {
    count_for_nothing(&[], RegionChange::Split);
}

#[test]
fn an_answer_from_before_a_merge_counts_for_nothing_after_it() {
    count_for_nothing(&[RegionChange::Split], RegionChange::Merge);
}

/// A page goes round before a change of its region and after it. All answers from before come again after it, and are
/// stale, each.
fn count_for_nothing(first: &[RegionChange], change: RegionChange) {
    let (mut world, va) = World::with_memory(4, OnLoss::LastWritten);
    world.touch(va);
    for change in first {
        operate(&mut world, va, *change);
    }
    let upper = Va(va.0 + 0x2000);
    let mut answers = Vec::new();
    for from in turns() {
        acquire(&mut world, upper, from, &[], &mut answers);
    }
    operate(&mut world, va, change);
    let late = answers;
    let mut answers = Vec::new();
    for turn in turns() {
        // As it suits an old answer, where there is one of the next episode by the owner.
        let slot = world.switch.tables().slot(upper).expect("it has a slot");
        let word = world.switch.slots()[slot].word;
        let suits = |packet: &&Datagram<u64>| {
            let Body::Answer { invalidation, .. } = packet.body else {
                return false;
            };
            let from = Connection::from_qp(packet.envelope.qp);
            invalidation.episode == word.episode().next()
                && from.is_some_and(|connection| word.blades().contains(connection.blade))
        };
        let from = match late.iter().find(suits).map(|packet| packet.body) {
            Some(Body::Answer { invalidation, .. }) => invalidation.requester.get(),
            _ => 2 - turn,
        };
        acquire(&mut world, upper, from, &late, &mut answers);
    }
}

fn operate(world: &mut World, va: Va, change: RegionChange) {
    let reply = world.operate(Request::ChangeRegion { va: va.0, change });
    assert!(reply.is_ok(), "{reply:?}");
}

/// A blade wants to own the page. The one that owns it gives it up as soon as it is told to, after all that is late has
/// come for its invalidation; its answer is added to those of before.
fn acquire(
    world: &mut World,
    page: Va,
    from: u8,
    late: &[Datagram<u64>],
    answers: &mut Vec<Datagram<u64>>,
) {
    let (want, domain) = (Want::Acquire, DomainId(1));
    let request = Body::Request {
        want,
        page: PageRequest { page, domain },
    };
    let handled = world.send(world.life(from), request);
    for (node, packet) in handled.sent {
        let (Node::Compute(owner), Body::Invalidate(invalidation)) = (node, packet.body) else {
            continue;
        };
        let before = late.iter().chain(answers.iter());
        for packet in before.filter(|packet| packet.envelope.qp as u8 == owner.get()) {
            let handled = world.switch.handle(node, *packet);
            assert_eq!(
                handled.verdict,
                Verdict::StaleAnswer,
                "{packet:?} counted for {invalidation:?}"
            );
        }
        let connection = world.life(owner.get());
        assert_eq!(connection.blade, blade(owner.get()));
        let body = Body::Answer {
            invalidation,
            cost: Cost::default(),
            fetch: true,
        };
        let verdict = world.send(connection, body).verdict;
        assert_eq!(verdict, Verdict::Fetched);
        let envelope = Envelope {
            qp: connection.to_qp(),
            seq: packet.seq(),
            attempt: 0,
        };
        answers.push(Datagram { envelope, body });
    }
}
