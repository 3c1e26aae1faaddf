//! `cargo xtask package`: makes a Debian package of what `cargo xtask install` would install, with the configuration
//! files in `/etc/mind`.
//!
//! * [`control`]: what dpkg is told of the package.

mod control;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::install::{self, Source, services, tree::Tree};
use crate::{process, workspace};

/// The folder of the configuration files, as in `mind-cli`.
const CONFIGURATION: &str = "etc/mind";

/// Documents that Debian wants under another name, or once for all packages.
const NOT_FOR_DEBIAN: [&str; 3] = ["CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"];

/// What `cargo xtask package` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,
    /// The folder in which the package is made.
    #[arg(long, value_name = "FOLDER", default_value_os_t = workspace::target().join("package"))]
    output: PathBuf,
    /// The package's version: that of the sources, and behind the dash that of the packaging.
    #[arg(long, value_name = "VERSION", default_value = concat!(env!("CARGO_PKG_VERSION"), "-1"))]
    package_version: String,
    /// Who to write to about the package: a name, and an address in angle brackets.
    #[arg(
        long,
        value_name = "NAME <ADDRESS>",
        default_value = "The MIND on eBPF authors <maintainers@mind.invalid>"
    )]
    maintainer: String,
    /// How dpkg-deb compresses it: xz, zstd, gzip, none.
    #[arg(long, value_name = "METHOD", default_value = "xz")]
    compression: String,
}

/// Runs `cargo xtask package`.
pub(crate) fn run(args: &Args) -> Result<()> {
    for program in ["dpkg-deb", "dpkg-architecture", "dpkg-shlibdeps"] {
        ensure!(
            process::program_exists(program),
            "a Debian package cannot be made here: there is no {program}; install Debian's dpkg-dev"
        );
    }
    let built = args.source.folder()?;
    let root = args.output.join("root");
    remove_folder(&root)?;
    let multiarch = process::output(Command::new("dpkg-architecture").arg("-qDEB_HOST_MULTIARCH"))?;
    let libdir = Path::new("lib").join(multiarch.trim());
    let tree = Tree::new(Path::new("/usr"), &libdir, Some(&root))?;
    install::populate(&tree, &built, args.source.keeps_symbols())?;
    compress_pages(&tree)?;
    let functions = tree.folder("share/zsh")?;
    fs::rename(
        functions.join("site-functions"),
        functions.join("vendor-completions"),
    )
    .context("cannot move the completions to where Debian's zsh looks for them")?;

    // Everything that is not under /usr.
    let whole = Tree::new(Path::new("/"), Path::new("lib"), Some(&root))?;
    let mut configuration = Vec::new();
    for daemon in services::DAEMONS {
        let place = format!("{CONFIGURATION}/{}.toml", daemon.name);
        whole.write(daemon.example(&built)?.as_bytes(), &place, 0o644)?;
        configuration.push(format!("/{place}"));
    }
    let time = time_of_sources()?;
    documents(&tree, args, time)?;
    let architecture = process::output(Command::new("dpkg-architecture").arg("-qDEB_HOST_ARCH"))?;
    let package = control::Package {
        version: &args.package_version,
        architecture: architecture.trim(),
        maintainer: &args.maintainer,
        configuration: &configuration,
    };
    package.write(&whole, &root, &args.output)?;
    set_modes(&root)?;

    let name = format!("mind_{}_{}.deb", package.version, package.architecture);
    let file = args.output.join(name);
    let mut build = Command::new("dpkg-deb");
    build
        .env("SOURCE_DATE_EPOCH", time.to_string())
        .args(["--root-owner-group", "--build"])
        .arg(format!("-Z{}", args.compression));
    process::output(build.arg(&root).arg(&file))?;
    remove_folder(&root)?;
    process::step(format_args!("the package is {}", file.display()));
    Ok(())
}

fn remove_folder(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// Compresses the manual pages, as Debian has them.
fn compress_pages(tree: &Tree) -> Result<()> {
    let folder = tree.folder("share/man/man1")?;
    let mut gzip = Command::new("gzip");
    gzip.args(["-9", "--no-name", "--force", "--recursive"]);
    process::output(gzip.arg(folder)).map(drop)
}

/// Has changelogs and copyright where Debian has them, and the example where it has examples.
fn documents(tree: &Tree, args: &Args, time: u64) -> Result<()> {
    let folder = tree.folder(install::DOCUMENTATION)?;
    for name in NOT_FOR_DEBIAN {
        let file = folder.join(name);
        fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
    }
    let place = |name: &str| Path::new(install::DOCUMENTATION).join(name);
    let own = workspace::root().join("contrib/debian/copyright");
    tree.copy(&own, place("copyright"), 0o644)?;
    let example = workspace::root().join("host/mind-c/examples/counter.c");
    tree.copy(&example, place("examples/counter.c"), 0o644)?;
    fs::remove_file(folder.join("counter.c")).context("cannot move the example for C")?;

    let upstream = workspace::root().join("CHANGELOG.md");
    tree.copy(&upstream, place("changelog"), 0o644)?;
    let mut date = Command::new("date");
    date.env("LC_ALL", "C").args(["--utc", "--rfc-email"]);
    let date = process::output(date.arg(format!("--date=@{time}")))?;
    let changes = format!(
        "mind ({}) unstable; urgency=medium\n\n  * Built from the sources of that version; what changed is in \
         changelog.gz.\n\n -- {}  {}\n",
        args.package_version,
        args.maintainer,
        date.trim()
    );
    tree.write(changes.as_bytes(), place("changelog.Debian"), 0o644)?;
    for name in ["changelog", "changelog.Debian"] {
        let mut gzip = Command::new("gzip");
        gzip.args(["-9", "--no-name", "--force"]);
        process::output(gzip.arg(folder.join(name)))?;
    }
    Ok(())
}

/// Seconds since 1970 that a package says it is from, so that the same sources make the same package: what the
/// environment says (reproducible-builds.org), or the last commit.
fn time_of_sources() -> Result<u64> {
    let text = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => {
            let mut git = Command::new("git");
            git.current_dir(workspace::root());
            match process::output(git.args(["log", "-1", "--format=%ct"])) {
                Ok(text) => text,
                Err(error) => {
                    bail!("cannot tell how old the sources are; set SOURCE_DATE_EPOCH: {error:#}")
                }
            }
        }
    };
    let text = text.trim();
    text.parse()
        .with_context(|| format!("SOURCE_DATE_EPOCH is {text}; expected seconds since 1970"))
}

/// Gives files and folders the modes that Debian wants, whatever the umask was.
fn set_modes(path: &Path) -> Result<()> {
    let shown = path.display();
    let metadata = path
        .symlink_metadata()
        .with_context(|| format!("cannot look at {shown}"))?;
    if metadata.is_symlink() {
        return Ok(());
    }
    let is_open = metadata.is_dir() || metadata.permissions().mode() & 0o100 != 0;
    let mode = if is_open { 0o755 } else { 0o644 };
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .with_context(|| format!("cannot set the mode of {shown}"))?;
    if metadata.is_dir() {
        let cannot = || format!("cannot list {shown}");
        for entry in fs::read_dir(path).with_context(cannot)? {
            set_modes(&entry.with_context(cannot)?.path())?;
        }
    }
    Ok(())
}
