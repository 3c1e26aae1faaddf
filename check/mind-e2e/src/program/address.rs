//! Access to addresses of which nothing is known.

use std::{
    io, mem, ptr,
    sync::atomic::{AtomicBool, Ordering},
};

/// The word at an address, whatever is there.
pub fn peek(va: u64) -> u64 {
    // SAFETY: none. That this may be a signal is what the test is about.
    unsafe { ptr::with_exposed_provenance::<u64>(va as usize).read_volatile() }
}

/// Writes to an address, whatever is there.
pub fn poke(va: u64) {
    // SAFETY: none. That this may be a signal is what the test is about.
    unsafe { ptr::with_exposed_provenance_mut::<u64>(va as usize).write_volatile(1) }
}

/// Writes to an address as often as it is denied, and reports the first denial, and that it was written.
///
/// # Errors
///
/// When the signal cannot be caught.
pub fn insist(va: u64) -> io::Result<()> {
    // SAFETY: all zeros is such an action.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = denied as extern "C" fn(i32) as usize;
    // SAFETY: the handler calls nothing that a signal's handler must not call.
    if unsafe { libc::sigaction(libc::SIGSEGV, &action, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    poke(va);
    println!("written");
    Ok(())
}

/// The access is made again when this returns.
extern "C" fn denied(_: i32) {
    static IS_REPORTED: AtomicBool = AtomicBool::new(false);
    const LINE: &[u8] = b"denied\n";
    if !IS_REPORTED.swap(true, Ordering::Relaxed) {
        // SAFETY: writes bytes that are there. What came before is written already, a line each.
        unsafe { libc::write(libc::STDOUT_FILENO, LINE.as_ptr().cast(), LINE.len()) };
    }
}
