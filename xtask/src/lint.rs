//! `cargo xtask lint`: formatting of all crates, and clippy on the host crates, with the user's own toolchain.

use anyhow::Result;

use crate::object;
use crate::process;
use crate::setup;

/// Runs `cargo xtask lint`.
pub(crate) fn run() -> Result<()> {
    process::run(process::host_cargo().args(["fmt", "--all", "--check"]))?;

    // Host crates may include the object, and building it denies the warnings that clippy cannot look for there.
    let tools = setup::ensure()?;
    object::build(&tools)?;

    process::run(
        object::host_cargo()
            .args([
                "clippy",
                "--workspace",
                "--exclude",
                "mind-ebpf",
                "--all-targets",
            ])
            .args(["--", "-D", "warnings"]),
    )
}
