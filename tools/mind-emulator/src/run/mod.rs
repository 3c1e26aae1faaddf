//! `mind-emulator run`: replays a trace, or what a generator makes, in one mode or several side by side.
//!
//! * [`report`]: the table and the JSON,
//! * [`plot`]: directory entries over time, as SVG.

pub mod plot;
pub mod report;

use std::{
    fs::File,
    io::BufReader,
    num::NonZero,
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use anyhow::{Context as _, Result, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use mind_common::addr::PAGE_SHIFT;

use crate::{
    generate::{Generator, Kind, Options, Spec},
    modes::Mode,
    system::{self, Latencies, Outcome, Setup},
    trace::{Reader, Shape, Source},
};
use report::Report;

/// What `mind-emulator run` takes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A system to replay it in, again for each: mind, fixed:SIZE, unlimited, private, home, moesi, pso or pso+.
    #[arg(long = "mode", value_name = "MODE", default_value = "mind")]
    modes: Vec<Mode>,
    /// What the page cache of each blade holds.
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = mind_cli::whole_pages)]
    cache: u64,
    /// Slots of the directory, where they are limited.
    #[arg(long, value_name = "N", default_value_t = 262_144, value_parser = clap::value_parser!(u32).range(16..=1 << 28))]
    slots: u32,
    /// Milliseconds of an epoch; 0 for regions that stay as they are.
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u32).range(..=10_000))]
    epoch: u32,
    /// Times of accesses, as `cargo xtask bench fault --json` has written them; by default those in the book's page on
    /// benches.
    #[arg(long, value_name = "FILE")]
    latencies: Option<PathBuf>,
    /// Nanoseconds of an access to a page that the blade has.
    #[arg(long, value_name = "NS", default_value_t = 100, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    local_ns: u32,
    /// How many modes are replayed at the same time; by default one for each processor.
    #[arg(long, value_name = "N")]
    workers: Option<NonZero<usize>>,
    /// Print JSON; its keys are in the book's page on the emulator.
    #[arg(long)]
    json: bool,
    /// Draw directory entries over time to this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Generate accesses; --blades to --seed say how.
    #[arg(
        long,
        value_enum,
        value_name = "KIND",
        required_unless_present = "trace"
    )]
    generate: Option<Kind>,
    #[command(flatten)]
    options: Options,
    /// The trace file to replay.
    #[arg(value_name = "TRACE", conflicts_with_all = ["generate", "blades", "threads_per_blade", "pages", "accesses",
        "reads", "sharing", "theta", "gap", "seed"])]
    trace: Option<PathBuf>,
}

/// Where accesses come from.
#[derive(Debug)]
enum Input {
    Trace(PathBuf),
    Generated(Spec),
}

impl Input {
    fn of(args: &Args) -> Result<Self> {
        match (&args.trace, args.generate) {
            (Some(path), _) => Ok(Self::Trace(path.clone())),
            (None, Some(kind)) => Ok(Self::Generated(args.options.spec(kind)?)),
            (None, None) => Err(anyhow!("a trace is needed, or --generate KIND")),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Trace(path) => path.display().to_string(),
            Self::Generated(spec) => spec.kind.name().to_owned(),
        }
    }

    fn open(&self) -> Result<Box<dyn Source>> {
        Ok(match self {
            Self::Trace(path) => {
                let file = File::open(path).with_context(|| self.cannot())?;
                Box::new(Reader::open(BufReader::new(file)).with_context(|| self.cannot())?)
            }
            Self::Generated(spec) => Box::new(Generator::new(spec)),
        })
    }

    fn cannot(&self) -> String {
        format!("cannot replay {}", self.name())
    }
}

/// Runs `mind-emulator run`.
///
/// # Errors
///
/// When the trace or the file of latencies cannot be read, an option makes no sense, or the SVG cannot be written.
pub fn run(args: &Args) -> Result<()> {
    let input = Input::of(args)?;
    let mut latencies = match &args.latencies {
        Some(path) => Latencies::read(path)?,
        None => Latencies::default(),
    };
    latencies.local_us = f64::from(args.local_ns) / 1e3;
    let shape = input.open()?.shape().clone();
    let setup = |mode| Setup {
        mode,
        cache: usize::try_from(args.cache >> PAGE_SHIFT).unwrap_or(usize::MAX),
        slots: args.slots,
        epoch_ms: args.epoch,
        latencies,
    };
    let setups: Vec<_> = args.modes.iter().map(|mode| setup(*mode)).collect();
    let outcomes = replay(args, &input, &shape, &setups)?;
    let report = Report::new(&input.name(), &shape, &setup(Mode::Mind), outcomes);
    if let Some(path) = &args.svg {
        let drawing = plot::entries_over_time(&report.modes)?;
        std::fs::write(path, drawing)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let text = match args.json {
        true => serde_json::to_string_pretty(&report)?,
        false => report.text(),
    };
    mind_cli::print(&text)?;
    Ok(())
}

/// Replays it in each mode, in as many threads as are asked for. What comes of it does not depend on their number.
fn replay(args: &Args, input: &Input, shape: &Shape, setups: &[Setup]) -> Result<Vec<Outcome>> {
    let workers = match args.workers {
        Some(workers) => workers,
        None => thread::available_parallelism().context("cannot count processors")?,
    };
    let bar = ProgressBar::new(shape.accesses.saturating_mul(setups.len() as u64));
    let template = "{wide_bar} {human_pos} of {human_len} accesses, {per_sec}, {eta} left";
    bar.set_style(ProgressStyle::with_template(template).context("cannot draw a progress bar")?);
    let next = AtomicUsize::new(0);
    let outcomes: Vec<_> = setups.iter().map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        for _ in 0..workers.get().min(setups.len()) {
            scope.spawn(|| {
                while let Some((setup, outcome)) = {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    setups.get(number).zip(outcomes.get(number))
                } {
                    let made = input.open().and_then(|mut source| {
                        system::run(setup, &mut *source, &|accesses| bar.inc(accesses))
                            .with_context(|| input.cannot())
                    });
                    *outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
                }
            });
        }
    });
    bar.finish_and_clear();
    let made = outcomes
        .into_iter()
        .map(|outcome| outcome.into_inner().unwrap_or_else(PoisonError::into_inner));
    made.map(|outcome| outcome.unwrap_or_else(|| Err(anyhow!("a mode was not replayed"))))
        .collect()
}
