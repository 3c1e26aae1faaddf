//! Finds and reads `.litmus` files.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use crate::{
    parser::{self, ParseError},
    test::Test,
};

/// The longest file that is read, in bytes; what is longer is no litmus test.
pub const LONGEST: u64 = 1 << 20;

/// How deep folders are searched.
const DEEPEST: usize = 32;

/// Why a file or folder yields no test.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("cannot read `{}`", path.display())]
    Read {
        /// What.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Neither a file nor a folder, or one that is too long.
    #[error("`{}` is no litmus file; expected a file of at most {LONGEST} bytes, or a folder", path.display())]
    Kind {
        /// What.
        path: PathBuf,
    },
    /// A folder without tests.
    #[error("there are no files `*.litmus` in the folder `{}`", path.display())]
    Empty {
        /// The folder.
        path: PathBuf,
    },
    /// The text is no test.
    #[error("{}:{}:{}: {}", path.display(), error.line, error.column, error.problem)]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where and why.
        error: ParseError,
    },
}

impl FileError {
    /// The file or folder.
    pub fn path(&self) -> &Path {
        match self {
            Self::Read { path, .. }
            | Self::Kind { path }
            | Self::Empty { path }
            | Self::Parse { path, .. } => path,
        }
    }
}

/// Reads the test in a file.
///
/// # Errors
///
/// If it cannot be read, or is no litmus test.
pub fn load(path: &Path) -> Result<Test, FileError> {
    let read = |source| FileError::Read {
        path: path.to_owned(),
        source,
    };
    // Before it is opened: opening a pipe waits for a writer.
    if !fs::metadata(path).map_err(read)?.is_file() {
        return Err(FileError::Kind {
            path: path.to_owned(),
        });
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(read)?;
    file.take(LONGEST + 1)
        .read_to_end(&mut bytes)
        .map_err(read)?;
    if bytes.len() as u64 > LONGEST {
        return Err(FileError::Kind {
            path: path.to_owned(),
        });
    }
    parser::parse_bytes(&bytes).map_err(|error| FileError::Parse {
        path: path.to_owned(),
        error,
    })
}

/// The files that a path stands for: the file itself, or all `*.litmus` in the folder and those in
/// it, sorted.
///
/// # Errors
///
/// If it cannot be read, is something else, or has no such files.
pub fn find(path: &Path) -> Result<Vec<PathBuf>, FileError> {
    let metadata = fs::metadata(path).map_err(|source| FileError::Read {
        path: path.to_owned(),
        source,
    })?;
    if metadata.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let path = path.to_owned();
    if !metadata.is_dir() {
        return Err(FileError::Kind { path });
    }
    let mut files = Vec::new();
    search(&path, 0, &mut files)?;
    if files.is_empty() {
        return Err(FileError::Empty { path });
    }
    files.sort();
    Ok(files)
}

fn search(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), FileError> {
    let read = |source| FileError::Read {
        path: folder.to_owned(),
        source,
    };
    for entry in fs::read_dir(folder).map_err(read)? {
        let entry = entry.map_err(read)?;
        // Not that of what a symbolic link leads to: that may be where we come from.
        let kind = entry.file_type().map_err(read)?;
        let path = entry.path();
        if kind.is_dir() && depth < DEEPEST {
            search(&path, depth + 1, files)?;
        } else if path.extension().is_some_and(|of| of == "litmus") && !kind.is_dir() {
            files.push(path);
        }
    }
    Ok(())
}
