//! A program of ours that is run as its users run it: built optimized, with the daemons beside it, and then become, so
//! that signals are for the program, which cleans up.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use crate::object;
use crate::process;
use crate::setup;

/// What such programs run. They look for the daemons beside themselves.
const DAEMONS: [&str; 2] = ["mind-blade", "mind-ctl"];

/// Builds the program called `name`, of the package of that name, and becomes it. Does not return if all goes well.
pub(crate) fn become_program(name: &str, args: &[OsString]) -> Result<()> {
    let tools = setup::ensure()?;
    object::build(&tools)?;

    let mut cargo = object::host_cargo();
    cargo.args([
        "build",
        "--release",
        "--message-format=json-render-diagnostics",
    ]);
    for package in DAEMONS.into_iter().chain([name]) {
        cargo.args(["--package", package]);
    }
    let messages = process::run_for_stdout(cargo.stdin(Stdio::null()))?;
    let program = executable(&messages, name)
        .with_context(|| format!("cargo built {name} and does not say where it is"))?;
    Err(process::exec(Command::new(program).args(args)))
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
