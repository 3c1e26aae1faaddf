//! Programs on blades share memory, and parts of the system fail.

use std::{process::ExitCode, time::Instant};

use anyhow::{Context as _, Result, ensure};
use mind_api::{
    Errno,
    message::{BladeKind, Registration},
};
use mind_e2e::{Bed, Domain, Program, patience, suite};

/// Pages that a blade may cache.
const CACHE: usize = 256;

fn main() -> ExitCode {
    suite::run(
        &[
            (
                "a_registration_in_anothers_name_is_refused",
                forged_registration,
            ),
            (
                "what_a_killed_memory_blade_kept_is_lost_and_never_zeros",
                killed_memory,
            ),
            ("a_cable_that_is_out_for_a_moment_loses_nothing", short_cut),
            (
                "a_memory_blade_that_was_out_of_reach_comes_back_empty",
                dead_memory,
            ),
            // From here on blades are gone.
            (
                "a_dead_agent_ends_its_programs_and_not_the_others",
                dead_agent,
            ),
            ("what_was_synced_outlives_its_blade", synced),
        ],
        || Bed::up(3, 1, (CACHE * 4096) as u64),
    )
}

fn forged_registration(bed: &Bed) -> Result<()> {
    let plan = bed.testbed().plan();
    let blade = |name| {
        let found = plan.blades.iter().find(|blade| blade.name == name);
        found.with_context(|| format!("no blade is called {name}"))
    };
    let (liar, victim) = (blade("c1")?, blade("c0")?);
    let registration = |address, mac| Registration {
        kind: BladeKind::Compute,
        name: "liar".to_owned(),
        address,
        mac,
        pages: 16,
    };
    for (address, mac) in [
        (liar.address, victim.mac.0),
        (victim.address, victim.mac.0),
        (victim.address, liar.mac.0),
    ] {
        let refused = bed.operator_on("c1")?.register(registration(address, mac));
        let failure = refused
            .err()
            .context("the false registration is accepted")?;
        ensure!(failure.errno == Errno::EINVAL, "{failure}");
    }
    let status = bed.status()?;
    let known = status.blades.iter().find(|blade| blade.name == "c0");
    ensure!(
        known.is_some_and(|blade| blade.connected && blade.incarnation == 1),
        "c0 is not what it was: {known:?}"
    );
    Ok(())
}

fn killed_memory(bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, "killed-memory")?;
    let mut writer = domain.start("c1", "--area kept --pages 8 sync 4711")?;
    writer.go()?;
    writer.expect("synced")?;
    let area = format!("--area far --pages {}", CACHE / 2);
    domain.run("c2", &format!("{area} fill"))?;
    // Of this nothing is touched.
    let untouched = domain.place("c1", "--area untouched --pages 8")?;
    // All of it in its cache: what memory had counts, not what a blade happens to have.
    let mut watcher = domain.start("c0", &format!("{area} watch"))?;
    watcher.go()?;
    watcher.expect("watching")?;

    bed.kill("m0")?;
    watcher.die_of(libc::SIGBUS)?;
    // At the first try, over the pins of the one that was killed.
    bed.restart("m0", &[])?;
    for blade in ["c0", "c1", "c2"] {
        let mut reader = domain.start(blade, "--area kept --pages 8 equals 4711")?;
        reader.go()?;
        reader.die_of(libc::SIGBUS)?;
        let mut reader = domain.start(blade, &format!("peek {untouched}"))?;
        reader.go()?;
        reader.die_of(libc::SIGBUS)?;
    }
    let status = bed.status()?;
    let losses = status.domains.iter().flat_map(|domain| &domain.losses);
    let mut lost: Vec<_> = losses
        .filter(|loss| loss.blade == "m0")
        .filter_map(|loss| loss.area.as_deref())
        .collect();
    lost.sort_unstable();
    ensure!(
        lost == ["far", "kept", "untouched"],
        "the loss is not reported: {status:?}"
    );
    writer.kill()?;
    let found = bed.operator()?.check()?;
    ensure!(found.is_empty(), "{found:?}");

    // New memory of the new blade is as good as any, also where the old one was.
    domain.run("c1", "--area kept --pages 8 free")?;
    domain.run("c2", "--area new --pages 8 increment 10")?;
    domain.run("c1", "--area new --pages 8 equals 10")?;
    domain.run("c2", "fresh 3")?;
    domain.end()?;
    let found = bed.operator()?.check()?;
    ensure!(found.is_empty(), "{found:?}");
    Ok(())
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
    // What only the lost blade has.
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
    let status = bed.status_after_loss("c0")?;
    let lost: Vec<_> = status
        .domains
        .iter()
        .flat_map(|domain| &domain.losses)
        .collect();
    ensure!(
        lost.iter()
            .any(|loss| loss.area.as_deref() == Some("own") && loss.blade == "c0"),
        "the loss is not reported: {lost:?}"
    );
    // The page can be accessed again, as memory has it.
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
    let status = bed.status_after_loss("c1")?;
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

/// Starts a program that reads an area of a domain again and again, more than its blade caches.
fn watch(domain: &Domain<'_>, area: &str) -> Result<Program> {
    let mut watcher = domain.start("c2", &format!("{area} watch"))?;
    watcher.go()?;
    watcher.expect("watching")?;
    Ok(watcher)
}

fn short_cut(bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, "short-cut")?;
    let area = format!("--area far --pages {}", CACHE * 2);
    domain.run("c2", &format!("{area} fill"))?;
    let mut watcher = watch(&domain, &area)?;
    let before = bed.report("c2")?.timeouts;
    bed.link("m0", "down")?;
    let deadline = Instant::now() + patience();
    while bed.report("c2")?.timeouts == before {
        ensure!(Instant::now() < deadline, "c2 misses nothing");
    }
    bed.link("m0", "up")?;
    for _ in 0..20 {
        watcher.expect("watching")?;
    }
    watcher.kill()?;
    domain.run("c1", &format!("{area} check 1"))?;
    let status = bed.status()?;
    let mut losses = status.domains.iter().flat_map(|domain| &domain.losses);
    ensure!(losses.next().is_none(), "something is lost: {status:?}");
    domain.end()
}

fn dead_memory(bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, "dead-memory")?;
    let area = format!("--area far --pages {}", CACHE * 2);
    domain.run("c2", &format!("{area} fill"))?;
    let watcher = watch(&domain, &area)?;
    bed.link("m0", "down")?;
    watcher.die_of(libc::SIGBUS)?;
    let status = bed.status_after_loss("m0")?;
    let known = status.blades.iter().find(|blade| blade.name == "m0");
    ensure!(
        known.is_some_and(|blade| !blade.connected),
        "m0 is not gone: {known:?}"
    );

    // What it still has does not count any more, nor that it is empty when it has been started again.
    let reads = |blade| {
        let mut reader = domain.start(blade, &format!("{area} check 1"))?;
        reader.go()?;
        reader.die_of(libc::SIGBUS)
    };
    bed.link("m0", "up")?;
    reads("c1")?;
    bed.restart("m0", &[])?;
    reads("c0")?;
    domain.run("c1", &format!("{area} free"))?;
    domain.run("c1", "fresh 3")?;
    domain.end()?;
    let found = bed.operator()?.check()?;
    ensure!(found.is_empty(), "{found:?}");
    Ok(())
}
