//! The soak from beginning to end: the order of its steps.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use mind_e2e::{Bed, Program};
use netns_setup::{Options as BedOptions, condition::Condition, state::RunningService, testbed};

use crate::{
    counters::Counters,
    inject::{self, Injection},
    job::Place,
    kernel_log::KernelLog,
    kernel_objects::KernelObjects,
    layout::{BLADES, CACHE, MEMORY_BLADES, MEMORY_SIZE, SLOTS},
    machine::{self, Memory, Sample, mebibytes},
    progress::{Pace, Progress, clock, step},
    report::{Load, Machine, Report},
    signals::Signals,
    verdicts,
    worker::LEAVE,
    workers::{self, Workers},
};

/// Compute blades in all: those of the load, the one that injected frames come from, and the one whose agent is killed.
const COMPUTE: u8 = BLADES as u8 + 2;

/// How many samples are taken of the load, if they are neither closer nor further apart than these bounds.
const SAMPLES: u32 = 60;
const CLOSEST: Duration = Duration::from_secs(1);
const FURTHEST: Duration = Duration::from_secs(5);

/// How long the controller may take to see that a blade is gone, and the kernel to give back what it frees later (after
/// a grace period of RCU, or in a workqueue). There is no event for that, so it is polled.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often.
const AGAIN: Duration = Duration::from_millis(100);
/// It gives nothing more back when it has not given back [`MORE`] for so long.
const QUIET: Duration = Duration::from_secs(2);
/// See [`QUIET`].
const MORE: u64 = 1 << 20;

/// The options of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// How long the load runs.
    pub time: Duration,
    /// How often each path must be taken.
    pub least: u64,
    /// By how much to multiply the threads on each blade.
    pub threads: usize,
}

impl Options {
    /// For a run of so many minutes, with `full` of each verdict if it is a full one.
    pub fn new(minutes: f64, full: u64, threads: usize) -> Self {
        Self {
            time: Duration::from_secs_f64(minutes * 60.0),
            least: verdicts::least(full, minutes),
            threads,
        }
    }
}

/// Runs the soak. When it returns, however it does, the testbed is down.
///
/// # Errors
///
/// What kept it from running to its end; errors of the system under test are in the report.
pub fn run(options: &Options, signals: &Signals) -> Result<Report> {
    // Dirty pages of files hold more memory than their own.
    rustix::fs::sync();
    let before = Machine {
        memory: Memory::now()?,
        objects: KernelObjects::now(),
    };
    let mut log = KernelLog::from_now()?;
    let mut complaints = Vec::new();

    let wanted = BedOptions {
        compute: COMPUTE,
        memory: MEMORY_BLADES,
        memory_size: MEMORY_SIZE,
        cache: CACHE,
        slots: Some(SLOTS),
        ..BedOptions::default()
    };
    step(format_args!(
        "bringing up {COMPUTE} compute blades with a page cache of {} each, {MEMORY_BLADES} memory blades with {} each",
        mebibytes(CACHE),
        mebibytes(MEMORY_SIZE)
    ));
    let bed = Bed::with(&wanted).context("cannot bring the testbed up")?;
    let load = on_testbed(&bed, options, signals, &mut log, &mut complaints);
    let load = match load {
        Err(error) if !signals.is_interrupted() => {
            step(format_args!("the daemons' last words:\n{}", bed.logs()));
            Err(error)
        }
        load => load,
    };
    step("taking the testbed down");
    let services = bed.testbed().state().services.clone();
    drop(bed);
    signals.check()?;
    note(&mut log, &mut complaints)?;
    if load.is_err() {
        for complaint in &complaints {
            step(format_args!("the kernel complained: {complaint}"));
        }
    }
    let load = load?;

    let after = settled(&before, signals)?;
    note(&mut log, &mut complaints)?;
    Ok(Report {
        load,
        least: options.least,
        before,
        after,
        complaints,
        debris: debris(&services)?,
    })
}

fn on_testbed(
    bed: &Bed,
    options: &Options,
    signals: &Signals,
    log: &mut KernelLog,
    complaints: &mut Vec<String>,
) -> Result<Load> {
    signals.check()?;
    let counters = Counters::open(bed)?;
    let mut reserving = Program::run(bed, inject::BLADE, workers::NAME, "reserve")?;
    let line = reserving.line()?;
    let place: Place = serde_json::from_str(&line)
        .with_context(|| format!("the process that reserves pages says `{line}`"))?;
    kill_agent(bed, signals)?;

    step(format_args!(
        "starting a worker on each of {BLADES} blades; the load runs for {}",
        clock(options.time)
    ));
    let mut workers = Workers::start(bed, options.threads)?;
    signals.check()?;
    let injection = Injection::start(bed, &bed.status()?, place, options.least, options.time)?;
    workers.go()?;
    let begin = Instant::now();
    let samples = watch(
        bed,
        &counters,
        &mut workers,
        &injection,
        options.time,
        || {
            note(log, complaints)?;
            Ok(complaints.len())
        },
        signals,
    )?;
    let sent = injection.stop()?;
    let done = workers.stop()?;
    let time = begin.elapsed();
    signals.check()?;
    // Checking all memory makes packets, too, but is no load.
    let counts = counters.read(&bed.status()?)?;
    step("checking all memory from each blade");
    workers.verify(&workers::total(&done))?;

    let mut agents = Vec::new();
    for blade in (0..BLADES)
        .map(|number| format!("c{number}"))
        .chain([inject::BLADE.to_owned()])
    {
        let report = bed.report(&blade)?;
        agents.push((blade, report));
    }
    let wrong = workers.dismiss()?;
    reserving.send(LEAVE)?;
    reserving.succeed()?;
    Ok(Load {
        time,
        done,
        wrong,
        agents,
        counts,
        sent,
        samples,
    })
}

/// Kills the agent of the blade that is to be gone, and waits until the controller has noticed.
fn kill_agent(bed: &Bed, signals: &Signals) -> Result<()> {
    bed.kill(inject::GONE)?;
    let begin = Instant::now();
    while !inject::is_gone(&bed.status()?, inject::GONE) {
        if begin.elapsed() > PATIENCE {
            bail!(
                "the controller has not noticed the loss of {}, {} s after its agent was killed",
                inject::GONE,
                PATIENCE.as_secs()
            );
        }
        signals.wait(AGAIN)?;
    }
    Ok(())
}

/// Samples everything until the load has run for `time`; returns the memory of each sample. `note` reads the kernel's
/// log and returns its number of complaints.
fn watch(
    bed: &Bed,
    counters: &Counters,
    workers: &mut Workers,
    injection: &Injection,
    time: Duration,
    mut note: impl FnMut() -> Result<usize>,
    signals: &Signals,
) -> Result<Vec<Sample>> {
    let progress = Progress::new(time);
    let between = (time / SAMPLES).clamp(CLOSEST, FURTHEST);
    let begin = Instant::now();
    let mut samples = Vec::new();
    let mut last = (Duration::ZERO, [0, 0, counters.read(&bed.status()?)?.sum()]);
    loop {
        let left = time.saturating_sub(begin.elapsed());
        if left.is_zero() {
            return Ok(samples);
        }
        signals.wait(between.min(left))?;
        let operations = workers.listen()?;
        if injection.has_ended() {
            // The reason comes when it is stopped.
            return Ok(samples);
        }
        let mut faults = 0;
        for number in 0..BLADES {
            faults += bed.report(&format!("c{number}"))?.faults;
        }
        let packets = counters.read(&bed.status()?)?.sum();
        let memory = Memory::now()?;
        let services = &bed.testbed().state().services;
        let daemons = services
            .iter()
            .map(|service| machine::own_pages(service.process.pid))
            .sum();
        samples.push(Sample { memory, daemons });
        let now = (begin.elapsed(), [operations, faults, packets]);
        let seconds = (now.0 - last.0).as_secs_f64();
        let rate = |figure: usize| now.1[figure].saturating_sub(last.1[figure]) as f64 / seconds;
        let pace = Pace {
            operations: rate(0),
            faults: rate(1),
            packets: rate(2),
            memory,
            errors: workers.wrong.len() + note()?,
        };
        progress.at(now.0, &pace);
        last = now;
    }
}

/// Reads the kernel's log.
fn note(log: &mut KernelLog, complaints: &mut Vec<String>) -> Result<()> {
    for complaint in log.complaints()? {
        step(format_args!("ERROR: the kernel complains: {complaint}"));
        complaints.push(complaint);
    }
    Ok(())
}

/// The machine once the kernel has given back what it frees later, or when it had time enough for it.
fn settled(before: &Machine, signals: &Signals) -> Result<Machine> {
    rustix::fs::sync();
    let begin = Instant::now();
    let mut least = (u64::MAX, begin);
    loop {
        let after = Machine {
            memory: Memory::now()?,
            objects: KernelObjects::now(),
        };
        let kept = after.memory.kept();
        if kept.saturating_add(MORE) <= least.0 {
            least = (kept, Instant::now());
        }
        let is_quiet = least.1.elapsed() > QUIET;
        if (is_quiet && after.leaks(before).is_empty()) || begin.elapsed() > PATIENCE {
            return Ok(after);
        }
        signals.wait(AGAIN)?;
    }
}

/// What is left of the testbed whose `services` there were.
fn debris(services: &[RunningService]) -> Result<Vec<String>> {
    let mut debris: Vec<_> = services
        .iter()
        .filter(|service| service.process.is_alive())
        .map(|service| {
            let pid = service.process.pid;
            format!("the daemon of {}, process {pid}", service.name)
        })
        .collect();
    match testbed::look().context("cannot tell whether anything is left of the testbed")? {
        Condition::Debris { reasons, .. } => debris.extend(reasons),
        // Another testbed may be up by now.
        Condition::Absent | Condition::Running { .. } => {}
    }
    Ok(debris)
}
