//! `mind-docs`: builds the book, and writes measured figures into the README. This file holds the command line only.

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, Subcommand};
use mind_docs::{book, figures, machine::Machine, root};

/// Builds the book and writes measured figures into the README.
#[derive(Parser)]
#[command(name = "mind-docs", version)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Generate the reference, check all links, and render the book.
    Build {
        /// Where the built programs are that the reference describes; by default beside this program.
        #[arg(long, value_name = "FOLDER")]
        programs: Option<PathBuf>,
        /// Where the book goes, as HTML.
        #[arg(long, value_name = "FOLDER", default_value_os_t = root().join("target/book"))]
        out: PathBuf,
        /// Show it in a browser.
        #[arg(long)]
        open: bool,
    },
    /// Run the benches, or take what they have printed, and write the figures into the README.
    Readme {
        /// What `mind-bench fault --json` has printed.
        #[arg(long, value_name = "FILE", requires = "pipeline")]
        fault: Option<PathBuf>,
        /// What `mind-bench pipeline --json` has printed.
        #[arg(long, value_name = "FILE", requires = "fault")]
        pipeline: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    mind_cli::tell_on_stderr(mind_cli::LevelFilter::WARN);
    mind_cli::exit("mind-docs", run(Cli::parse().verb))
}

fn run(verb: Verb) -> Result<()> {
    match verb {
        Verb::Build {
            programs,
            out,
            open,
        } => {
            let programs = programs.map_or_else(own_folder, Ok)?;
            let first = book::build(&programs, &out)?;
            eprintln!("mind-docs: the book begins at {}", first.display());
            if open {
                opener::open(&first).context("cannot show the book in a browser")?;
            }
            Ok(())
        }
        Verb::Readme { fault, pipeline } => {
            let read = |file: PathBuf| {
                std::fs::read_to_string(&file)
                    .with_context(|| format!("cannot read {}", file.display()))
            };
            let fault = fault.map_or_else(|| bench("fault"), read)?;
            let pipeline = pipeline.map_or_else(|| bench("pipeline"), read)?;
            let table = figures::render(
                &figures::parse(&fault).context("the fault bench's figures cannot be read")?,
                &figures::parse(&pipeline)
                    .context("the pipeline bench's figures cannot be read")?,
                &Machine::this()?,
            );
            let file = root().join("README.md");
            let text = std::fs::read_to_string(&file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            let text = figures::replace(&text, &table)?;
            std::fs::write(&file, text)
                .with_context(|| format!("cannot write {}", file.display()))?;
            eprintln!("mind-docs: {} has the figures", file.display());
            Ok(())
        }
    }
}

/// Where this program lies, and those that are built with it.
fn own_folder() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot tell where this program lies")?;
    let folder = own.parent().context("this program lies nowhere")?;
    Ok(folder.to_owned())
}

/// Runs a bench of `mind-bench`, which lies beside this program; what it prints.
fn bench(name: &str) -> Result<String> {
    let program = own_folder()?.join("mind-bench");
    ensure!(
        program.is_file(),
        "there is no {}: `cargo xtask readme` builds it",
        program.display()
    );
    output(Command::new(&program).args([name, "--json"]), &program)
}

fn output(command: &mut Command, program: &Path) -> Result<String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    ensure!(
        output.status.success(),
        "{command:?} failed: {}",
        output.status
    );
    String::from_utf8(output.stdout).context("a bench printed what is no text")
}
