//! What dpkg is told of the package: its control file, the scripts that it runs, its configuration files, checksums.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::install::{library, services, tree::Tree};
use crate::{process, workspace};

/// The folder, which dpkg-deb takes for no part of the package's files.
const FOLDER: &str = "DEBIAN";

/// The scripts.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// A new library must be found by the linker of programs.
const TRIGGERS: &str = "activate-noawait ldconfig\n";

/// A package.
pub(super) struct Package<'a> {
    /// Its version.
    pub(super) version: &'a str,
    /// Debian's name of the processor.
    pub(super) architecture: &'a str,
    /// Who to write to.
    pub(super) maintainer: &'a str,
    /// The files that are the operator's once they are there.
    pub(super) configuration: &'a [String],
}

impl Package<'_> {
    /// Writes all of it for the files in `root`, of which `tree` is the writer; `scratch` is a folder to work in.
    pub(super) fn write(&self, tree: &Tree, root: &Path, scratch: &Path) -> Result<()> {
        let files = files(root)?;
        let units: Vec<_> = services::DAEMONS
            .iter()
            .map(services::Daemon::unit)
            .collect();
        let control = template("control.in")?
            .replace("@VERSION@", self.version)
            .replace("@ARCHITECTURE@", self.architecture)
            .replace("@MAINTAINER@", self.maintainer)
            .replace("@INSTALLED_SIZE@", &kibibytes(root, &files)?.to_string())
            .replace("@DEPENDS@", &dependencies(root, &files, scratch)?);
        let sums = self.sums(root, &files)?;
        let place = |name: &str| Path::new(FOLDER).join(name);
        tree.write(control.as_bytes(), place("control"), 0o644)?;
        for script in SCRIPTS {
            let text = template(&format!("{script}.in"))?.replace("@UNITS@", &units.join(" "));
            tree.write(text.as_bytes(), place(script), 0o755)?;
        }
        let configuration = self.configuration.join("\n") + "\n";
        tree.write(configuration.as_bytes(), place("conffiles"), 0o644)?;
        tree.write(
            shared_libraries(self.version).as_bytes(),
            place("shlibs"),
            0o644,
        )?;
        tree.write(TRIGGERS.as_bytes(), place("triggers"), 0o644)?;
        tree.write(sums.as_bytes(), place("md5sums"), 0o644)
    }

    /// The checksums of all files besides those that the operator changes.
    fn sums(&self, root: &Path, files: &[PathBuf]) -> Result<String> {
        let is_fixed = |file: &&PathBuf| {
            let name = format!("/{}", file.display());
            !self.configuration.contains(&name) && !root.join(file).is_symlink()
        };
        let mut sum = Command::new("md5sum");
        sum.current_dir(root).args(files.iter().filter(is_fixed));
        process::output(&mut sum)
    }
}

/// A file of the packaging in the checkout.
fn template(name: &str) -> Result<String> {
    let path = workspace::root().join("contrib/debian").join(name);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// What a package of a program that is linked with the library depends on (deb-shlibs(5)).
fn shared_libraries(version: &str) -> String {
    let interface = library::SONAME.trim_start_matches("libmind.so.");
    let sources = version
        .rsplit_once('-')
        .map_or(version, |(sources, _)| sources);
    format!("libmind {interface} mind (>= {sources})\n")
}

/// All files in `root`, as paths in it, in order.
fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let cannot = || format!("cannot list {}", folder.display());
        for entry in fs::read_dir(&folder).with_context(cannot)? {
            let path = entry.with_context(cannot)?.path();
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            } else if let Ok(place) = path.strip_prefix(root) {
                found.push(place.to_owned());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The disk space that they take, as dpkg counts it.
fn kibibytes(root: &Path, files: &[PathBuf]) -> Result<u64> {
    let mut all = 0;
    for file in files {
        let path = root.join(file);
        let metadata = path
            .symlink_metadata()
            .with_context(|| format!("cannot look at {}", path.display()))?;
        all += metadata.size().div_ceil(1024).max(1);
    }
    Ok(all)
}

/// The packages of the libraries that programs and the library need.
fn dependencies(root: &Path, files: &[PathBuf], scratch: &Path) -> Result<String> {
    // It reads a source package's description, of which the names would do.
    let folder = scratch.join("debian");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let control = folder.join("control");
    fs::write(
        &control,
        "Source: mind\n\nPackage: mind\nArchitecture: any\n",
    )
    .with_context(|| format!("cannot write {}", control.display()))?;
    let is_linked = |file: &&PathBuf| {
        let is_library = file.to_string_lossy().contains("/libmind.so.");
        !root.join(file).is_symlink() && (is_library || file.starts_with("usr/bin"))
    };
    let linked = files.iter().filter(is_linked);
    let mut search = Command::new("dpkg-shlibdeps");
    search.current_dir(scratch).arg("-O");
    let root = std::path::absolute(root).context("cannot tell where the package's files are")?;
    let text = process::output(search.args(linked.map(|file| root.join(file))))?;
    fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    let depends = text
        .lines()
        .find_map(|line| line.strip_prefix("shlibs:Depends="));
    let depends =
        depends.context("dpkg-shlibdeps does not say which packages the programs need")?;
    Ok(depends.to_owned())
}
