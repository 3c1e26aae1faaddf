//! Which files are traces: finds those of a program, or of several, in folders.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

/// The file with a program's mapping at its start, in the program's folder.
const INITIAL: &str = "initial-map.txt";

/// A trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// What it is of: its folder's name.
    pub program: String,
    /// Which run of it: the file's name without `.txt`; the number of threads, in published traces.
    pub run: String,
    /// The program's mapping at its start, if it is to be replayed first.
    pub initial: Option<PathBuf>,
    /// Its calls.
    pub file: PathBuf,
}

impl Source {
    fn new(file: &Path, initial: Option<PathBuf>) -> Self {
        let name = |part: Option<&std::ffi::OsStr>| {
            part.map_or_else(String::new, |part| part.to_string_lossy().into_owned())
        };
        Self {
            program: name(file.parent().and_then(Path::file_name)),
            run: name(file.file_stem()),
            initial,
            file: file.to_owned(),
        }
    }

    /// Program and run.
    pub fn name(&self) -> String {
        match self.program.as_str() {
            "" => self.run.clone(),
            program => format!("{program}/{}", self.run),
        }
    }
}

/// The traces that a path names: a file; those in a folder, each after the program's mapping at its start if the folder
/// has one; or those in the folders of a folder. By program, and by run as a number.
///
/// # Errors
///
/// A folder cannot be read, or has no trace.
pub fn find(path: &Path) -> Result<Vec<Source>> {
    // A folder may be given as `.`, which has no name, and a file without its folder.
    let whole =
        fs::canonicalize(path).with_context(|| format!("cannot read {}", path.display()))?;
    if !whole.is_dir() {
        let source = Source::new(&whole, None);
        return Ok(vec![Source {
            file: path.to_owned(),
            ..source
        }]);
    }
    let mut found = of_program(path, &whole)?;
    for (folder, name) in entries(path)? {
        if folder.is_dir() {
            found.extend(of_program(&folder, Path::new(&name))?);
        }
    }
    if found.is_empty() {
        bail!(
            "{} has no trace; expected `10.txt` and the like, in it or in its folders",
            path.display()
        );
    }
    found.sort_by_key(|source| {
        let number: Option<u64> = source.run.parse().ok();
        (source.program.clone(), number, source.run.clone())
    });
    Ok(found)
}

/// Paths and names of what is in a folder.
fn entries(folder: &Path) -> Result<Vec<(PathBuf, String)>> {
    let failed = || format!("cannot read {}", folder.display());
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).with_context(failed)? {
        let entry = entry.with_context(failed)?;
        entries.push((
            entry.path(),
            entry.file_name().to_string_lossy().into_owned(),
        ));
    }
    Ok(entries)
}

/// The traces in a folder, but for those of its folders; `named` is the folder, with the name that is the program's.
fn of_program(folder: &Path, named: &Path) -> Result<Vec<Source>> {
    let initial = Some(folder.join(INITIAL)).filter(|file| file.is_file());
    let program = named.file_name().unwrap_or_default().to_string_lossy();
    let mut found = Vec::new();
    for (file, name) in entries(folder)? {
        if file.is_file() && name.ends_with(".txt") && name != INITIAL {
            found.push(Source {
                program: program.clone().into_owned(),
                ..Source::new(&file, initial.clone())
            });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two programs, one with a mapping at its start.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("README.md", "traces"),
            ("b/initial-map.txt", ""),
            ("b/20.txt", ""),
            ("b/100.txt", ""),
            ("b/notes", ""),
            ("a/10.txt", ""),
        ] {
            let file = folder.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        fs::create_dir(folder.path().join("empty")).unwrap();
        folder
    }

    fn names(path: &Path) -> Vec<(String, bool)> {
        let sources = find(path).unwrap().into_iter();
        sources
            .map(|source| (source.name(), source.initial.is_some()))
            .collect()
    }

    #[test]
    fn folders_are_programs() {
        let folder = folder();
        let of_b = [("b/20".to_owned(), true), ("b/100".to_owned(), true)];
        assert_eq!(names(&folder.path().join("b")), of_b);
        let all = names(folder.path());
        assert_eq!(all[0], ("a/10".to_owned(), false));
        assert_eq!(all[1..], of_b);
    }

    #[test]
    fn a_file_is_replayed_alone() {
        let folder = folder();
        let file = folder.path().join("b/20.txt");
        assert_eq!(names(&file), [("b/20".to_owned(), false)]);
        let initial = folder.path().join("b/initial-map.txt");
        assert_eq!(names(&initial), [("b/initial-map".to_owned(), false)]);
    }

    #[test]
    fn a_path_without_traces_is_refused() {
        let folder = folder();
        let said = |path: &Path| find(path).unwrap_err().to_string();
        let empty = folder.path().join("empty");
        assert!(said(&empty).contains("has no trace"), "{}", said(&empty));
        let missing = folder.path().join("missing");
        let expected = format!("cannot read {}", missing.display());
        assert_eq!(said(&missing), expected);
    }
}
