//! Eight compute blades and eight memory blades: more than share anything in the other tests.

use std::{collections::BTreeSet, process::ExitCode};

use anyhow::{Result, ensure};
use mind_e2e::{Bed, Domain, scaled, suite};

const BLADES: [&str; 8] = ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"];

fn main() -> ExitCode {
    suite::run(
        &[
            ("every_blade_is_ready", ready),
            ("a_page_goes_round_eight_blades", turns),
            ("eight_blades_lose_no_write_in_any_memory", lanes),
            ("an_area_may_be_larger_than_any_memory_blade", large),
            ("books_tables_and_blades_agree", agrees),
        ],
        || Bed::up(8, 8, 1 << 20),
    )
}

fn ready(bed: &Bed) -> Result<()> {
    let status = bed.status()?;
    let connected = status.blades.iter().filter(|blade| blade.connected);
    ensure!(connected.count() == 16, "{:?}", status.blades);
    ensure!(status.ports.len() == 16, "{:?}", status.ports);
    Ok(())
}

fn turns(bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, "eight-turns")?;
    domain.take_turns(&BLADES, scaled(500))?;
    domain.end()
}

fn lanes(bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, "eight-lanes")?;
    let steps = scaled(2_000);
    let area = |number| format!("--area lanes{number} --pages 16");
    // An area from each blade: the controller puts them on different memory blades.
    let mut places = BTreeSet::new();
    for (number, blade) in BLADES.iter().enumerate() {
        domain.run(blade, &format!("{} lanes-sum 0", area(number)))?;
        places.insert(domain.place(blade, &area(number))?);
    }
    let status = bed.status()?;
    let used = status.blades.iter().filter(|blade| blade.allocated > 0);
    ensure!(
        places.len() == BLADES.len() && used.count() == 8,
        "areas at {places:x?} lie on {:?}",
        status.blades
    );
    for number in 0..BLADES.len() {
        let area = area(number);
        let job = |(first, blade): (usize, &&'static str)| {
            (*blade, format!("{area} lanes --first {first} {steps}"))
        };
        let programs: Vec<_> = BLADES.iter().enumerate().map(job).collect();
        domain.run_all(&programs)?;
    }
    let sum = steps * BLADES.len() as u64;
    for (number, blade) in BLADES.iter().rev().enumerate() {
        domain.run(blade, &format!("{} lanes-sum {sum}", area(number)))?;
    }
    domain.end()
}

/// A memory blade of the testbed has 64 MiB, this area half as much again.
fn large(bed: &Bed) -> Result<()> {
    const AREA: &str = "--area large --pages 24576";
    let domain = Domain::new(bed, "large")?;
    domain.run("c0", &format!("{AREA} fill"))?;
    let vmas = bed.operator()?.vmas()?;
    let vma = vmas.iter().find(|vma| vma.area.as_deref() == Some("large"));
    ensure!(vma.is_some_and(|vma| vma.memory.len() > 1), "{vmas:#?}");
    domain.run("c5", &format!("{AREA} check 1"))?;
    // It is zeroed when it is freed, wherever it was, and its addresses are given out again.
    domain.run("c3", &format!("{AREA} free"))?;
    domain.run("c6", "--pages 24576 fresh 2")?;
    domain.end()
}

fn agrees(bed: &Bed) -> Result<()> {
    let found = bed.operator()?.check()?;
    ensure!(found.is_empty(), "{found:#?}");
    Ok(())
}
