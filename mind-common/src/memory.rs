//! The memory blade's side: which write-back is stored.
//!
//! A page's version counts its write-backs. It stays with the page's place in memory for good,
//! also when the page is freed, zeroed and given to somebody else: a late duplicate from an
//! earlier life of the page is older than what is there.

use crate::serial::Version;

/// What becomes of a WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Store {
    /// Store its page and version, then acknowledge it.
    Accept,
    /// The same write-back was stored before and its acknowledgement lost: acknowledge it, store
    /// nothing (the page may have been read since, and an atomic operation must not be undone).
    Duplicate,
    /// Something newer is there: refuse it.
    Stale,
}

/// What becomes of a WRITE of version `incoming` where `stored` is.
#[inline(always)]
pub const fn on_write(stored: Version, incoming: Version) -> Store {
    if incoming.get() == stored.get() {
        Store::Duplicate
    } else if incoming.is_after(stored) {
        Store::Accept
    } else {
        Store::Stale
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_newer_version_is_stored() {
        let stored = Version::new(0x00ff_ffff);
        assert_eq!(on_write(stored, stored.next()), Store::Accept);
        assert_eq!(on_write(stored, Version::new(5)), Store::Accept);
        assert_eq!(on_write(stored, stored), Store::Duplicate);
        assert_eq!(on_write(stored, Version::new(0x00ff_fffe)), Store::Stale);
    }
}
