//! Memory without a name, and what can be done with all memory.

use std::{
    ffi::{c_int, c_void},
    ptr,
};

use mind_client::Memory;

use crate::{
    attach::{Mind, process},
    boundary::call,
    choices,
};

/// Where an address is, as the library for Rust says it. Pointers are never followed here.
fn va(address: *const c_void) -> u64 {
    address.addr() as u64
}

/// Allocates zeroed memory, as mmap does. Every process of the domain can use it, on every blade, at the same address.
///
/// `length`: bytes, rounded up to whole pages of 4096. `access`: one of enum mind_access; what the domain may do with it.
///
/// Returns the first address, or NULL with errno: EINVAL (an argument, or no length), EFBIG (more than a memory blade
/// can have), ENOMEM (more than there is), EIO, ENOTCONN.
#[unsafe(no_mangle)]
pub extern "C" fn mind_map(mind: *mut Mind, length: usize, access: c_int) -> *mut c_void {
    call(ptr::null_mut(), || {
        let access = choices::access(access)?;
        let memory = process(mind)?.map(length as u64, access)?;
        Ok(memory.as_ptr().cast())
    })
}

/// Frees memory that mind_map or mind_open_area returned, whole, for every process of the domain. An area is freed when
/// it has been unmapped as often as it was opened, and its name was taken away.
///
/// `address`, `length`: as they were returned and asked for.
///
/// Returns 0, or -1 with errno: EINVAL (that is no such memory), EIO, ENOTCONN.
#[unsafe(no_mangle)]
pub extern "C" fn mind_unmap(mind: *mut Mind, address: *mut c_void, length: usize) -> c_int {
    call(-1, || {
        process(mind)?.unmap(Memory::at(va(address), length as u64))?;
        Ok(0)
    })
}

/// Changes what the domain may do with whole pages of its memory. Returns when it is so on every blade.
///
/// `address`: that of a page. `length`: bytes, rounded up to whole pages. `access`: one of enum mind_access.
///
/// Returns 0, or -1 with errno: EINVAL (an argument, or not the address of a page), ENOMEM (something of the range is
/// not the domain's), EIO, ENOTCONN.
#[unsafe(no_mangle)]
pub extern "C" fn mind_protect(
    mind: *mut Mind,
    address: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    call(-1, || {
        let access = choices::access(access)?;
        process(mind)?.protect(Memory::at(va(address), length as u64), access)?;
        Ok(0)
    })
}

/// Waits until memory has what the domain's programs on this blade wrote to a range before (msync with MS_SYNC). From
/// then on it outlives the blade.
///
/// `length`: bytes.
///
/// Returns 0, or -1 with errno: EINVAL (an argument, or the range is not in the window), EIO (something could not be
/// written back, and is lost), ENOTCONN.
#[unsafe(no_mangle)]
pub extern "C" fn mind_sync(mind: *mut Mind, address: *const c_void, length: usize) -> c_int {
    call(-1, || {
        process(mind)?.sync(Memory::at(va(address), length as u64))?;
        Ok(0)
    })
}
