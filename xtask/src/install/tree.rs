//! Folders and files under a prefix. A file that is there is replaced at once, so that a program that runs, or has the
//! library mapped, keeps the old one.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::process;

/// Where things go.
pub(crate) struct Tree {
    /// Where they are used.
    prefix: PathBuf,
    /// The library's folder in the prefix.
    libdir: PathBuf,
    /// Where they are written to: the prefix, or in a folder that stands for the root.
    root: PathBuf,
}

impl Tree {
    /// With nothing in it yet.
    pub(crate) fn new(prefix: &Path, libdir: &Path, destdir: Option<&Path>) -> Result<Self> {
        let prefix = std::path::absolute(prefix)
            .with_context(|| format!("cannot tell where {} is", prefix.display()))?;
        for path in [&*prefix, libdir] {
            ensure!(
                can_be_said(path),
                "a program cannot be compiled with what is in {path:?}: pkg-config takes paths of letters, digits and \
                 the characters {PLAIN}"
            );
        }
        let names = |part| matches!(part, Component::Normal(_));
        ensure!(
            libdir.components().all(names),
            "the library's folder {} is not in the prefix; expected something like lib",
            libdir.display()
        );
        let root = match destdir {
            // Joining an absolute path would replace what is there.
            Some(folder) => folder.join(prefix.strip_prefix("/").unwrap_or(&prefix)),
            None => prefix.clone(),
        };
        Ok(Self {
            prefix,
            libdir: libdir.to_owned(),
            root,
        })
    }

    /// Where things will be used.
    pub(crate) fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// The library's folder in the prefix.
    pub(crate) fn libdir(&self) -> &Path {
        &self.libdir
    }

    /// Where things are, for people.
    pub(crate) fn shown(&self) -> impl std::fmt::Display + '_ {
        self.root.display()
    }

    /// A folder, which is made if it is not there.
    pub(crate) fn folder(&self, place: impl AsRef<Path>) -> Result<PathBuf> {
        let folder = self.root.join(place);
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create the folder {}", folder.display()))?;
        Ok(folder)
    }

    /// A file with the contents of another.
    pub(crate) fn copy(&self, from: &Path, place: impl AsRef<Path>, mode: u32) -> Result<()> {
        self.replace(place.as_ref(), |part| {
            fs::copy(from, part).with_context(|| format!("cannot copy {}", from.display()))?;
            set_mode(part, mode)
        })
    }

    /// A program or library with the contents of another, without what only debuggers and linkers of objects need. What
    /// it loads is not touched, so the eBPF object in it keeps its types.
    pub(crate) fn strip(&self, from: &Path, place: impl AsRef<Path>, mode: u32) -> Result<()> {
        self.replace(place.as_ref(), |part| {
            let mut strip = Command::new("strip");
            strip.args(["--strip-unneeded", "--remove-section=.comment", "-o"]);
            process::output(strip.arg(part).arg(from))?;
            set_mode(part, mode)
        })
    }

    /// A file with these contents.
    pub(crate) fn write(&self, bytes: &[u8], place: impl AsRef<Path>, mode: u32) -> Result<()> {
        self.replace(place.as_ref(), |part| {
            fs::write(part, bytes).with_context(|| format!("cannot write {}", part.display()))?;
            set_mode(part, mode)
        })
    }

    /// A link to a file in the same folder.
    pub(crate) fn link(&self, to: &str, place: impl AsRef<Path>) -> Result<()> {
        self.replace(place.as_ref(), |part| {
            symlink(to, part).with_context(|| format!("cannot link {}", part.display()))
        })
    }

    /// Has something made beside where it goes, and moves it there.
    fn replace(&self, place: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        let file = self.root.join(place);
        let name = file.file_name().context("a file without a name")?;
        let folder = self.folder(place.parent().unwrap_or(Path::new("")))?;
        let part = folder.join(format!(".{}.{}", name.display(), std::process::id()));
        // What a killed run left.
        let _ = fs::remove_file(&part);
        let made = make(&part).and_then(|()| {
            fs::rename(&part, &file).with_context(|| format!("cannot write {}", file.display()))
        });
        if made.is_err() {
            let _ = fs::remove_file(&part);
        }
        made
    }
}

fn set_mode(file: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(file, fs::Permissions::from_mode(mode))
        .with_context(|| format!("cannot set the mode of {}", file.display()))
}

/// What a path may have besides letters and digits.
const PLAIN: &str = "/._+-";

/// Whether a path needs no quotes, in pkg-config's files and in what it prints.
fn can_be_said(path: &Path) -> bool {
    let plain = |c: char| c.is_alphanumeric() || PLAIN.contains(c);
    path.to_str().is_some_and(|text| text.chars().all(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_can_stand_for_the_root() {
        let tree = Tree::new(
            Path::new("/usr"),
            Path::new("lib"),
            Some(Path::new("debian/tmp")),
        );
        let tree = tree.expect("these are plain");
        assert_eq!(tree.root, Path::new("debian/tmp/usr"));
        assert_eq!(tree.prefix(), Path::new("/usr"));
    }

    #[test]
    fn a_library_outside_of_the_prefix_is_refused() {
        for wrong in ["/usr/lib", "../lib"] {
            let result = Tree::new(Path::new("/usr"), Path::new(wrong), None);
            let error = result.err().expect(wrong).to_string();
            assert!(error.contains("not in the prefix"), "{error}");
        }
    }

    #[test]
    fn a_path_that_pkg_config_would_split_is_refused() {
        for wrong in ["/my programs", "/a$b", "/a\"b"] {
            let result = Tree::new(Path::new(wrong), Path::new("lib"), None);
            let error = result.err().expect(wrong).to_string();
            assert!(error.contains("pkg-config"), "{error}");
        }
    }
}
