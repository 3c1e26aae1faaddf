//! Builds the daemons and a program that runs them, optimized, and becomes that program: the demo, a bench, the
//! controller.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use crate::object;
use crate::process;
use crate::setup;
use crate::workspace;

/// The daemons, and what asks the controller. Programs look for them beside themselves.
const PROGRAMS: [&str; 3] = ["mind-blade", "mind-controller", "mind-ctl"];

/// Builds the eBPF object, the [`PROGRAMS`], the packages `beside` and the package `name`, and becomes the last one's program,
/// with `args`. Does not return if all goes well: signals are for the program, which cleans up.
pub(crate) fn launch(name: &str, beside: &[&str], args: &[OsString]) -> Result<()> {
    launch_with(name, beside, args, &[])
}

/// As [`launch`], with variables of the environment for the program.
pub(crate) fn launch_with(
    name: &str,
    beside: &[&str],
    args: &[OsString],
    variables: &[(&str, &OsStr)],
) -> Result<()> {
    let tools = setup::ensure()?;
    object::build(&tools)?;

    let others = PROGRAMS.into_iter().filter(|program| *program != name);
    let packages: Vec<_> = others.chain(beside.iter().copied()).chain([name]).collect();
    let mut program = built(object::host_cargo(), &packages, &[], name)?;
    Err(process::exec(
        program.args(args).envs(variables.iter().copied()),
    ))
}

/// Builds the package `name`, which needs neither daemons nor the eBPF object, and becomes its program, with `args`.
/// Does not return if all goes well.
pub(crate) fn launch_alone(name: &str, args: &[OsString]) -> Result<()> {
    let mut program = built(object::host_cargo(), &[name], &[], name)?;
    Err(process::exec(program.args(args)))
}

/// Builds the package `name` with `feature`, which nothing else is to be built with, in a target folder of that name,
/// and becomes its program, with `args`. Does not return if all goes well.
pub(crate) fn launch_apart(name: &str, feature: &str, args: &[OsString]) -> Result<()> {
    let mut cargo = object::host_cargo();
    cargo.env("CARGO_TARGET_DIR", workspace::target().join(feature));
    let mut program = built(cargo, &[name], &["--features", feature], name)?;
    Err(process::exec(program.args(args)))
}

/// Builds `packages`, optimized. The program called `name`, which is one of theirs.
fn built(mut cargo: Command, packages: &[&str], options: &[&str], name: &str) -> Result<Command> {
    cargo.args([
        "build",
        "--release",
        "--message-format=json-render-diagnostics",
    ]);
    for package in packages {
        cargo.args(["--package", package]);
    }
    cargo.args(options);
    let messages = process::run_for_stdout(cargo.stdin(Stdio::null()))?;
    let program = executable(&messages, name)
        .with_context(|| format!("cargo built {name} and does not say where it is"))?;
    Ok(Command::new(program))
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
            r#"{"reason":"compiler-artifact","executable":"/t/release/mind-controller"}"#,
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
