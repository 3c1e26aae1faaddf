//! Programs in C on blades, compiled here: the example, and what becomes of processes that leave or fork.

#[path = "../../../host/mind-c/tests/cc/mod.rs"]
mod cc;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use cc::Cc;
use mind_e2e::{Bed, Domain, Program, patience, scaled, suite};
use rustix::process::{Pid, Signal, kill_process};

/// How often an agent is polled, since there is no event for a program's end.
const PAUSE: Duration = Duration::from_millis(10);

fn main() -> ExitCode {
    suite::run(
        &[
            ("the_example_counts_on_two_blades", example),
            ("a_process_that_leaves_leaves_what_it_wrote", leaves),
            ("a_child_does_not_keep_its_parent_counted", forked_child),
        ],
        || Bed::up(2, 2, 1 << 20),
    )
}

/// Starts a program in C on a blade.
fn start(bed: &Bed, cc: &Cc, blade: &str, source: &str, arguments: &str) -> Result<Program> {
    Program::execute(bed, blade, &cc.compile(source)?, arguments)
}

fn example(bed: &Bed) -> Result<()> {
    let cc = Cc::new()?;
    let times = scaled(100_000);
    // The second run finds nothing of the first.
    for _ in 0..2 {
        let mut programs = ["c0", "c1"]
            .into_iter()
            .map(|blade| start(bed, &cc, blade, "examples/counter.c", &format!("2 {times}")))
            .collect::<Result<Vec<_>>>()?;
        for program in &mut programs {
            program.expect(&format!("the counter is {}", 2 * times))?;
            let mut nodes = [program.line()?, program.line()?];
            nodes.sort();
            let expected = [0, 1].map(|blade| format!("blade {blade} added {times}"));
            ensure!(nodes == expected, "the list has {nodes:?}");
        }
        programs.iter_mut().try_for_each(Program::succeed)?;
    }
    Ok(())
}

/// The programs on the first blade. The process that holds a domain open is on the last.
fn programs(bed: &Bed) -> Result<u64> {
    Ok(bed.report("c0")?.programs)
}

fn leaves(bed: &Bed) -> Result<()> {
    let cc = Cc::new()?;
    let domain = Domain::new(bed, "leaves")?;
    let mut program = start(bed, &cc, "c0", "tests/c/leaves.c", "leaves word 4711")?;
    program.expect("left")?;
    let left = programs(bed)?;
    ensure!(left == 0, "{left} programs are on the blade that one left");
    domain.run("c1", "--area word equals 4711")?;
    ensure!(!program.has_ended()?, "it left by its end");
    program.dismiss();
    program.succeed()?;
    domain.end()
}

fn forked_child(bed: &Bed) -> Result<()> {
    let cc = Cc::new()?;
    let domain = Domain::new(bed, "orphan")?;
    let mut program = start(bed, &cc, "c0", "tests/c/orphan.c", "orphan")?;
    let child: i32 = program.line()?.parse()?;
    let child = Pid::from_raw(child).context("the child has no number")?;
    program.succeed()?;
    let deadline = Instant::now() + patience();
    while programs(bed)? > 0 {
        ensure!(Instant::now() < deadline, "the parent is still counted");
        std::thread::sleep(PAUSE);
    }
    // It was there all the time.
    kill_process(child, Signal::KILL).context("the child has ended")?;
    domain.end()
}
