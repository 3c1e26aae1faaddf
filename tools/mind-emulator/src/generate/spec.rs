//! What is generated: its options on the command line, and what they mean together.

use anyhow::{Result, bail, ensure};
use mind_common::id::{BladeId, MAX_BLADES};

use super::layout::Layout;
use crate::trace::format::{MAX_PAGES, MAX_THREADS};

/// Kinds of generators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// Random pages, shared or of the thread's own.
    Uniform,
    /// Random pages, few of them often.
    Zipf,
    /// A key-value store: records are read and updated by turns.
    #[value(name = "ycsb-a")]
    YcsbA,
    /// A key-value store: records are read.
    #[value(name = "ycsb-c")]
    YcsbC,
    /// PageRank.
    Graph,
    /// Training of a model, the same on all threads.
    Training,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Uniform,
        Self::Zipf,
        Self::YcsbA,
        Self::YcsbC,
        Self::Graph,
        Self::Training,
    ];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipf => "zipf",
            Self::YcsbA => "ycsb-a",
            Self::YcsbC => "ycsb-c",
            Self::Graph => "graph",
            Self::Training => "training",
        }
    }
}

/// What the command line says of a generator.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Compute blades.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=MAX_BLADES as i64))]
    blades: u8,
    /// Threads on each.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads_per_blade: u16,
    /// Pages of memory in all.
    #[arg(long, value_name = "N", default_value_t = 400_000)]
    pages: u64,
    /// Accesses of all threads.
    #[arg(long, value_name = "N", default_value_t = 8_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    accesses: u64,
    /// The portion of accesses that read, 0 to 1 (uniform, zipf; 0.5 by default).
    #[arg(long, value_name = "RATIO")]
    reads: Option<f64>,
    /// The portion of accesses to pages that all threads share, and of pages that are shared, 0 to 1 (uniform; 0.5 by
    /// default).
    #[arg(long, value_name = "RATIO")]
    sharing: Option<f64>,
    /// How unequal pages or keys are, above 0 and below 1 (zipf, ycsb-a, ycsb-c; 0.99 by default, as in YCSB).
    #[arg(long, value_name = "THETA")]
    theta: Option<f64>,
    /// Nanoseconds that a thread computes before each access.
    #[arg(long, value_name = "NS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    gap: u64,
    /// What random numbers begin with.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,
}

/// What is generated.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Of which kind.
    pub kind: Kind,
    /// Compute blades, 1 to 32.
    pub blades: u8,
    /// Threads on each, at least 1.
    pub threads_per_blade: u16,
    /// Pages of memory: [`least_pages`] at least. Areas begin at blocks, so page numbers may be greater.
    pub pages: u64,
    /// Accesses of all threads.
    pub accesses: u64,
    /// The portion of accesses that read.
    pub reads: f64,
    /// The portion of accesses to shared pages.
    pub sharing: f64,
    /// The exponent of Zipf's law.
    pub theta: f64,
    /// Nanoseconds before each access.
    pub gap: u64,
    /// What random numbers begin with.
    pub seed: u64,
}

/// Pages that are enough for any kind: a few for each thread.
pub const fn least_pages(threads: usize) -> u64 {
    16 * threads as u64
}

impl Options {
    /// What they mean for that kind.
    ///
    /// # Errors
    ///
    /// When one is out of its range, or nothing to that kind.
    pub fn spec(&self, kind: Kind) -> Result<Spec> {
        let takes_ratio = matches!(kind, Kind::Uniform | Kind::Zipf);
        let takes_theta = matches!(kind, Kind::Zipf | Kind::YcsbA | Kind::YcsbC);
        let given = [
            ("--reads", self.reads, takes_ratio),
            ("--sharing", self.sharing, matches!(kind, Kind::Uniform)),
            ("--theta", self.theta, takes_theta),
        ];
        for (option, value, is_taken) in given {
            if value.is_some() && !is_taken {
                bail!(
                    "{option} means nothing to a generator of the kind {}; leave it out",
                    kind.name()
                );
            }
            let is_in_range = value.is_none_or(|value| (0.0..=1.0).contains(&value));
            ensure!(is_in_range, "{option} is a number from 0 to 1");
        }
        let theta = self.theta.unwrap_or(0.99);
        ensure!(
            0.0 < theta && theta < 1.0,
            "--theta is a number above 0 and below 1"
        );
        let spec = Spec {
            kind,
            blades: self.blades,
            threads_per_blade: self.threads_per_blade,
            pages: self.pages,
            accesses: self.accesses,
            reads: self.reads.unwrap_or(0.5),
            sharing: self.sharing.unwrap_or(0.5),
            theta,
            gap: self.gap,
            seed: self.seed,
        };
        let threads = spec.threads();
        ensure!(
            threads <= MAX_THREADS,
            "{threads} threads are more than a trace has; {MAX_THREADS} at most"
        );
        let least = least_pages(threads);
        ensure!(
            spec.pages >= least,
            "--pages is {least} or more for {threads} threads"
        );
        // Areas begin at blocks, of which each thread has a few.
        let most = MAX_PAGES / 2;
        ensure!(spec.pages <= most, "--pages is {most} or less");
        Ok(spec)
    }
}

impl Spec {
    /// Threads on all blades.
    pub fn threads(&self) -> usize {
        usize::from(self.blades) * usize::from(self.threads_per_blade)
    }

    /// Where its data lie.
    pub fn layout(&self) -> Layout {
        Layout::new(self)
    }

    /// On which blade each thread runs: threads are dealt out to blades in turn.
    pub fn blades_of_threads(&self) -> Vec<BladeId> {
        let blades = 0..self.threads();
        let on = |thread| BladeId::from_low_bits((thread % usize::from(self.blades)) as u64);
        blades.map(on).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        options: Options,
    }

    fn spec(kind: Kind, arguments: &str) -> Result<Spec> {
        let arguments = ["cli"].into_iter().chain(arguments.split_whitespace());
        let cli = <Cli as clap::Parser>::try_parse_from(arguments)?;
        cli.options.spec(kind)
    }

    #[test]
    fn defaults_are_those_of_the_paper() {
        let spec = spec(Kind::Uniform, "").unwrap();
        assert_eq!((spec.blades, spec.threads(), spec.pages), (8, 8, 400_000));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (kind, wrong) in [
            (Kind::Uniform, "--reads 1.5"),
            (Kind::Uniform, "--reads nan"),
            (Kind::Uniform, "--theta 0.5"),
            (Kind::Zipf, "--sharing 0.5"),
            (Kind::Zipf, "--theta 1"),
            (Kind::Zipf, "--theta 0"),
            (Kind::YcsbC, "--reads 0.5"),
            (Kind::Training, "--reads 0.5"),
            (Kind::Graph, "--pages 10"),
            (Kind::Graph, "--pages 99999999999"),
            (Kind::Graph, "--blades 33"),
            (Kind::Graph, "--blades 32 --threads-per-blade 1000"),
            (Kind::Graph, "--accesses 0"),
        ] {
            assert!(spec(kind, wrong).is_err(), "{kind:?} {wrong}");
        }
    }
}
