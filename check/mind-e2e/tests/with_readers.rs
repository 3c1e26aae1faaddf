//! Every datagram of the protocol, written to a capture file as on the wire, is read as expected by tshark, with the
//! dissector of `contrib/wireshark` and without, and to Scapy. Needs no testbed.

use mind_machines::datagram::Body;
use std::{collections::BTreeSet, fs::File, path::Path, time::Duration};

use anyhow::{Result, ensure};
use mind_common::{
    addr::{Page, Region, Va, WINDOW_BASE},
    directory::{Source, Target},
    id::{BladeId, Connection, DomainId},
    refusal::Refusal,
    serial::{Episode, Seq, Version},
    wire::{
        Atomic, BTH_LEN, CETH_LEN, Cost, Invalidation, MAX_LEN, OUTER_LEN, Opcode, RETH_LEN,
        Syndrome, UDP_PORT,
    },
};
use mind_e2e::reader::{self, Fields, Script};
use mind_machines::datagram::{Datagram, Envelope, PageRequest};
use pcap_file::pcap::{PcapPacket, PcapWriter};

/// Bytes that are no known header.
static DATA: Page = [0xa5; 4096];

/// The header of a datagram from the switch to a blade; UDP's checksum is 0, as always.
fn frame(datagram: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    let udp = (datagram.len() as u16 + 8).to_be_bytes();
    let ip = (datagram.len() as u16 + 28).to_be_bytes();
    frame.extend([0x45, 0, ip[0], ip[1], 0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame.extend([198, 18, 0, 1, 198, 18, 0, 2]);
    frame.extend(UDP_PORT.to_be_bytes());
    frame.extend(UDP_PORT.to_be_bytes());
    frame.extend([udp[0], udp[1], 0, 0]);
    frame.extend(datagram);
    frame
}

/// Writes datagrams to a capture file.
fn write<'a>(file: &Path, datagrams: impl IntoIterator<Item = &'a [u8]>) -> Result<()> {
    write_cut(file, datagrams, usize::MAX)
}

/// The same by a capture that keeps so many bytes of each frame.
fn write_cut<'a>(
    file: &Path,
    datagrams: impl IntoIterator<Item = &'a [u8]>,
    kept: usize,
) -> Result<()> {
    let mut writer = PcapWriter::new(File::create(file)?)?;
    for (number, datagram) in datagrams.into_iter().enumerate() {
        let frame = frame(datagram);
        let at = Duration::from_micros(number as u64);
        let captured = &frame[..frame.len().min(kept)];
        writer.write_packet(&PcapPacket::new(at, frame.len() as u32, captured))?;
    }
    Ok(())
}

/// At least one of every message, no two fields of it alike.
fn messages() -> Vec<Body<&'static Page>> {
    let version = Version::new(0x0a_0b0c);
    let request = PageRequest {
        page: Va(WINDOW_BASE + 0x1234_5000),
        domain: DomainId(0x0708_090a),
    };
    let cost = Cost {
        dropped: 3,
        flushed: 2,
    };
    let invalidation = |order, target, source| Invalidation {
        page: request.page,
        region: Region::containing(request.page, order).expect("a region has such an order"),
        slot: 0x0405_0607,
        episode: Episode::new(0x01_0203),
        requester: BladeId::new(31).expect("there are 32 blades"),
        target,
        source,
    };
    let atomic = |operation| Body::Atomic {
        va: Va(WINDOW_BASE + 0x5_0008),
        domain: request.domain,
        operation,
    };
    let mut messages = vec![
        Body::read(request),
        Body::acquire(request),
        Body::upgrade(request),
        Body::Write {
            page: request,
            version,
            data: &DATA,
        },
        Body::ReadResponse {
            version,
            data: &DATA,
        },
        Body::AtomicAcknowledge {
            syndrome: Syndrome::Ack,
            original: u64::MAX - 1,
        },
        atomic(Atomic::CmpSwap {
            expected: 5,
            new: 1 << 63,
        }),
        atomic(Atomic::FetchAdd { addend: 7 }),
        Body::Invalidate(invalidation(2, Target::Invalid, Source::Grant)),
        Body::answer(invalidation(9, Target::Invalid, Source::Grant), cost),
        Body::answer_with_fetch(invalidation(0, Target::Shared, Source::Fetch), cost),
        Body::Forward {
            invalidation: invalidation(3, Target::Shared, Source::Forward),
            cost,
            version,
            data: &DATA,
        },
    ];
    let syndromes = Refusal::ALL.map(Syndrome::Refused);
    for syndrome in syndromes.into_iter().chain([Syndrome::Ack]) {
        messages.push(Body::Acknowledge { syndrome, version });
    }
    messages
}

/// The datagrams of messages, each with a connection, a number and an attempt of its own.
fn datagrams(messages: &[Body<&Page>]) -> Vec<Vec<u8>> {
    let emit = |(number, message): (usize, &Body<&Page>)| {
        let connection = Connection {
            blade: BladeId::from_low_bits(number as u64),
            incarnation: 0xfe00 + number as u16,
        };
        let envelope = Envelope {
            qp: connection.to_qp(),
            seq: Seq::new(0xff_ff00 + number as u32),
            attempt: 100 + number as u8,
        };
        let mut buffer = [0; MAX_LEN];
        let length = Datagram {
            envelope,
            body: *message,
        }
        .emit_into(&mut buffer);
        buffer[..length.expect("the longest message fits")].to_vec()
    };
    messages.iter().enumerate().map(emit).collect()
}

#[test]
fn every_message_is_to_all_readers_what_it_is() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("messages.pcap");
    let datagrams = datagrams(&messages());
    write(&file, datagrams.iter().map(Vec::as_slice))?;

    let packets = reader::own(&file)?;
    let seen: BTreeSet<_> = packets.iter().map(|packet| packet["opcode"]).collect();
    // Fan-outs do not leave the switch.
    let on_the_wire = Opcode::ALL
        .iter()
        .filter(|&&opcode| opcode != Opcode::FanOut);
    let all: BTreeSet<_> = on_the_wire.map(|&opcode| u64::from(opcode as u8)).collect();
    ensure!(seen == all, "{seen:x?} are not all");

    let plain: Vec<_> = packets.iter().map(reader::without_coherence).collect();
    let with_script = reader::tshark(&file, Script::With)?;
    reader::compare("tshark with the dissector", &with_script, &packets)?;
    let without = reader::tshark(&file, Script::Without)?;
    reader::compare("tshark", &without, &plain)?;
    reader::compare("Scapy", &reader::scapy(&file)?, &plain)
}

#[test]
fn what_is_in_a_page_is_a_programs() -> Result<()> {
    // Each begins as a frame of another protocol would: ARP, VLAN, IPv6 and two more.
    let pages = [0x0608_u16, 0x0081, 0xdd86, 0x3641, 0x0b88].map(|word| {
        let mut page: Page = [0; 4096];
        page[..2].copy_from_slice(&word.to_le_bytes());
        page
    });
    let messages = pages.each_ref().map(|data| Body::ReadResponse {
        version: Version::new(1),
        data,
    });
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("pages.pcap");
    let datagrams = datagrams(&messages);
    write(&file, datagrams.iter().map(Vec::as_slice))?;

    let packets = reader::own(&file)?;
    reader::compare("tshark", &reader::tshark(&file, Script::Without)?, &packets)?;
    for stack in show(&file, &["frame.protocols"])? {
        ensure!(stack.ends_with("udp:infiniband:data"), "{stack}");
    }
    Ok(())
}

#[test]
fn a_difference_is_told() {
    let fields = |value| Fields::from([("psn".to_owned(), value)]);
    assert!(reader::compare("no reader", &[fields(1)], &[fields(1)]).is_ok());
    assert!(reader::compare("no reader", &[fields(1)], &[fields(2)]).is_err());
    assert!(reader::compare("no reader", &[], &[fields(2)]).is_err());
}

/// What tshark shows of the fields `wanted`, a line a packet, by the dissector.
fn show(file: &Path, wanted: &[&str]) -> Result<Vec<String>> {
    let mut command = reader::tshark_command(Script::With)?;
    command.args(["-n", "-T", "fields", "-r"]).arg(file);
    for field in wanted {
        command.args(["-e", field]);
    }
    let output = command.output()?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{complaints}");
    ensure!(!complaints.contains("Lua"), "{complaints}");
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().map(str::to_owned).collect())
}

#[test]
fn a_coherence_message_is_named_in_the_list_of_packets() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("coherence.pcap");
    let mut datagrams = datagrams(&messages());
    datagrams.retain(|datagram| datagram[0] >= Opcode::Acquire as u8);
    let mut fan_out = datagrams[2].clone();
    fan_out[0] = Opcode::FanOut as u8;
    datagrams.push(fan_out);
    write(&file, datagrams.iter().map(Vec::as_slice))?;

    let page = "va=0x0000100012345000";
    let expected = [
        format!("MIND ACQUIRE {page} domain=117967114"),
        format!("MIND UPGRADE {page} domain=117967114"),
        format!("MIND INVALIDATE {page} order=2 for=c31 leaves=invalid source=grant"),
        format!("MIND INVALIDATE-ACK {page} order=9 for=c31 leaves=invalid source=grant"),
        format!("MIND INVALIDATE-ACK-FETCH {page} order=0 for=c31 leaves=shared source=fetch"),
        format!("MIND FORWARD {page} order=3 for=c31 leaves=shared source=forward"),
        format!("MIND FAN-OUT {page} order=2 for=c31 leaves=invalid source=grant"),
    ];
    let said = show(&file, &["_ws.col.Info"])?;
    ensure!(said == expected, "{said:#?}");

    // What is reckoned from the fields: the region's begin, and whose connection it is.
    let said = show(&file, &["mind.region", "mind.incarnation", "mind.blade"])?;
    let expected = [
        "\t65025\t1",
        "\t65026\t2",
        "0x0000100012344000\t65032\t8",
        "0x0000100012200000\t65033\t9",
        "0x0000100012345000\t65034\t10",
        "0x0000100012340000\t65035\t11",
        "0x0000100012344000\t65032\t8",
    ];
    ensure!(said == expected, "{said:#?}");
    Ok(())
}

#[test]
fn the_dissector_takes_any_bytes() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("noise.pcap");
    let mut random = fastrand::Rng::with_seed(4791);
    let mut noise = |opcode: u8, length: usize| -> Vec<u8> {
        let mut bytes: Vec<_> = std::iter::repeat_with(|| random.u8(..))
            .take(length)
            .collect();
        if let Some(first) = bytes.first_mut() {
            *first = opcode;
        }
        bytes
    };
    let coherence = Opcode::Acquire as u8..=Opcode::FanOut as u8;
    let cases: Vec<_> = coherence
        .flat_map(|opcode| (0..64).map(move |length| (opcode, length)))
        .collect();
    let datagrams: Vec<_> = cases
        .iter()
        .map(|&(opcode, length)| noise(opcode, length))
        .collect();
    write(&file, datagrams.iter().map(Vec::as_slice))?;

    let said = show(&file, &["_ws.lua.error", "mind.message", "mind.short"])?;
    ensure!(said.len() == cases.len(), "{} packets", said.len());
    for ((opcode, length), line) in cases.into_iter().zip(said) {
        let values: Vec<_> = line.split('\t').collect();
        let [error, message, short] = values[..] else {
            anyhow::bail!("{line}");
        };
        ensure!(error.is_empty(), "{opcode:#x}, {length} bytes: {error}");
        let is_request = opcode <= Opcode::Upgrade as u8;
        let header = if is_request { RETH_LEN } else { CETH_LEN };
        // Without a BTH it is not RoCEv2, and with one but no header, short.
        let is_named = message == format!("{opcode:#04x}");
        let is_short = !short.is_empty();
        let expected = (
            length >= BTH_LEN,
            (BTH_LEN..BTH_LEN + header).contains(&length),
        );
        ensure!(
            (is_named, is_short) == expected,
            "{opcode:#x}, {length} bytes: {line}"
        );
    }
    Ok(())
}

#[test]
fn the_dissector_shows_what_a_capture_has_kept() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let datagrams = datagrams(&messages());
    let forward = |datagram: &&Vec<u8>| datagram[0] == Opcode::Forward as u8;
    let forward = datagrams.iter().find(forward).map(Vec::as_slice);
    // All but the last byte of the coherence header, and all of it.
    let headers = OUTER_LEN + BTH_LEN + CETH_LEN;
    for (kept, slot) in [(headers - 1, ""), (headers, "67438087")] {
        let file = folder.path().join(format!("{kept}.pcap"));
        write_cut(&file, forward, kept)?;
        let said = show(&file, &["_ws.lua.error", "mind.message", "mind.slot"])?;
        ensure!(
            said == [format!("\t0xc5\t{slot}")],
            "{kept} bytes: {said:?}"
        );
    }
    Ok(())
}
