//! An array map in memory: the same bytes that the programs see.

use std::{io, marker::PhantomData, os::fd::AsRawFd as _, ptr::NonNull};

use aya::maps::MapData;
use zerocopy::{FromBytes, IntoBytes};

use crate::{Error, Result};

/// The values of a memory-mappable array map.
pub(crate) struct Mapped<T> {
    first: NonNull<T>,
    len: usize,
    bytes: usize,
    _values: PhantomData<T>,
}

// SAFETY: the memory belongs to the process, not to a thread, and is reached through pointers and
// atomics only.
unsafe impl<T> Send for Mapped<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Mapped<T> {}

/// The kernel keeps values at multiples of this (`array_map_alloc`).
const VALUE_ALIGN: usize = 8;

impl<T: FromBytes + IntoBytes> Mapped<T> {
    const FITS: () = assert!(size_of::<T>().is_multiple_of(VALUE_ALIGN));

    /// Maps the `len` values of the array `data`, called `name`.
    pub(crate) fn new(name: &'static str, data: &MapData, len: usize) -> Result<Self> {
        let () = Self::FITS;
        let bytes = len * size_of::<T>();
        // SAFETY: a new mapping of a map's descriptor; nothing that exists is touched. The kernel
        // rounds the length up to pages, and refuses maps that are smaller.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                std::os::fd::AsFd::as_fd(data.fd()).as_raw_fd(),
                0,
            )
        };
        let first = NonNull::new(at.cast::<T>())
            .filter(|_| at != libc::MAP_FAILED)
            .ok_or_else(|| Error::MapMemory {
                name,
                len: bytes,
                source: io::Error::last_os_error(),
            })?;
        Ok(Self {
            first,
            len,
            bytes,
            _values: PhantomData,
        })
    }

    /// How many values there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The value at `index`. The programs change it at any time: use atomics, or volatile access.
    pub(crate) fn at(&self, index: usize) -> Option<NonNull<T>> {
        // SAFETY: below the length, so inside of the mapping.
        (index < self.len).then(|| unsafe { self.first.add(index) })
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and no reference into it outlives the value.
        unsafe { libc::munmap(self.first.as_ptr().cast(), self.bytes) };
    }
}
