//! Memory that is mapped and protected: what a domain may do with it, and what is left where memory
//! cannot be zeroed.

use mind_common::{
    addr::{Prefix, Region, SLICE_SHIFT, Va, WINDOW_BASE},
    directory::Want,
    id::{BladeId, DomainId},
    serial::Seq,
    table::{MAY_READ, MAY_WRITE, Permission, Translation},
    verdict::Verdict,
};
use mind_machines::{
    Node,
    controller::{Ask, Command, Controller, Input, Patience, Progress, Request},
    datagram::{Body, Datagram, Envelope, PageRequest},
    switch::{Port, Switch},
};

const DOMAIN: DomainId = DomainId(7);
const BASE: Va = Va(WINDOW_BASE);

struct World {
    switch: Switch,
    controller: Controller,
    /// Whether memory can be zeroed.
    zeroes: bool,
    replies: Vec<bool>,
}

fn region() -> Region {
    Region::containing(BASE, 2).expect("order 2 is a region's")
}

fn blade() -> BladeId {
    BladeId::new(0).expect("there are 32 blades")
}

impl World {
    /// One blade, which is in the domain.
    fn new() -> Self {
        let mut switch = Switch::new(2);
        let tables = switch.tables_mut();
        tables.ports.insert(Node::Memory(0), Port::Memory);
        tables.memory.insert(0);
        let slice = Prefix {
            base: BASE,
            shift: SLICE_SHIFT,
        };
        let translation = Translation::new(0, BASE, 0);
        tables.translation.insert(slice, translation);
        let mut world = Self {
            switch,
            controller: Controller::new(Patience::default(), 2, [0]),
            zeroes: true,
            replies: Vec::new(),
        };
        world.ask(Request::Register(blade()));
        world.ask(Request::Place {
            domain: DOMAIN,
            blade: blade(),
            is_placed: true,
        });
        world.replies.clear();
        world
    }

    fn ask(&mut self, request: Request) {
        let from = self.controller.life(blade());
        let ask = Ask {
            from,
            id: 0,
            request,
        };
        self.controller.handle(Input::Ask(ask));
        loop {
            let mut out = Vec::new();
            let progress = self.controller.step(1, &mut self.switch, &mut out);
            if progress == Progress::Idle {
                return;
            }
            for (_, command) in out {
                let (id, done) = match command {
                    Command::Zero { id, .. } => (id, self.zeroes),
                    Command::Flush { id, .. }
                    | Command::FencePages { id, .. }
                    | Command::FenceBlade { id, .. } => (id, true),
                    Command::Reply { done, .. } => {
                        self.replies.push(done);
                        continue;
                    }
                    Command::Registered | Command::Leave => continue,
                };
                self.controller.handle(Input::Answer { id, done });
            }
        }
    }

    fn map(&mut self, bits: u32) {
        self.ask(Request::Map {
            domain: DOMAIN,
            region: region(),
            permission: Permission { bits },
            fails: false,
        });
    }

    fn protect(&mut self, bits: u32) {
        self.ask(Request::Protect {
            domain: DOMAIN,
            region: region(),
            permission: Permission { bits },
        });
    }

    fn wants(&mut self, want: Want) -> Verdict {
        let connection = self
            .controller
            .life(blade())
            .expect("the blade is registered");
        let page = PageRequest {
            page: BASE,
            domain: DOMAIN,
        };
        let envelope = Envelope {
            qp: connection.to_qp(),
            seq: Seq::default(),
            attempt: 0,
        };
        let body = Body::<()>::Request { want, page };
        let packet = Datagram { envelope, body };
        self.switch.handle(Node::Compute(blade()), packet).verdict
    }
}

#[test]
fn a_protected_page_is_not_granted_for_writing_until_it_may_be_written_again() {
    let mut world = World::new();
    world.map(MAY_READ | MAY_WRITE);
    world.protect(MAY_READ);
    assert_eq!(world.wants(Want::Acquire), Verdict::Protected);
    assert_eq!(world.wants(Want::Read), Verdict::Fetch);
    world.protect(MAY_READ | MAY_WRITE);
    assert_eq!(world.wants(Want::Acquire), Verdict::Fetch);
    assert_eq!(world.replies, [true, true, true]);
}

#[test]
fn what_is_not_mapped_or_another_domains_cannot_be_protected_or_unmapped() {
    let mut world = World::new();
    world.protect(MAY_READ);
    assert_eq!(world.wants(Want::Read), Verdict::Protected);
    world.map(MAY_READ);
    let (domain, region) = (DomainId(8), region());
    world.ask(Request::Unmap { domain, region });
    world.ask(Request::Protect {
        domain,
        region,
        permission: Permission { bits: MAY_READ },
    });
    assert_eq!(world.replies, [false, true, false, false]);
    assert_eq!(world.wants(Want::Read), Verdict::Fetch);
}

#[test]
fn memory_that_cannot_be_zeroed_is_not_mapped_and_can_be_later() {
    let mut world = World::new();
    world.zeroes = false;
    for _ in 0..3 {
        world.map(MAY_READ);
    }
    assert_eq!(world.replies, [false; 3], "and no slot is lost");
    assert_eq!(world.wants(Want::Read), Verdict::Protected);
    assert_eq!(world.controller.regions().count(), 0);
    world.zeroes = true;
    world.map(MAY_READ);
    assert_eq!(world.replies.last(), Some(&true));
    assert_eq!(world.wants(Want::Read), Verdict::Fetch);
}
