//! A page of the store and its tag.

use mind_common::{
    addr::{PAGE_SHIFT, PAGE_SIZE, Va},
    serial::Version,
    stop,
    table::{PageTag, PageValue},
    verdict::Staged,
    wire::Reth,
};

use crate::{atomics, maps};

/// A page of the store: pointers into its maps, where other processors work at the same time.
#[derive(Clone, Copy)]
pub struct Page {
    bytes: *mut PageValue,
    tag: *mut u64,
}

/// A page that only this program may change, until it is [published](Taken::publish).
pub struct Taken {
    page: Page,
    tag: PageTag,
}

/// The page that `offset` bytes into the store is in.
#[inline(always)]
pub fn find(offset: Va) -> Staged<Page> {
    let number = offset.0 >> PAGE_SHIFT;
    if number > u32::MAX as u64 {
        return Err(stop!(OutOfRange));
    }
    let bytes = maps::PAGES.get_ptr_mut(number as u32);
    let tag = maps::TAGS.get_ptr_mut(number as u32);
    match (bytes, tag) {
        (Some(bytes), Some(tag)) => Ok(Page { bytes, tag }),
        _ => Err(stop!(OutOfRange)),
    }
}

/// The page that `reth` names: one whole page.
#[inline(always)]
pub fn whole(reth: &Reth) -> Staged<Page> {
    if reth.len.get() as usize != PAGE_SIZE || !reth.va().is_page_aligned() {
        return Err(stop!(Invalid));
    }
    find(reth.va())
}

impl Page {
    /// Its bytes.
    #[inline(always)]
    pub fn bytes(self) -> *mut PageValue {
        self.bytes
    }

    /// Its tag; refuses while the page is being changed.
    #[inline(always)]
    pub fn tag(self) -> Staged<PageTag> {
        let tag = self.peek();
        if tag.is_writing() {
            Err(stop!(PageBusy))
        } else {
            Ok(tag)
        }
    }

    /// Its tag, also while the page is being changed.
    #[inline(always)]
    pub fn peek(self) -> PageTag {
        // SAFETY: the pointer is a lookup's.
        PageTag::from_raw(unsafe { atomics::load(self.tag) })
    }

    /// Takes the page to change it, if its tag is still `tag`.
    #[inline(always)]
    pub fn take(self, tag: PageTag) -> Staged<Taken> {
        // SAFETY: the pointer is a lookup's.
        if unsafe { atomics::swap(self.tag, tag.raw(), tag.writing().raw()) } {
            Ok(Taken { page: self, tag })
        } else {
            Err(stop!(PageBusy))
        }
    }
}

impl Taken {
    /// Ends the change; the page has `version` now.
    #[inline(always)]
    pub fn publish(self, version: Version) {
        self.settle(PageTag::settled(version));
    }

    /// Gives the page back unchanged.
    #[inline(always)]
    pub fn give_back(self) {
        let tag = self.tag;
        self.settle(tag);
    }

    /// A swap rather than a store: it is also the barrier behind the page's bytes.
    #[inline(always)]
    fn settle(self, tag: PageTag) {
        // SAFETY: the pointer is a lookup's; nothing else changes the tag of a taken page.
        unsafe { atomics::swap(self.page.tag, self.tag.writing().raw(), tag.raw()) };
    }
}
