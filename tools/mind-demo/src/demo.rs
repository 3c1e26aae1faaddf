//! The demo from beginning to end: graph, expected ranks, testbed, workers, result.

use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use mind_cli::{Interrupt, Interrupted};
use mind_workers::Heard;
use netns_setup::condition::Condition;
use netns_setup::testbed::{self, Guard};
use netns_setup::{Kind, Testbed};

use crate::{
    apt, edges,
    graph::Named,
    job::{Done, Event, Job, LOADER},
    layout::Layout,
    log_excerpts, observe, private,
    progress::{Progress, step},
    rank::{self, Settings},
    report::{Findings, Part, Report},
    tables::{bytes, grouped},
    workers::{Happening, Workers},
};

/// Added to the workers' own patience, so that they can report what they wait for.
const AFTER_PATIENCE: Duration = Duration::from_secs(10);

/// The options of the demo.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// A list of edges; without it, the dependency graph of Debian's packages.
    pub graph: Option<PathBuf>,
    /// Compute blades, one worker on each.
    pub compute: u8,
    /// Memory blades.
    pub memory: u8,
    /// When to stop.
    pub settings: Settings,
    /// How long to wait without any progress.
    pub patience: Duration,
}

/// Events, and whether the demo was interrupted.
#[derive(Debug)]
pub struct Happenings {
    sender: Sender<Happening>,
    receiver: Receiver<Happening>,
    interrupt: Interrupt,
}

impl Happenings {
    /// Handles SIGINT, SIGTERM and SIGHUP as interrupts.
    ///
    /// # Errors
    ///
    /// When the handlers cannot be installed.
    pub fn with_signals() -> Result<Self> {
        let (sender, receiver) = mpsc::channel();
        let interrupt = Interrupt::with_signals().context("cannot take Ctrl-C")?;
        let to = sender.clone();
        // Events are not read before and after the workers run; the flag is checked there.
        interrupt.on_interrupt(move || drop(to.send(Happening::Interrupted)));
        Ok(Self {
            sender,
            receiver,
            interrupt,
        })
    }

    /// Whether the demo was interrupted.
    pub fn is_interrupted(&self) -> bool {
        self.interrupt.is_wanted()
    }

    fn check(&self) -> Result<(), Interrupted> {
        self.interrupt.check()
    }
}

/// Runs the demo. When it returns, however it does, nothing of it is left.
///
/// # Errors
///
/// What kept it from a result; a wrong result is in the report.
pub fn run(options: &Options, happenings: &Happenings) -> Result<Report> {
    let named = graph(options)?;
    let graph = &named.graph;
    step(format_args!(
        "{}: {} vertices, {} edges",
        named.origin,
        grouped(graph.vertices() as u64),
        grouped(graph.edges() as u64)
    ));
    let layout = Layout {
        vertices: graph.vertices(),
        edges: graph.edges(),
        workers: options.compute.into(),
    };
    happenings.check()?;
    step("ranking in the private memory of one process, for comparison");
    let expected = private::run(graph, options.settings);
    happenings.check()?;

    let job = Job {
        worker: 0,
        vertices: layout.vertices,
        edges: layout.edges,
        owners: rank::divide(layout, graph.offsets()),
        iterations: options.settings.iterations,
        tolerance: options.settings.tolerance,
        patience_ms: u64::try_from(options.patience.as_millis()).unwrap_or(u64::MAX),
    };
    let guard = bring_up(options, layout)?;
    let result = on_testbed(&guard, &named, &job, options.patience, happenings)
        .map_err(|error| log_excerpts::added_to(error, &guard));
    step("taking the testbed down");
    drop(guard);
    happenings.check()?;
    let (ranks, parts, packets) = result?;
    let report = Report::new(Findings {
        named: &named,
        layout,
        memory_blades: options.memory.into(),
        expected: &expected,
        ranks: &ranks,
        parts,
        packets,
    });
    gone()?;
    Ok(report)
}

fn graph(options: &Options) -> Result<Named> {
    match &options.graph {
        Some(path) => {
            step(format_args!("reading {}", path.display()));
            Ok(edges::open(path)?)
        }
        None => {
            step("reading apt's package lists");
            apt::graph()
        }
    }
}

fn bring_up(options: &Options, layout: Layout) -> Result<Guard> {
    let program = std::env::current_exe().context("cannot tell where this program lies")?;
    let folder = program.parent().context("this program lies nowhere")?;
    let wanted = testbed::Options {
        compute: options.compute,
        memory: options.memory,
        memory_size: layout.memory_size(options.memory),
        cache: layout.cache(),
        services: Some(folder.to_owned()),
        bound: true,
        ..testbed::Options::default()
    };
    step(format_args!(
        "bringing up {} compute blades with a page cache of {} each, {} memory blades with {} each",
        options.compute,
        bytes(wanted.cache),
        options.memory,
        bytes(wanted.memory_size)
    ));
    Testbed::guarded(&wanted).context("cannot bring the testbed up")
}

/// What a run on the testbed brings: ranks, parts, packets by verdict.
type Brought = (Vec<f64>, Vec<Part>, std::collections::BTreeMap<String, u64>);

fn on_testbed(
    testbed: &Testbed,
    named: &Named,
    job: &Job,
    patience: Duration,
    happenings: &Happenings,
) -> Result<Brought> {
    happenings.check()?;
    let blades = testbed.plan().of_kind(Kind::Compute);
    let blades: Vec<String> = blades.map(|blade| blade.name.clone()).collect();
    step(format_args!("starting a worker on {}", blades.join(", ")));
    let mut workers = Workers::start(testbed, &blades, job, &named.graph, &happenings.sender)?;
    let progress = Progress::new(job.iterations);
    let (done, ranks) = follow(
        &mut workers,
        happenings,
        &progress,
        patience + AFTER_PATIENCE,
    )?;
    drop(progress);

    // While the workers are still there: their end makes the blades write everything back.
    let mut parts = Vec::new();
    for (blade, done) in blades.into_iter().zip(done) {
        let counted = observe::blade(&blade)?;
        parts.push(Part {
            blade,
            done,
            counted,
        });
    }
    let packets = observe::packets(&observe::status(testbed)?);
    workers.dismiss()?;
    Ok((ranks, parts, packets))
}

/// Waits until all workers are done; how their work went, and the ranks.
fn follow(
    workers: &mut Workers,
    happenings: &Happenings,
    progress: &Progress,
    limit: Duration,
) -> Result<(Vec<Done>, Vec<f64>)> {
    let mut done: Vec<Option<Done>> = vec![None; workers.len()];
    let mut ranks = Vec::new();
    while done.iter().any(Option::is_none) {
        match happenings.receiver.recv_timeout(limit) {
            Err(RecvTimeoutError::Disconnected) => {
                bail!("the readers of the workers' output have ended")
            }
            Err(RecvTimeoutError::Timeout) => {
                return Err(workers.late(|worker| done[worker].is_some(), limit));
            }
            Ok(Happening::Interrupted) => return Err(Interrupted.into()),
            Ok(Happening::Heard(worker, Heard::Silent(error))) => {
                return Err(workers.silent(worker, error.as_ref()).into());
            }
            Ok(Happening::Heard(worker, Heard::Said((event, told)))) => match event {
                Event::Iteration { number, delta } if worker == LOADER => {
                    progress.iteration(number, delta);
                }
                Event::Done(how) => {
                    done[worker] = Some(how);
                    if worker == LOADER {
                        ranks = told;
                    }
                }
                Event::Iteration { .. } | Event::Attached | Event::Alive | Event::Loaded => {}
            },
        }
    }
    Ok((done.into_iter().flatten().collect(), ranks))
}

/// Makes sure that nothing is left.
fn gone() -> Result<()> {
    match testbed::look().context("cannot tell whether anything is left of the testbed")? {
        Condition::Absent => Ok(()),
        Condition::Debris { reasons, .. } => bail!(
            "something is left of the testbed ({}); `netns-setup down` removes it",
            reasons.join("; ")
        ),
        // Another one, brought up since.
        Condition::Running { .. } => Ok(()),
    }
}
