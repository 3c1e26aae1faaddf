//! Which library this is.

use std::ffi::{CStr, c_char};

/// `MAJOR.MINOR.PATCH`, and the 0 that ends it.
const VERSION: &CStr = {
    let bytes = concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes();
    match CStr::from_bytes_with_nul(bytes) {
        Ok(text) => text,
        Err(_) => panic!("a version has no zeros"),
    }
};

/// The version of the library that the program runs with, "MAJOR.MINOR.PATCH"; MIND_VERSION is that of the header that
/// it was compiled with. They have the same MAJOR.MINOR, which is part of the library's name (libmind.so.MAJOR.MINOR).
#[unsafe(no_mangle)]
pub extern "C" fn mind_version() -> *const c_char {
    VERSION.as_ptr()
}
