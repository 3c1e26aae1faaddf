//! Memory is shared as usual where the controller copies invalidations for several blades.

use std::{process::ExitCode, time::Instant};

use anyhow::{Result, ensure};
use mind_api::operator::FanOut;
use mind_common::verdict::Verdict;
use mind_e2e::{Bed, Domain, patience, scaled, suite};
use netns_setup::testbed::Options;

const BLADES: [&str; 4] = ["c0", "c1", "c2", "c3"];

fn main() -> ExitCode {
    suite::run(
        &[
            ("a_write_reaches_all_who_read", shared),
            ("a_page_goes_round_four_blades", turns),
            ("four_blades_lose_no_increment", counter),
        ],
        || {
            Bed::with(&Options {
                compute: 4,
                memory: 1,
                memory_size: 64 << 20,
                cache: 2 << 20,
                controller_copies: true,
                bound: true,
                ..Options::default()
            })
        },
    )
}

/// Packets of all ports that got the verdict.
fn met(bed: &Bed, verdict: Verdict) -> Result<u64> {
    let ports = bed.status()?.ports;
    let packets = ports
        .iter()
        .filter_map(|port| port.packets.get(verdict.name()));
    Ok(packets.sum())
}

fn shared(bed: &Bed) -> Result<()> {
    const PAGES: u64 = 64;
    let ports = bed.status()?.ports;
    ensure!(
        ports.iter().all(|port| port.fan_out == FanOut::Controller),
        "{ports:?}"
    );
    let before = (met(bed, Verdict::HandedOver)?, bed.status()?.copied);
    let domain = Domain::new(bed, "copied")?;
    let area = format!("--area shared --pages {PAGES}");
    domain.run("c0", &format!("{area} fill"))?;
    for _ in 0..scaled(10) {
        let check = format!("{area} check 1");
        domain.run_all(&BLADES.map(|blade| (blade, check.clone())))?;
        // Each region is shared by four when its first page is written.
        domain.run("c0", &format!("{area} fill"))?;
    }
    let handed_over = met(bed, Verdict::HandedOver)? - before.0;
    // It counts when it has sent: the last faults may be over before.
    let operator = bed.operator()?;
    let deadline = Instant::now() + patience();
    let status = loop {
        let status = operator.status()?;
        let is_counted = status.copied.packets - before.1.packets >= handed_over;
        if is_counted || Instant::now() > deadline {
            break status;
        }
    };
    let packets = status.copied.packets - before.1.packets;
    let copies = status.copied.copies - before.1.copies;
    let regions = PAGES / 4 * scaled(10);
    ensure!(
        handed_over >= regions && packets == handed_over && copies >= 2 * packets,
        "{regions} regions at least are given up by three blades: {handed_over} packets are handed over, \
         {packets} taken, {copies} copies made"
    );
    ensure!(
        status.copied.unsent == 0,
        "copies are not sent: {:?}",
        status.copied
    );
    for verdict in [Verdict::PassedUp, Verdict::NoFanOut, Verdict::HandOverFull] {
        ensure!(met(bed, verdict)? == 0, "packets are {verdict}");
    }
    domain.end()
}

fn turns(bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, "turns")?;
    domain.take_turns(&BLADES, scaled(1_000))?;
    domain.end()
}

fn counter(bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, "counter")?;
    let times = scaled(20_000);
    domain.run_all(&BLADES.map(|blade| (blade, format!("--area counter increment {times}"))))?;
    domain.run("c0", &format!("--area counter equals {}", 4 * times))?;
    domain.end()
}
