//! A worker: the process on a compute blade that does its part of the job in shared memory.

use std::hash::{DefaultHasher, Hasher as _};
use std::io::{self, BufReader};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use mind_client::{Access, Open, Process};
use mind_workers::lines;
use mind_workers::requests::{self, Idle};

use crate::{
    barrier::Barrier,
    graph::Graph,
    job::{self, DOMAIN, Done, Event, Job, LOADER},
    layout::Part,
    memory::Memory,
    rank::{Step, Worker},
};

/// Does the job on stdin, and stays until stdin ends.
///
/// # Errors
///
/// What keeps it from finishing.
pub fn main() -> Result<()> {
    let mut input = BufReader::with_capacity(1 << 16, io::stdin());
    let job: Job = lines::receive(&mut input)
        .context("cannot read the job on stdin")?
        .context("there is no job on stdin; `cargo xtask demo` starts workers")?;
    if job.worker >= job.owners.len() {
        bail!(
            "the job is for worker {} of {}",
            job.worker,
            job.owners.len()
        );
    }
    let graph = if job.worker == LOADER {
        let graph = Graph::read_from(&mut input, job.vertices, job.edges);
        Some(graph.context("cannot read the graph on stdin")?)
    } else {
        None
    };
    let idle = Idle::default();
    // Threads that wait for a page end with it, too.
    requests::watch(input, &idle).context("cannot start the thread that watches stdin")?;

    let process = Process::attach(DOMAIN).context("cannot attach to the blade")?;
    let memory = open(&process, &job)?;
    report(&Event::Attached)?;
    let (done, ranks) = work(memory, &job, graph.as_ref(), report)?;
    // Before the event is sent, since the demo may close stdin after it.
    idle.set(true);
    report(&Event::Done(done))?;
    job::send_ranks(io::BufWriter::new(io::stdout().lock()), &ranks)
        .context("cannot write the ranks")?;
    // The demo reads the blade's counters while the domain is still there, and then closes stdin.
    loop {
        std::thread::park();
    }
}

fn report(event: &Event) -> io::Result<()> {
    lines::send(io::stdout().lock(), event)
}

/// Opens the job's areas. The first worker makes them.
fn open(process: &Process, job: &Job) -> Result<Memory<'static>> {
    let layout = job.layout();
    let mut areas = Vec::new();
    for part in Part::ALL {
        let length = layout.length(part) as u64;
        let area = process
            .open_area(part.name(), length, Access::Write, Open::OrCreate)
            .with_context(|| format!("cannot open the area `{}` of {length} bytes", part.name()))?;
        areas.push(area);
    }
    // SAFETY: areas begin at pages, are as long as asked for, stay until the domain goes (they are
    // never unmapped), and all workers access them through `Memory`.
    Ok(unsafe { Memory::new(layout, |part| areas[part as usize].as_ptr()) })
}

/// Does the job in `memory`, shared by any means; returns the result, and the ranks if this worker
/// is to send them.
///
/// # Errors
///
/// When another worker does not arrive; those of `report`.
pub fn work(
    memory: Memory<'_>,
    job: &Job,
    graph: Option<&Graph>,
    report: impl Fn(&Event) -> io::Result<()>,
) -> Result<(Done, Vec<f64>)> {
    let patience = Duration::from_millis(job.patience_ms);
    let mut barrier = Barrier::new(memory, job.worker, patience);
    let mut accesses = 0;
    if let Some(graph) = graph {
        let alive = || -> io::Result<()> {
            if barrier.show_life() {
                report(&Event::Alive)?;
            }
            Ok(())
        };
        memory.load(graph, alive)?;
        accesses += (graph.offsets().len() + graph.edges() + graph.vertices()) as u64;
    }
    barrier.arrive().context("loading the graph")?;
    report(&Event::Loaded)?;

    let begin = Instant::now();
    let outcome = Worker::new(memory, job.worker, &job.owners, job.settings())
        .run(&mut barrier, |step| match step {
            Step::Iteration { number, delta } => report(&Event::Iteration { number, delta }),
            Step::Alive => report(&Event::Alive),
        })
        .context("ranking")?;
    let nanos = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);

    let ranks: Vec<_> = (0..job.vertices)
        .map(|vertex| memory.rank(vertex))
        .collect();
    let done = Done {
        iterations: outcome.iterations,
        delta: outcome.delta,
        accesses: accesses + outcome.accesses + ranks.len() as u64,
        nanos,
        digest: digest(&ranks),
        ranks: if job.worker == LOADER { ranks.len() } else { 0 },
    };
    let told = if job.worker == LOADER {
        ranks
    } else {
        Vec::new()
    };
    Ok((done, told))
}

/// A hash by which two workers of one program compare the ranks that they see.
pub fn digest(ranks: &[f64]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for rank in ranks {
        hasher.write_u64(rank.to_bits());
    }
    hasher.finish()
}
