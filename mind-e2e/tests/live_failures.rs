//! Programs on blades share memory, and parts of the system die.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use mind_e2e::{Bed, Domain, suite};

/// Pages that a blade may cache.
const CACHE: usize = 256;

fn main() -> ExitCode {
    suite::run(
        &[
            (
                "a_dead_agent_ends_its_programs_and_not_the_others",
                dead_agent,
            ),
            ("what_was_synced_outlives_its_blade", synced),
            ("memory_out_of_reach_is_a_bus_error", dead_memory),
        ],
        || Bed::up(3, 1, (CACHE * 4096) as u64),
    )
}

fn dead_agent(bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, "dead-agent")?;
    let area = format!("--area watched --pages {}", CACHE * 2);
    domain.run("c1", &format!("{area} fill"))?;
    let mut watchers = Vec::new();
    for blade in ["c0", "c0", "c1", "c2"] {
        let mut watcher = domain.start(blade, &format!("{area} watch --threads 4"))?;
        watcher.go()?;
        watcher.expect("watching")?;
        watchers.push((blade, watcher));
    }
    // What the dead blade alone has.
    let mut writer = domain.start("c0", "--area own increment 0")?;
    writer.go()?;
    writer.expect("at work")?;

    bed.kill("c0")?;
    writer.die_of(libc::SIGBUS)?;
    for (blade, mut watcher) in watchers {
        if blade == "c0" {
            watcher.die_of(libc::SIGBUS)?;
            continue;
        }
        for _ in 0..20 {
            watcher.expect("watching")?;
        }
        watcher.kill()?;
    }
    let status = bed.status()?;
    let lost: Vec<_> = status
        .domains
        .iter()
        .flat_map(|domain| &domain.losses)
        .collect();
    ensure!(
        lost.iter()
            .any(|loss| loss.area.as_deref() == Some("own") && loss.blade == "c0"),
        "what was lost is not on the books: {lost:?}"
    );
    // It is to be had again, as memory has it.
    domain.run("c1", "--area own increment 10")?;
    domain.run("c2", &format!("{area} check 1"))?;
    domain.end()
}

fn synced(bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, "synced")?;
    // Two regions, of which the second is written and not synced.
    let mut writer = domain.start("c1", "--area kept --pages 8 sync 4711")?;
    writer.go()?;
    writer.expect("synced")?;
    bed.kill("c1")?;
    writer.kill()?;
    domain.run("c2", "--area kept --pages 8 equals 4711")?;
    let status = bed.status()?;
    let lost: Vec<_> = status
        .domains
        .iter()
        .flat_map(|domain| &domain.losses)
        .collect();
    ensure!(
        matches!(lost[..], [loss] if loss.blade == "c1" && loss.last > loss.va),
        "only the second region has lost anything: {lost:?}"
    );
    domain.end()
}

fn dead_memory(bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, "dead-memory")?;
    let area = format!("--area far --pages {}", CACHE * 2);
    domain.run("c2", &format!("{area} fill"))?;
    let mut watcher = domain.start("c2", &format!("{area} watch"))?;
    watcher.go()?;
    watcher.expect("watching")?;
    bed.link("m0", "down")?;
    watcher.die_of(libc::SIGBUS)
}
