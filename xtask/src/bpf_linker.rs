//! bpf-linker: the linker of the eBPF object, built from crates.io into this checkout.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::process;
use crate::workspace;

/// The version that this project builds with.
const VERSION: &str = "0.13.0";

/// Major number of the LLVM that it is built with. It reads the bitcode of this LLVM's and of older rustcs.
pub(crate) const LLVM: u32 = 22;

/// Names another installation of that LLVM, with headers.
const LLVM_PREFIX: &str = "LLVM_PREFIX";

/// The linker's path, whether it is there or not.
pub(crate) fn path() -> PathBuf {
    workspace::tools().join("bin").join("bpf-linker")
}

/// Whether the linker is there, has the right version and finds its LLVM.
pub(crate) fn is_installed() -> bool {
    process::output(Command::new(path()).arg("--version"))
        .is_ok_and(|text| is_wanted_version(&text))
}

fn is_wanted_version(text: &str) -> bool {
    text.split_whitespace().nth(1) == Some(VERSION)
}

/// The LLVM to build the linker with: `LLVM_PREFIX`, or Debian's.
pub(crate) fn llvm_prefix() -> PathBuf {
    std::env::var_os(LLVM_PREFIX).map_or_else(
        || PathBuf::from(format!("/usr/lib/llvm-{LLVM}")),
        PathBuf::from,
    )
}

/// Whether all of that LLVM is there which the linker's build needs.
pub(crate) fn has_llvm(prefix: &Path) -> bool {
    // Debian has Polly, to which LLVM's own libraries refer, in a package of its own.
    let polly = std::env::var_os(LLVM_PREFIX).is_some() || prefix.join("lib/libPolly.a").is_file();
    polly && prefix.join("bin/llvm-config").is_file()
}

/// Builds and installs the linker with the user's own cargo.
pub(crate) fn install() -> Result<()> {
    process::step(format_args!(
        "building bpf-linker {VERSION}, about a minute"
    ));
    let mut command = process::host_cargo();
    command
        .args(["install", "bpf-linker", "--locked", "--force"])
        .args(["--version", VERSION])
        .args(["--no-default-features", "--features"])
        .arg(format!("llvm-{LLVM}"))
        .arg("--root")
        .arg(workspace::tools())
        .arg("--target-dir")
        .arg(workspace::target().join("tools-build"))
        .env(LLVM_PREFIX, llvm_prefix());
    process::run_logged(&mut command, &workspace::log("bpf-linker")).with_context(|| {
        format!(
            "cannot build bpf-linker {VERSION} with the LLVM in {} (set {LLVM_PREFIX} to use another LLVM {LLVM})",
            llvm_prefix().display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_wanted_version_of_the_linker_counts() {
        assert!(is_wanted_version("bpf-linker 0.13.0\n"));
        assert!(!is_wanted_version("bpf-linker 0.12.0\n"));
        assert!(!is_wanted_version("bpf-linker 0.13.01\n"));
        assert!(!is_wanted_version(""));
    }
}
