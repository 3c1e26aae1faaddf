//! Memory with a name.

use std::{
    ffi::{c_char, c_int, c_void},
    ptr,
};

use crate::{
    attach::{Mind, process},
    boundary::{call, text},
    choices,
};

/// Opens memory by its name in the domain, at the same address for every process, on every blade. What is new is zeroed.
///
/// `name`: a string in UTF-8, at most 255 bytes. `length`: bytes, rounded up to whole pages of 4096, if it is made; otherwise no
/// more than it has, or 0. `access`: one of enum mind_access; what the domain may do with it, if it is made. `open`: one
/// of enum mind_open. `whole`: where its length in bytes is to be stored, which is what mind_unmap takes; may be NULL.
///
/// Returns the first address, or NULL with errno: EINVAL (an argument, or a `length` of more than it has), ENAMETOOLONG,
/// ENOENT, EEXIST (as `open` says), EFBIG, ENOMEM, EIO, ENOTCONN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mind_open_area(
    mind: *mut Mind,
    name: *const c_char,
    length: usize,
    access: c_int,
    open: c_int,
    whole: *mut usize,
) -> *mut c_void {
    call(ptr::null_mut(), || {
        // SAFETY: the header asks for a string.
        let name = unsafe { text(name, "name") }?;
        let (access, open) = (choices::access(access)?, choices::open(open)?);
        let memory = process(mind)?.open_area(name, length as u64, access, open)?;
        if !whole.is_null() {
            // SAFETY: the header asks for a place to write to.
            unsafe { whole.write(memory.len()) };
        }
        Ok(memory.as_ptr().cast())
    })
}

/// Takes a name away (shm_unlink). The memory stays until it is unmapped by all who opened it. `name`: as of
/// mind_open_area.
///
/// Returns 0, or -1 with errno: EINVAL, ENAMETOOLONG, ENOENT, EIO, ENOTCONN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mind_unlink_area(mind: *mut Mind, name: *const c_char) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a string.
        let name = unsafe { text(name, "name") }?;
        process(mind)?.unlink_area(name)?;
        Ok(0)
    })
}
