//! Files that are opened for direct I/O. The kernel reads and writes memory then while the blade may be taking the page
//! away, unseen, and what is read would be lost. So files are opened without it: what is read and written is the same,
//! by way of the kernel's cache.

use std::ffi::c_int;

use crate::start;

/// The flags of `open` without direct I/O.
pub(crate) fn without(flags: c_int) -> c_int {
    match start::options() {
        Some(_) => flags & !libc::O_DIRECT,
        None => flags,
    }
}
