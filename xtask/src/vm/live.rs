//! What a guest runs when nothing else is said: the project's live tests, built on the host; and the program that
//! reports the verifier's figures.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use super::guest::Job;
use crate::object;
use crate::process;

/// A test that needs root and a kernel it may break is an integration test whose name begins so.
const PREFIX: &str = "live_";

/// The crate that loads the eBPF programs and reports what the verifier walked.
const VERIFIER: &str = "verifier-report";

/// What cargo says of what it has built, as far as it matters here.
#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    executable: Option<PathBuf>,
    #[serde(default)]
    manifest_path: Option<PathBuf>,
    #[serde(default)]
    target: Option<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

/// A program that cargo built.
struct Built {
    name: String,
    kind: String,
    executable: PathBuf,
    /// The folder of its package.
    folder: PathBuf,
}

/// Builds the live tests, optimized, since the guest runs them many times slower than this machine, and says how to run
/// them.
pub(crate) fn jobs() -> Result<Vec<Job>> {
    // The daemons, which the tests expect beside them.
    build(&[&["build", "--release"], &object::HOST_CRATES[..]].concat())?;
    let built = build(&[&["test", "--release", "--no-run"], &object::HOST_CRATES[..]].concat())?;
    let jobs: Vec<_> = built
        .into_iter()
        .filter(|built| built.kind == "test" && built.name.starts_with(PREFIX))
        .map(|built| Job {
            words: vec![
                built.executable.to_string_lossy().into_owned(),
                // They share the machine.
                "--test-threads=1".to_owned(),
            ],
            folder: built.folder,
        })
        .collect();
    if jobs.is_empty() {
        bail!("the workspace has no integration test named {PREFIX}*");
    }
    Ok(jobs)
}

/// Builds the program that reports the verifier's figures.
pub(crate) fn verifier() -> Result<PathBuf> {
    build(&["build", "--release", "--package", VERIFIER])?
        .into_iter()
        .find(|built| built.kind == "bin" && built.name == VERIFIER)
        .map(|built| built.executable)
        .with_context(|| format!("cargo built no program {VERIFIER}"))
}

fn build(arguments: &[&str]) -> Result<Vec<Built>> {
    process::step(format_args!("cargo {}", arguments.join(" ")));
    let mut cargo = object::host_cargo();
    cargo
        .args(arguments)
        .args(["--quiet", "--message-format", "json-render-diagnostics"])
        .stderr(std::process::Stdio::inherit());
    let text = process::output(&mut cargo)?;
    Ok(programs(&text))
}

/// The programs in cargo's messages.
fn programs(text: &str) -> Vec<Built> {
    text.lines()
        .filter_map(|line| serde_json::from_str::<Message>(line).ok())
        .filter_map(|message| {
            let target = message.target?;
            let folder = message.manifest_path?.parent().map(Path::to_owned)?;
            Some(Built {
                name: target.name,
                kind: target.kind.into_iter().next()?,
                executable: message.executable?,
                folder,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_among_cargos_messages() {
        let text = r#"{"reason":"compiler-artifact","package_id":"x","manifest_path":"/w/a/Cargo.toml","target":{"kind":["test"],"name":"live_network","src_path":"x"},"executable":"/t/live_network-1"}
{"reason":"compiler-artifact","package_id":"x","manifest_path":"/w/a/Cargo.toml","target":{"kind":["lib"],"name":"a","src_path":"x"},"executable":null}
{"reason":"build-finished","success":true}
"#;
        let built = programs(text);
        assert_eq!(built.len(), 1);
        assert_eq!(built[0].name, "live_network");
        assert_eq!(built[0].kind, "test");
        assert_eq!(built[0].folder, Path::new("/w/a"));
    }
}
