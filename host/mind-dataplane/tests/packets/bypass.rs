//! What must not get past the switch: what a memory blade's responder or an agent could take for
//! the switch's. And what must: the ordinary traffic between the same hosts.

use mind_machines::datagram::Body;
use std::net::Ipv4Addr;

use mind_common::{table::Port, verdict::Verdict};
use mind_dataplane::harness::{Host, Packet};

use crate::world::{Expect as _, PAGE, SWITCH, World, cases, compute, memory, qp, read, request};

cases![
    what_memory_would_serve_is_dropped,
    what_an_agent_would_believe_is_dropped,
    rocev2_between_blades_is_dropped_whoever_sends_it,
    nothing_in_the_switchs_name_passes,
    where_the_frame_goes_on_the_link_does_not_matter,
    one_tag_hides_nothing,
    two_tags_hide_nothing,
    nobody_sends_three_tags,
    options_hide_nothing,
    options_are_not_taken_for_ports,
    a_first_fragment_hides_nothing,
    a_later_fragment_in_the_switchs_name_is_dropped,
    rocev2_for_the_switch_that_a_blade_could_route_to_it_is_dropped,
    headers_that_cannot_be_seen_are_dropped,
    arp_passes,
    ordinary_traffic_passes,
    fragments_of_ordinary_traffic_pass,
    tagged_ordinary_traffic_passes,
    ordinary_traffic_with_options_passes,
    a_host_without_an_address_may_ask_for_one,
];

/// EtherTypes of tags: 802.1Q and 802.1ad.
const TAGS: [u16; 2] = [0x8100, 0x88a8];
/// VLANs: none (802.1p), and one.
const VLANS: [u16; 2] = [0, 5];
/// Options that say nothing: as many as fit.
const NOTHING: [u8; 40] = [1; 40];
const MORE_FRAGMENTS: [u8; 2] = [0x20, 0];
const LATER_FRAGMENT: [u8; 2] = [0x20, 100];
const ICMP: u8 = 1;
const TCP: u8 = 6;

/// A READ from `from` to `to`, on blade 0's connection.
fn rocev2(from: Ipv4Addr, to: Host) -> Packet {
    let from = Host {
        mac: compute(0).mac,
        ipv4: from,
    };
    let request = request(PAGE);
    Packet::new(&Body::read(request), from, to, qp(0))
}

/// Compute blade 0 sends a READ to memory blade 0 with the switch's address.
fn spoofed() -> Packet {
    rocev2(SWITCH.ipv4, memory(0))
}

/// A datagram of another protocol, from `from` to `to`.
fn dns(from: Ipv4Addr, to: Host) -> Packet {
    rocev2(from, to).udp(2, &53_u16.to_be_bytes())
}

/// `packet` meets `verdict` at every port: a compute blade's, a memory blade's, one without a
/// registered blade, and one that is not a port of the switch.
#[track_caller]
fn meets_everywhere(world: &mut World, packet: &Packet, verdict: Verdict) {
    world.send(0, packet).met(verdict);
    world.send_from_memory(0, packet).met(verdict);
    world.send_at(World::NO_PORT, packet).met(verdict);
    let port = world.port(3);
    let registered = Port::compute(mind_common::id::Connection::from_qp(qp(3)).expect("a blade's"));
    for is in [Port::default(), registered] {
        world
            .bed
            .switch
            .set_port(port, is)
            .expect("a port can be set");
        world.send(3, packet).met(verdict);
    }
}

#[track_caller]
fn is_dropped(world: &mut World, packet: &Packet) {
    meets_everywhere(world, packet, Verdict::Bypass);
}

#[track_caller]
fn passes(world: &mut World, packet: &Packet) {
    meets_everywhere(world, packet, Verdict::Foreign);
}

fn what_memory_would_serve_is_dropped(world: &mut World) {
    let packet = spoofed().extended(0, &[0; 8]);
    world.serve(&packet).met(Verdict::Read);
    is_dropped(world, &packet);
}

fn what_an_agent_would_believe_is_dropped(world: &mut World) {
    is_dropped(world, &rocev2(SWITCH.ipv4, compute(1)));
}

fn rocev2_between_blades_is_dropped_whoever_sends_it(world: &mut World) {
    let broadcast = Host {
        mac: [0xff; 6],
        ipv4: Ipv4Addr::BROADCAST,
    };
    for to in [memory(0), compute(1), broadcast] {
        is_dropped(world, &rocev2(compute(0).ipv4, to));
        is_dropped(world, &rocev2(memory(0).ipv4, to));
    }
}

fn nothing_in_the_switchs_name_passes(world: &mut World) {
    for to in [memory(0), compute(1), SWITCH] {
        is_dropped(world, &dns(SWITCH.ipv4, to));
        for protocol in [ICMP, TCP] {
            is_dropped(world, &rocev2(SWITCH.ipv4, to).ip(9, &[protocol]));
        }
    }
}

fn where_the_frame_goes_on_the_link_does_not_matter(world: &mut World) {
    for mac in [SWITCH.mac, compute(2).mac, [0xff; 6]] {
        is_dropped(world, &spoofed().put(0, &mac));
        is_dropped(world, &rocev2(compute(0).ipv4, memory(0)).put(0, &mac));
        // What is for the switch is the switch's.
        let ours = read(0, PAGE).put(0, &mac);
        world.send(0, &ours).met(Verdict::Fetch);
    }
}

fn one_tag_hides_nothing(world: &mut World) {
    for kind in TAGS {
        for vlan in VLANS {
            is_dropped(world, &spoofed().tag(kind, vlan));
            is_dropped(world, &dns(SWITCH.ipv4, memory(0)).tag(kind, vlan));
            let between = rocev2(compute(0).ipv4, compute(1));
            is_dropped(world, &between.tag(kind, vlan));
        }
    }
}

fn two_tags_hide_nothing(world: &mut World) {
    for (inner, outer) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        for vlan in VLANS {
            let twice = |packet: Packet| packet.tag(TAGS[inner], 0).tag(TAGS[outer], vlan);
            is_dropped(world, &twice(spoofed()));
            is_dropped(world, &twice(dns(SWITCH.ipv4, memory(0))));
            is_dropped(world, &twice(rocev2(compute(0).ipv4, compute(1))));
            let with_options = spoofed().options(&NOTHING);
            is_dropped(world, &twice(with_options));
        }
    }
}

fn nobody_sends_three_tags(world: &mut World) {
    for packet in [spoofed(), dns(compute(0).ipv4, compute(1))] {
        for kind in TAGS {
            let packet = packet.clone().vlan().vlan().tag(kind, 0);
            is_dropped(world, &packet);
        }
    }
}

fn options_hide_nothing(world: &mut World) {
    for len in (4..=NOTHING.len()).step_by(4) {
        let options = &NOTHING[..len];
        for to in [memory(0), compute(1)] {
            is_dropped(world, &rocev2(compute(0).ipv4, to).options(options));
            is_dropped(world, &dns(SWITCH.ipv4, to).options(options));
        }
    }
}

fn options_are_not_taken_for_ports(world: &mut World) {
    // RoCEv2's port where it would be without options.
    let [high, low] = mind_common::wire::UDP_PORT.to_be_bytes();
    let packet = dns(compute(0).ipv4, compute(1));
    passes(world, &packet.options(&[1, 1, high, low]));
}

fn a_first_fragment_hides_nothing(world: &mut World) {
    for to in [memory(0), compute(1)] {
        let first = rocev2(compute(0).ipv4, to).ip(6, &MORE_FRAGMENTS);
        is_dropped(world, &first);
        is_dropped(world, &first.clone().vlan());
        is_dropped(world, &first.clone().options(&NOTHING));
        // As short as a fragment can be: the UDP header and no more.
        is_dropped(world, &first.payload_len(0));
    }
}

fn a_later_fragment_in_the_switchs_name_is_dropped(world: &mut World) {
    for to in [memory(0), compute(1), SWITCH] {
        let later = rocev2(SWITCH.ipv4, to).ip(6, &LATER_FRAGMENT);
        is_dropped(world, &later);
        is_dropped(world, &later.vlan());
    }
}

fn rocev2_for_the_switch_that_a_blade_could_route_to_it_is_dropped(world: &mut World) {
    // With the Ethernet address of a blade that routes, these would come back as that blade's.
    let packet = || rocev2(compute(0).ipv4, SWITCH).put(0, &compute(1).mac);
    is_dropped(world, &packet().vlan());
    is_dropped(world, &packet().ip(6, &MORE_FRAGMENTS));
    is_dropped(world, &packet().options(&NOTHING));
}

fn headers_that_cannot_be_seen_are_dropped(world: &mut World) {
    // Ethernet, IPv4 and UDP end at 14, 34 and 42.
    for len in [14, 33, 34, 41] {
        is_dropped(world, &rocev2(compute(0).ipv4, memory(0)).cut_to(len));
        is_dropped(world, &rocev2(compute(0).ipv4, SWITCH).cut_to(len));
    }
    for len in [14, 17, 18, 41, 45] {
        let tagged = rocev2(compute(0).ipv4, memory(0)).vlan();
        is_dropped(world, &tagged.cut_to(len));
    }
    let with_options = rocev2(compute(0).ipv4, memory(0)).options(&NOTHING);
    is_dropped(world, &with_options.cut_to(42));
}

fn arp_passes(world: &mut World) {
    let arp = rocev2(compute(0).ipv4, memory(0)).put(12, &[0x08, 0x06]);
    passes(world, &arp);
    passes(world, &arp.clone().cut_to(42));
    passes(world, &arp.cut_to(42).vlan());
}

fn ordinary_traffic_passes(world: &mut World) {
    for to in [SWITCH, compute(1), memory(0)] {
        let from = compute(0).ipv4;
        passes(world, &dns(from, to));
        // Another protocol's first bytes may be anything.
        for protocol in [ICMP, TCP] {
            passes(world, &rocev2(from, to).ip(9, &[protocol]));
            passes(world, &rocev2(from, to).ip(9, &[protocol]).cut_to(34));
        }
        // An answer: only the destination's port counts.
        passes(world, &dns(from, to).udp(0, &4791_u16.to_be_bytes()));
    }
}

fn fragments_of_ordinary_traffic_pass(world: &mut World) {
    for to in [SWITCH, compute(1), memory(0)] {
        let from = compute(0).ipv4;
        passes(world, &dns(from, to).ip(6, &MORE_FRAGMENTS));
        // Payload, whatever it looks like.
        passes(world, &rocev2(from, to).ip(6, &LATER_FRAGMENT));
        passes(world, &rocev2(from, to).ip(6, &[0, 100]).cut_to(38));
    }
}

fn tagged_ordinary_traffic_passes(world: &mut World) {
    let packet = dns(compute(0).ipv4, compute(1));
    for kind in TAGS {
        for vlan in VLANS {
            let once = packet.clone().tag(kind, vlan);
            passes(world, &once);
            passes(world, &once.tag(0x88a8, 7));
            let tcp = rocev2(compute(0).ipv4, SWITCH).ip(9, &[TCP]);
            passes(world, &tcp.tag(kind, vlan));
        }
    }
}

fn ordinary_traffic_with_options_passes(world: &mut World) {
    for len in [4, 40] {
        let packet = dns(compute(0).ipv4, compute(1));
        passes(world, &packet.options(&NOTHING[..len]));
    }
}

fn a_host_without_an_address_may_ask_for_one(world: &mut World) {
    let broadcast = Host {
        mac: [0xff; 6],
        ipv4: Ipv4Addr::BROADCAST,
    };
    let dhcp = dns(Ipv4Addr::UNSPECIFIED, broadcast).udp(2, &67_u16.to_be_bytes());
    passes(world, &dhcp);
}
