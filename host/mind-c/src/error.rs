//! What can go wrong with a call, and how the calling thread is told: `errno`, and a text of its own.

use std::{
    cell::RefCell,
    error::Error as _,
    ffi::{CStr, CString, c_char, c_int},
};

/// A call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A null pointer.
    #[error("{0} is a null pointer")]
    Null(&'static str),
    /// Bytes that are no text.
    #[error("{0} is not UTF-8")]
    NotUtf8(&'static str),
    /// A name that cannot even be asked for.
    #[error("{what} has more than {most} bytes")]
    TooLong {
        /// What.
        what: &'static str,
        /// How many it may have.
        most: usize,
    },
    /// A number that stands for nothing.
    #[error("{value} is no value of {name}")]
    NoChoice {
        /// The `enum` in C.
        name: &'static str,
        /// The number.
        value: c_int,
    },
    /// A struct of an impossible size.
    #[error("the size of {name} is {size}; set it to sizeof ({name}), which is {expected} here")]
    Size {
        /// The struct in C.
        name: &'static str,
        /// Bytes, as it says.
        size: usize,
        /// Bytes, as this library knows it.
        expected: usize,
    },
    /// A struct with members that this library does not know, or that must be 0.
    #[error(
        "struct mind_options has choices that this library does not know: clear it with MIND_OPTIONS_INIT, or \
         install the version of libmind that the program was compiled with"
    )]
    UnknownOptions,
    /// A pointer that `mind_attach` has not returned.
    #[error("the struct mind is not the one that mind_attach returned in this process")]
    NoHandle,
    /// A second attempt.
    #[error("this process is attached already, or was: a process attaches once")]
    Attached,
    /// What the library for Rust says.
    #[error(transparent)]
    Client(#[from] mind_client::Error),
    /// Something panicked.
    #[error("libmind has a bug; it is described on the standard error output")]
    Bug,
}

impl Error {
    fn errno(&self) -> c_int {
        match self {
            Self::Null(_)
            | Self::NotUtf8(_)
            | Self::NoChoice { .. }
            | Self::Size { .. }
            | Self::NoHandle => libc::EINVAL,
            Self::UnknownOptions => libc::E2BIG,
            Self::TooLong { .. } => libc::ENAMETOOLONG,
            Self::Attached => libc::EBUSY,
            Self::Client(error) => error.errno(),
            Self::Bug => libc::EIO,
        }
    }

    /// The message, with all causes that it does not name itself.
    fn text(&self) -> String {
        let mut text = self.to_string();
        let mut source = self.source();
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            if !text.ends_with(&cause_text) {
                text.push_str(": ");
                text.push_str(&cause_text);
            }
            source = cause.source();
        }
        text
    }

    /// Tells the calling thread.
    pub(crate) fn tell(&self) {
        let bytes = self.text().replace('\0', " ").into_bytes();
        // A thread that is ending has no text any more; it still has `errno`.
        let _ = LAST.try_with(|last| {
            if let Ok(text) = CString::new(bytes) {
                last.replace(Some(text));
            }
        });
        // SAFETY: the address is that of the calling thread's own `errno`.
        unsafe { *libc::__errno_location() = self.errno() };
    }
}

thread_local! {
    static LAST: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Says in English what was wrong with the calling thread's last call that failed: the object, what was tried, what to
/// do about it. "" when none has failed. Never NULL. The text is valid until the thread's next call that fails, or its
/// end.
#[unsafe(no_mangle)]
pub extern "C" fn mind_error() -> *const c_char {
    const NOTHING: &CStr = c"";
    LAST.try_with(|last| {
        last.borrow()
            .as_ref()
            .map_or(NOTHING.as_ptr(), |text| text.as_ptr())
    })
    .unwrap_or(NOTHING.as_ptr())
}
