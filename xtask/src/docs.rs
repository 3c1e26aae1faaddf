//! `cargo xtask docs` and `cargo xtask readme`: build what makes documents, and become it.

use std::process::Command;

use anyhow::Result;

use crate::install::PROGRAMS;
use crate::launch::launch;
use crate::object;
use crate::process;
use crate::setup;
use crate::workspace;

/// The crate, and its program.
const PACKAGE: &str = "mind-docs";

/// What `cargo xtask docs` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Show the book in a browser.
    #[arg(long)]
    open: bool,
}

/// Runs `cargo xtask docs`: the book in `target/book`, with a reference of the programs as they are now. Does not
/// return if all goes well.
pub(crate) fn run(args: &Args) -> Result<()> {
    let tools = setup::ensure()?;
    object::build(&tools)?;
    let mut cargo = object::host_cargo();
    cargo.arg("build");
    for program in PROGRAMS.into_iter().chain([PACKAGE]) {
        cargo.args(["--bin", program]);
    }
    cargo.env("CARGO_TARGET_DIR", workspace::target());
    process::run(&mut cargo)?;

    let mut program = Command::new(workspace::target().join("debug").join(PACKAGE));
    program.arg("build");
    if args.open {
        program.arg("--open");
    }
    Err(process::exec(&mut program))
}

/// Runs `cargo xtask readme`: runs the benches and writes their figures into the README. Does not return if all goes
/// well.
pub(crate) fn readme() -> Result<()> {
    launch(PACKAGE, &["mind-bench"], &["readme".into()])
}
