//! `mind-litmus`: the command line, and that of the workers that it starts on blades. How tests are
//! run is in `run`.

mod run;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand, value_parser};
use mind_litmus::blades::worker;
use mind_litmus::cycle::Cycle;
use mind_litmus::family::{self, Size};
use mind_litmus::files::{self, FileError};
use mind_litmus::machine::Model;
use mind_litmus::oracle::Allowed;
use mind_litmus::test::Test;
use mind_litmus::{report, tables};
use serde_json::{Value, json};

/// Litmus tests of x86-TSO: runs them on the blades of a testbed, reads them, makes them from cycles,
/// and says which outcomes are allowed.
#[derive(Parser)]
#[command(
    version,
    disable_help_subcommand = true,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
struct Cli {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    run: run::Args,
}

#[derive(Subcommand)]
enum Verb {
    /// Run tests on the blades of the testbed that `netns-setup up` has made, as is done without a
    /// verb; fails if an outcome is forbidden, or if a test could not be run.
    Run(run::Args),
    /// List tests, how many outcomes x86-TSO and sequential consistency allow, and whether these
    /// make the test's condition true.
    List {
        /// Files, or folders that have `*.litmus` files in them.
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show a test and the outcomes that are allowed.
    Show {
        /// A cycle (`PodWR Fre PodWR Fre`), the name of a test of the collection (`SB`), a file or a
        /// folder.
        #[arg(value_name = "CYCLE|NAME|PATH")]
        what: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Write the project's own collection: the tests of all critical cycles up to a size, and of
    /// coherence.
    Generate {
        /// The folder, which is made if it is not there.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// The most threads.
        #[arg(long, value_name = "N", default_value_t = 4, value_parser = value_parser!(u8).range(2..=6))]
        threads: u8,
        /// The most edges of a cycle; by default two for each thread.
        #[arg(long, value_name = "N", value_parser = value_parser!(u8).range(4..=12))]
        length: Option<u8>,
    },
    /// What runs on each compute blade.
    #[command(name = worker::VERB, hide = true)]
    Worker(worker::Args),
}

/// What errors begin with.
const NAME: &str = "mind-litmus";

fn main() -> ExitCode {
    mind_cli::tell_on_stderr(mind_cli::LevelFilter::WARN);
    let cli = Cli::parse();
    let result = match cli.verb {
        None => return run::main(&cli.run),
        Some(Verb::Run(args)) => return run::main(&args),
        Some(Verb::List { paths, json }) => list(&paths, json),
        Some(Verb::Show { what, json }) => show(&what, json),
        Some(Verb::Generate {
            out,
            threads,
            length,
        }) => generate(&out, threads, length),
        Some(Verb::Worker(args)) => worker::main(&args),
    };
    mind_cli::exit(NAME, result)
}

/// Prints the program's answer.
fn answer(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).context("cannot write")?;
    out.flush().context("cannot write")
}

fn answer_json(value: &Value) -> Result<()> {
    let text = serde_json::to_string_pretty(value).context("cannot write JSON")?;
    answer(&(text + "\n"))
}

/// The tests in files and folders. What is none is named on stderr, and counted.
fn load(paths: &[PathBuf]) -> (Vec<Test>, usize) {
    let mut tests = Vec::new();
    let mut wrong = 0;
    let complain = |error: FileError| {
        eprintln!("mind-litmus: {:#}", anyhow::Error::from(error));
        1
    };
    for path in paths {
        let found = files::find(path).unwrap_or_else(|error| {
            wrong += complain(error);
            Vec::new()
        });
        for file in found {
            match files::load(&file) {
                Ok(test) => tests.push(test),
                Err(error) => wrong += complain(error),
            }
        }
    }
    (tests, wrong)
}

fn list(paths: &[PathBuf], json: bool) -> Result<()> {
    let (tests, mut wrong) = load(paths);
    let mut decided = Vec::new();
    for test in &tests {
        match Allowed::of(test) {
            Ok(allowed) => decided.push((test, allowed)),
            Err(error) => {
                eprintln!("mind-litmus: {error}");
                wrong += 1;
            }
        }
    }
    let both = decided.iter().map(|(test, allowed)| (*test, allowed));
    if json {
        answer_json(&both.map(|(test, allowed)| as_json(test, allowed)).collect())?;
    } else {
        answer(&tables::list(both))?;
    }
    if wrong > 0 {
        bail!("{wrong} of the tests cannot be listed, for the reasons above");
    }
    Ok(())
}

fn show(what: &str, json: bool) -> Result<()> {
    let tests: Vec<_> = tests(what)?.into_iter().collect::<Result<_, _>>()?;
    let mut values = Vec::new();
    for (number, test) in tests.iter().enumerate() {
        let allowed = Allowed::of(test)?;
        if json {
            values.push(as_json(test, &allowed));
            continue;
        }
        let space = if number > 0 { "\n" } else { "" };
        answer(&format!(
            "{space}{test}\n{}",
            tables::outcomes(test, &allowed)
        ))?;
    }
    match (json, values.as_slice()) {
        (false, _) => Ok(()),
        (true, [one]) => answer_json(one),
        (true, _) => answer_json(&values.into()),
    }
}

/// The tests that an argument of `show` or `run` means, or why a file of several has none.
fn tests(what: &str) -> Result<Vec<Result<Test, FileError>>> {
    let reason = match what.parse::<Cycle>() {
        Ok(cycle) => return Ok(vec![Ok(family::test(&cycle)?)]),
        Err(reason) => reason,
    };
    if let Some(cycle) = family::named(what) {
        return Ok(vec![Ok(family::test(&cycle)?)]);
    }
    let path = Path::new(what);
    if !path.exists() {
        bail!(
            "`{what}` is no cycle ({reason}), no test of the collection up to four threads, and no file"
        );
    }
    let files = files::find(path)?.into_iter();
    Ok(files.map(|file| files::load(&file)).collect())
}

/// A test and its outcomes.
fn as_json(test: &Test, allowed: &Allowed) -> Value {
    // The same rows as of a run in which nothing was seen.
    let judged = report::Judged::new(test, allowed, "", &Default::default());
    let outcomes = judged.outcomes.iter().map(|row| {
        json!({ "values": row.values, "judgement": row.judgement, "condition": row.condition })
    });
    json!({
        "name": test.name(),
        "description": test.description(),
        "threads": test.threads().len(),
        "condition": test.condition().to_string(),
        "tso": allowed.reach(test, Model::Tso),
        "sc": allowed.reach(test, Model::Sc),
        "outcomes": outcomes.collect::<Value>(),
    })
}

fn generate(out: &Path, threads: u8, length: Option<u8>) -> Result<()> {
    let size = Size {
        threads: threads.into(),
        length: length.unwrap_or(2 * threads).into(),
    };
    let tests = family::collection(size)?;
    fs::create_dir_all(out)
        .with_context(|| format!("cannot make the folder `{}`", out.display()))?;
    let write = |name: &str, text: &str| {
        let path = out.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write `{}`", path.display()))
    };
    let mut index = String::new();
    for (name, test) in &tests {
        let file = format!("{name}.litmus");
        write(&file, &test.to_string())?;
        index.push_str(&file);
        index.push('\n');
    }
    // As the diy tools do: the file that their other tools take instead of names of tests.
    write("@all", &index)?;
    answer(&format!("{} tests in {}\n", tests.len(), out.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
        let cli =
            Cli::try_parse_from(["mind-litmus", "--layout", "one-page", "SB", "x/y"]).unwrap();
        assert!(cli.verb.is_none());
        let cli = Cli::try_parse_from(["mind-litmus", "run", "--iterations=5", "SB"]).unwrap();
        assert!(matches!(cli.verb, Some(Verb::Run(_))));
        let cli = Cli::try_parse_from(["mind-litmus", "show", "SB"]).unwrap();
        assert!(matches!(cli.verb, Some(Verb::Show { .. })));
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        for wrong in [
            &["mind-litmus"][..],
            &["mind-litmus", "run"],
            &["mind-litmus", "--iterations", "0", "SB"],
            &["mind-litmus", "--layout", "nowhere", "SB"],
            &["mind-litmus", "--seed", "-1", "SB"],
            &[
                "mind-litmus",
                "worker",
                "--number=0",
                "--names=a",
                "--step-counters=x",
            ],
        ] {
            let error = Cli::try_parse_from(wrong).err().expect("it cannot be");
            assert_eq!(error.exit_code(), 2, "{wrong:?}");
        }
    }
}
