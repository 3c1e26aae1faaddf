//! Sends raw frames out of an interface: `AF_PACKET`. A socket belongs to the namespace in which it was made, and may
//! be used from any thread.

use std::{
    io,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
};

use anyhow::{Context as _, Result};
use mind_dataplane::attach;

/// A socket that sends frames out of one interface and receives nothing.
#[derive(Debug)]
pub struct Raw {
    fd: OwnedFd,
}

impl Raw {
    /// For `interface`, in the calling thread's namespace.
    ///
    /// # Errors
    ///
    /// When there is no such interface, or the process may not.
    pub fn open(interface: &str) -> Result<Self> {
        let index = attach::index_of(interface)?;
        let what = || format!("cannot make a packet socket for {interface}");
        // SAFETY: a plain system call. Protocol 0: no frame is received.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error()).with_context(what);
        }
        // SAFETY: it was just opened, and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: any bytes are such an address.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as libc::c_ushort;
        address.sll_ifindex = index.cast_signed();
        // SAFETY: the address lives through the call and is as long as said.
        let bound = unsafe {
            libc::bind(
                fd.as_raw_fd(),
                (&raw const address).cast(),
                size_of_val(&address) as libc::socklen_t,
            )
        };
        if bound != 0 {
            return Err(io::Error::last_os_error()).with_context(what);
        }
        Ok(Self { fd })
    }

    /// Sends a frame; returns whether there was room for it.
    ///
    /// # Errors
    ///
    /// When the interface is gone or takes no such frame.
    pub fn send(&self, frame: &[u8]) -> io::Result<bool> {
        loop {
            match rustix::net::send(&self.fd, frame, rustix::net::SendFlags::empty()) {
                Ok(_) => return Ok(true),
                Err(rustix::io::Errno::NOBUFS | rustix::io::Errno::AGAIN) => return Ok(false),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}
