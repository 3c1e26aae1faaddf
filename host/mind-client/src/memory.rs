//! A range of the window that a call returned.

/// Memory of the domain. It is there until it is unmapped, whether or not this value is: another
/// process may use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Memory {
    pub(crate) va: u64,
    pub(crate) length: u64,
}

impl Memory {
    /// The memory at an address that a call returned before. Calls fail where there is no such
    /// memory.
    pub const fn at(va: u64, length: u64) -> Self {
        Self { va, length }
    }

    /// The first address: the same on every blade.
    pub const fn va(self) -> u64 {
        self.va
    }

    /// Bytes; whole pages.
    pub const fn len(self) -> usize {
        self.length as usize
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.length == 0
    }

    /// Where it is, for unsafe code. Other processes may change what is there at any time, so
    /// plain references to what they write are undefined behaviour, as with any shared memory.
    pub const fn as_ptr(self) -> *mut u8 {
        self.va as *mut u8
    }
}
