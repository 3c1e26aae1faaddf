//! What goes over a blade's wire is RoCEv2 to third-party programs: tshark captures it while programs share memory, and
//! every reader reads each packet alike.

use std::{collections::BTreeSet, process::ExitCode};

use anyhow::{Result, ensure};
use mind_common::wire::Opcode;
use mind_e2e::{
    Bed, Domain,
    capture::Capture,
    reader::{self, Script},
    suite,
};

fn main() -> ExitCode {
    suite::run(&[("readers_agree_on_what_is_on_the_wire", agree)], || {
        Bed::up(2, 2, 1 << 20)
    })
}

fn agree(bed: &Bed) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("c0.pcap");
    let domain = Domain::new(bed, "captured")?;
    let capture = Capture::start(bed, "c0", &file)?;
    domain.run("c0", "--area counter increment 5")?;
    let turns = |writer| format!("--area page turns --writer {writer} --writers 2 50");
    domain.run_all(&[("c0", turns(0)), ("c1", turns(1))])?;
    domain.end()?;
    capture.end()?;

    let packets = reader::own(&file)?;
    let plain: Vec<_> = packets.iter().map(reader::without_coherence).collect();
    let with_script = reader::tshark(&file, Script::With)?;
    reader::compare("tshark with the dissector", &with_script, &packets)?;
    let without = reader::tshark(&file, Script::Without)?;
    reader::compare("tshark", &without, &plain)?;
    reader::compare("Scapy", &reader::scapy(&file)?, &plain)?;

    // What is written untouched is acquired; a page that goes to and fro is read, upgraded and given up.
    let seen: BTreeSet<_> = packets.iter().map(|packet| packet["opcode"]).collect();
    for opcode in [
        Opcode::Acquire,
        Opcode::Read,
        Opcode::Upgrade,
        Opcode::Invalidate,
        Opcode::Forward,
    ] {
        let number = u64::from(opcode as u8);
        ensure!(seen.contains(&number), "no {opcode:?} among {seen:x?}");
    }
    println!("{} packets, opcodes {seen:x?}", packets.len());
    Ok(())
}
