//! The page that goes out next, as it was read from the cache.

use mind_common::{
    addr::{PAGE_SIZE, Page},
    serial::Version,
};
use mind_machines::datagram::PageRequest;

/// A page with its address and version. A page that is written back is often forwarded a moment later: then it need not
/// be read again.
pub(super) struct Outbox {
    content: Option<(PageRequest, Version)>,
    bytes: Box<Page>,
}

impl Outbox {
    /// An empty one.
    pub(super) fn new() -> Self {
        Self {
            content: None,
            bytes: Box::new([0; PAGE_SIZE]),
        }
    }

    /// Puts the page with that version in, by `read`, unless it is there.
    pub(super) fn put(
        &mut self,
        page: PageRequest,
        version: Version,
        read: impl FnOnce(&mut Page),
    ) {
        let content = Some((page, version));
        if self.content != content {
            read(&mut self.bytes);
            self.content = content;
        }
    }

    /// Empties it, since a page of the cache is about to change: a version identifies a page's content only until
    /// memory has refused it.
    pub(super) fn forget(&mut self) {
        self.content = None;
    }

    /// The page.
    pub(super) fn page(&self) -> &Page {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use mind_common::{addr::Va, id::DomainId};

    use super::*;

    fn page(va: u64) -> PageRequest {
        PageRequest {
            page: Va(va),
            domain: DomainId(1),
        }
    }

    #[test]
    fn a_page_is_read_once_for_each_version_and_change() {
        let mut outbox = Outbox::new();
        let mut reads = 0;
        let mut put = |outbox: &mut Outbox, va, version| {
            outbox.put(page(va), Version::new(version), |bytes| {
                reads += 1;
                bytes[0] = reads;
            });
            outbox.page()[0]
        };
        assert_eq!(put(&mut outbox, 0x1000, 1), 1);
        assert_eq!(put(&mut outbox, 0x1000, 1), 1, "nothing changed");
        assert_eq!(put(&mut outbox, 0x1000, 2), 2, "another version");
        assert_eq!(put(&mut outbox, 0x2000, 2), 3, "another page");
        outbox.forget();
        assert_eq!(put(&mut outbox, 0x2000, 2), 4, "a page changed since");
    }
}
