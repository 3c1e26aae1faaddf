//! Debian's packages: which ones stand for what a machine lacks, and how apt-get is called. Nothing here asks apt what
//! is installed, which would be slow; `setup` looks at files.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::process;
use crate::workspace;

/// Something that building or testing needs and that Debian's packages provide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// A Rust toolchain with the library's source, for the BPF target.
    BpfToolchain,
    /// The LLVM with which bpf-linker is built.
    Llvm,
    /// C and C++ compiler and linker.
    CCompiler,
    /// `pkg-config`, with which a test compiles a program in C as its user would.
    PkgConfig,
    /// `ip`, for the tests' network namespaces.
    Iproute2,
    /// `ethtool`, for the veth devices' offloads.
    Ethtool,
    /// `qemu-system-x86_64`, for virtual machines.
    Qemu,
    /// A busybox without libraries, for their initramfs.
    Busybox,
    /// `depmod`, for their modules; `modprobe` inside them.
    Kmod,
    /// `cpio`, to pack their initramfs.
    Cpio,
    /// `xz`, to unpack their modules.
    Xz,
    /// `tshark`, with which tests capture and read packets.
    Tshark,
    /// Scapy in Debian's Python, which reads them, too.
    Scapy,
    /// `sqlite3`, a program that tests run.
    Sqlite,
    /// `redis-cli`, and the server under another name.
    RedisTools,
    /// The library that memcached is linked with.
    Libevent,
    /// `stress-ng`.
    StressNg,
    /// `memtester`.
    Memtester,
    /// NumPy and pandas in Debian's Python.
    NumPy,
    /// scikit-learn in Debian's Python.
    Sklearn,
}

impl Need {
    /// The packages that provide it.
    pub(crate) fn packages(self) -> &'static [&'static str] {
        match self {
            Self::BpfToolchain => &["rustc-web", "cargo-web", "rust-web-src"],
            Self::Llvm => &["llvm-22-dev", "libpolly-22-dev"],
            Self::CCompiler => &["build-essential"],
            Self::PkgConfig => &["pkgconf"],
            Self::Iproute2 => &["iproute2"],
            Self::Ethtool => &["ethtool"],
            Self::Qemu => &["qemu-system-x86"],
            Self::Busybox => &["busybox-static"],
            Self::Kmod => &["kmod"],
            Self::Cpio => &["cpio"],
            Self::Xz => &["xz-utils"],
            Self::Tshark => &["tshark"],
            Self::Scapy => &["python3-scapy"],
            Self::Sqlite => &["sqlite3"],
            Self::RedisTools => &["redis-tools"],
            Self::Libevent => &["libevent-2.1-7"],
            Self::StressNg => &["stress-ng"],
            Self::Memtester => &["memtester"],
            Self::NumPy => &["python3-numpy", "python3-pandas"],
            Self::Sklearn => &["python3-sklearn"],
        }
    }

    /// What it is, for users of other distributions.
    pub(crate) fn description(self) -> &'static str {
        match self {
            Self::BpfToolchain => "a Rust toolchain with rust-src for the BPF target",
            Self::Llvm => "LLVM 22 with headers and Polly, to build bpf-linker",
            Self::CCompiler => "a C and C++ compiler (cc, c++)",
            Self::PkgConfig => "the program pkg-config",
            Self::Iproute2 => "the program ip (iproute2)",
            Self::Ethtool => "the program ethtool",
            Self::Qemu => "QEMU (qemu-system-x86_64)",
            Self::Busybox => "a statically linked busybox",
            Self::Kmod => "the programs depmod and modprobe (kmod)",
            Self::Cpio => "the program cpio",
            Self::Xz => "the program xz",
            Self::Tshark => "the program tshark (Wireshark), with dumpcap",
            Self::Scapy => "the Python module scapy for /usr/bin/python3",
            Self::Sqlite => "the program sqlite3",
            Self::RedisTools => {
                "the programs redis-cli and redis-check-rdb (which is the server as well)"
            }
            Self::Libevent => "libevent 2.1, for memcached",
            Self::StressNg => "the program stress-ng",
            Self::Memtester => "the program memtester",
            Self::NumPy => "the Python modules numpy and pandas for /usr/bin/python3",
            Self::Sklearn => "the Python module sklearn for /usr/bin/python3",
        }
    }
}

/// The arguments of the `apt-get` that installs all of `needs`. It removes nothing: another Rust of Debian's stays.
fn install_arguments(needs: &[Need]) -> Vec<&'static str> {
    ["install", "--yes", "--no-install-recommends", NO_REMOVE]
        .into_iter()
        .chain(
            needs
                .iter()
                .flat_map(|need| need.packages().iter().copied()),
        )
        .collect()
}

/// What to type to get all of `needs`.
pub(crate) fn install_command(needs: &[Need]) -> String {
    format!(
        "sudo apt-get update && sudo apt-get {}",
        install_arguments(needs).join(" ")
    )
}

/// Installs all of `needs`; needs root.
pub(crate) fn install(needs: &[Need]) -> Result<()> {
    let arguments = install_arguments(needs);
    process::step(format_args!("apt-get {}", arguments.join(" ")));
    // The lists may be old or absent. Where they cannot be fetched, what apt has at hand may still do.
    if let Err(error) = process::run_logged(apt_get().arg("update"), &workspace::log("apt-update"))
    {
        process::step(format_args!(
            "{error:#}; trying with the package lists that are here"
        ));
    }
    let result = process::run_logged(apt_get().args(&arguments), &workspace::log("apt-install"));
    let result = match result {
        Err(_) if needs.contains(&Need::Qemu) => replace_qemu(arguments),
        result => result,
    };
    result.with_context(|| {
        let names: Vec<_> = needs.iter().map(|need| need.description()).collect();
        format!("cannot install {}", names.join(", "))
    })
}

/// Parts of QEMU from another suite (the disk tools of backports, say) keep the one out that would be installed: they
/// are replaced, if nothing else is removed.
fn replace_qemu(mut arguments: Vec<&'static str>) -> Result<()> {
    arguments.retain(|argument| *argument != NO_REMOVE);
    let plan = process::output(apt_get().arg("--simulate").args(&arguments))?;
    let removed: Vec<_> = removed(&plan).collect();
    if let Some(other) = removed.iter().find(|name| !name.starts_with("qemu-")) {
        bail!("apt would remove {other} for it; install it by hand if that is right");
    }
    process::step(format_args!("replacing {}", removed.join(", ")));
    process::run_logged(apt_get().args(arguments), &workspace::log("apt-install"))
}

/// The packages that a simulated `apt-get install` would remove.
fn removed(plan: &str) -> impl Iterator<Item = &str> {
    plan.lines()
        .filter_map(|line| line.strip_prefix("Remv ")?.split_whitespace().next())
}

const NO_REMOVE: &str = "--no-remove";

pub(crate) fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command
        .env("DEBIAN_FRONTEND", "noninteractive")
        // Wait for another apt instead of giving up.
        .args(["-o", "DPkg::Lock::Timeout=600"]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_names_the_packages_of_every_need_in_order() {
        assert_eq!(
            install_command(&[Need::BpfToolchain, Need::Llvm, Need::Ethtool]),
            "sudo apt-get update && sudo apt-get install --yes --no-install-recommends --no-remove \
             rustc-web cargo-web rust-web-src llvm-22-dev libpolly-22-dev ethtool"
        );
    }

    #[test]
    fn what_apt_would_remove_is_read_from_its_plan() {
        let plan =
            "Reading package lists...\nRemv qemu-utils [1:10.0]\nInst cpio (2.13 Debian:12)\n";
        assert_eq!(removed(plan).collect::<Vec<_>>(), ["qemu-utils"]);
    }

    #[test]
    fn the_llvm_packages_are_those_that_the_linker_wants() {
        let version = crate::bpf_linker::LLVM.to_string();
        for package in Need::Llvm.packages() {
            assert!(
                package.contains(&version),
                "{package} is not LLVM {version}"
            );
        }
    }
}
