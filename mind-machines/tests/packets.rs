//! One page's way through the switch and a memory blade, datagram by datagram.

use mind_common::{
    addr::{PAGE_SIZE, Prefix, Region, SLICE_SHIFT, Va, WINDOW_BASE},
    directory::{Source, State, Target, Transition, Want, Word},
    id::{BladeId, BladeSet, Connection, DomainId},
    refusal::Refusal,
    serial::{Seq, Version},
    table::{MAY_READ, MAY_WRITE, Permission, Translation},
    verdict::Verdict,
    wire::{Atomic, Cost, Invalidation, Syndrome},
};
use mind_machines::{
    Node,
    datagram::{Body, Datagram, Envelope, PageRequest},
    memory::Memory,
    switch::{Port, Slot, Switch},
};

const PAGE: Va = Va(WINDOW_BASE);
const DOMAIN: DomainId = DomainId(1);
const MEMORY: Node = Node::Memory(0);

fn connection(number: u8) -> Connection {
    Connection {
        blade: BladeId::new(number).expect("a blade"),
        incarnation: 1,
    }
}

fn node(number: u8) -> Node {
    Node::Compute(connection(number).blade)
}

/// Three blades, one region of four pages in one of two slots.
fn switch() -> Switch {
    let mut switch = Switch::new(2);
    let region = Region::containing(PAGE, 2).expect("order 2");
    let tables = switch.tables_mut();
    for number in 0..3 {
        tables
            .ports
            .insert(node(number), Port::Compute(connection(number)));
        tables
            .compute
            .insert(connection(number).blade, connection(number));
    }
    tables.ports.insert(MEMORY, Port::Memory);
    tables.memory.insert(0);
    let bits = MAY_READ | MAY_WRITE;
    let prefix = |shift| Prefix { base: PAGE, shift };
    tables
        .protection
        .insert((DOMAIN, prefix(14)), Permission { bits });
    tables
        .translation
        .insert(prefix(SLICE_SHIFT), Translation::new(0, PAGE, 0));
    switch.place(DOMAIN, BladeSet::from_bits(0b111));
    let invalid = Word::default().settled(State::Invalid, BladeSet::EMPTY);
    switch.open(0, region, invalid);
    switch.assign(region, Some(0));
    switch
}

fn packet(from: u8, seq: u32, body: Body<u64>) -> Datagram<u64> {
    let envelope = Envelope {
        qp: connection(from).to_qp(),
        seq: Seq::new(seq),
        attempt: 0,
    };
    Datagram { envelope, body }
}

fn request(from: u8, seq: u32, want: Want) -> Datagram<u64> {
    let page = PageRequest {
        page: PAGE,
        domain: DOMAIN,
    };
    packet(from, seq, Body::Request { want, page })
}

/// Through the switch, the memory blade, and the switch again.
fn served(
    switch: &mut Switch,
    memory: &mut Memory<u64>,
    from: u8,
    asked: Datagram<u64>,
) -> Datagram<u64> {
    let handled = switch.handle(node(from), asked);
    let [(to, packet)] = &handled.sent[..] else {
        panic!("{handled:?} should go to memory");
    };
    assert_eq!(*to, MEMORY);
    let (_, answer) = memory.handle(*packet);
    let handled = switch.handle(MEMORY, answer.expect("memory answers"));
    assert_eq!(handled.verdict, Verdict::Delivered);
    let [(to, packet)] = &handled.sent[..] else {
        panic!("{handled:?} should go to the blade");
    };
    assert_eq!(*to, node(from));
    *packet
}

fn write_back(from: u8, version: u32, data: u64) -> Datagram<u64> {
    let page = PageRequest {
        page: PAGE,
        domain: DOMAIN,
    };
    let version = Version::new(version);
    packet(
        from,
        9,
        Body::Write {
            page,
            version,
            data,
        },
    )
}

fn acknowledged(syndrome: Syndrome, version: u32) -> Body<u64> {
    let version = Version::new(version);
    Body::Acknowledge { syndrome, version }
}

// The blade would take `not-owner` for an end of its ownership, and drop what it wrote.
#[test]
fn a_write_back_that_is_held_up_while_its_region_merges_is_asked_for_again() {
    let mut switch = switch();
    let acquired = switch.handle(node(0), request(0, 5, Want::Acquire));
    assert_eq!(acquired.verdict, Verdict::Fetch);
    let view = switch.view();
    // Its region is merged into another slot's, and the slot is freed.
    let Slot { word, region, .. } = switch.slots()[0];
    let region = region.expect("it is open");
    switch.open(1, region, word);
    switch.assign(region, Some(1));
    let freed = word.settled(State::Free, BladeSet::EMPTY);
    assert!(switch.swap_word(0, word, freed));
    let late = switch.handle_late(&view, node(0), write_back(0, 1, 42));
    assert_eq!(late.verdict, Verdict::Moved);
    let refused = acknowledged(Syndrome::Refused(Refusal::Busy), 0);
    assert_eq!(late.sent[0].1.body, refused);
    let again = switch.handle(node(0), write_back(0, 1, 42));
    assert_eq!(again.verdict, Verdict::WriteBack);
}

#[test]
fn what_one_blade_writes_back_another_reads() {
    let (mut switch, mut memory) = (switch(), Memory::new(4));
    let page = served(&mut switch, &mut memory, 0, request(0, 5, Want::Acquire));
    assert_eq!(page.envelope.seq, Seq::new(5));
    assert_eq!(page.envelope.attempt, Transition::InvalidToModified as u8);
    let version = Version::new(0);
    assert_eq!(page.body, Body::ReadResponse { version, data: 0 });

    let asked = switch.handle(node(1), request(1, 7, Want::Read));
    assert_eq!(asked.verdict, Verdict::Invalidate);
    let [(to, invalidate)] = &asked.sent[..] else {
        panic!("{asked:?} should ask the owner");
    };
    assert_eq!(*to, node(0));
    let Body::Invalidate(invalidation) = invalidate.body else {
        panic!("{invalidate:?} should be an INVALIDATE");
    };
    assert_eq!(invalidation.target, Target::Shared);
    assert_eq!(invalidation.source, Source::Forward);

    let stored = served(&mut switch, &mut memory, 0, write_back(0, 1, 42));
    assert_eq!(stored.body, acknowledged(Syndrome::Ack, 1));
    let forward = Body::Forward {
        invalidation,
        cost: Cost::default(),
        version: Version::new(1),
        data: 42,
    };
    let answer = packet(0, 7, forward);
    let supplied = switch.handle(node(0), answer);
    assert_eq!(supplied.verdict, Verdict::PageForwarded);
    assert_eq!(supplied.sent[0].0, node(1));
    assert_eq!(supplied.sent[0].1.data(), Some(&42));
    let word = switch.slots()[0].word;
    assert_eq!((word.state(), word.blades().bits()), (State::Shared, 0b11));

    let again = switch.handle(node(0), answer);
    assert_eq!(again.verdict, Verdict::StaleAnswer);
    assert_eq!(memory.page(0).data, 42);
}

#[test]
fn several_sharers_are_asked_by_copies() {
    let (mut switch, mut memory) = (switch(), Memory::new(4));
    for from in 0..3 {
        served(&mut switch, &mut memory, from, request(from, 1, Want::Read));
    }
    switch.tables_mut().compute.remove(&connection(2).blade);
    let asked = switch.handle(node(0), request(0, 3, Want::Upgrade));
    assert_eq!(asked.verdict, Verdict::PassedUp);
    assert_eq!(asked.fan_out, Some(Verdict::DeadBlade));
    let to: Vec<_> = asked.sent.iter().map(|(to, _)| *to).collect();
    assert_eq!(to, [node(1)], "a blade that is gone gets no copy");
}

#[test]
fn memory_refuses_a_write_back_that_was_fenced() {
    let (mut switch, mut memory) = (switch(), Memory::new(4));
    served(&mut switch, &mut memory, 0, request(0, 1, Want::Acquire));
    memory.fence(0, 1);
    let late = served(&mut switch, &mut memory, 0, write_back(0, 1, 13));
    assert_eq!(late.body, acknowledged(Syndrome::Ack, 1), "stored before");
    assert_eq!(memory.page(0).data, 0, "but it is not there");
    memory.zero(0, 1);
    let late = served(&mut switch, &mut memory, 0, write_back(0, 1, 13));
    let stale = Syndrome::Refused(Refusal::Stale);
    assert_eq!(late.body, acknowledged(stale, 0));
}

#[test]
fn an_operation_is_carried_out_once_and_not_after_its_incarnation() {
    let (mut switch, mut memory) = (switch(), Memory::new(4));
    served(&mut switch, &mut memory, 0, request(0, 1, Want::Acquire));
    let add = Body::Atomic {
        va: Va(PAGE.0 + 8),
        domain: DOMAIN,
        operation: Atomic::FetchAdd { addend: 3 },
    };
    for _ in 0..2 {
        let asked = packet(0, 2, add);
        let answer = served(&mut switch, &mut memory, 0, asked);
        let syndrome = Syndrome::Ack;
        let original = 0;
        assert_eq!(answer.body, Body::AtomicAcknowledge { syndrome, original });
    }
    assert_eq!(memory.page(0).data, 3);
    memory.fence_blade(connection(0));
    let sent = switch.handle(node(0), packet(0, 3, add));
    let (verdict, answer) = memory.handle(sent.sent[0].1);
    assert_eq!((verdict, answer), (Verdict::StaleOperation, None));
}

#[test]
fn a_word_that_may_be_read_only_by_the_wrong_blade_is_refused() {
    let (mut switch, _) = (switch(), ());
    switch.place(DOMAIN, BladeSet::from_bits(0b010));
    let refused = switch.handle(node(0), request(0, 1, Want::Read));
    assert_eq!(refused.verdict, Verdict::NotPlaced);
    let denied = acknowledged(Syndrome::Refused(Refusal::Denied), 0);
    assert_eq!(refused.sent, [(node(0), packet(0, 1, denied))]);
    let late = packet(2, 1, Body::Invalidate(invalidation()));
    assert_eq!(
        switch.handle(node(2), late).verdict,
        Verdict::UnexpectedOpcode
    );
}

fn invalidation() -> Invalidation {
    Invalidation {
        page: PAGE,
        region: Region::containing(PAGE, 2).expect("order 2"),
        slot: 1,
        episode: Word::default().episode(),
        requester: connection(0).blade,
        target: Target::Invalid,
        source: Source::Grant,
    }
}

#[test]
fn a_page_of_words_is_operated_word_by_word() {
    let mut memory = Memory::<[u64; 4]>::new(1);
    let envelope = Envelope {
        qp: connection(0).to_qp(),
        seq: Seq::new(1),
        attempt: 0,
    };
    let body = Body::Atomic {
        va: Va(8),
        domain: DomainId(0),
        operation: Atomic::CmpSwap {
            expected: 0,
            new: 7,
        },
    };
    memory.handle(Datagram { envelope, body });
    assert_eq!(memory.page(0).data, [0, 7, 0, 0]);
    let beyond = Body::Request {
        want: Want::Read,
        page: PageRequest {
            page: Va(PAGE_SIZE as u64),
            domain: DomainId(0),
        },
    };
    let (verdict, _) = memory.handle(Datagram {
        envelope,
        body: beyond,
    });
    assert_eq!(verdict, Verdict::OutOfRange);
}
