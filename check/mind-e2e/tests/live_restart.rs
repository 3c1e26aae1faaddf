//! The controller is killed and starts again: programs are not affected, and a request is carried out or has no effect.

use std::{process::ExitCode, time::Instant};

use anyhow::{Context as _, Result, bail, ensure};
use mind_api::{message::RegionChange, operator::BladeStatus};
use mind_e2e::{Bed, Domain, Load, Program, bed::Watched, patience, scaled, suite};
use rustix::process::Signal;

/// Pages that a blade may cache.
const CACHE: usize = 64;
/// Pages of the load's area: less than three blades cache, more than one does.
const PAGES: usize = 96;
/// How often the controller is killed under load, at least.
const KILLS: u32 = 8;

fn main() -> ExitCode {
    suite::run(
        &[
            ("a_controller_that_is_killed_under_load_is_not_missed", load),
            ("a_request_survives_a_death_at_any_point", requests),
            ("programs_come_and_go_whenever_it_dies", processes),
            ("regions_change_or_stay_whenever_it_dies", regions),
            ("a_blade_joins_whenever_it_dies", join),
            ("a_controller_that_was_told_to_keep_is_followed", kept),
            ("slots_come_and_go_while_programs_run", slots),
            // The last two, for they lose something.
            ("a_blade_that_went_meanwhile_is_gone", absent),
            ("memory_that_went_meanwhile_is_lost", absent_memory),
        ],
        || Bed::up(4, 2, (CACHE * 4096) as u64),
    )
}

/// Nothing is wrong, and nothing is lost.
fn agrees(bed: &Bed) -> Result<()> {
    let operator = bed.operator()?;
    let found = operator.check()?;
    ensure!(found.is_empty(), "a check finds {found:#?}");
    let domains = operator.status()?.domains;
    let losses = domains.iter().flat_map(|domain| &domain.losses);
    let losses: Vec<_> = losses.collect();
    ensure!(losses.is_empty(), "lost: {losses:?}");
    Ok(())
}

fn incarnations(bed: &Bed) -> Result<Vec<(String, u8, u16)>> {
    let incarnation = |blade: BladeStatus| (blade.name, blade.number, blade.incarnation);
    Ok(bed.status()?.blades.into_iter().map(incarnation).collect())
}

fn load(bed: &Bed) -> Result<()> {
    let mut load = Load::new(bed, "restart", PAGES)?;
    let before = incarnations(bed)?;
    let mut kills = 0;
    while kills < KILLS {
        let mut running = load.start(scaled(20_000))?;
        while !running.is_empty() {
            bed.restart("ctl", &[])?;
            kills += 1;
            if kills % 2 == 0 {
                // Every other time it is killed before all blades are back.
                bed.operator()?.check()?;
            }
            for mut program in std::mem::take(&mut running) {
                match program.has_ended()? {
                    false => running.push(program),
                    true => program.succeed()?,
                }
            }
        }
        load.check()?;
    }
    println!("{kills} controllers were killed");
    ensure!(incarnations(bed)? == before, "blades have new incarnations");
    agrees(bed)?;
    load.end()
}

/// Kills the controller at each point that `work` passes, until it passes no further point, and its successor soon
/// after it. `before` and `after` run around each.
fn at_each_point(
    bed: &Bed,
    name: &str,
    mut before: impl FnMut() -> Result<()>,
    mut work: impl FnMut(&mut Watched<'_>) -> Result<()>,
    mut after: impl FnMut() -> Result<()>,
) -> Result<()> {
    for point in 1.. {
        let what = || format!("{name}, with a controller that dies at point {point}");
        before().with_context(what)?;
        let runs = [point, point % 4 + 1];
        let mut watched = bed.watch(
            "ctl",
            runs.map(|point| format!("--die-at={point}")).to_vec(),
        )?;
        work(&mut watched).with_context(what)?;
        let deaths = watched.spare().with_context(what)?;
        after().with_context(what)?;
        agrees(bed).with_context(what)?;
        if deaths == 0 {
            println!("{name}: {} points to die at", point - 1);
            ensure!(point > 1, "{name} takes the controller nowhere");
            return Ok(());
        }
    }
    unreachable!("a request comes to an end")
}

fn tell(program: &mut Program, line: &str, watched: Option<&mut Watched<'_>>) -> Result<()> {
    program.send(line)?;
    let mut watched = watched;
    loop {
        let said = match &mut watched {
            None => Some(program.line()?),
            Some(watched) => {
                let said = program.try_line()?;
                if said.is_none() {
                    watched.look()?;
                }
                said
            }
        };
        if said.is_some_and(|line| line == "done") {
            return Ok(());
        }
    }
}

fn requests(bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, "requests")?;
    let mut program = domain.start("c0", "calls")?;
    program.go()?;
    let program = std::cell::RefCell::new(program);
    for (before, line, after) in [
        (None, "map 9", Some("unmap")),
        (Some("map 9"), "protect", Some("unmap")),
        (Some("map 9"), "sync", Some("unmap")),
        (Some("map 9"), "unmap", None),
        (None, "open area 5", Some("unlink area")),
        (Some("open area 5"), "unlink area", None),
    ] {
        let quietly = |line: Option<&str>| {
            line.map_or(Ok(()), |line| tell(&mut program.borrow_mut(), line, None))
        };
        at_each_point(
            bed,
            &format!("`{line}`"),
            || quietly(before),
            |watched| tell(&mut program.borrow_mut(), line, Some(watched)),
            || quietly(after),
        )?;
    }
    drop(program);
    domain.end()
}

fn processes(bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, "processes")?;
    let program = std::cell::RefCell::new(None);
    let enter = |watched: Option<&mut Watched<'_>>| {
        let mut started = domain.start("c1", "calls")?;
        match watched {
            None => started.expect("ready")?,
            Some(watched) => {
                while started.try_line()?.is_none() {
                    watched.look()?;
                }
            }
        }
        started.send("go")?;
        program.replace(Some(started));
        Ok(())
    };
    // The agent reports that it is gone; until the controller has noticed, there are two processes: this one and the
    // one that holds the domain open.
    let leave = |watched: Option<&mut Watched<'_>>| {
        let mut started = program.take().context("there is no program")?;
        started.dismiss();
        started.succeed()?;
        let mut watched = watched;
        loop {
            let status = match &mut watched {
                None => Some(bed.status()?),
                Some(watched) => {
                    watched.look()?;
                    bed.status().ok()
                }
            };
            let processes = status.and_then(|status| {
                let mut domains = status.domains.into_iter();
                let domain = domains.find(|domain| domain.name == "processes")?;
                Some(domain.processes)
            });
            if processes == Some(1) {
                return Ok(());
            }
        }
    };
    let (comes, goes) = ("a program that comes", "a program that goes");
    let nothing = || Ok(());
    at_each_point(
        bed,
        comes,
        nothing,
        |watched| enter(Some(watched)),
        || leave(None),
    )?;
    at_each_point(
        bed,
        goes,
        || enter(None),
        |watched| leave(Some(watched)),
        nothing,
    )?;
    domain.end()
}

fn regions(bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, "regions")?;
    let area = "--area split --pages 4";
    domain.run("c0", &format!("{area} fill"))?;
    let base = domain.place("c3", area)?;
    let put = |change| {
        // Until it is as small, or as large, as it can be.
        while bed.operator()?.change_region(base, change)? {}
        anyhow::Ok(())
    };
    let steps = [
        (RegionChange::Split, RegionChange::Merge),
        (RegionChange::Merge, RegionChange::Split),
    ];
    for (change, before) in steps {
        at_each_point(
            bed,
            &format!("{change:?}"),
            || {
                put(before)?;
                domain.run("c1", &format!("{area} check 1"))?;
                domain.run("c2", &format!("{area} fill"))
            },
            |watched| {
                let deadline = Instant::now() + patience();
                loop {
                    let asked = bed.operator().and_then(|it| it.change_region(base, change));
                    match asked {
                        Ok(_) => return Ok(()),
                        Err(error) if Instant::now() > deadline => return Err(error),
                        Err(_) => watched.look()?,
                    }
                }
            },
            || domain.run("c1", &format!("{area} check 1")),
        )?;
    }
    domain.end()
}

fn join(bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, "join")?;
    domain.run("c0", "--area kept --pages 8 fill")?;
    at_each_point(
        bed,
        "a blade that goes and comes",
        || domain.run("c2", "--area kept --pages 8 check 1"),
        |watched| {
            // A blade that finds no controller ends, and its service manager starts it again.
            while bed.restart("c2", &[]).is_err() {
                watched.look()?;
            }
            Ok(())
        },
        || domain.run("c2", "--area kept --pages 8 check 1"),
    )?;
    domain.end()
}

fn kept(bed: &Bed) -> Result<()> {
    let mut load = Load::new(bed, "kept", PAGES)?;
    let before = incarnations(bed)?;
    bed.restart("ctl", &["--keep".to_owned()])?;
    // All are back.
    bed.operator()?.check()?;
    let running = load.start(scaled(20_000))?;
    bed.end("ctl", Signal::TERM)?;
    bed.restart("ctl", &[])?;
    for mut program in running {
        program.succeed()?;
    }
    load.check()?;
    ensure!(incarnations(bed)? == before, "blades have new incarnations");
    agrees(bed)?;
    load.end()
}

/// Waits until the switch has so many slots.
fn until_there_are(bed: &Bed, slots: u32) -> Result<()> {
    let deadline = Instant::now() + patience();
    loop {
        // Meanwhile there may be no controller.
        let found = bed.status().map(|status| status.slots);
        match found {
            Ok(found) if found == slots => return Ok(()),
            Ok(found) if Instant::now() > deadline => {
                bail!("there are {found} slots and not {slots}\n{}", bed.logs())
            }
            Err(error) if Instant::now() > deadline => return Err(error),
            _ => std::thread::yield_now(),
        }
    }
}

fn slots(bed: &Bed) -> Result<()> {
    let mut load = Load::new(bed, "slots", PAGES)?;
    let before = incarnations(bed)?;
    // Fewer than regions of the load, too: there are as many only when regions have given up theirs.
    for (option, slots) in [
        ("--slots=100000", 100_000),
        ("--slots=20", 20),
        ("--slots=2000", 2_000),
        // The testbed's memory is worth 16 times as many slots as are said to be the least. There are more: they stay.
        ("--least-slots=64", 2_000),
        ("--slots=64", 64),
        ("--least-slots=64", 16 * 64),
    ] {
        // With less than it works on, slots are taken back and given all the time: some thousand steps a second.
        let steps = if slots < 64 { 500 } else { 5_000 };
        let running = load.start(scaled(steps))?;
        bed.restart("ctl", &[option.to_owned()])?;
        until_there_are(bed, slots)?;
        for mut program in running {
            program.succeed()?;
        }
        load.check()?;
        agrees(bed).with_context(|| format!("with {option}"))?;
        until_there_are(bed, slots)?;
    }
    let running = load.start(scaled(10_000))?;
    cut_off(bed)?;
    for mut program in running {
        program.succeed()?;
    }
    load.check()?;
    agrees(bed)?;
    ensure!(incarnations(bed)? == before, "blades have new incarnations");
    load.end()
}

/// Controllers that replace the data plane die when the old one is stopped, when the new one has what it had, and when it
/// has its place; another one after them dies, too.
fn cut_off(bed: &Bed) -> Result<()> {
    const POINTS: u32 = 3;
    let mut slots = 1_000;
    for point in 1..=POINTS {
        for point in [point, point % POINTS + 1] {
            slots += 1;
            let options = [format!("--slots={slots}"), format!("--die-at={point}")];
            let restarted = bed.restart("ctl", &options);
            ensure!(restarted.is_err(), "it does not die at point {point}");
        }
        slots += 1;
        bed.restart("ctl", &[format!("--slots={slots}")])?;
        until_there_are(bed, slots)?;
        agrees(bed).with_context(|| format!("after a controller that died at point {point}"))?;
    }
    Ok(())
}

fn absent(bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, "absent")?;
    let mut owner = domain.start("c1", "--area own increment 0")?;
    owner.go()?;
    owner.expect("at work")?;
    bed.end("ctl", Signal::KILL)?;
    bed.end("c1", Signal::KILL)?;
    owner.die_of(libc::SIGBUS)?;
    bed.restart("ctl", &[])?;
    domain.run("c0", "--area own increment 10")?;
    domain.run("c2", "--area own equals 10")?;
    let status = bed.status()?;
    let losses: Vec<_> = status
        .domains
        .iter()
        .flat_map(|domain| &domain.losses)
        .collect();
    ensure!(
        matches!(losses[..], [loss] if loss.blade == "c1"),
        "what c1 wrote is lost: {losses:?}"
    );
    let found = bed.operator()?.check()?;
    ensure!(found.is_empty(), "a check finds {found:#?}");
    domain.end()
}

fn absent_memory(bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, "absent-memory")?;
    domain.run("c0", "--area kept increment 10")?;
    bed.end("ctl", Signal::KILL)?;
    for memory in ["m0", "m1"] {
        bed.end(memory, Signal::KILL)?;
    }
    bed.restart("ctl", &[])?;
    let mut reader = domain.start("c2", "--area kept equals 10")?;
    for memory in ["m0", "m1"] {
        bed.restart(memory, &[])?;
    }
    reader.go()?;
    reader.die_of(libc::SIGBUS)?;
    let status = bed.status()?;
    let mut losses = status.domains.iter().flat_map(|domain| &domain.losses);
    ensure!(
        losses.any(|loss| loss.area.as_deref() == Some("kept") && loss.blade.starts_with('m')),
        "the lost memory is not reported: {status:?}"
    );
    let found = bed.operator()?.check()?;
    ensure!(found.is_empty(), "a check finds {found:#?}");
    domain.run("c0", "--area kept free")?;
    domain.run("c2", "--area new increment 10")?;
    domain.run("c0", "--area new equals 10")?;
    domain.end()
}
