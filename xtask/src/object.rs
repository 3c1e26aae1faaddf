//! The eBPF object: how it is built, where it lies, and how host code finds it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::process;
use crate::setup::Tools;
use crate::workspace;

/// Holds the object's path whenever xtask compiles or runs host code: `env!` it into `include_bytes!`, or read it at
/// run time.
pub(crate) const ENV: &str = "MIND_EBPF_OBJECT";

/// The crate, and the file.
const NAME: &str = "mind-ebpf";

const TARGET: &str = "bpfel-unknown-none";

/// Where the object lies once it is built.
pub(crate) fn path() -> PathBuf {
    workspace::target().join("bpf").join(NAME)
}

/// The user's cargo for the host crates, told where the object lies.
pub(crate) fn host_cargo() -> Command {
    let mut command = process::host_cargo();
    command.env(ENV, path());
    command
}

/// Builds the object if its sources have changed. Warnings are errors: the host's clippy never sees this crate.
pub(crate) fn build(tools: &Tools) -> Result<PathBuf> {
    // Cargo must not share this folder with host builds: it would lock one out while the other runs.
    let target_dir = workspace::target().join("bpf-build");
    let mut command = tools.toolchain.cargo()?;
    command
        .current_dir(workspace::root())
        .args(["build", "--locked", "--release"])
        .args(["--package", NAME, "--target", TARGET])
        .args(["-Z", "build-std=core"])
        .arg("--target-dir")
        .arg(&target_dir)
        .env("CARGO_ENCODED_RUSTFLAGS", rustflags(&tools.linker));
    process::run(&mut command)
        .with_context(|| format!("cannot build the eBPF object with {}", tools.toolchain))?;

    let built = target_dir.join(TARGET).join("release").join(NAME);
    let object = path();
    copy_if_changed(&built, &object)?;
    Ok(object)
}

/// The flags for the BPF target, as cargo takes them in `CARGO_ENCODED_RUSTFLAGS`.
fn rustflags(linker: &Path) -> String {
    [
        &format!("-Clinker={}", linker.display()),
        // Types for the kernel, without which BTF maps, timers and spin locks are refused.
        "-Clink-arg=--btf",
        // Atomics that return the old value.
        "-Ctarget-cpu=v3",
        // Headers lie unaligned in a packet. Without this they are read byte by byte; the kernel allows more wherever
        // the processor does, as x86-64 and arm64 do. Naming a feature drops the processor's own, so 32-bit
        // arithmetic is named as well.
        "-Clink-arg=--cpu-features=+alu32,+allows-misaligned-mem-access",
        "-Cdebuginfo=2",
        "-Dwarnings",
    ]
    .join("\x1f")
}

/// Copies so that an unchanged object keeps its time, and host crates that include it are not built again. Whoever
/// reads the object meanwhile sees all of the old or all of the new one.
fn copy_if_changed(from: &Path, to: &Path) -> Result<()> {
    let new = fs::read(from)
        .with_context(|| format!("cannot read the built object {}", from.display()))?;
    if fs::read(to).is_ok_and(|old| old == new) {
        return Ok(());
    }
    let folder = to.parent().context("the object's path has no folder")?;
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot create the folder {}", folder.display()))?;
    let part = folder.join(format!(".{NAME}.{}", std::process::id()));
    fs::write(&part, new).with_context(|| format!("cannot write {}", part.display()))?;
    fs::rename(&part, to)
        .with_context(|| format!("cannot move {} to {}", part.display(), to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_keep_a_linker_path_with_spaces_in_one_piece() {
        let flags = rustflags(Path::new("/with space/bpf-linker"));
        let flags: Vec<_> = flags.split('\x1f').collect();
        assert_eq!(flags[0], "-Clinker=/with space/bpf-linker");
        assert!(flags.contains(&"-Dwarnings"), "{flags:?}");
    }

    #[test]
    fn tests_are_told_where_the_object_is() {
        let path = std::env::var_os(ENV).map(PathBuf::from);
        let Some(path) = path else {
            eprintln!("skipped: {ENV} is not set; `cargo xtask test` sets it");
            return;
        };
        let object = fs::read(&path).expect("the object that xtask built is readable");
        assert!(
            object.starts_with(b"\x7fELF"),
            "{} is no ELF file",
            path.display()
        );
    }
}
