//! Errors as Linux names them: a program gets the number that it would get from a local `mmap`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Linux's name of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(
    clippy::upper_case_acronyms,
    reason = "these are the names that errno(3) and every program use"
)]
pub enum Errno {
    /// No such area.
    ENOENT,
    /// No such process or domain.
    ESRCH,
    /// A blade failed to carry out a command.
    EIO,
    /// As many programs are attached as a blade's agent takes: try again when one has ended.
    EAGAIN,
    /// No memory blade has that much left, or the range is not mapped (as of `mprotect`).
    ENOMEM,
    /// The area's owner does not allow it.
    EACCES,
    /// Nothing is mapped there.
    EFAULT,
    /// The region is being changed: try again.
    EBUSY,
    /// The area is there already.
    EEXIST,
    /// No such blade.
    ENODEV,
    /// An invalid length or address.
    EINVAL,
    /// Longer than a memory blade's part of the address space.
    EFBIG,
    /// All blade numbers are in use.
    ENOSPC,
    /// A name that is too long.
    ENAMETOOLONG,
    /// The other side does not know this message.
    ENOSYS,
    /// The other side speaks another version.
    EPROTO,
}

impl Errno {
    /// The number that Linux gives it on x86-64 and most others.
    pub const fn number(self) -> i32 {
        match self {
            Self::ENOENT => 2,
            Self::ESRCH => 3,
            Self::EIO => 5,
            Self::EAGAIN => 11,
            Self::ENOMEM => 12,
            Self::EACCES => 13,
            Self::EFAULT => 14,
            Self::EBUSY => 16,
            Self::EEXIST => 17,
            Self::ENODEV => 19,
            Self::EINVAL => 22,
            Self::EFBIG => 27,
            Self::ENOSPC => 28,
            Self::ENAMETOOLONG => 36,
            Self::ENOSYS => 38,
            Self::EPROTO => 71,
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A refusal: Linux's name for it, and what exactly is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[error("{message} ({errno})")]
pub struct Failure {
    /// For programs.
    pub errno: Errno,
    /// For people: the object, what was expected.
    pub message: String,
}

impl Failure {
    /// A refusal with this message.
    pub fn new(errno: Errno, message: impl Into<String>) -> Self {
        Self {
            errno,
            message: message.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_travel_by_name() {
        let failure = Failure::new(Errno::ENOMEM, "no memory blade has 2 MiB left");
        let text = serde_json::to_string(&failure).unwrap();
        assert_eq!(
            text,
            r#"{"errno":"ENOMEM","message":"no memory blade has 2 MiB left"}"#
        );
        assert_eq!(serde_json::from_str::<Failure>(&text).unwrap(), failure);
        assert_eq!(
            failure.to_string(),
            "no memory blade has 2 MiB left (ENOMEM)"
        );
        assert_eq!(failure.errno.number(), 12);
    }
}
