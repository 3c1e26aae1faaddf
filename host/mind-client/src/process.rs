//! The calling process as a member of a protection domain.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

use mind_api::{
    message::{Access, Open},
    program::{Call, FromBlade, Mapping, ToBlade, VERSION},
};
use mind_connection::packets::Packets;
use mind_userfault::{Backing, Window};

use crate::{
    Builder, Error, Memory,
    guard::{self, Calls, Guarded},
    thread,
};

/// The environment variable that holds the path of the agent's socket.
pub const SOCKET_VARIABLE: &str = "MIND_BLADE_SOCKET";

/// The calling process in its protection domain. There can be one in a process, and it lasts as long as the process
/// does, or until [`detach`](Self::detach). In a forked child every call fails; the child may attach on its own.
///
/// All calls may be made by any thread at any time. Besides the errors that are listed with each, a call fails with
/// [`Error::AgentEnded`], [`Error::Connection`], [`Error::Protocol`] when the blade's agent fails, with
/// [`Error::Detached`] and [`Error::Forked`] when this process is not attached (any more), and with [`Error::Refused`]
/// and EIO when the agent cannot reach the controller.
#[derive(Debug)]
pub struct Process {
    packets: Packets,
    calls: Calls,
    window: Arc<Guarded>,
    /// The guard's thread; `None` once the process has detached.
    guard: Mutex<Option<JoinHandle<()>>>,
    /// The process that attached.
    pid: u32,
    next: AtomicU64,
    domain: u32,
    blade: u8,
}

impl Process {
    /// Attaches to the blade that the environment names ([`SOCKET_VARIABLE`]), in the protection domain called
    /// `domain`, which is made if there is none. [`builder`](Self::builder) offers choices.
    ///
    /// # Errors
    ///
    /// As of [`Builder::attach`].
    pub fn attach(domain: &str) -> Result<Self, Error> {
        Self::builder(domain).attach()
    }

    /// Begins to attach in the protection domain called `domain`, at most 255 bytes.
    pub fn builder(domain: &str) -> Builder {
        Builder::new(domain)
    }

    pub(crate) fn attach_to(socket: &Path, options: Builder) -> Result<Self, Error> {
        let packets = Packets::connect(socket).map_err(|source| Error::Connect {
            path: socket.to_owned(),
            source,
        })?;
        let attach = ToBlade::Attach {
            version: VERSION,
            domain: options.domain,
            on_loss: options.on_loss,
        };
        packets.send(&attach, None).map_err(broken)?;
        let (domain, blade, memory) = match receive(&packets)? {
            (FromBlade::Memory { domain, blade }, Some(memory)) => (domain, blade, memory),
            (message, _) => return Err(unexpected(message)),
        };
        let window = Window::map_without(Backing::from_fd(memory), &options.taken)?;
        let descriptor = window.userfault().as_fd();
        packets
            .send(&ToBlade::Userfault, Some(descriptor))
            .map_err(broken)?;
        match receive(&packets)? {
            (FromBlade::Attached, _) => {}
            (message, _) => return Err(unexpected(message)),
        }
        let calls = Calls::new();
        let window = Arc::new(Guarded::new(window));
        let guard = {
            let packets = packets.try_clone().map_err(broken)?;
            let (window, calls) = (Arc::clone(&window), calls.clone());
            thread::start("mind-guard", move || guard::run(&packets, &window, &calls))
        };
        Ok(Self {
            packets,
            calls,
            window,
            guard: Mutex::new(Some(guard.map_err(Error::Thread)?)),
            pid: std::process::id(),
            next: AtomicU64::new(0),
            domain,
            blade,
        })
    }

    /// The domain's number.
    pub const fn domain(&self) -> u32 {
        self.domain
    }

    /// The number of the blade that the process runs on.
    pub const fn blade(&self) -> u8 {
        self.blade
    }

    /// Allocates `length` bytes of zeroed memory, rounded up to whole pages of 4096, as `mmap` does. Every process of
    /// the domain can use it, at the same address; `access` says what for.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with EINVAL (no length), EFBIG (more than a memory blade can have), ENOMEM (more than there
    /// is).
    pub fn map(&self, length: u64, access: Access) -> Result<Memory, Error> {
        self.call(Call::Map { length, access }).and_then(memory)
    }

    /// Frees memory that [`map`](Self::map) or [`open_area`](Self::open_area) returned, whole, for every process of
    /// the domain. An area is freed when it has been unmapped as often as it was opened, and its name was taken away.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with EINVAL where it is no such memory.
    pub fn unmap(&self, memory: Memory) -> Result<(), Error> {
        let Memory { va, length } = memory;
        self.call(Call::Unmap { va, length }).map(|_| ())
    }

    /// Changes what the domain may do with whole pages of its memory. Returns when it is so on every blade. The length
    /// is rounded up to whole pages.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with ENOMEM where something of the range is not the domain's, EINVAL where it does not begin
    /// at a page.
    pub fn protect(&self, memory: Memory, access: Access) -> Result<(), Error> {
        let Memory { va, length } = memory;
        self.call(Call::Protect { va, length, access }).map(|_| ())
    }

    /// Waits until memory blades have what the domain's programs on this blade wrote to a range before (`msync` with
    /// MS_SYNC). From then on it outlives this blade.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with EINVAL where the range is not in the window; with EIO where something could not be
    /// written back and is lost.
    pub fn sync(&self, memory: Memory) -> Result<(), Error> {
        let Memory { va, length } = memory;
        self.call(Call::Sync { va, length }).map(|_| ())
    }

    /// Opens memory by its name in the domain (`shm_open`), at most 255 bytes. `open` says whether it must be there.
    /// If it is made, it is zeroed and has `length` bytes, rounded up to whole pages of 4096, and `access` says what
    /// the domain may do with it; otherwise it has at least `length`, which may be 0.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with ENOENT and EEXIST (as `open` says), EINVAL (no length for a new area, or more than it
    /// has), ENAMETOOLONG, EFBIG and ENOMEM (as of [`map`](Self::map)).
    pub fn open_area(
        &self,
        name: &str,
        length: u64,
        access: Access,
        open: Open,
    ) -> Result<Memory, Error> {
        let name = name.to_owned();
        self.call(Call::OpenArea {
            name,
            length,
            access,
            open,
        })
        .and_then(memory)
    }

    /// Takes a name away. The memory stays until it is unmapped.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with ENOENT.
    pub fn unlink_area(&self, name: &str) -> Result<(), Error> {
        let name = name.to_owned();
        self.call(Call::UnlinkArea { name }).map(|_| ())
    }

    /// Leaves the domain, as the end of the process would: the blade keeps what it wrote, and memory that it has not
    /// unmapped stays the domain's. From the call on every access to the window is a SIGBUS, and every other call
    /// fails. Returns when the agent has closed the connection. The process cannot attach again, since pointers into
    /// the window may be left.
    ///
    /// # Errors
    ///
    /// [`Error::Detached`], [`Error::Connection`] when it is not attached any more; [`Error::Window`] when the window
    /// cannot be given up, and the process stays attached.
    pub fn detach(&self) -> Result<(), Error> {
        self.check_process()?;
        let mut guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        if guard.is_none() {
            return Err(Error::Detached);
        }
        self.window.give_up()?;
        let told = self.packets.send(&ToBlade::Detach, None).map_err(broken);
        // It ends with the connection, which the agent closes, or has closed.
        if let Some(guard) = guard.take() {
            let _ = guard.join();
        }
        told
    }

    /// Fails in a child of the process that attached: the window and the guard are not its own,
    /// and what it sent would be taken for the parent's.
    fn check_process(&self) -> Result<(), Error> {
        match self.pid == std::process::id() {
            true => Ok(()),
            false => Err(Error::Forked { parent: self.pid }),
        }
    }

    fn call(&self, call: Call) -> Result<Option<Mapping>, Error> {
        self.check_process()?;
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let answer = self.calls.begin(id).ok_or_else(|| self.ended())?;
        self.packets
            .send(&ToBlade::Call { id, call }, None)
            .map_err(broken)?;
        Ok(answer.recv().map_err(|_| self.ended())??)
    }

    /// Why no call is answered any more: the process has detached, or the agent has ended.
    fn ended(&self) -> Error {
        match &*self.guard.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(_) => Error::AgentEnded,
            None => Error::Detached,
        }
    }
}

fn memory(mapping: Option<Mapping>) -> Result<Memory, Error> {
    let Mapping { va, length } = mapping
        .ok_or_else(|| Error::Protocol("an answer without the memory that was asked for".into()))?;
    Ok(Memory { va, length })
}

/// The agent's next message, with the descriptor that comes with it.
fn receive(packets: &Packets) -> Result<(FromBlade, Option<OwnedFd>), Error> {
    packets.receive().map_err(broken)?.ok_or(Error::AgentEnded)
}

/// What a failed send or receive means.
fn broken(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Error::AgentEnded,
        io::ErrorKind::InvalidData => Error::Protocol(error.to_string()),
        _ => Error::Connection(error),
    }
}

fn unexpected(message: FromBlade) -> Error {
    match message {
        FromBlade::Refused { failure } => Error::Refused(failure),
        message => Error::Protocol(format!("unexpected answer {message:?}")),
    }
}
