//! The programs whose files are small to install, each with little to do, on a blade whose cache holds a part of what they
//! have.

use std::{process::ExitCode, time::Duration};

use anyhow::{Context as _, Result};
use mind_cli::Interrupt;
use mind_e2e::{Bed, bed, suite};
use mind_programs::{
    catalogue::Program,
    measure::compare,
    script::{Limits, Prepared},
};
use netns_setup::Options;

/// The page cache of the blade: a part of what each program has.
const CACHE: u64 = 4 << 20;

/// What each memory blade offers.
const MEMORY: u64 = 128 << 20;

/// How long a run may take; it takes seconds.
const PATIENCE: Duration = Duration::from_secs(180);

fn main() -> ExitCode {
    suite::run(
        &[
            ("cpp", |bed| answers(bed, "cpp")),
            ("gcc", |bed| answers(bed, "gcc")),
            ("memcached", |bed| answers(bed, "memcached")),
            ("python", |bed| answers(bed, "python")),
            ("redis", |bed| answers(bed, "redis")),
            ("sqlite", |bed| answers(bed, "sqlite")),
            ("stress", |bed| answers(bed, "stress")),
        ],
        || {
            Bed::with(&Options {
                compute: 1,
                memory: 2,
                memory_size: MEMORY,
                cache: CACHE,
                ..Options::default()
            })
        },
    )
}

/// Runs one in local memory and on the blade.
fn answers(bed: &Bed, name: &str) -> Result<()> {
    let program = Program::named(name).context("there is no such program")?;
    let interrupt = Interrupt::default();
    let limits = Limits {
        patience: PATIENCE,
        interrupt: &interrupt,
    };
    let prepared = Prepared::new(program, 1, &limits)?;
    let local = prepared.run(&limits)?;
    let mind = bed::need(&bed::programs()?, "mind")?;
    let blade = prepared.run_on_blade(&mind, "", &limits, |command| {
        bed.testbed().spawn("c0", command)
    })?;
    compare(&local, &blade)
}
