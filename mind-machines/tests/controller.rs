//! The controller with a switch and a memory blade; compute blades that flush when they are told
//! to, unless they hang.

use std::collections::BTreeSet;

use mind_common::{
    addr::{Prefix, Region, SLICE_SHIFT, Va, WINDOW_BASE},
    directory::{Prior, State, Want},
    id::{BladeId, BladeSet, Connection, DomainId},
    serial::{Seq, Version},
    table::{MAY_READ, MAY_WRITE, Permission, Translation},
    verdict::Verdict,
    wire::{Atomic, Cost},
};
use mind_machines::{
    Node,
    controller::{Ask, Command, Controller, Input, Link, Patience, Progress, Request},
    datagram::{Body, Datagram, Envelope, PageRequest},
    memory::Memory,
    switch::{Handled, Port, Switch},
};

const BASE: Va = Va(WINDOW_BASE);
const DOMAIN: DomainId = DomainId(1);
const MEMORY: Node = Node::Memory(0);

fn blade(number: u8) -> BladeId {
    BladeId::new(number).expect("a blade")
}

fn region(order: u8) -> Region {
    Region::containing(BASE, order).expect("an order of a region")
}

fn page(number: u64) -> Va {
    Va(WINDOW_BASE + (number << 12))
}

struct World {
    switch: Switch,
    memory: Memory<u64>,
    controller: Controller,
    now: u64,
    /// Compute blades that answer nothing.
    hang: BTreeSet<BladeId>,
    /// What agents were told, but for orders.
    told: Vec<(Link, Command)>,
    flushed: Vec<BladeId>,
}

impl World {
    /// Three blades of a domain, and one region of four pages.
    fn new(fails: bool) -> Self {
        let mut switch = Switch::new(4);
        let tables = switch.tables_mut();
        tables.ports.insert(MEMORY, Port::Memory);
        tables.memory.insert(0);
        let slice = Prefix {
            base: BASE,
            shift: SLICE_SHIFT,
        };
        tables
            .translation
            .insert(slice, Translation::new(0, BASE, 0));
        let mut world = Self {
            switch,
            memory: Memory::new(16),
            controller: Controller::new(Patience::default(), 4, [0]),
            now: 1,
            hang: BTreeSet::new(),
            told: Vec::new(),
            flushed: Vec::new(),
        };
        for number in 0..3 {
            world.ask(Request::Register(blade(number)));
            world.ask(Request::Place {
                domain: DOMAIN,
                blade: blade(number),
                is_placed: true,
            });
        }
        let bits = MAY_READ | MAY_WRITE;
        world.ask(Request::Map {
            domain: DOMAIN,
            region: region(2),
            permission: Permission { bits },
            fails,
        });
        world.run();
        world
    }

    fn ask(&mut self, request: Request) {
        self.controller.handle(Input::Ask(Ask::of_nobody(request)));
    }

    /// Until it is idle. Takes the number of steps.
    fn run(&mut self) {
        for _ in 0..10_000 {
            if !self.step() {
                return;
            }
        }
        panic!("it does not end: {:?}", self.controller);
    }

    fn step(&mut self) -> bool {
        let mut out = Vec::new();
        match self.controller.step(self.now, &mut self.switch, &mut out) {
            Progress::Idle => return false,
            Progress::Acted => {}
            Progress::Waits { until } => {
                assert!(until > self.now, "it waits for what has been");
                self.now = until;
            }
            Progress::Awaits => {
                let (id, _) = self.controller.orders().next().expect("it awaits some");
                self.controller.handle(Input::Overdue { id });
            }
        }
        for (link, command) in out {
            self.obey(link, command);
        }
        true
    }

    fn obey(&mut self, link: Link, command: Command) {
        let id = match command {
            Command::Zero { id, first, count } => {
                self.memory.zero(first, count);
                id
            }
            Command::FencePages { id, first, count } => {
                self.memory.fence(first, count);
                id
            }
            Command::FenceBlade {
                id,
                life: connection,
            } => {
                self.memory.fence_blade(connection);
                id
            }
            Command::Flush { id, .. } => {
                let connection = link.life().expect("compute blades flush");
                if self.hang.contains(&connection.blade) {
                    return;
                }
                self.flushed.push(connection.blade);
                id
            }
            Command::Registered | Command::Reply { .. } | Command::Leave => {
                self.told.push((link, command));
                return;
            }
        };
        self.controller.handle(Input::Answer { id, done: true });
    }

    fn connection(&self, number: u8) -> Connection {
        self.controller
            .life(blade(number))
            .expect("it is one of us")
    }

    fn send(&mut self, connection: Connection, body: Body<u64>) -> Handled<u64> {
        let envelope = Envelope {
            qp: connection.to_qp(),
            seq: Seq::new(1),
            attempt: 0,
        };
        let port = Node::Compute(connection.blade);
        self.switch.handle(port, Datagram { envelope, body })
    }

    fn request(&mut self, from: u8, want: Want, page: Va) -> Verdict {
        let domain = DOMAIN;
        let page = PageRequest { page, domain };
        let connection = self.connection(from);
        self.send(connection, Body::Request { want, page }).verdict
    }

    /// A write-back on a connection, up to memory.
    fn write_back(&mut self, connection: Connection, version: u32, data: u64) -> Option<Verdict> {
        let page = PageRequest {
            page: BASE,
            domain: DOMAIN,
        };
        let version = Version::new(version);
        let body = Body::Write {
            page,
            version,
            data,
        };
        let handled = self.send(connection, body);
        let (to, packet) = handled.sent.first()?;
        (*to == MEMORY).then(|| self.memory.handle(*packet).0)
    }

    fn word_at(&self, va: Va) -> (State, Option<Prior>, u32) {
        let slot = self.switch.tables().slot(va).expect("it has a slot");
        let word = self.switch.slots()[slot].word;
        (word.state(), word.prior(), word.blades().bits())
    }
}

const INVALID: (State, Option<Prior>, u32) = (State::Invalid, None, 0);

#[test]
fn what_is_mapped_can_be_had_and_what_is_unmapped_cannot() {
    let mut world = World::new(false);
    assert_eq!(world.request(0, Want::Acquire, page(3)), Verdict::Fetch);
    assert_eq!(world.word_at(BASE), (State::Modified, None, 1));
    world.ask(Request::Unmap {
        domain: DOMAIN,
        region: region(2),
    });
    world.run();
    assert_eq!(world.flushed, [blade(0)]);
    assert_eq!(world.request(0, Want::Read, page(3)), Verdict::Protected);
    assert_eq!(world.switch.slots()[0].word.state(), State::Free);
    assert_eq!(world.controller.regions().count(), 0);
    assert!(world.controller.is_idle());
}

#[test]
fn what_a_blade_wrote_is_marked_lost_and_its_late_write_back_refused() {
    for fails in [false, true] {
        let mut world = World::new(fails);
        assert_eq!(world.request(0, Want::Acquire, BASE), Verdict::Fetch);
        let gone = world.connection(0);
        let version = world.memory.page(0).version.next().get();
        let page = PageRequest {
            page: BASE,
            domain: DOMAIN,
        };
        let late = Body::Write {
            page,
            version: Version::new(version),
            data: 13,
        };
        // On its way to memory when the blade goes.
        let late = world.send(gone, late).sent[0].1;
        world.controller.handle(Input::Broken(gone));
        world.run();
        let (verdict, _) = world.memory.handle(late);
        assert_ne!(verdict, Verdict::Stored);
        assert_eq!(world.memory.page(0).data, 0);
        let [lost] = world.controller.lost() else {
            panic!("{:?} should be one loss", world.controller.lost());
        };
        assert_eq!((lost.region, lost.with), (region(2), Some(gone)));
        let expected = if fails {
            (State::Locked, Some(Prior::Lost), 0)
        } else {
            INVALID
        };
        assert_eq!(world.word_at(BASE), expected);
        let verdict = if fails { Verdict::Lost } else { Verdict::Fetch };
        assert_eq!(world.request(1, Want::Read, BASE), verdict);
        assert_eq!(world.switch.tables().grants[&DOMAIN].bits(), 0b110);
    }
}

#[test]
fn a_life_that_was_replaced_is_not_listened_to() {
    let mut world = World::new(false);
    let earlier = world.connection(0);
    world.ask(Request::Register(blade(0)));
    world.run();
    let later = world.connection(0);
    assert_eq!(later.incarnation, earlier.incarnation + 1);
    let to_earlier = Link::Compute(earlier.to_qp());
    assert!(world.told.contains(&(to_earlier, Command::Leave)));
    let to_later = Link::Compute(later.to_qp());
    assert_eq!(world.told.last(), Some(&(to_later, Command::Registered)));
    assert_eq!(world.write_back(earlier, 7, 7), None);
    // The earlier one's connection breaks now; no blade is lost.
    world.controller.handle(Input::Broken(earlier));
    world.run();
    assert_eq!(world.connection(0), later);
    assert_eq!(world.switch.tables().compute[&blade(0)], later);
}

#[test]
fn a_blade_that_does_not_flush_is_sent_away() {
    let mut world = World::new(false);
    assert_eq!(world.request(0, Want::Acquire, BASE), Verdict::Fetch);
    let hanging = world.connection(0);
    world.hang.insert(blade(0));
    assert_eq!(world.request(1, Want::Read, BASE), Verdict::Invalidate);
    world.ask(Request::ReportStuck(BASE));
    let before = world.now;
    world.run();
    assert!(world.now >= before + Patience::default().stuck);
    assert_eq!(world.controller.life(blade(0)), None);
    let leave = (Link::Compute(hanging.to_qp()), Command::Leave);
    assert!(world.told.contains(&leave));
    assert_eq!(world.word_at(BASE), INVALID);
    assert_eq!(world.controller.lost().len(), 1);
    assert_eq!(world.request(1, Want::Acquire, BASE), Verdict::Fetch);
    assert!(world.controller.is_idle());
}

#[test]
fn what_others_answered_counts_though_a_blade_is_sent_away_in_between() {
    let mut world = World::new(false);
    for number in 0..3 {
        let verdict = world.request(number, Want::Read, BASE);
        assert_eq!(verdict, Verdict::Fetch);
    }
    world.hang.insert(blade(0));
    world.ask(Request::Reset(BASE));
    world.run();
    assert_eq!(world.controller.life(blade(0)), None);
    assert_eq!(world.flushed, [blade(1), blade(2)]);
    assert_eq!(world.word_at(BASE), INVALID);
    assert!(world.controller.is_idle());
}

#[test]
fn a_half_that_fails_since_writes_were_lost_fails_after_a_merge_was_tried() {
    for (lost, other) in [(page(0), page(2)), (page(2), page(0))] {
        let mut world = World::new(true);
        world.ask(Request::Split(BASE));
        world.run();
        assert_eq!(world.request(0, Want::Acquire, lost), Verdict::Fetch);
        let gone = world.connection(0);
        world.controller.handle(Input::Broken(gone));
        world.run();
        let fails = (State::Locked, Some(Prior::Lost), 0);
        assert_eq!(world.word_at(lost), fails);
        world.ask(Request::Merge(BASE));
        world.run();
        assert_eq!(world.word_at(lost), fails);
        assert_eq!(world.word_at(other), INVALID);
    }
}

#[test]
fn a_merge_reports_what_was_lost_of_either_half() {
    for written in [page(0), page(2)] {
        let mut world = World::new(false);
        world.ask(Request::Split(BASE));
        world.run();
        assert_eq!(world.request(0, Want::Acquire, written), Verdict::Fetch);
        let other = if written == BASE { page(2) } else { BASE };
        assert_eq!(world.request(1, Want::Read, other), Verdict::Fetch);
        world.hang.insert(blade(0));
        world.ask(Request::Merge(BASE));
        world.run();
        let lost = world.controller.lost();
        assert_eq!(lost.len(), 1);
        assert!(lost[0].region.contains(written), "{lost:?}");
    }
}

#[test]
fn what_a_blade_sent_away_still_operates_is_refused_before_others_have_the_page() {
    let mut world = World::new(false);
    assert_eq!(world.request(0, Want::Acquire, BASE), Verdict::Fetch);
    let operation = Body::Atomic {
        va: BASE,
        domain: DOMAIN,
        operation: Atomic::FetchAdd { addend: 3 },
    };
    let hanging = world.connection(0);
    let late = world.send(hanging, operation).sent[0].1;
    world.hang.insert(blade(0));
    world.ask(Request::Reset(BASE));
    let mut verdict = None;
    while world.step() {
        if verdict.is_none() && world.request(1, Want::Acquire, BASE) == Verdict::Fetch {
            verdict = Some(world.memory.handle(late).0);
        }
    }
    assert_eq!(verdict, Some(Verdict::StaleOperation));
    assert_eq!(world.memory.page(0).data, 0);
}

#[test]
fn an_appeal_for_a_region_that_is_well_changes_nothing() {
    let mut world = World::new(false);
    assert_eq!(world.request(0, Want::Acquire, BASE), Verdict::Fetch);
    let before = world.switch.clone();
    world.ask(Request::ReportStuck(BASE));
    world.run();
    assert_eq!(world.switch, before);
    assert_eq!(world.flushed, []);
}

#[test]
fn halves_are_what_the_whole_was_and_join_again() {
    let mut world = World::new(false);
    assert_eq!(world.request(0, Want::Read, page(0)), Verdict::Fetch);
    world.ask(Request::Split(page(3)));
    world.run();
    assert_eq!(world.controller.regions().count(), 2);
    assert_eq!(world.word_at(page(0)), (State::Shared, None, 1));
    assert_eq!(world.word_at(page(2)), (State::Shared, None, 1));
    assert_eq!(world.request(1, Want::Read, page(3)), Verdict::Fetch);
    assert_eq!(world.word_at(page(0)), (State::Shared, None, 1));
    world.ask(Request::Merge(page(0)));
    world.run();
    assert_eq!(world.word_at(page(3)), (State::Shared, None, 0b11));
    assert_eq!(world.flushed, [], "copies of sharers go together");

    world.ask(Request::Split(page(0)));
    world.run();
    world.ask(Request::Reset(page(0)));
    world.run();
    assert_eq!(world.request(0, Want::Acquire, page(0)), Verdict::Fetch);
    world.ask(Request::Merge(page(3)));
    world.run();
    assert_eq!(world.word_at(BASE), INVALID, "an owner and sharers do not");
    let entries: Vec<_> = world.controller.regions().collect();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].region, region(2));
}

#[test]
fn sync_takes_what_the_caller_owns_and_then_replies() {
    let mut world = World::new(false);
    assert_eq!(world.request(0, Want::Acquire, BASE), Verdict::Fetch);
    let from = world.connection(0);
    let request = Request::Sync {
        start: BASE,
        length: 1,
    };
    let id = 9;
    let from_life = Some(from);
    world.controller.handle(Input::Ask(Ask {
        from: from_life,
        id,
        request,
    }));
    world.run();
    assert_eq!(world.flushed, [blade(0)]);
    let reply = Command::Reply { id, done: true };
    let link = Link::Compute(from.to_qp());
    assert_eq!(world.told.last(), Some(&(link, reply)));
    assert_eq!(world.word_at(BASE), INVALID);
}

/// A connection that breaks, whatever the controller is doing: all ends well, wherever it comes.
#[test]
fn a_blade_may_go_at_any_step_of_any_change() {
    let requests = [
        Request::Reset(BASE),
        Request::Split(BASE),
        Request::Sync {
            start: BASE,
            length: 1 << 14,
        },
        Request::Unmap {
            domain: DOMAIN,
            region: region(2),
        },
        Request::Register(blade(1)),
        Request::Register(blade(0)),
    ];
    let mut tried = 0;
    for fails in [false, true] {
        for request in requests {
            for steps in 0.. {
                let mut world = World::new(fails);
                assert_eq!(world.request(0, Want::Acquire, BASE), Verdict::Fetch);
                let gone = world.connection(0);
                let from = Some(world.connection(1));
                let ask = Ask {
                    from,
                    id: 1,
                    request,
                };
                world.controller.handle(Input::Ask(ask));
                let ran = (0..steps).take_while(|_| world.step()).count();
                world.controller.handle(Input::Broken(gone));
                world.run();
                ends_well(&world, gone, request);
                tried += 1;
                if ran < steps {
                    break;
                }
            }
        }
    }
    println!("{tried} ways");
    assert!(tried > 100, "only {tried} ways");
}

fn ends_well(world: &World, gone: Connection, request: Request) {
    assert!(world.controller.is_idle());
    let tables = world.switch.tables();
    assert_ne!(tables.compute.get(&gone.blade), Some(&gone));
    let port = tables.ports.get(&Node::Compute(gone.blade));
    assert_ne!(port, Some(&Port::Compute(gone)));
    let mut slots = BTreeSet::new();
    for entry in world.controller.regions() {
        assert!(slots.insert(entry.slot), "two regions have one slot");
        let slot = world.switch.slots()[entry.slot];
        assert_eq!(slot.region, Some(entry.region), "{request:?}");
        let is_lost = slot.word.prior() == Some(Prior::Lost);
        let is_locked = slot.word.state() == State::Locked;
        assert!(
            !is_locked || is_lost && entry.fails,
            "{request:?}: {slot:?}"
        );
        assert!(!slot.word.blades().contains(gone.blade), "{slot:?}");
        for page in entry.region.pages() {
            assert_eq!(tables.slot(page), Some(entry.slot));
        }
    }
    let free = (0..world.switch.slots().len()).filter(|slot| !slots.contains(slot));
    for slot in free {
        assert_eq!(world.switch.slots()[slot].word.state(), State::Free);
    }
    let every_blade: BladeSet = [blade(0), blade(1), blade(2)].into_iter().collect();
    assert!(
        every_blade
            .iter()
            .all(|blade| world.controller.life(blade) != Some(gone))
    );
}

/// Blades, one after the other, in no order that comes back soon.
fn turns() -> impl Iterator<Item = usize> {
    (0..60usize).map(|turn| (turn * turn / 7 + turn / 5) % 3)
}

#[test]
fn an_answer_from_before_a_split_counts_for_nothing_after_it() {
    old_answers_count_for_nothing(&[], Request::Split(page(0)));
}

#[test]
fn an_answer_from_before_a_merge_counts_for_nothing_after_it() {
    old_answers_count_for_nothing(&[Request::Split(page(0))], Request::Merge(page(0)));
}

/// A page goes round before a change of its region's slot and after it. All answers from before come
/// again after it, and are stale, each.
fn old_answers_count_for_nothing(first: &[Request], change: Request) {
    let mut world = World::new(false);
    for request in first {
        world.ask(*request);
        world.run();
    }
    let regions = world.controller.regions().count();
    let upper = page(2);
    let connections: Vec<_> = (0..3).map(|number| world.connection(number)).collect();
    let mut late = Vec::new();
    // A blade that has it gives it up as soon as it is told to.
    let acquire = |world: &mut World, from: usize, late: &mut Vec<Datagram<u64>>| {
        let (want, domain) = (Want::Acquire, DOMAIN);
        let wanted = PageRequest {
            page: upper,
            domain,
        };
        let handled = world.send(connections[from], Body::Request { want, page: wanted });
        for (node, packet) in handled.sent {
            let (Node::Compute(owner), Body::Invalidate(invalidation)) = (node, packet.body) else {
                continue;
            };
            for packet in late.iter() {
                let port = Node::Compute(blade((packet.envelope.qp & 0xff) as u8));
                if port == node {
                    let handled = world.switch.handle(port, *packet);
                    assert_eq!(
                        handled.verdict,
                        Verdict::StaleAnswer,
                        "{packet:?} counted for {invalidation:?}"
                    );
                }
            }
            let connection = connections[usize::from(owner.get())];
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
            late.push(Datagram { envelope, body });
        }
    };
    let mut answers = Vec::new();
    for from in turns() {
        acquire(&mut world, from, &mut answers);
    }
    late.extend(answers);
    world.ask(change);
    world.run();
    assert_ne!(world.controller.regions().count(), regions);
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
            Some(Body::Answer { invalidation, .. }) => usize::from(invalidation.requester.get()),
            _ => 2 - turn,
        };
        acquire(&mut world, from, &mut late);
    }
}
