//! The calling process as a member of a protection domain.

use std::{
    os::fd::AsFd as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

use mind_api::{
    message::{Access, OnLoss, Open},
    program::{Call, FromBlade, Mapping, Packets, ToBlade, VERSION},
};
use mind_userfault::{Backing, Window};

use crate::{
    Error, Memory,
    guard::{self, Calls, Held},
    thread,
};

/// The environment variable that holds the path of the agent's socket.
pub const SOCKET_VARIABLE: &str = "MIND_BLADE_SOCKET";

/// The calling process in its protection domain. There can be one in a process, and it lasts as
/// long as the process does, or until [`detach`](Self::detach). It is not a forked child's, to whom
/// every call fails; the child may attach on its own.
#[derive(Debug)]
pub struct Process {
    packets: Packets,
    calls: Calls,
    held: Arc<Held>,
    guard: Mutex<Option<JoinHandle<()>>>,
    /// The process that attached.
    pid: u32,
    next: AtomicU64,
    domain: u32,
    blade: u8,
}

impl Process {
    /// Attaches to the blade that the environment names ([`SOCKET_VARIABLE`]), in the protection
    /// domain of that name, which is made if there is none.
    ///
    /// # Errors
    ///
    /// See [`Error`]. A second call in one process fails, since the window is mapped already.
    pub fn attach(domain: &str) -> Result<Self, Error> {
        Self::attach_choosing(domain, None)
    }

    /// The same, and the domain is to be one whose readers see that when writes are lost with a
    /// blade. The first process of a domain chooses; by default they see what was written back last.
    ///
    /// # Errors
    ///
    /// As [`attach`](Self::attach); [`Error::Refused`] with EINVAL if the domain has chosen otherwise.
    pub fn attach_choosing(domain: &str, on_loss: Option<OnLoss>) -> Result<Self, Error> {
        let path = std::env::var_os(SOCKET_VARIABLE).ok_or(Error::NoBlade)?;
        Self::attach_at(&PathBuf::from(path), domain, on_loss)
    }

    /// Attaches to the blade whose agent listens at `socket`.
    ///
    /// # Errors
    ///
    /// As [`attach_choosing`](Self::attach_choosing).
    pub fn attach_at(socket: &Path, domain: &str, on_loss: Option<OnLoss>) -> Result<Self, Error> {
        let packets = Packets::connect(socket).map_err(|source| Error::Connect {
            path: socket.to_owned(),
            source,
        })?;
        let attach = ToBlade::Attach {
            version: VERSION,
            domain: domain.to_owned(),
            on_loss,
        };
        packets.send(&attach, None).map_err(lost)?;
        let (domain, blade, memory) = match packets.receive::<FromBlade>().map_err(lost)? {
            Some((FromBlade::Memory { domain, blade }, Some(memory))) => (domain, blade, memory),
            other => return Err(unexpected(other.map(|(message, _)| message))),
        };
        let window = Window::map(Backing::from_fd(memory))?;
        let descriptor = window.userfault().as_fd();
        packets
            .send(&ToBlade::Userfault, Some(descriptor))
            .map_err(lost)?;
        match packets.receive::<FromBlade>().map_err(lost)? {
            Some((FromBlade::Attached, _)) => {}
            other => return Err(unexpected(other.map(|(message, _)| message))),
        }
        let calls = Calls::new();
        let held = Arc::new(Held::new(window));
        let guard = {
            let packets = packets.try_clone().map_err(lost)?;
            let (held, calls) = (Arc::clone(&held), calls.clone());
            thread::start("mind-guard", move || guard::run(&packets, &held, &calls))
        };
        Ok(Self {
            packets,
            calls,
            held,
            guard: Mutex::new(Some(guard.map_err(lost)?)),
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

    /// Allocates zeroed memory, as `mmap` does. Every process of the domain can use it, at the
    /// same address.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with ENOMEM, EINVAL (length 0).
    pub fn map(&self, length: u64, access: Access) -> Result<Memory, Error> {
        self.call(Call::Map { length, access }).and_then(memory)
    }

    /// Frees memory that [`map`](Self::map) or [`open_area`](Self::open_area) returned, for every
    /// process of the domain.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with EINVAL where it is no such memory.
    pub fn unmap(&self, memory: Memory) -> Result<(), Error> {
        let Memory { va, length } = memory;
        self.call(Call::Unmap { va, length }).map(|_| ())
    }

    /// Changes what the domain may do with whole pages of its memory.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with ENOMEM where something of the range is not the domain's, EINVAL
    /// where it does not begin at a page.
    pub fn protect(&self, va: u64, length: u64, access: Access) -> Result<(), Error> {
        self.call(Call::Protect { va, length, access }).map(|_| ())
    }

    /// Waits until memory has what the domain's programs on this blade wrote to a range before. From
    /// then on it outlives the blade (`docs/src/guarantees.md`).
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with EINVAL where the range is none of the window's; with EIO where
    /// something could not be written back and is lost.
    pub fn sync(&self, va: u64, length: u64) -> Result<(), Error> {
        self.call(Call::Sync { va, length }).map(|_| ())
    }

    /// Opens memory by its name in the domain.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with ENOENT, EEXIST, ENOMEM, EINVAL.
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

    /// Leaves the domain, as the end of the process would: what it wrote is the blade's to keep,
    /// and memory that it has not unmapped stays the domain's. From the call on every access to
    /// the window is a SIGBUS, and every other call fails. Returns when the blade has let it go.
    /// The process cannot attach again, since pointers into the window may be left.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when it is not attached any more; [`Error::Window`] when the window cannot
    /// be given up, and the process stays.
    pub fn detach(&self) -> Result<(), Error> {
        self.check_process()?;
        let mut guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        if guard.is_none() {
            return Err(Error::Lost("the process has detached".into()));
        }
        self.held.give_up()?;
        let told = self.packets.send(&ToBlade::Detach, None).map_err(lost);
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
        let answer = self.calls.begin(id).ok_or_else(gone)?;
        self.packets
            .send(&ToBlade::Call { id, call }, None)
            .map_err(lost)?;
        Ok(answer.recv().map_err(|_| gone())??)
    }
}

fn memory(mapping: Option<Mapping>) -> Result<Memory, Error> {
    let Mapping { va, length } =
        mapping.ok_or_else(|| Error::Lost("it answered without a range".into()))?;
    Ok(Memory { va, length })
}

fn gone() -> Error {
    Error::Lost("it ended".into())
}

fn lost(error: impl std::fmt::Display) -> Error {
    Error::Lost(error.to_string())
}

fn unexpected(message: Option<FromBlade>) -> Error {
    match message {
        Some(FromBlade::Refused(failure)) => Error::Refused(failure),
        Some(message) => Error::Lost(format!("unexpected answer {message:?}")),
        None => gone(),
    }
}
