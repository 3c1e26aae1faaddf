//! The directory from user space: blocks, tables and slots that the programs use at the same
//! time.

use std::{
    ptr::NonNull,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use mind_common::{
    addr::{PAGE_SHIFT, PAGES_PER_BLOCK, Region, Va},
    directory::{Origin, Word},
    memo::Memo,
    table::{BlockTable, Generation, Slot},
};

use crate::{Error, Result, mapped::Mapped, maps::Maps};

const BLOCKS: &str = "BLOCKS";
const TABLES: &str = "TABLES";
const SLOTS: &str = "SLOTS";
const GENERATION: &str = "GENERATION";

/// The names of its maps.
pub(crate) const MAPS: [&str; 4] = [BLOCKS, TABLES, SLOTS, GENERATION];

/// The directory's maps. It allocates nothing: the caller keeps which table belongs to which block
/// and which slot to which region.
pub struct Directory {
    tables: Mapped<BlockTable>,
    slots: Mapped<Slot>,
    generation: Mapped<Generation>,
}

impl Directory {
    pub(crate) fn new(maps: &Maps) -> Result<Self> {
        Ok(Self {
            tables: maps.mapped(TABLES)?,
            slots: maps.mapped(SLOTS)?,
            generation: maps.mapped(GENERATION)?,
        })
    }

    /// The generation that a slot's memo must have to be valid.
    pub fn generation(&self) -> Generation {
        let at = self.at_generation().as_ptr();
        // SAFETY: fields of the mapping's only value; see `at_generation`.
        let (number, finest) = unsafe {
            (
                AtomicU64::from_ptr(&raw mut (*at).number),
                AtomicU32::from_ptr(&raw mut (*at).finest),
            )
        };
        Generation {
            number: number.load(Ordering::Acquire),
            finest: finest.load(Ordering::Acquire),
            reserved: 0,
        }
    }

    /// Makes all memos invalid, so that packets search the tries again. To be called after a trie
    /// was changed ([`Switch`](crate::Switch) does), and while a slot changes its region (its
    /// [handle](SlotHandle) does).
    pub(crate) fn invalidate_memos(&self) {
        // SAFETY: a field of the mapping's only value; see `at_generation`.
        let number =
            unsafe { AtomicU64::from_ptr(&raw mut (*self.at_generation().as_ptr()).number) };
        number.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes a translation entry for 2^`shift` bytes, before it is inserted.
    pub(crate) fn note_finest(&self, shift: u32) {
        // SAFETY: as above.
        let finest =
            unsafe { AtomicU32::from_ptr(&raw mut (*self.at_generation().as_ptr()).finest) };
        let smaller = |there| (there == 0 || shift < there).then_some(shift);
        // An error says that a smaller one is known.
        let _ = finest.fetch_update(Ordering::AcqRel, Ordering::Acquire, smaller);
    }

    /// The generation in memory, which lives as long as `self`; its fields are aligned, and reached
    /// through atomics only.
    fn at_generation(&self) -> NonNull<Generation> {
        self.generation.at(0).expect("the map has one value")
    }

    /// How many block tables there are, from 0.
    pub fn tables(&self) -> usize {
        self.tables.len()
    }

    /// How many slots there are. Slot 0 means "no slot" in a block table and is never used.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The slot at `index`.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for slot 0 and from [`slots`](Self::slots) up.
    pub fn slot(&self, index: u32) -> Result<SlotHandle<'_>> {
        let at = match index {
            0 => None,
            _ => self.slots.at(index as usize),
        };
        match at {
            Some(at) => Ok(SlotHandle {
                at,
                directory: self,
            }),
            None => Err(Error::Limit {
                what: "directory slot",
                index: index.into(),
                limit: self.slots() as u64,
            }),
        }
    }

    /// The entry of the page at `va` in block table `table`: its slot's index, 0 for none.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] from [`tables`](Self::tables) up.
    pub fn entry(&self, table: u32, va: Va) -> Result<&AtomicU32> {
        let at = self.tables.at(table as usize).ok_or(Error::Limit {
            what: "block table",
            index: table.into(),
            limit: self.tables() as u64,
        })?;
        const { assert!(PAGES_PER_BLOCK == size_of::<BlockTable>() / size_of::<u32>()) };
        // SAFETY: a page's place in its block is below their number; the mapping lives as long as
        // `self`, and the entry is reached through atomics only.
        Ok(unsafe { &*at.as_ptr().cast::<AtomicU32>().add(va.page_in_block()) })
    }

    /// Makes `slot` the slot of all pages of `region`, in block table `table`; 0 for none.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] from [`tables`](Self::tables) up.
    pub fn assign(&self, table: u32, region: Region, slot: u32) -> Result<()> {
        for page in region.pages() {
            self.entry(table, page)?.store(slot, Ordering::Release);
        }
        Ok(())
    }

    /// Clears block table `table`.
    ///
    /// # Errors
    ///
    /// As for [`assign`](Self::assign).
    pub fn blank(&self, table: u32) -> Result<()> {
        for page in 0..PAGES_PER_BLOCK as u64 {
            self.entry(table, Va(page << PAGE_SHIFT))?
                .store(0, Ordering::Release);
        }
        Ok(())
    }

    /// The blocks that have a table.
    pub(crate) fn blocks(maps: &Maps) -> Result<Vec<(u64, u32)>> {
        maps.entries(BLOCKS)
    }

    /// Lets the programs find block table `table` for `block`, or none.
    pub(crate) fn set_block(maps: &mut Maps, block: u64, table: Option<u32>) -> Result<()> {
        match table {
            Some(table) => maps.insert(BLOCKS, block, table),
            None => maps.remove::<u64, u32>(BLOCKS, block).map(|_| ()),
        }
    }
}

/// A slot of the directory, in memory.
#[derive(Clone, Copy)]
pub struct SlotHandle<'a> {
    at: NonNull<Slot>,
    directory: &'a Directory,
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
    /// "busy".
    pub fn set_region(self, region: Region) {
        self.clear_region();
        // SAFETY: see `atomic`.
        let field = unsafe { &raw mut (*self.at.as_ptr()).region };
        self.atomic(field)
            .store(Slot::pack(region), Ordering::Release);
    }

    /// Removes the region, and makes its memo invalid. A packet that reads the next region reads
    /// the next generation, too.
    pub fn clear_region(self) {
        // SAFETY: see `atomic`.
        let field = unsafe { &raw mut (*self.at.as_ptr()).region };
        self.atomic(field).store(0, Ordering::Release);
        self.directory.invalidate_memos();
    }

    /// Sets the whole slot, word last. For slots that no program can find yet.
    pub fn reset(&self, slot: Slot) {
        let at = self.at.as_ptr();
        // SAFETY: see `atomic`.
        self.atomic(unsafe { &raw mut (*at).word })
            .store(0, Ordering::Release);
        self.clear_region();
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
