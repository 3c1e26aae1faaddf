//! `cargo xtask lint`: formatting of all crates, and clippy on the host crates, with the user's own toolchain; and that
//! bugs to be found are in no build that does not ask for them.

use anyhow::{Result, ensure};

use crate::{object, process, setup};

/// Runs `cargo xtask lint`.
pub(crate) fn run() -> Result<()> {
    process::run(process::host_cargo().args(["fmt", "--all", "--check"]))?;

    // Host crates may include the object, and building it denies the warnings that clippy cannot look for there.
    let tools = setup::ensure()?;
    object::build(&tools)?;

    process::run(
        object::host_cargo()
            .arg("clippy")
            .args(object::HOST_CRATES)
            .arg("--all-targets")
            .args(["--", "-D", "warnings"]),
    )?;

    // What only a build with the bugs has.
    process::run(
        object::host_cargo()
            .args(["clippy", "--package", "mind-mutants", "--all-targets"])
            .args(["--features", "mutants"])
            .args(["--", "-D", "warnings"]),
    )?;
    no_bugs()
}

/// Checks that a build of the whole workspace has none of the bugs of `mind_machines::mutant`.
fn no_bugs() -> Result<()> {
    let mut cargo = process::host_cargo();
    cargo.args(["tree", "--workspace", "--prefix", "none", "--format", "{f}"]);
    let features = process::run_for_stdout(&mut cargo)?;
    ensure!(
        !asks_for_bugs(&features),
        "the workspace is built with the feature \"mutants\", which puts bugs into the protocol: \
         `cargo tree --workspace --edges features --invert mind-machines` says which package asks for it; \
         only mind-mutants may, by a feature of its own"
    );
    Ok(())
}

/// Whether they are among the features of some package, one package a line.
fn asks_for_bugs(features: &str) -> bool {
    let mut packages = features.lines();
    packages.any(|line| line.split([',', ' ']).any(|feature| feature == "mutants"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_that_asks_for_bugs_is_seen() {
        assert!(!asks_for_bugs("blade,default\n\nstd\n"));
        assert!(asks_for_bugs("blade,default\n\nblade,mutants (*)\n"));
    }
}
