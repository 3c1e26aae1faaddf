//! A memory blade's pages, their tags, and the compute blades' latest atomic operations, in memory.

use std::sync::atomic::{AtomicU64, Ordering};

use mind_common::{
    addr::PAGE_SIZE,
    id::Connection,
    memory::{Claim, fenced},
    serial::Version,
    table::{Operation, PageTag, PageValue},
};

use crate::{Error, Result, mapped::Mapped, maps::Maps};

const PAGES: &str = "PAGES";
const TAGS: &str = "TAGS";
const OPERATIONS: &str = "OPERATIONS";

/// The names of its maps.
pub(crate) const MAPS: [&str; 3] = [PAGES, TAGS, OPERATIONS];

/// Pages that the responder serves at the same time. A caller that reads or writes a page must know
/// that no packet accesses it, or check its tag.
pub struct Store {
    pages: Mapped<PageValue>,
    tags: Mapped<u64>,
    operations: Mapped<Operation>,
}

impl Store {
    pub(crate) fn new(maps: &Maps) -> Result<Self> {
        Ok(Self {
            pages: maps.mapped(PAGES)?,
            tags: maps.mapped(TAGS)?,
            operations: maps.mapped(OPERATIONS)?,
        })
    }

    /// How many pages there are.
    pub fn pages(&self) -> usize {
        self.pages.len()
    }

    fn beyond(&self, page: usize) -> Error {
        Error::Limit {
            what: "page",
            index: page as u64,
            limit: self.pages() as u64,
        }
    }

    /// A copy of the page with that number.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] from [`pages`](Self::pages) up; so with all below.
    pub fn read(&self, page: usize) -> Result<PageValue> {
        let at = self.pages.at(page).ok_or_else(|| self.beyond(page))?;
        // SAFETY: a page of the mapping; volatile, since the responder may write it meanwhile, and
        // any bytes are a page.
        Ok(unsafe { at.as_ptr().read_volatile() })
    }

    /// Replaces the bytes of the page with that number; its tag stays.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read).
    pub fn write(&self, page: usize, bytes: &PageValue) -> Result<()> {
        let at = self.pages.at(page).ok_or_else(|| self.beyond(page))?;
        // SAFETY: as for `read`.
        unsafe { at.as_ptr().write_volatile(*bytes) };
        Ok(())
    }

    /// Fills `count` pages from `first` on with zeros. That is a write of its own, so a page's
    /// version moves forward: a write-back that its former owner sent, and that is still on its
    /// way, is older than the zeros.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read).
    pub fn zero(&self, first: usize, count: usize) -> Result<()> {
        self.advance(first, count, Version::next, |page| {
            self.write(page, &[0; PAGE_SIZE])
        })
    }

    /// Refuses from now on write-backs that a blade which is gone may still have on their way to
    /// `count` pages from `first` on. The pages' content stays ([`fenced`]).
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read).
    pub fn fence(&self, first: usize, count: usize) -> Result<()> {
        self.advance(first, count, fenced, |_| Ok(()))
    }

    /// Takes pages from the responder one by one, changes them, and moves their versions forward.
    fn advance(
        &self,
        first: usize,
        count: usize,
        version: impl Fn(Version) -> Version,
        change: impl Fn(usize) -> Result<()>,
    ) -> Result<()> {
        (first..first.saturating_add(count)).try_for_each(|page| {
            let tag = self.tag_word(page)?;
            let taken = loop {
                let now = PageTag::from_raw(tag.load(Ordering::Acquire));
                let free = PageTag::settled(now.version());
                // The responder keeps it only while it copies a page.
                if !now.is_writing()
                    && tag
                        .compare_exchange(
                            free.raw(),
                            free.writing().raw(),
                            Ordering::AcqRel,
                            Ordering::Acquire,
                        )
                        .is_ok()
                {
                    break free;
                }
                std::hint::spin_loop();
            };
            change(page)?;
            let changed = PageTag::settled(version(taken.version()));
            tag.store(changed.raw(), Ordering::Release);
            Ok(())
        })
    }

    /// Refuses from now on atomic operations of an incarnation of a compute blade that has ended.
    pub fn fence_blade(&self, ended: Connection) {
        let Some(at) = self.operations.at(ended.blade.get().into()) else {
            return;
        };
        // SAFETY: an aligned field of the mapping, which lives as long as `self` and is reached
        // through atomics only.
        let claim = unsafe { AtomicU64::from_ptr(&raw mut (*at.as_ptr()).claim) };
        loop {
            let last = claim.load(Ordering::Acquire);
            let put = Claim::from_raw(last).over(ended).is_some_and(|over| {
                let put = (last, over.raw());
                claim
                    .compare_exchange(put.0, put.1, Ordering::AcqRel, Ordering::Acquire)
                    .is_ok()
            });
            if put {
                return;
            }
            // The responder keeps it open only while it carries out one operation.
            std::hint::spin_loop();
        }
    }

    /// The tag of the page with that number.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read).
    pub fn tag(&self, page: usize) -> Result<PageTag> {
        Ok(PageTag::from_raw(
            self.tag_word(page)?.load(Ordering::Acquire),
        ))
    }

    /// Sets the tag of the page with that number.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read).
    pub fn set_tag(&self, page: usize, tag: PageTag) -> Result<()> {
        self.tag_word(page)?.store(tag.raw(), Ordering::Release);
        Ok(())
    }

    fn tag_word(&self, page: usize) -> Result<&AtomicU64> {
        let at = self.tags.at(page).ok_or_else(|| self.beyond(page))?;
        // SAFETY: an aligned word of the mapping, which lives as long as `self` and is reached
        // through atomics only.
        Ok(unsafe { AtomicU64::from_ptr(at.as_ptr()) })
    }
}
