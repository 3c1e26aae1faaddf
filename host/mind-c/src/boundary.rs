//! What stands between C and Rust. Every function of the interface goes through [`call`], every pointer through the
//! functions below it.

use std::{
    ffi::{CStr, c_char},
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::error::Error;

/// Longest name in bytes that the blade is asked for; what it allows is less.
const LONGEST: usize = 4096;

/// Does what a function of the interface does. An error, or a panic, is told to the calling thread, and `failure` is
/// returned.
pub(crate) fn call<T>(failure: T, body: impl FnOnce() -> Result<T, Error>) -> T {
    // Nothing of Rust's that the body borrows is used after a panic.
    let error = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return value,
        Ok(Err(error)) => error,
        Err(_) => Error::Bug,
    };
    error.tell();
    failure
}

/// The text that `pointer` points to; `what` is its name in the header.
///
/// # Safety
///
/// `pointer` is null, or points to bytes that end with a 0 and do not change during the call.
pub(crate) unsafe fn text<'a>(
    pointer: *const c_char,
    what: &'static str,
) -> Result<&'a str, Error> {
    if pointer.is_null() {
        return Err(Error::Null(what));
    }
    // SAFETY: as the caller says.
    let text = unsafe { CStr::from_ptr(pointer) };
    if text.count_bytes() > LONGEST {
        return Err(Error::TooLong {
            what,
            most: LONGEST,
        });
    }
    text.to_str().map_err(|_| Error::NotUtf8(what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::mind_error;

    #[test]
    fn a_panic_is_an_error() {
        let result = call(-1, || panic!("it was to be expected"));
        assert_eq!(result, -1);
        let errno = std::io::Error::last_os_error().raw_os_error();
        assert_eq!(errno, Some(libc::EIO));
        // SAFETY: it is a text, and nothing fails on this thread meanwhile.
        let text = unsafe { CStr::from_ptr(mind_error()) };
        assert!(text.to_string_lossy().contains("bug"), "{text:?}");
    }
}
