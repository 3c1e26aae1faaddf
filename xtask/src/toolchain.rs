//! The Rust toolchain that compiles for the BPF target: which ones the machine has, and which of them will do. The
//! host crates do not care, they take the user's own.

use std::cmp::Reverse;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::bpf_linker;
use crate::process;

/// The nightly to name to people who have none: its LLVM is the one bpf-linker is built with.
pub(crate) const KNOWN_NIGHTLY: &str = "nightly-2026-05-19";

/// What `rustc -vV` says, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version {
    /// Major and minor number of the release.
    pub(crate) release: (u32, u32),
    /// Whether unstable features are on without `RUSTC_BOOTSTRAP`.
    pub(crate) nightly: bool,
    /// Major number of the LLVM inside, which bpf-linker's must reach.
    pub(crate) llvm: u32,
}

impl Version {
    /// Reads the output of `rustc -vV`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let field = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
                .with_context(|| format!("`rustc -vV` has no line `{name}:`"))
        };
        let release = field("release")?;
        let llvm = field("LLVM version")?;
        let (llvm_major, _) = llvm.split_once('.').unwrap_or((llvm, ""));
        Ok(Self {
            release: parse_release(release)?,
            nightly: release.contains("-nightly") || release.contains("-dev"),
            llvm: llvm_major
                .parse()
                .with_context(|| format!("`rustc -vV` has the odd LLVM version `{llvm}`"))?,
        })
    }
}

fn parse_release(text: &str) -> Result<(u32, u32)> {
    let mut numbers = text.split(['.', '-']).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor)),
        _ => anyhow::bail!("`{text}` is not a Rust release such as 1.95.0"),
    }
}

/// Who installed a toolchain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// rustup, under this name.
    Rustup(String),
    /// Debian's packages.
    Debian,
}

/// A toolchain that the machine has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Toolchain {
    pub(crate) origin: Origin,
    /// The folder of its `rustc` and `cargo`.
    pub(crate) bin: PathBuf,
    pub(crate) version: Version,
    /// Whether the source of the standard library is there, from which `core` is built for BPF.
    pub(crate) has_source: bool,
}

impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.version.release;
        match &self.origin {
            Origin::Rustup(name) => write!(f, "rustup's {name}")?,
            Origin::Debian => write!(f, "Debian's rustc")?,
        }
        write!(f, " ({major}.{minor}, LLVM {})", self.version.llvm)
    }
}

/// Why a toolchain will not do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// The workspace's `rust-version` is newer.
    TooOld,
    /// bpf-linker could not read its bitcode.
    LlvmTooNew,
    /// `core` cannot be built.
    NoSource,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooOld => write!(f, "older than Rust {}", env!("CARGO_PKG_RUST_VERSION")),
            Self::LlvmTooNew => write!(
                f,
                "its LLVM is newer than bpf-linker's, {}",
                bpf_linker::LLVM
            ),
            Self::NoSource => write!(f, "it lacks the library's source (rust-src)"),
        }
    }
}

impl Toolchain {
    /// Whether this toolchain can build the eBPF object.
    pub(crate) fn fitness(&self) -> Result<(), Unfit> {
        let wanted = parse_release(env!("CARGO_PKG_RUST_VERSION"))
            .expect("the workspace's rust-version is a release");
        if self.version.release < wanted {
            return Err(Unfit::TooOld);
        }
        if self.version.llvm > bpf_linker::LLVM {
            return Err(Unfit::LlvmTooNew);
        }
        if !self.has_source {
            return Err(Unfit::NoSource);
        }
        Ok(())
    }

    /// This toolchain's cargo, set up to call this toolchain's rustc and nothing of the user's own toolchain.
    pub(crate) fn cargo(&self) -> Result<Command> {
        let mut command = Command::new(self.bin.join("cargo"));
        process::forget_host_toolchain(&mut command);
        command
            .env("RUSTC", self.bin.join("rustc"))
            .env("PATH", process::path_with_first(&[&self.bin])?);
        if !self.version.nightly {
            command.env("RUSTC_BOOTSTRAP", "1");
        }
        Ok(command)
    }
}

/// The toolchain to use: the first that will do, so a nightly of rustup's before Debian's.
pub(crate) fn choose(found: &[Toolchain]) -> Option<&Toolchain> {
    found.iter().find(|toolchain| toolchain.fitness().is_ok())
}

/// The toolchains of the machine that come into question, in order of preference.
pub(crate) fn find() -> Vec<Toolchain> {
    let mut found = rustup_nightlies();
    if let Some(debian) = probe(Origin::Debian, Path::new("/usr")) {
        found.push(debian);
    }
    found
}

/// rustup's nightlies, the undated one first, then the newest. Looks at files only: asking rustup could install one.
fn rustup_nightlies() -> Vec<Toolchain> {
    let home = std::env::var_os("RUSTUP_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".rustup")));
    let Some(Ok(entries)) = home.map(|home| home.join("toolchains").read_dir()) else {
        return Vec::new();
    };
    let mut nightlies: Vec<(String, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
        .filter(|(name, _)| name.starts_with("nightly"))
        .collect();
    nightlies.sort_by_key(|(name, _)| (is_dated(name), Reverse(name.clone())));
    nightlies
        .into_iter()
        .filter_map(|(name, root)| probe(Origin::Rustup(name), &root))
        .collect()
}

/// Whether a nightly's name carries a date, as `nightly-2026-05-19-x86_64-unknown-linux-gnu` does.
fn is_dated(name: &str) -> bool {
    name.strip_prefix("nightly-")
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// The toolchain under the folder `root`, if there is one that runs.
fn probe(origin: Origin, root: &Path) -> Option<Toolchain> {
    let bin = root.join("bin");
    let rustc = bin.join("rustc");
    // Where rustup is Debian's package, this name leads to rustup, not to a compiler.
    let is_rustup = rustc.canonicalize().ok()?.ends_with("rustup");
    if is_rustup || !bin.join("cargo").is_file() {
        return None;
    }
    let mut command = Command::new(rustc);
    process::forget_host_toolchain(&mut command);
    let text = process::output(command.arg("-vV")).ok()?;
    Some(Toolchain {
        origin,
        bin,
        version: Version::parse(&text).ok()?,
        has_source: root
            .join("lib/rustlib/src/rust/library/core/Cargo.toml")
            .is_file(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NIGHTLY: &str = "rustc 1.97.0-nightly (e50aa6fba 2026-05-19)\nbinary: rustc\n\
        commit-hash: e50aa6fba4e63ab34c72bf9acfd2c307c1155d1a\ncommit-date: 2026-05-19\n\
        host: x86_64-unknown-linux-gnu\nrelease: 1.97.0-nightly\nLLVM version: 22.1.4\n";

    fn toolchain(origin: Origin, release: (u32, u32), llvm: u32, has_source: bool) -> Toolchain {
        Toolchain {
            bin: PathBuf::from("bin"),
            version: Version {
                release,
                nightly: origin != Origin::Debian,
                llvm,
            },
            origin,
            has_source,
        }
    }

    fn nightly(release: (u32, u32), llvm: u32, has_source: bool) -> Toolchain {
        toolchain(Origin::Rustup("nightly".into()), release, llvm, has_source)
    }

    fn debian() -> Toolchain {
        toolchain(Origin::Debian, (1, 96), 22, true)
    }

    #[test]
    fn the_version_of_a_nightly_is_read() {
        let version = Version::parse(NIGHTLY).unwrap();
        assert_eq!(
            version,
            Version {
                release: (1, 97),
                nightly: true,
                llvm: 22
            }
        );
    }

    #[test]
    fn the_version_of_a_release_without_rustup_is_read() {
        let text = "rustc 1.96.0 (built from a source tarball)\nbinary: rustc\nrelease: 1.96.0\nLLVM version: 22.1\n";
        let version = Version::parse(text).unwrap();
        assert_eq!((version.release, version.nightly), ((1, 96), false));
    }

    #[test]
    fn a_missing_or_odd_line_is_named() {
        let error = Version::parse("release: 1.96.0\n").unwrap_err();
        assert_eq!(error.to_string(), "`rustc -vV` has no line `LLVM version:`");
        let error = Version::parse("release: one\nLLVM version: 22\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "`one` is not a Rust release such as 1.95.0"
        );
        let error = Version::parse("release: 1.96.0\nLLVM version: new\n").unwrap_err();
        assert!(
            error.to_string().contains("odd LLVM version `new`"),
            "{error}"
        );
    }

    #[test]
    fn a_nightly_with_source_comes_before_debian() {
        let found = [nightly((1, 97), 22, true), debian()];
        assert_eq!(choose(&found), Some(&found[0]));
    }

    #[test]
    fn a_nightly_without_source_is_passed_over() {
        let found = [nightly((1, 97), 22, false), debian()];
        assert_eq!(found[0].fitness(), Err(Unfit::NoSource));
        assert_eq!(choose(&found), Some(&found[1]));
    }

    #[test]
    fn a_nightly_whose_llvm_the_linker_cannot_read_is_passed_over() {
        let found = [nightly((1, 99), bpf_linker::LLVM + 1, true), debian()];
        assert_eq!(found[0].fitness(), Err(Unfit::LlvmTooNew));
        assert_eq!(choose(&found), Some(&found[1]));
    }

    #[test]
    fn a_toolchain_older_than_the_workspace_wants_is_passed_over() {
        let old = toolchain(Origin::Debian, (1, 63), 14, true);
        assert_eq!(old.fitness(), Err(Unfit::TooOld));
        assert_eq!(choose(&[old]), None);
        assert_eq!(choose(&[]), None);
    }

    #[test]
    fn only_dated_nightlies_are_dated() {
        assert!(is_dated("nightly-2026-05-19-x86_64-unknown-linux-gnu"));
        assert!(!is_dated("nightly-x86_64-unknown-linux-gnu"));
        assert!(!is_dated("nightly"));
    }
}
