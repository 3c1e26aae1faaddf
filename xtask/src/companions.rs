//! Programs of others that tests look at the system with, or run on it. What starts no daemon is installed as everything
//! else is; the rest is unpacked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::debian::{self, Need};
use crate::process;
use crate::setup;
use crate::workspace;

/// What is installed: it needs many libraries, and starts nothing.
const INSTALLED: &[Need] = &[
    Need::Tshark,
    Need::Scapy,
    Need::Sqlite,
    Need::RedisTools,
    Need::Libevent,
    Need::StressNg,
];

/// Debian's packages that are unpacked, as they would start daemons on the machine; each with the programs that tests
/// take from it.
const PACKAGES: &[(&str, &[&str])] = &[
    ("prometheus", &["prometheus", "promtool"]),
    ("memcached", &["memcached"]),
];

/// The variable that tells tests, and what runs programs on the system, the folder of the unpacked programs.
pub(crate) const VARIABLE: &str = "MIND_COMPANIONS";

/// Makes sure that all are there: unpacked, or on the machine. The folder of the unpacked ones.
pub(crate) fn ensure() -> Result<PathBuf> {
    setup::ensure_packages(INSTALLED)?;
    let root = workspace::target().join("companions");
    let programs = root.join("usr/bin");
    if missing(&programs).is_empty() {
        return Ok(programs);
    }
    let _lock = setup::lock()?;
    for package in missing(&programs) {
        unpack(package, &root)?;
    }
    if let [package, ..] = missing(&programs)[..] {
        bail!(
            "Debian's {package} was unpacked in {}, and its programs are not there",
            root.display()
        );
    }
    Ok(programs)
}

/// Whether Debian's Python, which the tests run, knows a module; another Python on the path may not.
pub(crate) fn has_module(name: &str) -> bool {
    // Looks for the module without loading it.
    let script = "import importlib.util as u, sys; sys.exit(u.find_spec(sys.argv[1]) is None)";
    let status = Command::new("/usr/bin/python3")
        .args(["-c", script, name])
        .stdin(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

/// Whether a program would find a library where Debian has them.
pub(crate) fn has_library(name: &str) -> bool {
    let folder = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    Path::new(&folder).join(name).exists()
}

/// The packages of which a program is neither in `folder` nor on the path.
fn missing(folder: &Path) -> Vec<&'static str> {
    let is_there = |name: &&str| folder.join(name).is_file() || process::program_exists(name);
    let lacks = |(package, programs): &(&'static str, &[&str])| {
        (!programs.iter().all(is_there)).then_some(*package)
    };
    PACKAGES.iter().filter_map(lacks).collect()
}

/// Downloads a package and unpacks it in `root`.
fn unpack(package: &str, root: &Path) -> Result<()> {
    if !process::program_exists("apt-get") || !process::program_exists("dpkg-deb") {
        bail!(
            "the tests need the programs of Debian's package {package}, and there is no apt-get to fetch them"
        );
    }
    let downloads = root.join("packages");
    fs::create_dir_all(&downloads)
        .with_context(|| format!("cannot create the folder {}", downloads.display()))?;
    process::step(format_args!(
        "downloading {package}, to be unpacked in {}",
        root.display()
    ));
    let download = || {
        // apt's own unprivileged user cannot write into a checkout in a user's home.
        let mut command = debian::apt_get();
        command
            .args(["-o", "APT::Sandbox::User=root", "download", package])
            .current_dir(&downloads);
        process::run_logged(&mut command, &workspace::log("apt-download"))
    };
    if download().is_err() {
        // The lists may be old or absent.
        process::run_logged(
            debian::apt_get().arg("update"),
            &workspace::log("apt-update"),
        )?;
        download().with_context(|| format!("cannot download {package}"))?;
    }
    let found = downloads
        .read_dir()
        .with_context(|| format!("cannot list {}", downloads.display()))?;
    for entry in found {
        let archive = entry.context("cannot list what was downloaded")?.path();
        process::run(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(root))?;
    }
    fs::remove_dir_all(&downloads).with_context(|| format!("cannot remove {}", downloads.display()))
}
