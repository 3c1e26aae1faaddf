//! The memory behind the window: one sparse memfd for all programs of a domain on a blade, whose
//! offset 0 is the window's first address. Pages are in it while the blade caches them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use mind_common::addr::{PAGE_SIZE, Page, Va, WINDOW_BASE, WINDOW_SIZE};
use rustix::{
    fs::{FallocateFlags, MemfdFlags, SealFlags},
    io::Errno,
};

use crate::Error;

/// A memfd as large as the window.
#[derive(Debug)]
pub struct Backing(OwnedFd);

const fn offset(page: Va) -> u64 {
    page.0 - WINDOW_BASE
}

impl Backing {
    /// An empty one, of a sealed size. `name` shows in `/proc/PID/maps`.
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn new(name: &str) -> Result<Self, Error> {
        let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(Error::call("make a memfd"))?;
        rustix::fs::ftruncate(&fd, WINDOW_SIZE)
            .map_err(Error::call("make a memfd as large as the window"))?;
        // Not FUTURE_WRITE: with it, punching holes fails.
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(Error::call("seal a memfd's size"))?;
        Ok(Self(fd))
    }

    /// One that another process made and sent over.
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Reads a page; zeros if it is not in the file.
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn read(&self, page: Va, into: &mut Page) -> Result<(), Error> {
        let mut done = 0;
        while done < PAGE_SIZE {
            match rustix::io::pread(&self.0, &mut into[done..], offset(page) + done as u64) {
                Ok(0) => {
                    return Err(Error::Call {
                        what: "read a page beyond the end of its memfd",
                        errno: Errno::INVAL,
                    });
                }
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => {
                    return Err(Error::Call {
                        what: "read a page from its memfd",
                        errno,
                    });
                }
            }
        }
        Ok(())
    }

    /// Writes a page that no program maps.
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn write(&self, page: Va, data: &Page) -> Result<(), Error> {
        let mut done = 0;
        while done < PAGE_SIZE {
            match rustix::io::pwrite(&self.0, &data[done..], offset(page) + done as u64) {
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => {
                    return Err(Error::Call {
                        what: "write a page to its memfd",
                        errno,
                    });
                }
            }
        }
        Ok(())
    }

    /// Removes a page from the file and from every program.
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn remove(&self, page: Va) -> Result<(), Error> {
        loop {
            match rustix::fs::fallocate(
                &self.0,
                FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                offset(page),
                PAGE_SIZE as u64,
            ) {
                Err(Errno::INTR) => {}
                result => return result.map_err(Error::call("punch a page out of its memfd")),
            }
        }
    }
}

impl AsFd for Backing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_was_removed_reads_zeros() {
        let backing = Backing::new("mind-test").expect("a memfd can be made");
        let page = Va(WINDOW_BASE + WINDOW_SIZE - PAGE_SIZE as u64);
        let data = [7; PAGE_SIZE];
        let mut read = [1; PAGE_SIZE];
        backing.write(page, &data).expect("the last page is there");
        backing
            .read(page, &mut read)
            .expect("the last page is there");
        assert_eq!(read, data);
        backing.remove(page).expect("the last page is there");
        backing
            .read(page, &mut read)
            .expect("the last page is there");
        assert_eq!(read, [0; PAGE_SIZE]);
    }

    #[test]
    fn its_size_is_sealed() {
        let backing = Backing::new("mind-test").expect("a memfd can be made");
        assert_eq!(
            rustix::fs::ftruncate(&backing, 0),
            Err(Errno::PERM),
            "a program must not cut the window off for all others"
        );
    }
}
