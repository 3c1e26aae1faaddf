//! The processes on the blades: the worker, which does all kinds of work by a thread each until it is stopped, and the
//! process that allocates the memory reserved for injected frames.

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
    work::{self, Work, WorkThread},
};

/// How often a worker reports its progress.
const REPORT: Duration = Duration::from_millis(200);

/// The exit code of a process whose soak is gone.
const STDIN_ENDED: i32 = 3;

/// A worker's command line.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Its number among the workers.
    #[arg(long)]
    number: usize,
    /// By how much to multiply the threads of each kind of work.
    #[arg(long)]
    threads: usize,
}

/// Works until it is stopped, then checks all memory, and stays until stdin ends.
///
/// # Errors
///
/// When there is no memory, or stdin or stdout is closed; errors found in memory are reported as
/// events.
pub fn main(args: &Args) -> Result<()> {
    let process = Process::attach(DOMAIN).context("cannot attach to the blade")?;
    let areas = Areas::open(&process)?;
    let lines = listen()?;
    println!("ready");
    expect(&lines, GO)?;
    let done = load(areas, &process, args, &lines)?;
    say(&Event::Stopped { done })?;
    let total: Done = serde_json::from_str(&lines.recv().context("the soak is gone")?)
        .context("cannot parse what all workers did")?;
    if let Err(error) = work::verify(areas, &total) {
        say(&Event::Wrong {
            what: format!("at the end: {error:#}"),
        })?;
    }
    say(&Event::Verified)?;
    leave(&lines)
}

/// Allocates the memory that injected frames ask for, prints where it is, and keeps it until stdin
/// ends.
///
/// # Errors
///
/// When there is no memory.
pub fn reserve() -> Result<()> {
    let process = Process::attach(inject::DOMAIN).context("cannot attach to the blade")?;
    let memory = process.map((inject::PAGES * PAGE) as u64, Access::Write)?;
    let lines = listen()?;
    let place = Place {
        domain: process.domain(),
        va: memory.va(),
    };
    println!("{}", serde_json::to_string(&place)?);
    leave(&lines)
}

/// Runs all threads until the soak stops them; returns what they did.
fn load(areas: Areas, process: &Process, args: &Args, lines: &Receiver<String>) -> Result<Done> {
    let (stop, operations) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for work in Work::ALL {
            let count = args.threads * work.threads();
            for thread in 0..count {
                let number = args.number * count + thread;
                let thread = WorkThread {
                    number,
                    of: BLADES * count,
                    stop: &stop,
                    operations: &operations,
                    steps: 0,
                    reads: 0,
                    random: fastrand::Rng::with_seed(number as u64 * 100 + work as u64),
                };
                let thread = scope.spawn(move || {
                    let result = work::run(work, areas, process, thread);
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
                match lines.recv_timeout(REPORT) {
                    Err(RecvTimeoutError::Timeout) => say(&Event::Progress {
                        operations: operations.load(Ordering::Relaxed),
                    })?,
                    Ok(line) if line == STOP => return Ok(()),
                    Ok(line) => bail!("lines `{line}` instead of `{STOP}`"),
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
    writeln!(io::stdout().lock(), "{line}").context("the soak does not read")
}

/// The lines of stdin. The process ends with stdin, also while threads wait for a page.
fn listen() -> Result<Receiver<String>> {
    let (sender, lines) = mpsc::channel();
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
            process::exit(STDIN_ENDED);
        })
        .context("cannot start the thread that reads stdin")?;
    Ok(lines)
}

/// Waits for the given line.
pub const LEAVE: &str = "leave";

fn expect(lines: &Receiver<String>, line: &str) -> Result<()> {
    match lines.recv() {
        Ok(found) if found == line => Ok(()),
        Ok(found) => bail!("lines `{found}` instead of `{line}`"),
        Err(_) => bail!("the soak is gone"),
    }
}

fn leave(lines: &Receiver<String>) -> Result<()> {
    loop {
        let line = lines.recv().context("the soak is gone")?;
        eprintln!("mind-soak: lines `{line}` where nothing more is expected");
    }
}
