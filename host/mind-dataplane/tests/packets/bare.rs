//! The bare network of the fault bench: it has tables of its own, and no verdicts.

use mind_common::{
    addr::{PAGE_SIZE, Va},
    id::DomainId,
    serial::{Seq, Version},
    wire::{Opcode, PAGE_REQUEST_LEN},
};
use mind_dataplane::harness::{Bare, Packet, XdpAction};
use mind_machines::datagram::{Body, Datagram, Envelope, PageRequest};

use crate::world::{World, cases, compute, memory, pattern, qp};

cases![
    a_bare_answer_is_the_page_in_the_same_frame,
    a_bare_answer_is_not_answered,
    what_is_no_read_is_passed_by_the_bare_memory,
    a_read_cut_off_is_dropped_by_the_bare_memory,
    the_bare_switch_redirects_what_is_connected,
];

/// Interfaces below this.
const INTERFACES: u32 = 64;

fn bare() -> Bare {
    let mut bare = Bare::load(INTERFACES).expect("the programs can be loaded");
    bare.set_page(&pattern(0x21)).expect("there is one page");
    bare
}

fn read() -> Packet {
    let message = Body::read(PageRequest {
        page: Va(7 * PAGE_SIZE as u64),
        domain: DomainId(3),
    });
    Packet::new(&message, compute(0), memory(0), qp(2))
}

fn answer(bare: &mut Bare, packet: &Packet) -> XdpAction {
    let (action, frame) = bare
        .answer(World::NO_PORT, packet.bytes())
        .expect("the kernel runs it");
    assert_eq!(frame.bytes().len(), packet.bytes().len());
    if action == XdpAction::Pass {
        assert_eq!(frame.bytes(), packet.bytes(), "what is passed is untouched");
    }
    action
}

fn a_bare_answer_is_the_page_in_the_same_frame(_: &mut World) {
    let packet = read().seq(70).attempt(2);
    let (action, frame) = bare()
        .answer(World::NO_PORT, packet.bytes())
        .expect("the kernel runs it");
    assert_eq!(action, XdpAction::Tx);
    assert_eq!(frame.bytes().len(), packet.bytes().len());
    assert_eq!((frame.from(), frame.to()), (memory(0), compute(0)));
    assert!(frame.has_right_checksum() && frame.has_lowered_ttl() && frame.has_right_lengths());
    let envelope = Envelope {
        qp: qp(2),
        seq: Seq::new(70),
        attempt: 2,
    };
    let data = pattern(0x21);
    let message = Body::ReadResponse {
        version: Version::new(0),
        data: &data,
    };
    assert_eq!(
        frame.datagram(),
        Ok(Datagram {
            envelope,
            body: message
        })
    );
}

fn a_bare_answer_is_not_answered(_: &mut World) {
    let mut bare = bare();
    for opcode in Opcode::ALL {
        let expected = match opcode {
            Opcode::Read => XdpAction::Tx,
            _ => XdpAction::Pass,
        };
        let packet = read().opcode(opcode as u8);
        assert_eq!(answer(&mut bare, &packet), expected, "{opcode:?}");
    }
}

fn what_is_no_read_is_passed_by_the_bare_memory(_: &mut World) {
    let mut bare = bare();
    for packet in [
        // ARP.
        read().put(12, &[0x08, 0x06]),
        // TCP, another port, a fragment, options, a tag.
        read().ip(9, &[6]),
        read().udp(2, &[0, 53]),
        read().ip(6, &[0x20, 0]),
        read().ip(0, &[0x46]),
        read().vlan(),
        // Its time to live is used up.
        read().ttl(1),
        // As short as frames are.
        read().cut_to(60),
    ] {
        assert_eq!(answer(&mut bare, &packet), XdpAction::Pass);
    }
}

fn a_read_cut_off_is_dropped_by_the_bare_memory(_: &mut World) {
    let mut bare = bare();
    for packet in [
        read().payload_len(PAGE_REQUEST_LEN - 1),
        read().cut_to(1000),
    ] {
        assert_eq!(answer(&mut bare, &packet), XdpAction::Drop);
    }
    let padded = read().payload_len(PAGE_REQUEST_LEN + 100);
    assert_eq!(answer(&mut bare, &padded), XdpAction::Tx);
}

fn the_bare_switch_redirects_what_is_connected(world: &mut World) {
    let (from, to, other) = (world.port(0), world.memory_port(0), world.port(1));
    let mut bare = bare();
    bare.connect(from, to).expect("there is room");
    let arp = read().put(12, &[0x08, 0x06]).cut_to(60);
    for packet in [read(), arp] {
        let (action, frame) = bare.redirect(from, packet.bytes()).expect("it runs");
        assert_eq!(action, XdpAction::Redirect);
        assert_eq!(frame.bytes(), packet.bytes());
        let (action, _) = bare.redirect(other, packet.bytes()).expect("it runs");
        assert_eq!(action, XdpAction::Aborted, "it leads nowhere");
    }
}
