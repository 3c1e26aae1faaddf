//! A program's view of the window: the domain's memory at the same addresses on every blade.

use std::{
    ffi::c_void,
    ops::Range,
    os::fd::{AsFd, OwnedFd},
};

use mind_common::addr::{PAGE_SIZE, Va, WINDOW_BASE, WINDOW_SIZE};
use rustix::{
    fs::MemfdFlags,
    mm::{Advice, MapFlags, MprotectFlags, ProtFlags},
};

use crate::{Backing, Error, Userfault};

/// The whole window, as addresses.
pub(crate) const ALL: Range<u64> = WINDOW_BASE..WINDOW_BASE + WINDOW_SIZE;

/// The window in the calling process, mapped and registered until the process ends: it is never
/// unmapped, since any pointer may point into it.
#[derive(Debug)]
pub struct Window {
    userfault: Userfault,
    backing: Backing,
    /// An empty memfd: every access to a mapping of it is a SIGBUS.
    nothing: OwnedFd,
    /// What of the window is mapped, in order.
    parts: Vec<Range<u64>>,
}

/// What of the window is left when ranges are taken, in order.
fn free(taken: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut taken = taken.to_vec();
    taken.sort_by_key(|range| range.start);
    let mut free = Vec::new();
    let mut start = ALL.start;
    for range in taken {
        if start < range.start {
            free.push(start..range.start.min(ALL.end));
        }
        start = start.max(range.end);
    }
    if start < ALL.end {
        free.push(start..ALL.end);
    }
    free
}

fn address(va: u64) -> *mut c_void {
    va as *mut c_void
}

impl Window {
    /// Maps `backing` at the window and registers it.
    ///
    /// # Errors
    ///
    /// [`Error`]; in particular when something else is mapped there (EEXIST), as a second window.
    pub fn map(backing: Backing) -> Result<Self, Error> {
        Self::map_without(backing, &[])
    }

    /// The same, without ranges of whole pages that the process has mapped for something else.
    ///
    /// # Errors
    ///
    /// As of [`map`](Self::map).
    pub fn map_without(backing: Backing, taken: &[Range<u64>]) -> Result<Self, Error> {
        let userfault = Userfault::open()?;
        let nothing = rustix::fs::memfd_create("mind-nothing", MemfdFlags::CLOEXEC)
            .map_err(Error::call("make an empty memfd"))?;
        let window = Self {
            userfault,
            backing,
            nothing,
            parts: free(taken),
        };
        for part in &window.parts {
            // SAFETY: FIXED_NOREPLACE maps only what is free.
            unsafe {
                rustix::mm::mmap(
                    address(part.start),
                    (part.end - part.start) as usize,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::SHARED | MapFlags::FIXED_NOREPLACE | MapFlags::NORESERVE,
                    &window.backing,
                    part.start - WINDOW_BASE,
                )
            }
            .map_err(Error::call("map the window"))?;
            window.guard_range(part.clone())?;
        }
        Ok(window)
    }

    /// Registers a range that was just mapped, before any thread can access it.
    fn guard_range(&self, range: Range<u64>) -> Result<(), Error> {
        let (start, len) = (address(range.start), (range.end - range.start) as usize);
        // A child would have the mapping without the registration: it would read zeros, fill the
        // memfd with them, and write through protection. And a core dump would be of 16 TiB.
        for advice in [Advice::LinuxDontFork, Advice::LinuxDontDump] {
            // SAFETY: neither changes what the calling process sees.
            unsafe { rustix::mm::madvise(start, len, advice) }
                .map_err(Error::call("keep the window from children and core dumps"))?;
        }
        self.userfault.register(range)
    }

    /// The descriptor, for the daemon. The program keeps its own: while one is open, accesses wait;
    /// without any they read zeros.
    pub fn userfault(&self) -> &Userfault {
        &self.userfault
    }

    /// Denies a page: accesses are a SIGSEGV, of writers only if `readable`; system calls get
    /// EFAULT. Threads that wait for it are woken.
    ///
    /// # Errors
    ///
    /// [`Error::Call`], for example when the process has no mappings left.
    pub fn deny(&self, page: Va, readable: bool) -> Result<(), Error> {
        let flags = if readable {
            MprotectFlags::READ
        } else {
            MprotectFlags::empty()
        };
        // SAFETY: takes permissions from memory that the program may not rely on having.
        unsafe { rustix::mm::mprotect(address(page.0), PAGE_SIZE, flags) }
            .map_err(Error::call("deny a page of the window"))?;
        self.wake(page.0..page.0 + PAGE_SIZE as u64);
        Ok(())
    }

    /// Ends a denial. Pages that are there stay as the daemon mapped them.
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn permit(&self, page: Va) -> Result<(), Error> {
        // SAFETY: gives back the permissions that the window has.
        unsafe {
            rustix::mm::mprotect(
                address(page.0),
                PAGE_SIZE,
                MprotectFlags::READ | MprotectFlags::WRITE,
            )
        }
        .map_err(Error::call("permit a page of the window"))
    }

    /// Gives a range up that cannot be served: accesses are a SIGBUS, system calls get EFAULT.
    /// Threads that wait in it are woken.
    ///
    /// # Errors
    ///
    /// [`Error::Call`], for example when the process has no mappings left.
    pub fn give_up(&self, range: Range<u64>) -> Result<(), Error> {
        // SAFETY: replaces part of the window, which stays the window's; accesses to it end in a
        // signal, as of any mapped file that was cut off.
        unsafe {
            rustix::mm::mmap(
                address(range.start),
                (range.end - range.start) as usize,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE,
                &self.nothing,
                0,
            )
        }
        .map_err(Error::call("give up part of the window"))?;
        self.wake(range);
        Ok(())
    }

    /// Gives the whole window up, when its faults are not resolved any more.
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn give_up_all(&self) -> Result<(), Error> {
        let mut parts = self.parts.iter();
        parts.try_for_each(|part| self.give_up(part.clone()))
    }

    /// Makes a range that was given up part of the window again.
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn restore(&self, range: Range<u64>) -> Result<(), Error> {
        // Until it is registered no thread may access it: missing pages would read as zeros.
        // SAFETY: replaces part of the window, which stays the window's.
        unsafe {
            rustix::mm::mmap(
                address(range.start),
                (range.end - range.start) as usize,
                ProtFlags::empty(),
                MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE,
                &self.backing,
                range.start - WINDOW_BASE,
            )
        }
        .map_err(Error::call("restore part of the window"))?;
        self.guard_range(range.clone())?;
        // SAFETY: gives back the permissions that the window has.
        unsafe {
            rustix::mm::mprotect(
                address(range.start),
                (range.end - range.start) as usize,
                MprotectFlags::READ | MprotectFlags::WRITE,
            )
        }
        .map_err(Error::call("restore part of the window"))?;
        self.wake(range);
        Ok(())
    }

    fn wake(&self, range: Range<u64>) {
        // Only "try again" can be the answer: the range is this process's.
        while self.userfault.wake(range.clone()) == crate::Outcome::Again {
            std::thread::yield_now();
        }
    }
}

impl AsFd for Window {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.userfault.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_taken_is_free() {
        const PAGE: u64 = PAGE_SIZE as u64;
        let (start, end) = (ALL.start, ALL.end);
        assert_eq!(free(&[]), [ALL]);
        assert_eq!(free(&[ALL]), []);
        let taken = [start + 8 * PAGE..start + 9 * PAGE, start..start + PAGE];
        assert_eq!(
            free(&taken),
            [start + PAGE..start + 8 * PAGE, start + 9 * PAGE..end]
        );
        // Neighbours, one within another, one at the end.
        let taken = [
            start + PAGE..start + 4 * PAGE,
            start + 2 * PAGE..start + 3 * PAGE,
            start + 4 * PAGE..start + 5 * PAGE,
            end - PAGE..end,
        ];
        assert_eq!(
            free(&taken),
            [start..start + PAGE, start + 5 * PAGE..end - PAGE]
        );
    }
}
