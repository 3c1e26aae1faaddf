//! The userfaultfd descriptor: reading faults, and the ioctls that resolve them.

use std::{
    mem::MaybeUninit,
    ops::Range,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use linux_raw_sys::general::{
    _UFFDIO_API, _UFFDIO_CONTINUE, _UFFDIO_COPY, _UFFDIO_REGISTER, _UFFDIO_WAKE,
    _UFFDIO_WRITEPROTECT, UFFD_API, UFFD_EVENT_PAGEFAULT, UFFD_FEATURE_EVENT_REMAP,
    UFFD_FEATURE_MINOR_SHMEM, UFFD_FEATURE_MISSING_SHMEM, UFFD_FEATURE_PAGEFAULT_FLAG_WP,
    UFFD_FEATURE_THREAD_ID, UFFD_FEATURE_WP_HUGETLBFS_SHMEM, UFFD_PAGEFAULT_FLAG_MINOR,
    UFFD_PAGEFAULT_FLAG_WP, UFFD_PAGEFAULT_FLAG_WRITE, UFFDIO, UFFDIO_COPY_MODE_WP,
    UFFDIO_REGISTER_MODE_MINOR, UFFDIO_REGISTER_MODE_MISSING, UFFDIO_REGISTER_MODE_WP, uffd_msg,
    uffdio_api, uffdio_continue, uffdio_copy, uffdio_range, uffdio_register, uffdio_writeprotect,
};
use mind_common::addr::{PAGE_SIZE, Page, Va};
use rustix::{
    io::Errno,
    ioctl::{self, Opcode, opcode},
    mm::UserfaultfdFlags,
};

use crate::Error;

// `linux/userfaultfd.h`; not in the crate, since the header defines them with macros.
const UFFDIO_CONTINUE_MODE_WP: u32 = 1 << 1;
const UFFDIO_WRITEPROTECT_MODE_WP: u32 = 1 << 0;

const API: Opcode = opcode::read_write::<uffdio_api>(UFFDIO as u8, _UFFDIO_API as u8);
const REGISTER: Opcode =
    opcode::read_write::<uffdio_register>(UFFDIO as u8, _UFFDIO_REGISTER as u8);
const WAKE: Opcode = opcode::read::<uffdio_range>(UFFDIO as u8, _UFFDIO_WAKE as u8);
const COPY: Opcode = opcode::read_write::<uffdio_copy>(UFFDIO as u8, _UFFDIO_COPY as u8);
const PROTECT: Opcode =
    opcode::read_write::<uffdio_writeprotect>(UFFDIO as u8, _UFFDIO_WRITEPROTECT as u8);
const CONTINUE: Opcode =
    opcode::read_write::<uffdio_continue>(UFFDIO as u8, _UFFDIO_CONTINUE as u8);

/// The features required of the kernel. EVENT_REMAP, so that a range that a program moves with
/// `mremap` stays registered: without it the moved range would read zeros, and fill the memfd with
/// them.
const FEATURES: u64 = (UFFD_FEATURE_MISSING_SHMEM
    | UFFD_FEATURE_MINOR_SHMEM
    | UFFD_FEATURE_WP_HUGETLBFS_SHMEM
    | UFFD_FEATURE_PAGEFAULT_FLAG_WP
    | UFFD_FEATURE_THREAD_ID
    | UFFD_FEATURE_EVENT_REMAP) as u64;

/// How many messages are read at once.
const BATCH: usize = 32;

/// Why an access faulted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The page is not in the memfd.
    Missing,
    /// The page is there; this program has not mapped it yet.
    Minor,
    /// The page is mapped and protected.
    Protected,
}

/// A thread that waits for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fault {
    /// First address of the page.
    pub page: Va,
    /// Why.
    pub kind: Kind,
    /// Whether it wants to write.
    pub write: bool,
    /// Its thread id, in the reader's pid namespace.
    pub thread: u32,
}

/// How a resolution went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Outcome {
    /// As asked; threads that waited go on.
    Done,
    /// The page is mapped already. No thread was woken.
    Exists,
    /// The memfd has no such page (CONTINUE only).
    NoPage,
    /// The program's address space is changing, and a message about it may have to be read
    /// first: try again after that.
    Again,
    /// The kernel has no memory for it, or may not use more (a limit of the memory cgroup).
    NoMemory,
    /// The range is not registered in that program, or not any more.
    Unmapped,
    /// The program is gone.
    Gone,
}

/// A userfaultfd.
#[derive(Debug)]
pub struct Userfault(OwnedFd);

impl Userfault {
    /// A descriptor of the calling process, for faults in the kernel, too: a system call that
    /// touches the window must work as on ordinary memory.
    ///
    /// # Errors
    ///
    /// [`Error::Open`], [`Error::Features`].
    pub fn open() -> Result<Self, Error> {
        // SAFETY: the descriptor does nothing before a range is registered.
        let fd = unsafe {
            rustix::mm::userfaultfd(UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK)
        }
        .map_err(Error::Open)?;
        let mut api = uffdio_api {
            api: u64::from(UFFD_API),
            features: FEATURES,
            ioctls: 0,
        };
        // SAFETY: UFFDIO_API reads and writes a `uffdio_api`.
        unsafe { ioctl::ioctl(&fd, ioctl::Updater::<API, _>::new(&mut api)) }.map_err(|errno| {
            if errno == Errno::INVAL {
                Error::Features {
                    have: api.features,
                    need: FEATURES,
                }
            } else {
                Error::Open(errno)
            }
        })?;
        Ok(Self(fd))
    }

    /// A descriptor that another process opened and sent over.
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Another descriptor of the same.
    ///
    /// # Errors
    ///
    /// No descriptors are left.
    pub fn duplicate(&self) -> Result<OwnedFd, Error> {
        rustix::io::fcntl_dupfd_cloexec(&self.0, 0).map_err(Error::call("duplicate a userfaultfd"))
    }

    /// Makes faults in `range` of the calling process messages of this descriptor: of pages that
    /// are missing, not mapped yet, and protected.
    ///
    /// # Errors
    ///
    /// [`Error::Call`], for example when the range is not a mapping of shared memory.
    pub fn register(&self, range: Range<u64>) -> Result<(), Error> {
        let mut register = uffdio_register {
            range: of(&range),
            mode: u64::from(
                UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR | UFFDIO_REGISTER_MODE_WP,
            ),
            ioctls: 0,
        };
        // SAFETY: UFFDIO_REGISTER reads and writes a `uffdio_register`; it changes how faults are
        // resolved, not what is mapped.
        unsafe { ioctl::ioctl(&self.0, ioctl::Updater::<REGISTER, _>::new(&mut register)) }
            .map_err(Error::call("register the window with userfaultfd"))
    }

    /// Reads the faults that wait, without blocking. Messages of other kinds are taken, and change
    /// nothing: a range that was moved stays registered, and faults outside of the window are
    /// ignored.
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn read(&self, mut take: impl FnMut(Fault)) -> Result<(), Error> {
        loop {
            let mut buffer = [MaybeUninit::<u8>::uninit(); BATCH * size_of::<uffd_msg>()];
            let bytes = match rustix::io::read(&self.0, &mut buffer) {
                Ok((bytes, _)) => bytes,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(errno) => {
                    return Err(Error::Call {
                        what: "read from a userfaultfd",
                        errno,
                    });
                }
            };
            let count = bytes.len() / size_of::<uffd_msg>();
            for message in bytes.chunks_exact(size_of::<uffd_msg>()) {
                if let Some(fault) = fault_of(message) {
                    take(fault);
                }
            }
            if count < BATCH {
                return Ok(());
            }
        }
    }

    /// Puts `data` into the memfd at a page that is missing there, maps it, and wakes the threads
    /// that wait for it.
    pub fn copy(&self, page: Va, data: &Page, writable: bool) -> Outcome {
        let mut copy = uffdio_copy {
            dst: page.0,
            src: data.as_ptr() as u64,
            len: PAGE_SIZE as u64,
            mode: u64::from(if writable { 0 } else { UFFDIO_COPY_MODE_WP }),
            copy: 0,
        };
        // SAFETY: UFFDIO_COPY reads and writes a `uffdio_copy` and reads a page at `src`, which
        // is borrowed; what it changes is another mapping, of which the kernel checks that it is
        // registered.
        outcome(unsafe { ioctl::ioctl(&self.0, ioctl::Updater::<COPY, _>::new(&mut copy)) })
    }

    /// Maps a page that is in the memfd and wakes the threads that wait for it.
    pub fn map(&self, page: Va, writable: bool) -> Outcome {
        let mut resume = uffdio_continue {
            range: of_page(page),
            mode: u64::from(if writable { 0 } else { UFFDIO_CONTINUE_MODE_WP }),
            mapped: 0,
        };
        // SAFETY: UFFDIO_CONTINUE reads and writes a `uffdio_continue`; it maps what is in the
        // file, in a range of which the kernel checks that it is registered.
        outcome(unsafe { ioctl::ioctl(&self.0, ioctl::Updater::<CONTINUE, _>::new(&mut resume)) })
    }

    /// Removes the permission to write a page, also where it is not mapped now.
    pub fn protect(&self, page: Va) -> Outcome {
        self.write_protect(page, u64::from(UFFDIO_WRITEPROTECT_MODE_WP))
    }

    /// Gives the permission to write a page and wakes the threads that wait for it.
    pub fn unprotect(&self, page: Va) -> Outcome {
        self.write_protect(page, 0)
    }

    fn write_protect(&self, page: Va, mode: u64) -> Outcome {
        let mut protect = uffdio_writeprotect {
            range: of_page(page),
            mode,
        };
        // SAFETY: UFFDIO_WRITEPROTECT reads a `uffdio_writeprotect` (its number says it writes,
        // too); it changes only the protection of a registered range.
        outcome(unsafe { ioctl::ioctl(&self.0, ioctl::Updater::<PROTECT, _>::new(&mut protect)) })
    }

    /// Lets every thread that waits in `range` try again.
    pub fn wake(&self, range: Range<u64>) -> Outcome {
        let mut range = of(&range);
        // SAFETY: UFFDIO_WAKE reads a `uffdio_range` (its number says it writes one).
        outcome(unsafe { ioctl::ioctl(&self.0, ioctl::Updater::<WAKE, _>::new(&mut range)) })
    }
}

impl AsFd for Userfault {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn of(range: &Range<u64>) -> uffdio_range {
    uffdio_range {
        start: range.start,
        len: range.end.saturating_sub(range.start),
    }
}

fn of_page(page: Va) -> uffdio_range {
    uffdio_range {
        start: page.0,
        len: PAGE_SIZE as u64,
    }
}

/// The meaning of the kernel's answer for a range of one page (`fs/userfaultfd.c`,
/// `mm/userfaultfd.c`).
fn outcome(result: Result<(), Errno>) -> Outcome {
    match result {
        Ok(()) => Outcome::Done,
        Err(Errno::EXIST) => Outcome::Exists,
        Err(Errno::FAULT) => Outcome::NoPage,
        Err(Errno::SRCH) => Outcome::Gone,
        Err(Errno::AGAIN | Errno::INTR) => Outcome::Again,
        Err(Errno::NOMEM) => Outcome::NoMemory,
        Err(_) => Outcome::Unmapped,
    }
}

fn fault_of(message: &[u8]) -> Option<Fault> {
    assert_eq!(message.len(), size_of::<uffd_msg>());
    // SAFETY: the kernel wrote a whole message there, and every pattern of bits is one; the
    // buffer's alignment is not a message's.
    let message = unsafe { message.as_ptr().cast::<uffd_msg>().read_unaligned() };
    if u32::from(message.event) != UFFD_EVENT_PAGEFAULT {
        return None;
    }
    // SAFETY: the event says which of the union's members the kernel wrote.
    let (fault, thread) = unsafe {
        let fault = message.arg.pagefault;
        (fault, fault.feat.ptid)
    };
    let has = |flag: u32| fault.flags & u64::from(flag) != 0;
    Some(Fault {
        page: Va(fault.address).page(),
        kind: if has(UFFD_PAGEFAULT_FLAG_WP) {
            Kind::Protected
        } else if has(UFFD_PAGEFAULT_FLAG_MINOR) {
            Kind::Minor
        } else {
            Kind::Missing
        },
        write: has(UFFD_PAGEFAULT_FLAG_WRITE) || has(UFFD_PAGEFAULT_FLAG_WP),
        thread,
    })
}
