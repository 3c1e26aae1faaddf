//! A connection between a program and the agent of its blade: a Unix socket of packets (`SOCK_SEQPACKET`), each packet
//! one message of [`mind_api::program`] in JSON, with at most one descriptor.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
        SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
        SocketType,
    },
};
use serde::{Serialize, de::DeserializeOwned};

/// Longest message in bytes.
const MAX_LENGTH: usize = 64 << 10;

/// Programs that may wait for the agent to accept them.
const BACKLOG: i32 = 128;

/// One end of a connection.
#[derive(Debug)]
pub struct Packets(OwnedFd);

impl Packets {
    /// Connects to the agent that listens at `path`.
    ///
    /// # Errors
    ///
    /// Those of `socket(2)` and `connect(2)`.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let fd = socket()?;
        rustix::net::connect(&fd, &SocketAddrUnix::new(path)?)?;
        Ok(Self(fd))
    }

    /// Sends a message, with a descriptor if there is one.
    ///
    /// # Errors
    ///
    /// Those of `sendmsg(2)`.
    pub fn send(&self, message: &impl Serialize, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        self.send_with(message, fd, SendFlags::empty())
    }

    /// Sends a message without a descriptor, if that needs no wait.
    ///
    /// # Errors
    ///
    /// Those of `sendmsg(2)`; `WouldBlock` when the other side has not read what was sent before.
    pub fn try_send(&self, message: &impl Serialize) -> io::Result<()> {
        self.send_with(message, None, SendFlags::DONTWAIT)
    }

    fn send_with(
        &self,
        message: &impl Serialize,
        fd: Option<BorrowedFd<'_>>,
        flags: SendFlags,
    ) -> io::Result<()> {
        let bytes = serde_json::to_vec(message)?;
        if bytes.len() > MAX_LENGTH {
            let text = format!("a message of {} bytes; at most {MAX_LENGTH}", bytes.len());
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds = fd.map(|fd| [fd]);
        if let Some(fds) = &fds {
            ancillary.push(SendAncillaryMessage::ScmRights(fds));
        }
        loop {
            // No SIGPIPE: the other side may close at any time.
            let sent = rustix::net::sendmsg(
                &self.0,
                &[IoSlice::new(&bytes)],
                &mut ancillary,
                SendFlags::NOSIGNAL | flags,
            );
            match sent {
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
                Ok(_) => return Ok(()),
            }
        }
    }

    /// Waits until there is something to receive, the end of the connection included; `false` when there is nothing
    /// within `limit`.
    ///
    /// # Errors
    ///
    /// Those of `poll(2)`.
    pub fn wait(&self, limit: Duration) -> io::Result<bool> {
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).map_err(|_| Errno::INVAL)?;
            match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&left)) {
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
                Ok(ready) => return Ok(ready > 0),
            }
        }
    }

    /// Waits for a message, and the descriptor that comes with it; `None` when the other side is
    /// gone.
    ///
    /// # Errors
    ///
    /// Those of `recvmsg(2)`; `InvalidData` for bytes that are not a message.
    pub fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Option<OwnedFd>)>> {
        let mut bytes = vec![0; MAX_LENGTH];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            match rustix::net::recvmsg(
                &self.0,
                &mut [IoSliceMut::new(&mut bytes)],
                &mut ancillary,
                RecvFlags::CMSG_CLOEXEC,
            ) {
                Err(Errno::INTR) => {}
                Err(Errno::CONNRESET) => return Ok(None),
                Err(errno) => return Err(errno.into()),
                Ok(received) => break received,
            }
        };
        let fd = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        if received.bytes == 0 {
            return Ok(None);
        }
        if received.flags.contains(ReturnFlags::TRUNC) {
            let text = format!("a message of more than {MAX_LENGTH} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(Some((
            serde_json::from_slice(&bytes[..received.bytes])?,
            fd,
        )))
    }

    /// The process at the other end.
    ///
    /// # Errors
    ///
    /// Those of `getsockopt(2)`.
    pub fn peer(&self) -> io::Result<i32> {
        let credentials = rustix::net::sockopt::socket_peercred(&self.0)?;
        Ok(credentials.pid.as_raw_nonzero().get())
    }

    /// Another handle of the same end.
    ///
    /// # Errors
    ///
    /// No descriptors are left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }
}

impl AsFd for Packets {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Accepts programs for an agent. Dropping it removes the socket's file.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    path: std::path::PathBuf,
}

impl Listener {
    /// Listens at `path`; replaces the socket that an earlier agent left there.
    ///
    /// # Errors
    ///
    /// Those of `socket(2)`, `bind(2)` and `listen(2)`; `AddrInUse` when an agent listens there.
    pub fn bind(path: &Path) -> io::Result<Self> {
        let fd = socket()?;
        let address = SocketAddrUnix::new(path)?;
        match rustix::net::bind(&fd, &address) {
            Err(Errno::ADDRINUSE) if Packets::connect(path).is_err() => {
                std::fs::remove_file(path)?;
                rustix::net::bind(&fd, &address)?;
            }
            result => result?,
        }
        rustix::net::listen(&fd, BACKLOG)?;
        Ok(Self {
            fd,
            path: path.to_owned(),
        })
    }

    /// Waits for a program.
    ///
    /// # Errors
    ///
    /// Those of `accept(2)`.
    pub fn accept(&self) -> io::Result<Packets> {
        loop {
            match rustix::net::accept_with(&self.fd, SocketFlags::CLOEXEC) {
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                result => return Ok(Packets(result?)),
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn socket() -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

#[cfg(test)]
mod tests {
    use mind_api::program::FromBlade;

    use super::*;

    #[test]
    fn a_message_brings_its_descriptor() {
        let folder = std::env::temp_dir().join(format!("mind-connection-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("socket");
        let listener = Listener::bind(&path).unwrap();
        let program = Packets::connect(&path).unwrap();
        let agent = listener.accept().unwrap();
        assert_eq!(agent.peer().unwrap(), std::process::id() as i32);

        let message = FromBlade::Memory {
            domain: 3,
            blade: 1,
        };
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        agent.send(&message, Some(file.as_fd())).unwrap();
        let (received, fd) = program.receive::<FromBlade>().unwrap().unwrap();
        assert_eq!(received, message);
        assert!(fd.is_some());

        agent.send(&FromBlade::Attached, None).unwrap();
        drop(agent);
        let (received, fd) = program.receive::<FromBlade>().unwrap().unwrap();
        assert_eq!((received, fd.is_none()), (FromBlade::Attached, true));
        assert!(program.receive::<FromBlade>().unwrap().is_none());
        let long = Duration::from_secs(60);
        assert!(
            program.wait(long).unwrap(),
            "the end is something to receive"
        );

        assert!(Listener::bind(&path).is_err(), "an agent listens there");
        drop(listener);
        assert!(!path.exists());
        std::fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn what_needs_no_wait_is_sent_until_the_other_side_has_to_read() {
        let (near, far) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let (near, far) = (Packets(near), Packets(far));
        assert!(!far.wait(Duration::ZERO).unwrap());
        let mut sent = 0;
        let error = loop {
            match near.try_send(&FromBlade::Attached) {
                Ok(()) => sent += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(sent > 0);
        for _ in 0..sent {
            assert!(far.wait(Duration::ZERO).unwrap());
            far.receive::<FromBlade>().unwrap().unwrap();
        }
        near.try_send(&FromBlade::Attached).unwrap();
    }
}
