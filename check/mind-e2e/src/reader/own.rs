//! This project's own reader: `mind_common::wire` on the datagrams of a capture file.

use mind_machines::datagram::Body;
use std::{fs::File, path::Path};

use anyhow::{Context as _, Result, anyhow};
use mind_common::wire::{Atomic, BTH_LEN, Ceth, OUTER_LEN, Syndrome, UDP_PORT};
use mind_machines::datagram::{Datagram, PageRequest};
use pcap_file::pcap::PcapReader;
use zerocopy::FromBytes as _;

use super::Fields;

/// Reads a capture file of the classic format, with Ethernet frames. Those to other ports are left out.
///
/// # Errors
///
/// When it is none, or a datagram to RoCEv2's port cannot be parsed.
pub fn own(capture: &Path) -> Result<Vec<Fields>> {
    let file = File::open(capture).with_context(|| format!("no {}", capture.display()))?;
    let mut reader = PcapReader::new(file)?;
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet?;
        if let Some(datagram) = datagram(&packet.data) {
            let fields = fields(datagram);
            packets.push(fields.with_context(|| format!("packet {}", packets.len() + 1))?);
        }
    }
    Ok(packets)
}

/// The UDP payload of a frame to RoCEv2's port.
fn datagram(frame: &[u8]) -> Option<&[u8]> {
    const IPV4: usize = 14;
    const UDP: usize = IPV4 + 20;
    let outer: &[u8; OUTER_LEN] = frame.first_chunk()?;
    let is_udp = outer[12..IPV4] == [8, 0] && outer[IPV4] == 0x45 && outer[IPV4 + 9] == 17;
    if !is_udp || outer[UDP + 2..UDP + 4] != UDP_PORT.to_be_bytes() {
        return None;
    }
    let length = u16::from_be_bytes([outer[UDP + 4], outer[UDP + 5]]);
    // Ethernet pads short frames. A datagram that is cut off is shown as it is.
    let rest = &frame[OUTER_LEN..];
    let length = usize::from(length).saturating_sub(OUTER_LEN - UDP);
    Some(rest.get(..length).unwrap_or(rest))
}

/// The fields of a datagram.
fn fields(datagram: &[u8]) -> Result<Fields> {
    let Datagram { envelope, body } =
        Datagram::parse(datagram).map_err(|error| anyhow!("{error}"))?;
    let mut fields = Fields::new();
    let mut set = |name: &str, value: u64| fields.insert(name.to_owned(), value);
    set("opcode", u64::from(body.opcode() as u8));
    set("qp", u64::from(envelope.qp));
    set("psn", u64::from(envelope.seq.get()));
    set("attempt", u64::from(envelope.attempt));
    set("length", datagram.len() as u64);
    let mut request = |request: &PageRequest| {
        set("va", request.page.0);
        set("domain", u64::from(request.domain.0));
        set("bytes", mind_common::addr::PAGE_SIZE as u64);
    };
    match body {
        Body::Request { page, .. } => request(&page),
        Body::Write { page, version, .. } => {
            request(&page);
            set("immediate", u64::from(version.get()));
        }
        Body::ReadResponse { version, .. } => {
            set("syndrome", u64::from(Syndrome::Ack.to_u8()));
            set("msn", u64::from(version.get()));
        }
        Body::Acknowledge { syndrome, version } => {
            set("syndrome", u64::from(syndrome.to_u8()));
            set("msn", u64::from(version.get()));
        }
        Body::AtomicAcknowledge { syndrome, original } => {
            set("syndrome", u64::from(syndrome.to_u8()));
            set("msn", 0);
            set("original", original);
        }
        Body::Atomic {
            va,
            domain,
            operation,
        } => {
            let (swap_or_add, compare) = match operation {
                Atomic::CmpSwap { expected, new } => (new, expected),
                Atomic::FetchAdd { addend } => (addend, 0),
            };
            set("va", va.0);
            set("domain", u64::from(domain.0));
            set("swap_or_add", swap_or_add);
            set("compare", compare);
        }
        Body::Invalidate(_) | Body::Answer { .. } | Body::FanOut { .. } | Body::Forward { .. } => {
            // The header itself: blades do not use all of its fields.
            let (ceth, _) = Ceth::read_from_prefix(&datagram[BTH_LEN..])
                .map_err(|_| anyhow!("no room for the coherence header"))?;
            set("va", ceth.va.get());
            set("episode", u64::from(ceth.episode.get()));
            set("pending", u64::from(ceth.pending.get()));
            set("version", u64::from(ceth.version.get()));
            set("order", u64::from(ceth.order));
            set("requester", u64::from(ceth.requester));
            set("target", u64::from(ceth.target));
            set("source", u64::from(ceth.source));
            set("dropped", u64::from(ceth.dropped.get()));
            set("flushed", u64::from(ceth.flushed.get()));
            set("slot", u64::from(ceth.slot.get()));
        }
    }
    Ok(fields)
}
