//! UDP checksums of the blades' sockets.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

/// Makes a UDP socket send checksums of 0, which RoCEv2 allows (`SO_NO_CHECK`, socket(7)). A checksum that is left to
/// the network card would pass the switch incomplete.
///
/// # Errors
///
/// The kernel's, when it refuses.
pub fn leave_out(socket: impl AsFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: SO_NO_CHECK reads an int from a pointer that is valid for its size.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NO_CHECK,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
