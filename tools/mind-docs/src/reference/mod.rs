//! Pages of the book that are generated from what the code declares.

mod commands;
mod configuration;
mod metrics;
mod verdicts;

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use mind_cli::reference::Verb;

/// Programs of which the reference has a page. Each describes its command line with `man --json`.
pub const PROGRAMS: [&str; 5] = [
    "mind",
    "mind-controller",
    "mind-ctl",
    "mind-blade",
    "netns-setup",
];

/// The daemons: a program, and its verb, if it has one.
const DAEMONS: [(&str, Option<&str>); 3] = [
    ("mind-controller", None),
    ("mind-blade", Some("compute")),
    ("mind-blade", Some("memory")),
];

/// A page that is generated: its place in the book's source folder, and its Markdown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Where it goes.
    pub place: PathBuf,
    /// What it says.
    pub text: String,
}

/// Pages that follow from what this program is built with.
pub fn built_in() -> Vec<Page> {
    vec![
        page("metrics", metrics::render()),
        page("verdicts", verdicts::render()),
    ]
}

/// Where the pages go that follow from what other programs say of themselves.
pub fn of_programs() -> Vec<PathBuf> {
    let names = PROGRAMS.into_iter().chain(["configuration"]);
    names.map(place).collect()
}

/// These pages; `folder` has the programs.
///
/// # Errors
///
/// When a program is missing, or does not describe itself.
pub fn ask_programs(folder: &Path) -> Result<Vec<Page>> {
    let described: Vec<_> = PROGRAMS
        .iter()
        .map(|name| describe(&folder.join(name), name))
        .collect::<Result<_>>()?;
    let commands = described
        .iter()
        .map(|program| page(&program.name, commands::render(program)));
    let mut pages: Vec<_> = commands.collect();
    let daemons: Vec<_> = DAEMONS
        .iter()
        .map(|(program, verb)| {
            let program = described
                .iter()
                .find(|described| described.name == *program);
            let verb = program.and_then(|program| match verb {
                Some(verb) => program.verbs.iter().find(|own| own.name == *verb),
                None => Some(program),
            });
            verb.context("a daemon is no verb of its program")
        })
        .collect::<Result<_>>()?;
    pages.push(page("configuration", configuration::render(&daemons)));
    Ok(pages)
}

/// What a program says of its command line.
fn describe(program: &Path, name: &str) -> Result<Verb> {
    let shown = program.display();
    ensure!(
        program.is_file(),
        "there is no {shown}: `cargo xtask docs` builds it, --programs names another folder"
    );
    let folder = std::env::temp_dir().join(format!("mind-docs.{}", std::process::id()));
    let status = Command::new(program)
        .args(["man", "--json"])
        .arg(&folder)
        .status()
        .with_context(|| format!("cannot run {shown}"))?;
    ensure!(
        status.success(),
        "{shown} does not describe itself: {status}"
    );
    let text = std::fs::read_to_string(folder.join(format!("{name}.json")));
    let removed = std::fs::remove_dir_all(&folder);
    let text = text.with_context(|| format!("{shown} does not describe itself"))?;
    removed.with_context(|| format!("cannot remove {}", folder.display()))?;
    serde_json::from_str(&text)
        .with_context(|| format!("{shown} is of another version than this program; build both"))
}

fn place(name: &str) -> PathBuf {
    Path::new("reference").join(format!("{name}.md"))
}

fn page(name: &str, text: String) -> Page {
    Page {
        place: place(name),
        text,
    }
}

/// Help as sentences: clap takes the last full stop away.
fn sentences(help: &str) -> String {
    let help = help.trim();
    if help.is_empty() || help.ends_with(['.', ':', '!', '?']) {
        help.to_owned()
    } else {
        format!("{help}.")
    }
}

/// Code in a cell of a table.
fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|"))
}

/// Text of a doc comment or of help in a cell of a table: one line, without what would end the cell.
fn cell(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|")
        .replace('<', "&lt;")
}
