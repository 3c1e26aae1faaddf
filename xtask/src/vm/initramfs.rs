//! The guest's initramfs: busybox, the modules without which the host's root cannot be mounted, and the two scripts.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use super::kernel::Kernel;
use crate::process;

/// The modules that mount the root and talk to the host. What they depend on comes along; what the kernel has built in
/// is left out.
const MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_console",
    "virtio_rng",
    "9pnet_virtio",
    "9p",
    "overlay",
];

/// Empty folders that `init` mounts on.
const FOLDERS: &[&str] = &[
    "bin", "modules", "proc", "sys", "dev", "lower", "upper", "root",
];

/// Where in the initramfs the script for the mounted root lies.
pub(crate) const STAGE2: &str = "stage2";

/// The scripts that run in the guest.
pub(crate) struct Scripts {
    /// Run by the kernel, in busybox's shell.
    pub(crate) init: String,
    /// Run in the mounted root, in its shell.
    pub(crate) stage2: String,
}

/// Writes the initramfs of `kernel` to the file `archive`, using the folder `scratch`.
pub(crate) fn write(
    kernel: &Kernel,
    scripts: &Scripts,
    scratch: &Path,
    archive: &Path,
) -> Result<()> {
    let root = scratch.join("initramfs");
    for folder in FOLDERS {
        let folder = root.join(folder);
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create the folder {}", folder.display()))?;
    }
    let busybox = busybox()?;
    fs::copy(&busybox, root.join("bin/busybox"))
        .with_context(|| format!("cannot copy {}", busybox.display()))?;
    symlink("busybox", root.join("bin/sh")).context("cannot link busybox as sh")?;
    unpack_modules(kernel, &root.join("modules"))?;
    write_script(&root.join("init"), &scripts.init)?;
    write_script(&root.join(STAGE2), &scripts.stage2)?;
    pack(&root, archive)
}

fn write_script(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("cannot make {} executable", path.display()))
}

/// A busybox that runs where there is no library.
pub(crate) fn busybox() -> Result<PathBuf> {
    const PLACES: &[&str] = &["/bin/busybox", "/usr/bin/busybox"];
    PLACES
        .iter()
        .map(PathBuf::from)
        .find(|path| fs::read(path).is_ok_and(|elf| is_static(&elf)))
        .with_context(|| format!("no statically linked busybox at {}", PLACES.join(" or ")))
}

/// Whether a program names no dynamic linker.
fn is_static(elf: &[u8]) -> bool {
    const LINKER: &[u8] = b"/ld-linux";
    elf.starts_with(b"\x7fELF") && !elf.windows(LINKER.len()).any(|bytes| bytes == LINKER)
}

/// Unpacks the modules into `folder`, with names that sort in the order of loading.
fn unpack_modules(kernel: &Kernel, folder: &Path) -> Result<()> {
    let path = kernel.modules.join("modules.dep");
    let dependencies =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    // Debian's kernels since 7.x do not list what is built in.
    let builtin = fs::read_to_string(kernel.modules.join("modules.builtin")).ok();
    for (number, module) in load_order(&dependencies, builtin.as_deref(), MODULES)?
        .into_iter()
        .enumerate()
    {
        let source = kernel.modules.join(&module);
        let target = folder.join(format!("{number:02}-{}.ko", name_of(&module)));
        unpack(&source, &target)?;
    }
    Ok(())
}

/// The modules to load, in order, so that `wanted` are there: paths as in `modules.dep`. Without a list of those that
/// are built in, one that is not found counts as built in.
fn load_order(dependencies: &str, builtin: Option<&str>, wanted: &[&str]) -> Result<Vec<String>> {
    let mut order: Vec<String> = Vec::new();
    for name in wanted {
        let line = dependencies.lines().find_map(|line| {
            let (path, needed) = line.split_once(':')?;
            (name_of(path) == *name).then_some((path, needed))
        });
        match line {
            // modules.dep lists what must be loaded first last.
            Some((path, needed)) => {
                let needed = needed.split_whitespace().rev();
                for module in needed.chain(std::iter::once(path)) {
                    if !order.iter().any(|known| known == module) {
                        order.push(module.to_owned());
                    }
                }
            }
            None if builtin
                .is_none_or(|builtin| builtin.lines().any(|path| name_of(path) == *name)) => {}
            None => bail!("the kernel has no module {name}, without which the guest has no root"),
        }
    }
    Ok(order)
}

/// A module's name, as `lsmod` says it.
fn name_of(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    let name = file.split(".ko").next().unwrap_or(file);
    name.replace('-', "_")
}

fn unpack(source: &Path, target: &Path) -> Result<()> {
    let unpacker = match source.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => {
            return fs::copy(source, target)
                .map(drop)
                .with_context(|| format!("cannot copy {}", source.display()));
        }
    };
    let file =
        File::create(target).with_context(|| format!("cannot write {}", target.display()))?;
    process::run(Command::new(unpacker).arg("-dc").arg(source).stdout(file))
        .with_context(|| format!("cannot unpack {}", source.display()))
}

/// Packs the folder `root` as the kernel wants it.
fn pack(root: &Path, archive: &Path) -> Result<()> {
    let file =
        File::create(archive).with_context(|| format!("cannot write {}", archive.display()))?;
    let mut find = Command::new("find")
        .args([".", "-print0"])
        .current_dir(root)
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start `find`")?;
    let names = find.stdout.take().context("`find` has no output")?;
    process::run(
        Command::new("cpio")
            .args([
                "--create",
                "--null",
                "--quiet",
                "--format=newc",
                "--owner=0:0",
            ])
            .current_dir(root)
            .stdin(names)
            .stdout(file),
    )?;
    let status = find.wait().context("cannot wait for `find`")?;
    if !status.success() {
        bail!("`find` in {} failed: {status}", root.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEPENDENCIES: &str = "kernel/fs/9p/9p.ko.xz: kernel/net/9p/9pnet.ko.xz kernel/fs/netfs/netfs.ko.xz\n\
        kernel/net/9p/9pnet.ko.xz:\n\
        kernel/fs/netfs/netfs.ko.xz:\n\
        kernel/net/9p/9pnet_virtio.ko.xz: kernel/net/9p/9pnet.ko.xz kernel/drivers/virtio/virtio_ring.ko.xz kernel/drivers/virtio/virtio.ko.xz\n\
        kernel/fs/overlayfs/overlay.ko.xz:\n";

    #[test]
    fn what_a_module_needs_is_loaded_before_it_and_once() {
        let order = load_order(DEPENDENCIES, Some(""), &["9pnet_virtio", "9p"]).unwrap();
        let names: Vec<_> = order.iter().map(|path| name_of(path)).collect();
        assert_eq!(
            names,
            [
                "virtio",
                "virtio_ring",
                "9pnet",
                "9pnet_virtio",
                "netfs",
                "9p"
            ]
        );
    }

    #[test]
    fn a_module_that_is_built_in_is_left_out_and_one_that_is_nowhere_is_named() {
        let builtin = Some("kernel/drivers/virtio/virtio-pci.ko\n");
        let order = load_order(DEPENDENCIES, builtin, &["virtio_pci", "overlay"]).unwrap();
        assert_eq!(order, ["kernel/fs/overlayfs/overlay.ko.xz"]);
        let order = load_order(DEPENDENCIES, None, &["virtio_pci", "overlay"]).unwrap();
        assert_eq!(order, ["kernel/fs/overlayfs/overlay.ko.xz"]);
        let error = load_order(DEPENDENCIES, builtin, &["virtio_rng"]).unwrap_err();
        assert!(
            error.to_string().contains("no module virtio_rng"),
            "{error}"
        );
    }

    #[test]
    fn a_busybox_that_names_a_dynamic_linker_will_not_do() {
        assert!(is_static(b"\x7fELF and so on"));
        assert!(!is_static(b"\x7fELF /lib64/ld-linux-x86-64.so.2"));
        assert!(!is_static(b"#!/bin/sh"));
    }

    #[test]
    fn the_initramfs_holds_busybox_the_modules_and_both_scripts() {
        let Ok(_) = busybox() else {
            eprintln!("skipped: no static busybox here; `cargo xtask vm` installs it");
            return;
        };
        let scratch = std::env::temp_dir().join(format!("xtask-initramfs-{}", std::process::id()));
        let modules = scratch.join("modules");
        fs::create_dir_all(&modules).unwrap();
        let mut dependencies = String::new();
        for name in MODULES {
            fs::write(modules.join(format!("{name}.ko")), name).unwrap();
            dependencies.push_str(&format!("{name}.ko:\n"));
        }
        fs::write(modules.join("modules.dep"), dependencies).unwrap();
        let kernel = Kernel {
            release: "6.12.0".into(),
            image: PathBuf::new(),
            modules,
        };
        let scripts = Scripts {
            init: "one".into(),
            stage2: "two".into(),
        };
        let archive = scratch.join("initramfs.cpio");
        write(&kernel, &scripts, &scratch, &archive).unwrap();
        let listing = Command::new("cpio")
            .args(["--list", "--quiet"])
            .stdin(File::open(&archive).unwrap())
            .output()
            .unwrap();
        let listing = String::from_utf8(listing.stdout).unwrap();
        let mut names: Vec<_> = listing.lines().filter(|name| *name != ".").collect();
        names.sort_unstable();
        let mut expected: Vec<String> = FOLDERS.iter().map(|name| (*name).to_owned()).collect();
        expected.extend(["bin/busybox", "bin/sh", "init", STAGE2].map(str::to_owned));
        expected.extend(
            MODULES
                .iter()
                .enumerate()
                .map(|(number, name)| format!("modules/{number:02}-{name}.ko")),
        );
        expected.sort_unstable();
        assert_eq!(names, expected);
        fs::remove_dir_all(&scratch).unwrap();
    }
}
