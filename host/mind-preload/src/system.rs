//! System calls on memory, past the functions that this library replaces. Addresses and lengths are in bytes; an error
//! is the kernel's number.

use std::ffi::{c_int, c_long};

/// What a call returns, or its error number.
pub(crate) type Result<T> = std::result::Result<T, c_int>;

/// The error number of the calling thread's last call that failed.
fn errno() -> c_int {
    std::io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}

/// What `syscall` returned, or the error.
fn outcome(value: c_long) -> Result<u64> {
    match value {
        -1 => Err(errno()),
        value => Ok(value as u64),
    }
}

/// `mmap`.
///
/// # Safety
///
/// As of the call: with MAP_FIXED it replaces what is there.
pub(crate) unsafe fn map(
    address: u64,
    length: u64,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> Result<u64> {
    // SAFETY: as the caller says.
    outcome(unsafe {
        libc::syscall(
            libc::SYS_mmap,
            address,
            length,
            protection,
            flags,
            file,
            offset,
        )
    })
}

/// Maps zeroed memory of this process's own, anywhere.
pub(crate) fn map_anywhere(length: u64) -> Result<u64> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: it replaces nothing.
    unsafe { map(0, length, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) }
}

/// `munmap`.
///
/// # Safety
///
/// Nothing there is used any more.
pub(crate) unsafe fn unmap(address: u64, length: u64) -> Result<()> {
    // SAFETY: as the caller says.
    outcome(unsafe { libc::syscall(libc::SYS_munmap, address, length) }).map(drop)
}

/// `mprotect`.
///
/// # Safety
///
/// As of the call.
pub(crate) unsafe fn protect(address: u64, length: u64, protection: c_int) -> Result<()> {
    // SAFETY: as the caller says.
    outcome(unsafe { libc::syscall(libc::SYS_mprotect, address, length, protection) }).map(drop)
}

/// `madvise`.
///
/// # Safety
///
/// As of the call.
pub(crate) unsafe fn advise(address: u64, length: u64, advice: c_int) -> Result<()> {
    // SAFETY: as the caller says.
    outcome(unsafe { libc::syscall(libc::SYS_madvise, address, length, advice) }).map(drop)
}

/// `mremap`, with all that it takes.
///
/// # Safety
///
/// As of the call.
pub(crate) unsafe fn remap(
    address: u64,
    length: u64,
    new_length: u64,
    flags: c_int,
    new_address: u64,
) -> Result<u64> {
    // SAFETY: as the caller says.
    outcome(unsafe {
        libc::syscall(
            libc::SYS_mremap,
            address,
            length,
            new_length,
            flags,
            new_address,
        )
    })
}

/// Any call on a range, by its number: `msync`, `mlock`, `munlock`, `mlock2`, `mincore`.
///
/// # Safety
///
/// As of the call.
pub(crate) unsafe fn on_range(
    call: c_long,
    address: u64,
    length: u64,
    argument: u64,
) -> Result<()> {
    // SAFETY: as the caller says.
    outcome(unsafe { libc::syscall(call, address, length, argument) }).map(drop)
}

/// Sets the calling thread's error number.
pub(crate) fn set_errno(number: c_int) {
    // SAFETY: the address is that of the calling thread's own.
    unsafe { *libc::__errno_location() = number };
}
