//! Programs on blades share memory, and nothing fails.

use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use mind_api::{
    Errno,
    program::{FromBlade, ToBlade, VERSION},
};
use mind_e2e::{Bed, Domain, Program, patience, scaled, suite};
use rustix::process::Signal;

const BLADES: [&str; 4] = ["c0", "c1", "c2", "c3"];
/// Pages that a blade may cache.
const CACHE: usize = 512;
/// Programs that an agent takes.
const PROGRAMS: usize = 1024;

fn main() -> ExitCode {
    suite::run(
        &[
            ("a_counter_loses_no_increment", counter),
            ("a_page_is_neither_torn_nor_stale", turns),
            ("a_page_goes_round_four_blades", four_turns),
            ("reading_moves_each_page_to_each_blade_once", sharing),
            ("fresh_memory_is_zero", fresh),
            ("freed_memory_is_zero_for_others", freed),
            ("another_domain_is_out_of_reach", domains),
            ("where_nothing_is_mapped_is_a_segfault", unmapped),
            ("read_only_memory_refuses_writes", read_only),
            ("four_blades_lose_no_write", lanes),
            ("a_cache_smaller_than_the_working_set", small_cache),
            ("two_hundred_threads_with_eviction", threads),
            ("a_program_killed_at_work_leaves_the_others_working", killed),
            ("programs_come_while_another_changes_its_memory", coming),
            (
                "a_denied_access_is_carried_out_once_another_blade_permits_it",
                permitted,
            ),
            ("a_stopped_program_holds_no_other_up", stopped),
            ("programs_beyond_the_bound_are_told_so", bounded),
        ],
        || Bed::up(4, 2, (CACHE * 4096) as u64),
    )
}

fn counter(bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, "counter")?;
    let times = scaled(100_000);
    let job = |blade| (blade, format!("--area counter increment {times}"));
    domain.run_all(&[job("c0"), job("c1")])?;
    domain.run("c2", &format!("--area counter equals {}", 2 * times))?;
    domain.end()
}

fn take_turns(bed: &Bed, blades: &[&str], rounds: u64) -> Result<()> {
    // A domain of its own: the other test's may not be gone yet, and its area with it.
    let name = format!("{}-turns", blades.len());
    let domain = Domain::new(bed, &name)?;
    domain.take_turns(blades, rounds)?;
    domain.end()
}

fn turns(bed: &Bed) -> Result<()> {
    take_turns(bed, &BLADES[..2], scaled(2_000))
}

fn four_turns(bed: &Bed) -> Result<()> {
    take_turns(bed, &BLADES, scaled(1_000))
}

fn sharing(bed: &Bed) -> Result<()> {
    const PAGES: u64 = 200;
    let domain = Domain::new(bed, "sharing")?;
    let area = format!("--area shared --pages {PAGES}");
    domain.run("c3", &format!("{area} fill"))?;
    let readers = ["c0", "c1"];
    let before: Vec<_> = readers
        .iter()
        .map(|blade| bed.report(blade))
        .collect::<Result<_>>()?;
    let check = format!("{area} check 3");
    domain.run_all(&readers.map(|blade| (blade, check.clone())))?;
    for (blade, before) in readers.iter().zip(before) {
        let requests = bed.report(blade)?.requests - before.requests;
        ensure!(
            requests == PAGES,
            "{blade} asked {requests} times for {PAGES} pages"
        );
    }
    domain.end()
}

fn fresh(bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, "fresh")?;
    domain.run("c0", &format!("--pages 64 fresh {}", scaled(50)))?;
    domain.end()
}

fn freed(bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, "freed")?;
    for _ in 0..scaled(20) {
        domain.run("c0", "--area freed --pages 40 fill")?;
        domain.run("c1", "--area freed --pages 40 check 1")?;
        domain.run("c0", "--area freed --pages 40 free")?;
        // The same room, as a rule.
        domain.run("c1", "--pages 40 fresh 1")?;
    }
    domain.end()
}

fn domains(bed: &Bed) -> Result<()> {
    let ours = Domain::new(bed, "ours")?;
    let theirs = Domain::new(bed, "theirs")?;
    let mut owner = ours.start("c0", "--area secret increment 0")?;
    owner.go()?;
    owner.expect("at work")?;
    let va = ours.place("c1", "--area secret")?;
    for blade in BLADES {
        for verb in ["peek", "poke"] {
            let mut thief = theirs.start(blade, &format!("{verb} {va}"))?;
            thief.go()?;
            thief.die_of(libc::SIGSEGV)?;
        }
    }
    owner.kill()?;
    theirs.end()?;
    ours.end()
}

fn unmapped(bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, "unmapped")?;
    let va = domain.place("c0", "--area last --pages 8")?;
    let mut stray = domain.start("c0", &format!("peek {}", va + (1 << 30)))?;
    stray.go()?;
    stray.die_of(libc::SIGSEGV)?;
    domain.end()
}

fn read_only(bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, "read-only")?;
    let area = "--area page";
    domain.run("c0", &format!("{area} fill"))?;
    let va = domain.place("c0", area)?;
    domain.run("c1", &format!("{area} protect"))?;
    for blade in ["c0", "c1"] {
        let mut writer = domain.start(blade, &format!("poke {va}"))?;
        writer.go()?;
        writer.die_of(libc::SIGSEGV)?;
    }
    domain.run("c0", &format!("{area} check 1"))?;
    domain.run("c2", &format!("{area} check 1"))?;
    domain.end()
}

fn lanes(bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, "lanes")?;
    let steps = scaled(20_000);
    let area = "--area lanes --pages 64";
    let programs: Vec<_> = BLADES
        .iter()
        .enumerate()
        .map(|(number, blade)| {
            let first = number * 2;
            let job = format!("{area} lanes --threads 2 --first {first} {steps}");
            (*blade, job)
        })
        .collect();
    domain.run_all(&programs)?;
    domain.run("c1", &format!("{area} lanes-sum {}", 8 * steps))?;
    domain.end()
}

fn small_cache(bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, "small-cache")?;
    let steps = scaled(20_000);
    let area = format!("--area large --pages {}", CACHE * 3);
    let job = |blade, first| {
        let job = format!("{area} lanes --threads 2 --first {first} {steps}");
        (blade, job)
    };
    domain.run_all(&[job("c0", 0), job("c1", 2)])?;
    let report = bed.report("c0")?;
    ensure!(report.evictions > 0, "nothing was evicted: {report:?}");
    ensure!(
        report.pages <= report.capacity,
        "the cache holds {} pages of {}",
        report.pages,
        report.capacity
    );
    domain.run("c2", &format!("{area} lanes-sum {}", 4 * steps))?;
    domain.end()
}

fn threads(bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, "threads")?;
    let steps = scaled(500);
    let area = format!("--area crowd --pages {}", CACHE * 2);
    domain.run("c0", &format!("{area} lanes --threads 200 {steps}"))?;
    domain.run("c1", &format!("{area} lanes-sum {}", 200 * steps))?;
    domain.end()
}

fn killed(bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, "killed")?;
    let times = scaled(10_000);
    for _ in 0..3 {
        let mut victim = domain.start("c0", "--area counter increment 0")?;
        let mut other = domain.start("c1", &format!("--area counter increment {times}"))?;
        let mut neighbour = domain.start("c0", &format!("--area counter increment {times}"))?;
        victim.go()?;
        victim.expect("at work")?;
        other.go()?;
        neighbour.go()?;
        victim.kill()?;
        other.succeed()?;
        neighbour.succeed()?;
    }
    domain.end()
}

/// The agent notifies all programs of a domain of each change, also those that it has just let in.
fn coming(bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, "coming")?;
    let changing = (0..3).map(|_| {
        let mut program = domain.start("c0", "--pages 1 fresh 1000000")?;
        program.go()?;
        Ok(program)
    });
    let changing: Vec<_> = changing.collect::<Result<_>>()?;
    for _ in 0..scaled(100) {
        domain.run("c0", "--area word increment 1")?;
    }
    changing.into_iter().try_for_each(Program::kill)?;
    domain.run("c1", &format!("--area word equals {}", scaled(100)))?;
    domain.end()
}

fn permitted(bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, "permitted")?;
    let area = "--area page";
    domain.run("c0", &format!("{area} fill"))?;
    let va = domain.place("c0", area)?;
    domain.run("c1", &format!("{area} protect"))?;
    let mut writer = domain.start("c0", &format!("insist {va}"))?;
    writer.go()?;
    writer.expect("denied")?;
    domain.run("c1", &format!("{area} permit"))?;
    writer.expect("written")?;
    writer.succeed()?;
    domain.run("c2", &format!("{area} equals 1"))?;
    domain.end()
}

fn stopped(bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, "stopped")?;
    let mut stopped = domain.start("c0", "calls")?;
    stopped.go()?;
    stopped.signal(Signal::STOP)?;
    // Each is a change of which the stopped program is notified: more than its connection holds.
    domain.run("c0", "--pages 1 fresh 1000")?;
    stopped.signal(Signal::CONT)?;
    stopped.send("map 1")?;
    stopped.line()?;
    stopped.expect("done")?;
    stopped.dismiss();
    stopped.succeed()?;
    domain.end()
}

fn bounded(bed: &Bed) -> Result<()> {
    let descriptors = mind_cli::limits::raise_descriptors();
    // The agent needs four for each, and 128 besides. A virtual machine's first process may have 4,096 open.
    let most = PROGRAMS.min((usize::try_from(descriptors)? - 128) / 4);
    let mut connections = Vec::new();
    let is_full = loop {
        match bed.ask("c0", &ToBlade::Report)? {
            (FromBlade::Report(_), packets) => connections.push(packets),
            (FromBlade::Refused { failure }, _) => break failure,
            (other, _) => bail!("the agent answers with {other:?}"),
        }
    };
    ensure!(is_full.errno == Errno::EAGAIN, "refused with {is_full}");
    // Those of other tests may not be gone yet.
    let count = connections.len();
    ensure!(
        count <= most && count > most - 16,
        "the agent took {count} programs"
    );
    let attach = ToBlade::Attach {
        version: VERSION,
        domain: "beyond".to_owned(),
        on_loss: None,
    };
    match bed.ask("c0", &attach)? {
        (FromBlade::Refused { failure }, _) if failure.errno == Errno::EAGAIN => {}
        (other, _) => bail!("the agent answers with {other:?}"),
    }
    drop(connections);
    let end = std::time::Instant::now() + patience();
    while !matches!(
        bed.ask("c0", &ToBlade::Report),
        Ok((FromBlade::Report(_), _))
    ) {
        ensure!(
            std::time::Instant::now() < end,
            "there is no room although the programs have gone"
        );
    }
    let domain = Domain::new(bed, "bounded")?;
    domain.run("c0", "--area word increment 1")?;
    domain.end()
}
