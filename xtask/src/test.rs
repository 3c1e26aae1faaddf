//! `cargo xtask test`: builds the eBPF object and runs all tests of the host crates, and a
//! part of the hunt for bugs.

use std::ffi::OsString;

use anyhow::Result;

use crate::companions;
use crate::object;
use crate::process;
use crate::setup;

/// What `cargo xtask test` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// For the test programs: a part of the tests' names, `--nocapture` and the like.
    #[arg(last = true)]
    args: Vec<OsString>,
}

/// Runs `cargo xtask test`.
pub(crate) fn run(args: &Args) -> Result<()> {
    let tools = setup::ensure()?;
    object::build(&tools)?;
    let companions = companions::ensure()?;

    // The daemons, which the end-to-end tests expect beside them: with the tests, for cargo builds what both need in one
    // way then. Tests have it built with more features than programs alone do.
    let mut cargo = object::host_cargo();
    cargo.arg("build").args(object::HOST_CRATES);
    cargo.args(["--lib", "--bins", "--tests", "--examples"]);
    process::run(&mut cargo)?;

    let mut cargo = object::host_cargo();
    cargo
        .arg("test")
        .args(object::HOST_CRATES)
        .env(companions::VARIABLE, companions);
    if !args.args.is_empty() {
        cargo.arg("--").args(&args.args);
    }
    process::run(&mut cargo)?;

    // Bugs that are found at once; `cargo xtask mutants` looks for all of them.
    let mut cargo = object::host_cargo();
    cargo.args(["test", "--features", "mutants"]);
    cargo.args(["--package", "mind-mutants", "--bins"]);
    cargo.args(["--package", "mind-machines", "--test", "seeded"]);
    if !args.args.is_empty() {
        cargo.arg("--").args(&args.args);
    }
    process::run(&mut cargo)
}
