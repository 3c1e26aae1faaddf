//! `mind-litmus`: the command line.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand, value_parser};
use mind_litmus::cycle::Cycle;
use mind_litmus::family::{self, Size};
use mind_litmus::machine::Model;
use mind_litmus::oracle::Allowed;
use mind_litmus::test::Test;
use mind_litmus::{files, report, tables};
use serde_json::{Value, json};

/// Litmus tests of x86-TSO: reads them, makes them from cycles, and says which outcomes are allowed.
#[derive(Parser)]
#[command(version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
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
}

fn main() -> ExitCode {
    let result = match Cli::parse().verb {
        Verb::List { paths, json } => list(&paths, json),
        Verb::Show { what, json } => show(&what, json),
        Verb::Generate {
            out,
            threads,
            length,
        } => generate(&out, threads, length),
    };
    mind_cli::exit("mind-litmus", result)
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
    let complain = |error: files::FileError| {
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
    let tests = tests(what)?;
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

/// The tests that an argument of `show` means.
fn tests(what: &str) -> Result<Vec<Test>> {
    let reason = match what.parse::<Cycle>() {
        Ok(cycle) => return Ok(vec![family::test(&cycle)?]),
        Err(reason) => reason,
    };
    if let Some(cycle) = family::named(what) {
        return Ok(vec![family::test(&cycle)?]);
    }
    let path = Path::new(what);
    if !path.exists() {
        bail!(
            "`{what}` is no cycle ({reason}), no test of the collection up to four threads, and no file"
        );
    }
    let files = files::find(path)?.into_iter();
    let tests = files.map(|file| files::load(&file));
    Ok(tests.collect::<Result<_, _>>()?)
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
