//! The network loses packets at every step, the controller changes regions under load, and blades
//! hang: programs are not affected, or as the design says.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use mind_api::{
    message::RegionChange,
    operator::{SplittingStatus, Status},
};
use mind_common::{losses::LossPoint, verdict::Verdict, wire::Opcode};
use mind_dataplane::Switch;
use mind_e2e::{Bed, Domain, Load, Program, load, patience, scaled, suite};
use netns_setup::{Options, paths, plan::SWITCH};

/// Pages that a blade may cache.
const CACHE: usize = 64;
/// Pages of the areas: less than three blades cache, more than one does.
const PAGES: usize = 96;
/// Bytes of a page.
const PAGE: u64 = 4096;

fn main() -> ExitCode {
    suite::run(
        &[
            ("what_is_lost_at_any_step_is_made_good", losses),
            ("regions_change_under_load", changes),
            (
                "what_is_falsely_shared_is_split_for_so_long",
                falsely_shared,
            ),
            ("a_region_that_is_stuck_is_reset", stuck),
            ("a_blade_that_stands_still_is_sent_away", standstill),
            ("a_blade_whose_port_is_down_is_gone", port_down),
        ],
        || {
            Bed::with(&Options {
                compute: 4,
                memory: 2,
                memory_size: 64 << 20,
                cache: CACHE as u64 * PAGE,
                lose_on_purpose: true,
                ..Options::default()
            })
        },
    )
}

fn switch() -> Result<Switch> {
    Switch::open(&paths::pins(SWITCH)).context("cannot open the switch's tables")
}

fn losses(bed: &Bed) -> Result<()> {
    /// Packets that are lost at each step.
    const PACKETS: u64 = 3;
    let before = [
        Opcode::Read,
        Opcode::Acquire,
        Opcode::Upgrade,
        Opcode::Write,
        // The copies that TC sends.
        Opcode::Invalidate,
        Opcode::InvalidateAck,
        Opcode::InvalidateAckFetch,
        Opcode::Forward,
        Opcode::ReadResponse,
        Opcode::Acknowledge,
    ];
    let after = [
        Verdict::Fetch,
        Verdict::Grant,
        Verdict::Invalidate,
        Verdict::PassedUp,
        Verdict::WriteBack,
        Verdict::Delivered,
        Verdict::Granted,
        Verdict::Fetched,
        Verdict::PageForwarded,
        Verdict::Busy,
    ];
    let places = before
        .map(|opcode| {
            (
                format!("{opcode:?} before it is seen"),
                LossPoint::before(opcode),
            )
        })
        .into_iter()
        .chain(after.map(|verdict| (format!("after `{verdict}`"), LossPoint::after(verdict))));
    let mut switch = switch()?;
    let mut load = Load::new(bed, "losses", PAGES)?;
    for (name, place) in places {
        switch.lose(place, PACKETS)?;
        // Until there was something to lose.
        for _ in 0..50 {
            for mut program in load.start(scaled(400))? {
                program.succeed().with_context(|| format!("lost: {name}"))?;
            }
            if switch.to_lose(place)? == 0 {
                break;
            }
        }
        let left = switch.to_lose(place)?;
        ensure!(left == 0, "nothing comes by to be lost: {name}");
        load.check().with_context(|| format!("lost: {name}"))?;
    }
    let timeouts: u64 = load::BLADES
        .iter()
        .map(|blade| Ok(bed.report(blade)?.timeouts))
        .sum::<Result<_>>()?;
    ensure!(timeouts > 0, "no blade has noticed a loss");
    load.end()
}

fn changes(bed: &Bed) -> Result<()> {
    let slots = bed.status()?.slots_used;
    let mut load = Load::new(bed, "changes", PAGES)?;
    let programs = load.start(scaled(20_000))?;
    let base = load.place()?;
    let operator = bed.operator()?;
    let mut made = [0; 3];
    let mut running = programs;
    let mut round = 0_u64;
    while !running.is_empty() {
        // A region of four pages is reset, split into pages, and put together again.
        let first = base + round % (PAGES as u64 / 4) * 4 * PAGE;
        for (va, change) in [
            (first, RegionChange::Reset),
            (first, RegionChange::Split),
            (first, RegionChange::Split),
            (first + 2 * PAGE, RegionChange::Split),
            (first + 3 * PAGE, RegionChange::Reset),
            (first, RegionChange::Merge),
            (first + 3 * PAGE, RegionChange::Merge),
            (first + PAGE, RegionChange::Merge),
        ] {
            let changed = operator.change_region(va, change)?;
            made[change as usize] += u64::from(changed);
        }
        round += 1;
        for mut program in std::mem::take(&mut running) {
            match program.has_ended()? {
                false => running.push(program),
                true => program.succeed()?,
            }
        }
    }
    println!("{round} rounds: {made:?} resets, splits and merges");
    ensure!(
        made.iter().all(|made| *made > 0),
        "not all was done: {made:?}"
    );
    load.check()?;
    // What stayed in parts because a region was busy is put together now that all is quiet.
    for va in (base..base + PAGES as u64 * PAGE).step_by(2 * PAGE as usize) {
        let _ = operator.change_region(va, RegionChange::Merge);
    }
    for va in (base..base + PAGES as u64 * PAGE).step_by(4 * PAGE as usize) {
        let _ = operator.change_region(va, RegionChange::Merge);
    }
    load.check()?;
    let status = bed.status()?;
    let more = status.slots_used.saturating_sub(slots);
    ensure!(
        u64::from(more) <= PAGES as u64 / 4,
        "slots are not given back: {more} are used for {PAGES} pages"
    );
    ensure!(losses_of(&status).is_empty(), "nothing is lost: {status:?}");
    load.end()
}

/// How regions are split and merged.
fn splitting(bed: &Bed) -> Result<SplittingStatus> {
    let splitting = bed.status()?.splitting;
    splitting.context("the controller splits no regions")
}

fn falsely_shared(bed: &Bed) -> Result<()> {
    const PAGES: u64 = 32;
    const BLADES: [&str; 4] = ["c0", "c1", "c2", "c3"];
    /// Epochs in which nothing is falsely invalidated.
    const QUIET: u32 = 50;
    // Shorter epochs than usual, so that all takes less time.
    bed.restart("ctl", &["--epoch=20".to_owned()])?;
    let domain = Domain::new(bed, "own")?;
    let area = format!("--area own --pages {PAGES}");
    let before = splitting(bed)?;
    let slots = bed.status()?.slots_used;
    // Each writes one page of every region.
    let mut programs = Vec::new();
    for (writer, blade) in BLADES.into_iter().enumerate() {
        let job = format!("{area} own --writer {writer} --writers {}", BLADES.len());
        programs.push(domain.start(blade, &job)?);
    }
    programs.iter_mut().try_for_each(Program::go)?;
    let deadline = Instant::now() + patience();
    let (mut latest, mut since) = (before, Instant::now());
    loop {
        let now = splitting(bed)?;
        if now.false_invalidations > latest.false_invalidations {
            (latest, since) = (now, Instant::now());
        }
        let quiet = Duration::from_millis(now.epoch.into()) * QUIET;
        if now.splits >= before.splits + PAGES / 4 && since.elapsed() > quiet {
            break;
        }
        ensure!(
            Instant::now() < deadline,
            "pages are falsely invalidated without end: {now:?}, before {before:?}"
        );
    }
    let end = |mut program: Program| -> Result<()> {
        program.send("end")?;
        program.succeed()
    };
    programs.into_iter().try_for_each(end)?;
    // One writes all pages: there is no more reason to have them apart.
    let mut program = domain.start("c0", &format!("{area} own --writer 0 --writers 1"))?;
    program.go()?;
    let deadline = Instant::now() + patience();
    while u64::from(bed.status()?.slots_used.saturating_sub(slots)) > PAGES / 4 {
        ensure!(
            Instant::now() < deadline,
            "regions are not merged: {:?}, before {before:?}",
            splitting(bed)?
        );
    }
    end(program)?;
    domain.end()?;
    bed.restart("ctl", &[])?;
    Ok(())
}

fn losses_of(status: &Status) -> Vec<&mind_api::operator::LossStatus> {
    let domains = status.domains.iter();
    domains.flat_map(|domain| &domain.losses).collect()
}

/// Every invalidation is lost, for good: only the controller can help.
fn stuck(bed: &Bed) -> Result<()> {
    let mut switch = switch()?;
    let domain = Domain::new(bed, "stuck")?;
    let area = "--area stuck --pages 4";
    domain.run("c3", &format!("{area} fill"))?;
    for blade in ["c1", "c2"] {
        domain.run(blade, &format!("{area} check 1"))?;
    }
    let places = [
        // A copy to each of several, and one to the only one.
        LossPoint::before(Opcode::Invalidate),
        LossPoint::after(Verdict::Invalidate),
    ];
    for place in places {
        switch.lose(place, u64::MAX)?;
    }
    let before = bed.report("c0")?;
    let result = domain.run("c0", "--area stuck --pages 4 increment 10");
    for place in places {
        switch.lose(place, 0)?;
    }
    result?;
    let after = bed.report("c0")?;
    ensure!(
        after.reported_stuck > before.reported_stuck,
        "c0 did not need the controller"
    );
    ensure!(after.expired == before.expired, "c0 gave up");
    domain.run("c1", "--area stuck --pages 4 increment 10")?;
    ensure!(losses_of(&bed.status()?).is_empty(), "nothing is lost");
    domain.end()
}

/// A blade's agent is stopped while it owns a page.
fn standstill(bed: &Bed) -> Result<()> {
    let lenient = Domain::new(bed, "lenient")?;
    let strict = Domain::choosing(bed, "strict", "--on-loss fail")?;
    let mut owners = Vec::new();
    for domain in [&lenient, &strict] {
        let mut owner = domain.start("c0", "--area own increment 0")?;
        owner.go()?;
        owner.expect("at work")?;
        owners.push(owner);
    }
    bed.signal("c0", rustix::process::Signal::STOP)?;

    // The others go on, with what memory has.
    let before = bed.report("c1")?;
    lenient.run("c1", "--area own increment 10")?;
    lenient.run("c2", "--area own equals 10")?;
    let after = bed.report("c1")?;
    ensure!(
        after.reported_stuck > before.reported_stuck,
        "c1 did not need the controller"
    );
    // Or they fail, where their domain chose that.
    let mut reader = strict.start("c1", "--area own equals 0")?;
    reader.go()?;
    reader.die_of(libc::SIGBUS)?;

    let status = bed.status()?;
    let blade = status.blades.iter().find(|blade| blade.name == "c0");
    ensure!(
        blade.is_some_and(|blade| !blade.connected),
        "c0 is still there"
    );
    for name in ["lenient", "strict"] {
        let domain = status.domains.iter().find(|domain| domain.name == name);
        let losses = domain.map(|domain| &domain.losses[..]).unwrap_or_default();
        let [loss] = losses else {
            anyhow::bail!("{name} has lost something once: {losses:?}");
        };
        ensure!(loss.area.as_deref() == Some("own"), "{loss:?}");
        ensure!((loss.regions, &loss.blade[..]) == (1, "c0"), "{loss:?}");
    }

    // When it goes on, it is told to end, and its programs end with it.
    bed.signal("c0", rustix::process::Signal::CONT)?;
    for owner in owners {
        owner.die_of(libc::SIGBUS)?;
    }
    strict.end()?;
    lenient.end()
}

/// A blade is cut off while it owns a page.
fn port_down(bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, "cut-off")?;
    let mut owner = domain.start("c2", "--area own increment 0")?;
    owner.go()?;
    owner.expect("at work")?;
    bed.link("c2", "down")?;
    domain.run("c1", "--area own increment 10")?;
    domain.run("c3", "--area own equals 10")?;
    let status = bed.status()?;
    let blade = status.blades.iter().find(|blade| blade.name == "c2");
    ensure!(
        blade.is_some_and(|blade| !blade.connected),
        "c2 is still there"
    );
    let losses = losses_of(&status);
    ensure!(
        matches!(losses[..], [loss] if loss.blade == "c2"),
        "what c2 wrote is lost: {losses:?}"
    );
    // It does not go on in its old incarnation.
    bed.link("c2", "up")?;
    domain.run("c1", "--area own increment 10")?;
    domain.run("c3", "--area own equals 20")?;
    // Its agent ends, and programs with it.
    owner.die_of(libc::SIGBUS)?;
    domain.end()
}
