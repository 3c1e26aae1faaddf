//! A network namespace of this thread's own, with tap devices for ports: what a TC program sends
//! to a tap is read from its descriptor. All of it goes when the process ends.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _},
    os::{fd::AsRawFd as _, unix::fs::OpenOptionsExt as _},
};

use crate::attach;

/// A tap device.
pub struct Tap {
    /// Its interface's index.
    pub ifindex: u32,
    device: File,
}

/// Devices in a namespace of this thread only.
pub struct Network {
    /// The devices, in the order asked for.
    pub taps: Vec<Tap>,
}

const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
/// More than any frame.
const BUFFER: usize = 16 << 10;

impl Network {
    /// Moves this thread to a new network namespace, and makes `count` devices there.
    ///
    /// # Errors
    ///
    /// When the thread may not do that, or there is no `/dev/net/tun`.
    pub fn new(count: usize) -> io::Result<Self> {
        // SAFETY: no memory is involved; the thread has no sockets that the change would confuse.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let taps = (0..count).map(|number| Tap::new(&format!("port{number}")));
        Ok(Self {
            taps: taps.collect::<io::Result<_>>()?,
        })
    }
}

impl Tap {
    fn new(name: &str) -> io::Result<Self> {
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")?;
        let mut request = request(name);
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as i16;
        ioctl(device.as_raw_fd(), TUNSETIFF, &mut request)?;
        // SAFETY: a plain system call; the descriptor is closed below.
        let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0) };
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        request.ifr_ifru.ifru_flags = libc::IFF_UP as i16;
        let up = ioctl(socket, libc::SIOCSIFFLAGS, &mut request);
        // SAFETY: opened above, and used nowhere else.
        unsafe { libc::close(socket) };
        up?;
        let ifindex = attach::index_of(name).map_err(io::Error::other)?;
        Ok(Self { ifindex, device })
    }

    /// The frames sent to it since the last call, oldest first.
    pub fn sent(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        let mut buffer = vec![0; BUFFER];
        // Anything else but a frame means that there is none left.
        while let Ok(len @ 1..) = self.device.read(&mut buffer) {
            frames.push(buffer[..len].to_vec());
        }
        frames
    }
}

fn request(name: &str) -> libc::ifreq {
    // SAFETY: any bytes are a request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

fn ioctl(device: i32, number: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: both calls take an `ifreq`, which lives through the call.
    match unsafe { libc::ioctl(device, number, request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
