//! The responder against `mind_machines::memory`.

use std::rc::Rc;

use mind_common::{
    addr::{PAGE_SHIFT, Va},
    id::Connection,
    serial::Version,
    table::PageTag,
    verdict::Verdict,
    wire::Opcode,
};
use mind_dataplane::{
    MemoryLimits, Responder, Switch, SwitchLimits,
    harness::{Bed, XdpAction},
};
use mind_machines::{
    Node,
    datagram::{Body, Datagram, Envelope},
    memory::{Memory, Page},
};

use crate::{
    Met, draw,
    frames::{self, Bytes, SWITCH, blade},
};

/// Pages of the store.
const PAGES: u64 = 8;
/// An interface; the responder serves every one.
const INTERFACE: u32 = 1;
/// The node that the programs are.
const SELF: Node = Node::Memory(0);

/// All verdicts of the responder on well-formed packets.
const VERDICTS: [Verdict; 11] = [
    Verdict::Invalid,
    Verdict::UnexpectedOpcode,
    Verdict::StaleConnection,
    Verdict::Read,
    Verdict::Stored,
    Verdict::Duplicate,
    Verdict::Operated,
    Verdict::Replayed,
    Verdict::Outdated,
    Verdict::OutOfRange,
    Verdict::StaleOperation,
];

struct Pair {
    bed: Bed,
    model: Memory<Bytes>,
    random: fastrand::Rng,
    met: Met,
}

/// Compares `rounds` stores, each with `packets` packets.
pub fn compare(seed: u64, rounds: u32, packets: u32) {
    let limits = MemoryLimits {
        interfaces: 4,
        ..MemoryLimits::for_pages(PAGES as u32)
    };
    let switch = Switch::load(&SwitchLimits::default()).expect("the kernel loads a switch");
    let responder = Responder::load(&limits).expect("the kernel loads a responder");
    let mut pair = Pair {
        bed: Bed::new(switch, responder).expect("both have their programs"),
        model: Memory::new(PAGES),
        random: fastrand::Rng::with_seed(seed),
        met: Met::default(),
    };
    let own = frames::host(SELF).ipv4;
    let identity = pair.bed.responder.set_identity(own, SWITCH.ipv4);
    identity.expect("the kernel takes an address");
    for round in 0..rounds {
        pair.begin();
        for number in 0..packets {
            if draw::once_in(&mut pair.random, 12) {
                pair.order();
            }
            pair.exchange(&format!("seed {seed:#x}, round {round}, packet {number}"));
        }
    }
    pair.met.expect(100, &VERDICTS);
}

impl Pair {
    /// Random pages, no atomic operations.
    fn begin(&mut self) {
        self.model = Memory::new(PAGES);
        let responder = &mut self.bed.responder;
        responder.clear_operations().expect("the map can be set");
        for number in 0..PAGES {
            let page = Page {
                version: draw::version(&mut self.random),
                data: Bytes::drawn(&mut self.random),
            };
            let store = responder.store();
            let at = number as usize;
            store.write(at, &page.data.0).expect("the page is there");
            let tag = PageTag::settled(page.version);
            store.set_tag(at, tag).expect("the page is there");
            self.model.set_page(number, page);
        }
    }

    /// A command of the controller.
    fn order(&mut self) {
        let random = &mut self.random;
        let store = self.bed.responder.store();
        let (first, count) = (random.u64(..PAGES), random.u64(..3));
        let count = count.min(PAGES - first);
        match random.u32(..3) {
            0 => {
                let zeroed = store.zero(first as usize, count as usize);
                zeroed.expect("the pages are there");
                self.model.zero(first, count);
            }
            1 => {
                let fenced = store.fence(first as usize, count as usize);
                fenced.expect("the pages are there");
                self.model.fence(first, count);
            }
            _ => {
                let ended = connection(random);
                store.fence_blade(ended);
                self.model.fence_blade(ended);
            }
        }
    }

    fn exchange(&mut self, place: &str) {
        let random = &mut self.random;
        let mut body = draw::body(random, |_| None);
        for _ in 0..3 {
            if is_request(&body) {
                break;
            }
            body = draw::body(random, |_| None);
        }
        let offset = match random.u32(..16) {
            0 => Va(random.u64(..)),
            1 => Va(random.u64(..PAGES << PAGE_SHIFT)),
            2 => Va(PAGES << PAGE_SHIFT),
            _ => Va(random.u64(..PAGES) << PAGE_SHIFT),
        };
        match &mut body {
            Body::Request { page, .. } | Body::Write { page, .. } => page.page = offset,
            Body::Atomic { va, .. } => va.0 = va.0 & 0xfff | offset.0 & !0xfff,
            _ => {}
        }
        let qp = match random.u32(..24) {
            0 => 0xff,
            _ => connection(random).to_qp(),
        };
        let packet = Datagram {
            envelope: Envelope {
                qp,
                seq: draw::seq(random),
                attempt: random.u8(..4),
            },
            body,
        };
        let frame = frames::frame(&packet, SWITCH, frames::host(SELF));
        let run = self.bed.respond(INTERFACE, frame.bytes());
        let run = run.expect("the kernel runs the program");
        let (verdict, answer) = self.model.handle(packet.clone());
        self.met.count(run.verdict);
        assert_eq!(run.verdict, verdict, "{place}: {packet:?}");
        let seen = match run.action {
            XdpAction::Tx => {
                assert_eq!(run.frame.to(), SWITCH, "{place}: it answers the switch");
                Some(frames::packet(&run.frame))
            }
            _ => None,
        };
        assert_eq!(seen, answer, "{place}: {packet:?}");
        for number in 0..PAGES {
            let store = self.bed.responder.store();
            let at = number as usize;
            let tag = store.tag(at).expect("the page is there");
            let page = Page {
                version: Version::new(tag.raw() as u32),
                data: Bytes(Rc::new(store.read(at).expect("the page is there"))),
            };
            assert_eq!(page, self.model.page(number), "{place}: page {number}");
        }
    }
}

/// Whether memory answers such a message.
fn is_request(body: &Body<Bytes>) -> bool {
    matches!(
        body.opcode(),
        Opcode::Read | Opcode::Write | Opcode::CmpSwap | Opcode::FetchAdd
    )
}

/// An incarnation of a blade, of few.
fn connection(random: &mut fastrand::Rng) -> Connection {
    Connection {
        blade: blade(random.u8(..2)),
        incarnation: draw::one_of(random, &[0xffff, 0, 1]),
    }
}
