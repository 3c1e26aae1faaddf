//! The eBPF objects, the product's and that of benches and tests: how they are built, where they lie, and how host code
//! finds them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::process;
use crate::setup::Tools;
use crate::workspace;

/// An eBPF object.
pub(crate) struct Object {
    /// The crate, and the file.
    package: &'static str,
    /// Holds the object's path whenever xtask compiles or runs host code: `env!` it into `include_bytes!`, or read it at
    /// run time.
    pub(crate) env: &'static str,
}

/// What the product loads.
const PRODUCT: Object = Object {
    package: "mind-ebpf",
    env: "MIND_EBPF_OBJECT",
};

/// What benches and tests load beside it.
const HARNESS: Object = Object {
    package: "mind-ebpf-harness",
    env: "MIND_EBPF_HARNESS_OBJECT",
};

/// All objects.
pub(crate) const OBJECTS: [Object; 2] = [PRODUCT, HARNESS];

/// Arguments for cargo: all crates that are built for this machine.
pub(crate) const HOST_CRATES: [&str; 5] = [
    "--workspace",
    "--exclude",
    PRODUCT.package,
    "--exclude",
    HARNESS.package,
];

const TARGET: &str = "bpfel-unknown-none";

impl Object {
    /// Where it lies once it is built.
    pub(crate) fn path(&self) -> PathBuf {
        workspace::target().join("bpf").join(self.package)
    }
}

/// The user's cargo for the host crates, told where the objects lie.
pub(crate) fn host_cargo() -> Command {
    let mut command = process::host_cargo();
    command.envs(OBJECTS.map(|object| (object.env, object.path())));
    command
}

/// Builds the objects whose sources have changed; where the product's lies. Warnings are errors: the host's clippy never
/// sees these crates.
pub(crate) fn build(tools: &Tools) -> Result<PathBuf> {
    // Cargo must not share this folder with host builds: it would lock one out while the other runs.
    let target_dir = workspace::target().join("bpf-build");
    let mut command = tools.toolchain.cargo()?;
    command
        .current_dir(workspace::root())
        .args(["build", "--locked", "--release", "--target", TARGET])
        .args(["-Z", "build-std=core"])
        .arg("--target-dir")
        .arg(&target_dir)
        .env("CARGO_ENCODED_RUSTFLAGS", rustflags(&tools.linker));
    for object in OBJECTS {
        command.args(["--package", object.package]);
    }
    process::run(&mut command)
        .with_context(|| format!("cannot build the eBPF objects with {}", tools.toolchain))?;

    let built = target_dir.join(TARGET).join("release");
    for object in OBJECTS {
        copy_if_changed(&built.join(object.package), &object.path())?;
    }
    Ok(PRODUCT.path())
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
    let name = to.file_name().unwrap_or_default().display();
    let part = folder.join(format!(".{name}.{}", std::process::id()));
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
    fn tests_are_told_where_the_objects_are() {
        for Object { env, .. } in OBJECTS {
            let path = std::env::var_os(env).map(PathBuf::from);
            let Some(path) = path else {
                eprintln!("skipped: {env} is not set; `cargo xtask test` sets it");
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
}
