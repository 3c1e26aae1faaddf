//! Traces of allocations as text, a line for a call: what a line may be, and how it is read and written.

use std::{
    fmt, fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    str::FromStr,
};

/// What a program may do with memory that it allocates, as traces write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// `--`: addresses are reserved (`PROT_NONE`).
    Reserved,
    /// `r-`.
    Read,
    /// `rw`.
    Write,
    /// `r-x`.
    Execute,
}

impl Permission {
    /// All, each with how traces write it.
    const NAMES: [(Self, &'static str); 4] = [
        (Self::Reserved, "--"),
        (Self::Read, "r-"),
        (Self::Write, "rw"),
        (Self::Execute, "r-x"),
    ];
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Self::NAMES.iter().find(|(known, _)| known == self);
        f.write_str(named.map_or("", |(_, name)| name))
    }
}

/// A call by which a program allocates memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `mmap`.
    Map {
        /// Bytes, at least 1.
        length: u64,
        /// Whether a file is mapped.
        is_file: bool,
        /// Where the program wants it; 0 for anywhere.
        hint: u64,
        /// What it may do with it.
        permission: Permission,
    },
    /// `brk`: the heap becomes longer.
    Grow {
        /// By how many bytes, at least 1.
        length: u64,
        /// What it may do with them.
        permission: Permission,
    },
}

impl Call {
    /// Bytes.
    pub const fn length(self) -> u64 {
        match self {
            Self::Map { length, .. } | Self::Grow { length, .. } => length,
        }
    }

    /// What the program may do with them.
    pub const fn permission(self) -> Permission {
        match self {
            Self::Map { permission, .. } | Self::Grow { permission, .. } => permission,
        }
    }

    /// Whether they are a file's.
    pub const fn is_file(self) -> bool {
        matches!(self, Self::Map { is_file: true, .. })
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Map {
                length,
                is_file,
                hint,
                permission,
            } => write!(
                f,
                "mmap {length} {} {hint:x} {permission}",
                u8::from(*is_file)
            ),
            Self::Grow { length, permission } => write!(f, "brk {length} {permission}"),
        }
    }
}

/// Why a line is no call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It has other words.
    #[error(
        "`{0}` is no call; expected `mmap LENGTH 0|1 HINT PERMISSION` or `brk LENGTH PERMISSION`"
    )]
    Call(String),
    /// Its length is none.
    #[error("`{0}` is no length; expected a number of bytes, at least 1, without a sign or unit")]
    Length(String),
    /// It does not say whether a file is mapped.
    #[error("`{0}` does not say whether a file is mapped; expected 1 for a file, 0 for none")]
    IsFile(String),
    /// Its address is none.
    #[error(
        "`{0}` is no address; expected up to 16 hexadecimal digits without `0x`, 0 for anywhere"
    )]
    Hint(String),
    /// Its permission is none.
    #[error("`{0}` is no permission; expected `r-`, `rw`, `r-x` or `--`")]
    Permission(String),
}

impl FromStr for Call {
    type Err = Malformed;

    fn from_str(line: &str) -> Result<Self, Malformed> {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        match words[..] {
            ["mmap", bytes, is_file, address, allowed] => Ok(Self::Map {
                length: length(bytes)?,
                is_file: match is_file {
                    "0" => false,
                    "1" => true,
                    _ => return Err(Malformed::IsFile(is_file.to_owned())),
                },
                hint: hint(address)?,
                permission: permission(allowed)?,
            }),
            ["brk", bytes, allowed] => Ok(Self::Grow {
                length: length(bytes)?,
                permission: permission(allowed)?,
            }),
            _ => Err(Malformed::Call(line.to_owned())),
        }
    }
}

fn length(text: &str) -> Result<u64, Malformed> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|number| is_number && *number > 0);
    number.ok_or_else(|| Malformed::Length(text.to_owned()))
}

fn hint(text: &str) -> Result<u64, Malformed> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u64::from_str_radix(text, 16).ok().filter(|_| is_number);
    number.ok_or_else(|| Malformed::Hint(text.to_owned()))
}

fn permission(text: &str) -> Result<Permission, Malformed> {
    let named = Permission::NAMES.iter().find(|(_, name)| *name == text);
    let named = named.map(|(permission, _)| *permission);
    named.ok_or_else(|| Malformed::Permission(text.to_owned()))
}

/// Why a file is no trace.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// It cannot be read.
    #[error("cannot read {}", file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A line of it is no call.
    #[error("{}:{line}", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// The line's number, from 1 on.
        line: usize,
        /// What is wrong with it.
        source: Malformed,
    },
}

/// Reads a file's calls. The call of line `n` is at `n - 1`.
///
/// # Errors
///
/// The file cannot be read, or a line is no call; empty lines are none.
pub fn read(file: &Path) -> Result<Vec<Call>, Unreadable> {
    let failed = |source| Unreadable::File {
        file: file.to_owned(),
        source,
    };
    let mut calls = Vec::new();
    for line in BufReader::new(fs::File::open(file).map_err(failed)?).lines() {
        let call = line.map_err(failed)?.parse();
        calls.push(call.map_err(|source| Unreadable::Line {
            file: file.to_owned(),
            line: calls.len() + 1,
            source,
        })?);
    }
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_say_what_they_say() {
        assert_eq!(
            "mmap 26376 1 7fad8c000000 r-".parse(),
            Ok(Call::Map {
                length: 26376,
                is_file: true,
                hint: 0x7fad_8c00_0000,
                permission: Permission::Read,
            })
        );
        assert_eq!(
            "brk 135168 rw".parse(),
            Ok(Call::Grow {
                length: 135_168,
                permission: Permission::Write,
            })
        );
    }

    #[test]
    fn what_is_malformed_is_named() {
        let fails = |line: &str| line.parse::<Call>().unwrap_err();
        for line in [
            "",
            " ",
            "mmap",
            "mmap 4096 0 0",
            "mmap 4096 0 0 rw x",
            "brk 4096",
            "brk 4096 0 0 rw",
            "munmap 4096",
            "# a comment",
        ] {
            assert_eq!(fails(line), Malformed::Call(line.to_owned()), "{line}");
        }
        for length in [
            "0",
            "-1",
            "+1",
            "4K",
            "0x1000",
            "1.5",
            "18446744073709551616",
        ] {
            let error = Malformed::Length(length.to_owned());
            assert_eq!(fails(&format!("brk {length} rw")), error);
            assert_eq!(fails(&format!("mmap {length} 0 0 rw")), error);
        }
        for is_file in ["2", "true", "01"] {
            let error = Malformed::IsFile(is_file.to_owned());
            assert_eq!(fails(&format!("mmap 1 {is_file} 0 rw")), error);
        }
        for hint in ["0x1", "-1", "+1", "g", "10000000000000000"] {
            let error = Malformed::Hint(hint.to_owned());
            assert_eq!(fails(&format!("mmap 1 0 {hint} rw")), error);
        }
        for permission in ["-", "r", "w", "RW", "rwx", "---"] {
            let error = Malformed::Permission(permission.to_owned());
            assert_eq!(fails(&format!("mmap 1 0 0 {permission}")), error);
            assert_eq!(fails(&format!("brk 1 {permission}")), error);
        }
    }

    #[test]
    fn an_error_names_file_and_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("10.txt");
        fs::write(&file, "brk 4096 rw\n\nbrk 4096 rw\n").unwrap();
        let error = anyhow::Error::from(read(&file).unwrap_err());
        let expected = format!("{}:2: `` is no call; expected", file.display());
        let said = format!("{error:#}");
        assert!(said.starts_with(&expected), "{said}");
        let missing = folder.path().join("20.txt");
        let said = read(&missing).unwrap_err().to_string();
        assert_eq!(said, format!("cannot read {}", missing.display()));
        fs::write(&file, b"brk 4096 rw\n\xff\n").unwrap();
        assert!(matches!(read(&file), Err(Unreadable::File { .. })));
    }

    fn any_permission() -> impl Strategy<Value = Permission> {
        prop::sample::select(Permission::NAMES.map(|(permission, _)| permission).to_vec())
    }

    fn any_call() -> impl Strategy<Value = Call> {
        let map = (1u64.., any::<bool>(), any::<u64>(), any_permission());
        let map = map.prop_map(|(length, is_file, hint, permission)| Call::Map {
            length,
            is_file,
            hint,
            permission,
        });
        let grow = (1u64.., any_permission())
            .prop_map(|(length, permission)| Call::Grow { length, permission });
        prop_oneof![map, grow]
    }

    proptest! {
        #[test]
        fn a_call_is_read_as_it_was_written(call in any_call()) {
            prop_assert_eq!(call.to_string().parse(), Ok(call));
        }

        #[test]
        fn any_line_is_a_call_or_an_error(line in "\\PC{0,60}") {
            let _ = line.parse::<Call>();
        }
    }
}
