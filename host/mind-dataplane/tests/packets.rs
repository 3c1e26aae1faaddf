//! The packet table: this packet and these tables in, that verdict, packet and tables out. Every
//! case runs a program in the kernel on one frame, without any interface attached.
//!
//! One process, one thread, one load of the programs: each case begins with the tables as
//! [`world::World::reset`] leaves them. At the end, every verdict must have been met.

#[path = "packets/answers.rs"]
mod answers;
#[path = "packets/bare.rs"]
mod bare;
#[path = "packets/bypass.rs"]
mod bypass;
#[path = "packets/fan_out.rs"]
mod fan_out;
#[path = "packets/first_touch.rs"]
mod first_touch;
#[path = "packets/losses.rs"]
mod losses;
#[path = "packets/memo.rs"]
mod memo;
#[path = "packets/memory.rs"]
mod memory;
#[path = "packets/outside.rs"]
mod outside;
#[path = "packets/races.rs"]
mod races;
#[path = "packets/requests.rs"]
mod requests;
#[path = "packets/responder.rs"]
mod responder;
#[path = "packets/size.rs"]
mod size;
#[path = "packets/traces.rs"]
mod traces;
#[path = "packets/world.rs"]
mod world;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use world::{Case, World};

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // The world is this thread's: its network namespace, and its programs' tables.
    arguments.test_threads = Some(1);
    let cases = [
        outside::CASES,
        bypass::CASES,
        requests::CASES,
        first_touch::CASES,
        answers::CASES,
        memory::CASES,
        memo::CASES,
        fan_out::CASES,
        responder::CASES,
        races::CASES,
        losses::CASES,
        bare::CASES,
        size::CASES,
        traces::CASES,
    ]
    .concat();
    // SAFETY: a plain system call.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !arguments.list {
        if !is_root {
            eprintln!("skipped: the packet table loads eBPF programs, which takes root");
            return ExitCode::SUCCESS;
        }
        if let Err(error) = World::make() {
            eprintln!("cannot make the packet table's programs and devices: {error:#}");
            return ExitCode::FAILURE;
        }
    }
    let trials = cases.into_iter().map(trial).collect();
    let everything = arguments.filter.is_none() && arguments.skip.is_empty() && !arguments.list;
    let conclusion = libtest_mimic::run(&arguments, trials);
    if everything && !conclusion.has_failed() {
        let unmet = World::with(|world| world.unmet());
        if !unmet.is_empty() {
            eprintln!("no case met these verdicts: {unmet:?}");
            return ExitCode::FAILURE;
        }
    }
    conclusion.exit_code()
}

fn trial(case: Case) -> Trial {
    Trial::test(case.name, move || {
        World::with(|world| {
            world.reset();
            (case.run)(world);
        });
        Ok(())
    })
}
