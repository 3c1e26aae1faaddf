//! `cargo xtask demo`: builds the daemons and the demo, optimized, and becomes the demo.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use crate::object;
use crate::process;
use crate::setup;

/// What the demo runs. The demo looks for the daemons beside itself.
const PACKAGES: [&str; 3] = ["mind-blade", "mind-ctl", "mind-demo"];

/// What `cargo xtask demo` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The demo's own arguments: `--graph FILE`, `--compute N` and so on; `--help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// Runs `cargo xtask demo`. Does not return if all goes well: signals are for the demo, which cleans up.
pub(crate) fn run(args: &Args) -> Result<()> {
    let tools = setup::ensure()?;
    object::build(&tools)?;

    let mut cargo = object::host_cargo();
    cargo.args([
        "build",
        "--release",
        "--message-format=json-render-diagnostics",
    ]);
    for package in PACKAGES {
        cargo.args(["--package", package]);
    }
    let messages = process::run_for_stdout(cargo.stdin(Stdio::null()))?;
    let program = executable(&messages, "mind-demo")
        .context("cargo built mind-demo and does not say where it is")?;
    Err(process::exec(Command::new(program).args(&args.args)))
}

/// Where the program called `name` is, from what cargo says about a build in JSON.
fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    messages.lines().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let path = PathBuf::from(message.get("executable")?.as_str()?);
        path.file_name()
            .is_some_and(|file| file == name)
            .then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executable_is_where_cargo_says() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","target":{"name":"anyhow"},"executable":null}"#,
            "\n",
            r#"{"reason":"compiler-artifact","executable":"/t/release/mind-ctl"}"#,
            "\nnot JSON\n",
            r#"{"reason":"compiler-artifact","executable":"/t/release/mind-demo"}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
        );
        assert_eq!(
            executable(messages, "mind-demo"),
            Some(PathBuf::from("/t/release/mind-demo"))
        );
        assert_eq!(executable(messages, "mind-blade"), None);
    }
}
