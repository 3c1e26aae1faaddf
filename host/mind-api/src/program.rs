//! The messages between a program and the agent of its blade, over a Unix socket of packets
//! (`SOCK_SEQPACKET`): each packet is one message in JSON, with at most one descriptor.
//!
//! ```text
//! program                              agent
//!    | Attach { domain } ------------->  |  asks the controller, makes the domain's memory
//!    | <------ Memory { .. } + memfd     |
//!    |   maps it, registers it           |
//!    | Userfault + descriptor -------->  |  resolves its faults from now on
//!    | <------------------- Attached     |
//!    | Call { .. } ------------------->  |
//!    | <---------------- Answer { .. }   |
//!    | <------ Denied, Unreachable, ..   |  at any time
//!    | Detach ---------------------->    |  closes the connection
//! ```
//!
//! The agent learns the program's process id from the socket (`SO_PEERCRED`). The end of the
//! connection means that the agent is gone, and faults are not resolved any more.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
        SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
        SocketType,
    },
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    errno::Failure,
    message::{Access, OnLoss, Open},
};

/// The version of this protocol.
pub const VERSION: u32 = 2;

/// Longest message in bytes.
const MAX_LENGTH: usize = 64 << 10;

/// Programs that may wait for the agent to accept them.
const BACKLOG: i32 = 128;

/// From a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum ToBlade {
    /// First: to run in a protection domain.
    Attach {
        /// The version that it speaks.
        version: u32,
        /// The domain's name; made if there is none of that name.
        domain: String,
        /// What its readers are to see when writes are lost; `None`: what the domain has chosen.
        #[serde(default)]
        on_loss: Option<OnLoss>,
    },
    /// Instead, by an operator: the agent's counters. Answered by [`FromBlade::Report`]; may be
    /// repeated.
    Report,
    /// Second, with a userfaultfd: the window is mapped and registered.
    Userfault,
    /// After that: a call.
    Call {
        /// Chosen by the program; the answer carries it.
        id: u64,
        /// The call.
        call: Call,
    },
    /// Last, if the process goes on without the window, of which nothing may be mapped in it any
    /// more. Answered by the end of the connection. Without this, a process is a member until it
    /// ends.
    Detach,
}

/// A program's call to the system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub enum Call {
    /// Maps new zeroed memory.
    Map {
        /// Bytes, rounded up to whole pages.
        length: u64,
        /// What the domain may do with it.
        access: Access,
    },
    /// Unmaps a whole vma.
    Unmap {
        /// Where it begins.
        va: u64,
        /// Its length.
        length: u64,
    },
    /// Changes the permissions of whole pages.
    Protect {
        /// The first page.
        va: u64,
        /// Bytes, rounded up to whole pages.
        length: u64,
        /// What the domain may do with them from now on.
        access: Access,
    },
    /// Completes when all that this blade's programs wrote to a range is in memory (`msync` with
    /// `MS_SYNC`).
    Sync {
        /// Where it begins.
        va: u64,
        /// Its length.
        length: u64,
    },
    /// Opens an area of the domain by name, at the same address on every blade.
    OpenArea {
        /// The name, unique in the domain.
        name: String,
        /// Bytes, if it is made; otherwise at most the area's length. 0: the area's length.
        length: u64,
        /// What the domain may do with it, if it is made.
        access: Access,
        /// Whether it must be there.
        open: Open,
    },
    /// Removes the name of an area.
    UnlinkArea {
        /// The name.
        name: String,
    },
}

/// A range of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    /// Where it begins.
    pub va: u64,
    /// Bytes.
    pub length: u64,
}

/// Upper bounds of the buckets that faults are sorted into by how long they took, in nanoseconds: 1 us to 10 s.
pub const BUCKETS_NS: [u64; 43] = {
    const STEPS: [u64; 6] = [1_000, 1_500, 2_000, 3_000, 5_000, 7_000];
    let mut bounds = [0; 43];
    let (mut index, mut decade) = (0, 1);
    while index < bounds.len() {
        bounds[index] = STEPS[index % STEPS.len()] * decade;
        index += 1;
        if index % STEPS.len() == 0 {
            decade *= 10;
        }
    }
    bounds
};

/// Faults that caused one transition of the directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransitionReport {
    /// The transition, as `I->S`.
    pub transition: String,
    /// How many.
    pub count: u64,
    /// From the fault to the page, in nanoseconds: half of them took less.
    pub p50_ns: u64,
    /// 99 in 100 took less.
    pub p99_ns: u64,
    /// All of them together, in nanoseconds.
    #[serde(default)]
    pub sum_ns: u64,
    /// Those in each bucket of [`BUCKETS_NS`]: not above its bound, above the one before. Those above all bounds are in
    /// none.
    #[serde(default)]
    pub buckets: Vec<u64>,
}

macro_rules! report {
    ($($(#[doc = $help:literal])+ $name:ident: $_metric:literal;)+) => {
        /// What a compute blade's agent counted since it began, and its present state.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct BladeReport {
            /// Programs.
            pub programs: u64,
            /// Pages cached.
            pub pages: u64,
            /// Pages that may be cached.
            pub capacity: u64,
            $($(#[doc = $help])+ pub $name: u64,)+
            /// Datagrams that could not be parsed.
            pub malformed: u64,
            /// Datagrams that the kernel refused to send.
            pub unsent: u64,
            /// The smoothed round trip, in nanoseconds, once there is one.
            pub round_trip_ns: Option<u64>,
            /// Faults that took a request, by transition of the directory.
            pub transitions: Vec<TransitionReport>,
        }
    };
}

mind_common::blade_counters!(report);

/// From the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum FromBlade {
    /// What [`ToBlade::Report`] asks for.
    Report(Box<BladeReport>),
    /// With a memfd: the memory of the domain on this blade.
    Memory {
        /// The domain's number.
        domain: u32,
        /// The blade's number.
        blade: u8,
    },
    /// The program is attached and may use the window.
    Attached,
    /// The program is not attached.
    Refused(Failure),
    /// The answer to a call; a range, where the call makes one.
    Answer {
        /// The call's number.
        id: u64,
        /// The answer, or why not.
        result: Result<Option<Mapping>, Failure>,
    },
    /// Threads accessed a page without the domain's permission.
    Denied {
        /// First address of the page.
        page: u64,
        /// Whether the domain may read it.
        readable: bool,
    },
    /// Threads accessed a page that is lost, or that no memory blade serves.
    Unreachable {
        /// First address of the page.
        page: u64,
    },
    /// What was denied or unreachable in this range may have changed.
    Changed {
        /// The range.
        range: Mapping,
    },
}

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
                SendFlags::NOSIGNAL,
            );
            match sent {
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
                Ok(_) => return Ok(()),
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
    use super::*;

    #[test]
    fn a_message_brings_its_descriptor() {
        let folder = std::env::temp_dir().join(format!("mind-api-{}", std::process::id()));
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

        assert!(Listener::bind(&path).is_err(), "an agent listens there");
        drop(listener);
        assert!(!path.exists());
        std::fs::remove_dir(&folder).unwrap();
    }
}
