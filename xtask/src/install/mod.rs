//! `cargo xtask install`: puts programs, the library for C and what belongs to them where a distribution would.
//!
//! * [`tree`]: folders and files under a prefix,
//! * [`library`]: the library, its header, what pkg-config says of it,
//! * [`services`]: what runs the daemons as services, and their configuration files.

pub(crate) mod library;
pub(crate) mod services;
pub(crate) mod tree;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::{build, process, workspace};
use tree::Tree;

/// The programs. Each prints its own manual pages and completions.
pub(crate) const PROGRAMS: [&str; 5] = [
    "mind",
    "mind-blade",
    "mind-controller",
    "mind-ctl",
    "netns-setup",
];

/// Shells, each with where the completions for a program go: a folder, and what comes before and after its name.
const SHELLS: [(&str, &str, [&str; 2]); 3] = [
    ("bash", "share/bash-completion/completions", ["", ""]),
    ("fish", "share/fish/vendor_completions.d", ["", ".fish"]),
    ("zsh", "share/zsh/site-functions", ["_", ""]),
];

/// The folder of what one reads.
pub(crate) const DOCUMENTATION: &str = "share/doc/mind";

/// What one reads, from the checkout.
const DOCUMENTS: [&str; 6] = [
    "README.md",
    "CHANGELOG.md",
    "docs/src/guarantees.md",
    "host/mind-c/examples/counter.c",
    "LICENSE-APACHE",
    "LICENSE-MIT",
];

/// What `cargo xtask install` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder in which everything is used: `bin`, `lib`, `include` and `share` are in it.
    #[arg(long, value_name = "FOLDER", default_value = "/usr/local")]
    prefix: PathBuf,
    /// Where the library goes, in the prefix: `lib/x86_64-linux-gnu`, say.
    #[arg(long, value_name = "FOLDER", default_value = "lib")]
    libdir: PathBuf,
    /// For makers of packages: write to this folder, as if it were the root.
    #[arg(long, value_name = "FOLDER")]
    destdir: Option<PathBuf>,
    #[command(flatten)]
    source: Source,
}

/// Where what is installed comes from.
#[derive(clap::Args)]
pub(crate) struct Source {
    /// Build nothing; take what is built in this folder, such as `target/release`.
    #[arg(long, value_name = "FOLDER")]
    built: Option<PathBuf>,
    /// Keep what debuggers need in programs and library, which are some times as large with it.
    #[arg(long)]
    no_strip: bool,
}

impl Source {
    /// Whether programs keep their symbols.
    pub(crate) fn keeps_symbols(&self) -> bool {
        self.no_strip
    }

    /// The folder of what is built, which is built if it has to be.
    pub(crate) fn folder(&self) -> Result<PathBuf> {
        if let Some(folder) = &self.built {
            return Ok(folder.clone());
        }
        build::release()?;
        Ok(workspace::target().join("release"))
    }
}

/// Runs `cargo xtask install`.
pub(crate) fn run(args: &Args) -> Result<()> {
    let tree = Tree::new(&args.prefix, &args.libdir, args.destdir.as_deref())?;
    let built = args.source.folder()?;
    populate(&tree, &built, args.source.keeps_symbols())?;
    for daemon in services::DAEMONS {
        let place = format!("{DOCUMENTATION}/examples/{}.toml", daemon.name);
        tree.write(daemon.example(&built)?.as_bytes(), place, 0o644)?;
    }
    process::step(format_args!("installed in {}", tree.shown()));
    Ok(())
}

/// Puts all that is neither configuration nor an example of one into the tree.
pub(crate) fn populate(tree: &Tree, built: &Path, keeps_symbols: bool) -> Result<()> {
    for name in PROGRAMS {
        program(tree, built, name, keeps_symbols)?;
    }
    library::install(tree, built, keeps_symbols)?;
    services::install(tree)?;
    for document in DOCUMENTS {
        let file = Path::new(document)
            .file_name()
            .context("a document without a name")?;
        let folder = Path::new(DOCUMENTATION);
        tree.copy(&workspace::root().join(document), folder.join(file), 0o644)?;
    }
    Ok(())
}

/// A program, its manual pages and its completions.
fn program(tree: &Tree, built: &Path, name: &str, keeps_symbols: bool) -> Result<()> {
    let file = need(built, name)?;
    let place = Path::new("bin").join(name);
    match keeps_symbols {
        true => tree.copy(&file, place, 0o755)?,
        false => tree.strip(&file, place, 0o755)?,
    }
    let pages = tree.folder("share/man/man1")?;
    process::output(Command::new(&file).arg("man").arg(pages))?;
    for (shell, folder, [before, after]) in SHELLS {
        let text = process::output(Command::new(&file).args(["completions", shell]))?;
        let place = format!("{folder}/{before}{name}{after}");
        tree.write(text.as_bytes(), place, 0o644)?;
    }
    Ok(())
}

/// The file called `name` among what was built.
fn need(built: &Path, name: &str) -> Result<PathBuf> {
    let file = built.join(name);
    ensure!(
        file.is_file(),
        "{name} is not in {}: build it with `cargo xtask build`, with `--release` for an optimized one",
        built.display()
    );
    // Without a slash it would be looked for on the path.
    std::path::absolute(&file).with_context(|| format!("cannot tell where {} is", file.display()))
}
