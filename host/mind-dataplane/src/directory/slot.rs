//! A slot of the directory, where programs and the controller change it at the same time.

use std::{
    ptr::NonNull,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use mind_common::{
    addr::Region,
    directory::{Origin, Word},
    memo::Memo,
    table::Slot,
};

use super::Directory;

/// A slot of the directory, in memory.
#[derive(Clone, Copy)]
pub struct SlotHandle<'a> {
    pub(super) at: NonNull<Slot>,
    pub(super) directory: &'a Directory,
}

macro_rules! fields {
    ($($(#[doc = $doc:literal])+ $name:ident: $atomic:ty;)+) => {
        $(
            $(#[doc = $doc])+
            pub fn $name(self) -> u64 {
                // SAFETY: the mapping lives as long as the directory; the field is aligned, and
                // reached through atomics only.
                let field = unsafe { <$atomic>::from_ptr(&raw mut (*self.at.as_ptr()).$name) };
                field.load(Ordering::Acquire).into()
            }
        )+
    };
}

impl SlotHandle<'_> {
    fields! {
        /// Requests granted without an invalidation; wraps at 2^32.
        accesses: AtomicU32;
        /// Invalidations begun; wraps at 2^32.
        invalidations: AtomicU32;
        /// The blades that wait, as a [`Queue`](mind_common::directory::Queue)'s bits.
        queue: AtomicU64;
        /// Pages dropped by false invalidations; wraps at 2^32.
        dropped: AtomicU32;
        /// Pages written back because of invalidations; wraps at 2^32.
        flushed: AtomicU32;
    }

    fn atomic(&self, field: *mut u64) -> &AtomicU64 {
        // SAFETY: a field of the slot, which the mapping of the directory keeps alive; aligned,
        // and reached through atomics only.
        unsafe { AtomicU64::from_ptr(field) }
    }

    /// Its region; `None` while it has none, or the field is invalid.
    pub fn region(&self) -> Option<Region> {
        // SAFETY: see `atomic`.
        let field = unsafe { &raw mut (*self.at.as_ptr()).region };
        Slot::unpack(self.atomic(field).load(Ordering::Acquire))
    }

    /// Its word.
    pub fn word(&self) -> Word {
        // SAFETY: see `atomic`.
        let field = unsafe { &raw mut (*self.at.as_ptr()).word };
        Word::from_raw(self.atomic(field).load(Ordering::Acquire))
    }

    /// Replaces the word `old` by `new`.
    ///
    /// # Errors
    ///
    /// The word that was there instead.
    pub fn swap_word(&self, old: Word, new: Word) -> Result<(), Word> {
        // SAFETY: see `atomic`.
        let field = unsafe { &raw mut (*self.at.as_ptr()).word };
        self.atomic(field)
            .compare_exchange(old.raw(), new.raw(), Ordering::AcqRel, Ordering::Acquire)
            .map(|_| ())
            .map_err(Word::from_raw)
    }

    /// The request that began its latest episode.
    pub fn origin(&self) -> Origin {
        // SAFETY: see `atomic`.
        let field = unsafe { &raw mut (*self.at.as_ptr()).origin };
        Origin::from_raw(self.atomic(field).load(Ordering::Acquire))
    }

    /// Makes it `region`'s. The programs look at the word first: change the region only while the
    /// word is free or [locked](mind_common::directory::State::Locked).
    ///
    /// Between the two the slot has no region, so a write-back that comes just then is refused as
    /// "busy". A region of another block only if no packet can find the slot.
    pub fn set_region(self, region: Region) {
        self.clear_region();
        self.directory.invalidate_block(region.base());
        // SAFETY: see `atomic`.
        let field = unsafe { &raw mut (*self.at.as_ptr()).region };
        self.atomic(field)
            .store(Slot::pack(region), Ordering::Release);
    }

    /// Removes the region, and makes its memo invalid. A packet that reads the next region in its block reads
    /// the next generation, too.
    pub fn clear_region(self) {
        let former = self.region();
        let at = self.at.as_ptr();
        // SAFETY: see `atomic`.
        let (region, permit) = unsafe { (&raw mut (*at).region, &raw mut (*at).permit) };
        self.atomic(region).store(0, Ordering::Release);
        if let Some(former) = former {
            self.directory.invalidate_block(former.base());
        }
        self.atomic(permit).store(0, Ordering::Release);
    }

    /// Sets the whole slot, word last. For slots that no program can find yet.
    pub fn reset(&self, slot: Slot) {
        let at = self.at.as_ptr();
        // SAFETY: see `atomic`.
        self.atomic(unsafe { &raw mut (*at).word })
            .store(0, Ordering::Release);
        self.clear_region();
        if let Some(region) = Slot::unpack(slot.region) {
            self.directory.invalidate_block(region.base());
        }
        // SAFETY: see `atomic`; the fields are in place one by one.
        unsafe {
            for (field, value) in [
                (&raw mut (*at).accesses, slot.accesses),
                (&raw mut (*at).invalidations, slot.invalidations),
                (&raw mut (*at).dropped, slot.dropped),
                (&raw mut (*at).flushed, slot.flushed),
            ] {
                AtomicU32::from_ptr(field).store(value, Ordering::Release);
            }
            for (field, value) in [
                (&raw mut (*at).origin, slot.origin),
                (&raw mut (*at).queue, slot.queue),
                (&raw mut (*at).permit, slot.permit),
                (&raw mut (*at).place, slot.place),
                (&raw mut (*at).region, slot.region),
                (&raw mut (*at).word, slot.word),
            ] {
                self.atomic(field).store(value, Ordering::Release);
            }
        }
    }

    /// The number of the next one in the list, of a slot that is in no use.
    pub(super) fn next_free(self) -> u32 {
        // SAFETY: see `atomic`.
        let field = unsafe { &raw mut (*self.at.as_ptr()).place };
        self.atomic(field).load(Ordering::Acquire) as u32
    }

    /// Sets it, and clears what else a packet could read of the slot.
    pub(super) fn set_next_free(self, next: u32) {
        let at = self.at.as_ptr();
        // SAFETY: see `atomic`.
        let (permit, place, region) = unsafe {
            (
                &raw mut (*at).permit,
                &raw mut (*at).place,
                &raw mut (*at).region,
            )
        };
        self.atomic(region).store(0, Ordering::Release);
        self.atomic(permit).store(0, Ordering::Release);
        self.atomic(place).store(next.into(), Ordering::Release);
    }

    /// Its memo.
    pub fn memo(self) -> Memo {
        let at = self.at.as_ptr();
        // SAFETY: see `atomic`.
        let (permit, place) = unsafe { (&raw mut (*at).permit, &raw mut (*at).place) };
        Memo {
            permit: self.atomic(permit).load(Ordering::Acquire),
            place: self.atomic(place).load(Ordering::Acquire),
        }
    }

    /// Sets its memo, whatever the tries say.
    #[cfg(feature = "harness")]
    pub fn set_memo(self, memo: Memo) {
        let at = self.at.as_ptr();
        // SAFETY: see `atomic`.
        let (permit, place) = unsafe { (&raw mut (*at).permit, &raw mut (*at).place) };
        self.atomic(place).store(memo.place, Ordering::Release);
        self.atomic(permit).store(memo.permit, Ordering::Release);
    }
}
