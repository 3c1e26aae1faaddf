//! The processes on the blades: the worker, which does all kinds of work by a thread each until it is told to stop, and
//! the keeper of the memory that is set aside for injected frames.

use std::{
    io::{self, BufRead as _, Write as _},
    process,
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail};
use mind_client::{Access, Process};
use mind_e2e::area::PAGE;

use crate::{
    inject,
    job::{Done, Event, GO, Place, STOP},
    layout::{Areas, BLADES, DOMAIN},
    work::{self, Turn, Work},
};

/// How often a worker says how far it is.
const REPORT: Duration = Duration::from_millis(200);

/// The exit code of a process whose soak is gone.
const ORPHANED: i32 = 3;

/// What a worker is told on its command line.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Its number among the workers.
    #[arg(long)]
    number: usize,
    /// By how much to multiply the threads of each kind of work.
    #[arg(long)]
    threads: usize,
}

/// Works until it is told to stop, then looks at everything, and stays until stdin ends.
///
/// # Errors
///
/// When there is no memory or nobody to talk to; what is wrong with the memory is reported.
pub fn main(args: &Args) -> Result<()> {
    let process = Process::attach(DOMAIN).context("cannot attach to the blade")?;
    let areas = Areas::open(&process)?;
    let told = listen()?;
    println!("ready");
    expect(&told, GO)?;
    let done = load(areas, &process, args, &told)?;
    say(&Event::Stopped { done })?;
    let total: Done = serde_json::from_str(&told.recv().context("the soak is gone")?)
        .context("cannot understand what all workers did")?;
    if let Err(error) = work::verify(areas, &total) {
        say(&Event::Wrong {
            what: format!("at the end: {error:#}"),
        })?;
    }
    say(&Event::Verified)?;
    leave(&told)
}

/// Allocates what injected frames ask for, says where it is, and keeps it until stdin ends.
///
/// # Errors
///
/// When there is no memory.
pub fn keep() -> Result<()> {
    let process = Process::attach(inject::DOMAIN).context("cannot attach to the blade")?;
    let memory = process.map((inject::PAGES * PAGE) as u64, Access::Write)?;
    let told = listen()?;
    let place = Place {
        domain: process.domain(),
        va: memory.va(),
    };
    println!("{}", serde_json::to_string(&place)?);
    leave(&told)
}

/// All threads at work, until it is said to stop; what they did.
fn load(areas: Areas, process: &Process, args: &Args, told: &Receiver<String>) -> Result<Done> {
    let (stop, operations) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for work in Work::ALL {
            let count = args.threads * work.threads();
            for thread in 0..count {
                let number = args.number * count + thread;
                let turn = Turn {
                    number,
                    of: BLADES * count,
                    stop: &stop,
                    operations: &operations,
                    steps: 0,
                    reads: 0,
                    random: fastrand::Rng::with_seed(number as u64 * 100 + work as u64),
                };
                let thread = scope.spawn(move || {
                    let result = work::run(work, areas, process, turn);
                    result.map_err(|error| {
                        // At once: the others go on, and it may be long until they stop.
                        let what = format!("{}: {error:#}", work.name());
                        say(&Event::Wrong { what }).ok();
                    })
                });
                threads.push((work, thread));
            }
        }
        let until_told = || -> Result<()> {
            loop {
                match told.recv_timeout(REPORT) {
                    Err(RecvTimeoutError::Timeout) => say(&Event::Progress {
                        operations: operations.load(Ordering::Relaxed),
                    })?,
                    Ok(line) if line == STOP => return Ok(()),
                    Ok(line) => bail!("told `{line}` instead of `{STOP}`"),
                    Err(RecvTimeoutError::Disconnected) => bail!("the soak is gone"),
                }
            }
        };
        let result = until_told();
        stop.store(true, Ordering::Relaxed);
        let mut done = Done::new();
        for (work, thread) in threads {
            let result = thread.join().map_err(|_| anyhow!("a thread panicked"))?;
            let (steps, reads) = result.unwrap_or_default();
            *done.entry(work.name().to_owned()).or_default() += steps;
            if reads > 0 {
                *done.entry(format!("{} reads", work.name())).or_default() += reads;
            }
        }
        result.map(|()| done)
    })
}

fn say(event: &Event) -> Result<()> {
    let line = serde_json::to_string(event)?;
    writeln!(io::stdout().lock(), "{line}").context("the soak does not listen")
}

/// What comes on stdin, in lines. The process ends with it, threads that wait for a page included.
fn listen() -> Result<Receiver<String>> {
    let (sender, told) = mpsc::channel();
    std::thread::Builder::new()
        .name("stdin".into())
        .spawn(move || {
            for line in io::stdin().lock().lines().map_while(Result::ok) {
                if line == LEAVE {
                    process::exit(0);
                }
                if sender.send(line).is_err() {
                    break;
                }
            }
            eprintln!("mind-soak: stdin has ended: the soak is gone");
            process::exit(ORPHANED);
        })
        .context("cannot start the thread that listens")?;
    Ok(told)
}

/// The line that tells it to end.
pub const LEAVE: &str = "leave";

fn expect(told: &Receiver<String>, line: &str) -> Result<()> {
    match told.recv() {
        Ok(found) if found == line => Ok(()),
        Ok(found) => bail!("told `{found}` instead of `{line}`"),
        Err(_) => bail!("the soak is gone"),
    }
}

fn leave(told: &Receiver<String>) -> Result<()> {
    loop {
        let line = told.recv().context("the soak is gone")?;
        eprintln!("mind-soak: told `{line}` where nothing more is expected");
    }
}
