//! The directory from user space, while the programs use it.
//!
//! * [`slot`]: a region's word, and what stands beside it,
//! * [`index`]: how pages find slots, and how that is changed,
//! * [`free`]: what is in no use,
//! * [`carry`]: what it takes over from another one.
//!
//! What was taken out of the index is *retired*: packets that found it before may still be in the switch. Only when they
//! have left it ([`wait_for_packets`](crate::wait_for_packets)) may it be [given](Directory::give) for further use.

mod carry;
mod free;
mod index;
mod slot;

use std::{
    ptr::NonNull,
    sync::{
        Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use aya::maps::{HashMap, MapData};
use mind_common::table::{BlockHead, BlockTable, FreeList, Generation, PageGroup, Slot};

use crate::{Error, Result, mapped::Mapped, maps::Maps};

pub use index::Retired;
pub use slot::SlotHandle;

const BLOCKS: &str = "BLOCKS";
const HEADS: &str = "HEADS";
const TABLES: &str = "TABLES";
const GROUPS: &str = "GROUPS";
const SLOTS: &str = "SLOTS";
const FREE: &str = "FREE";
const GENERATION: &str = "GENERATION";

/// The names of its maps.
pub(crate) const MAPS: [&str; 7] = [BLOCKS, HEADS, TABLES, GROUPS, SLOTS, FREE, GENERATION];

/// Units of a block that have a slot, at which its table is worth its memory: so many tables there are for all slots.
const SLOTS_PER_TABLE: u32 = 16;
/// Tables that there are even for few slots.
const LEAST_TABLES: u32 = 64;

/// The sizes of its maps with that many slots, the first of which is never used.
pub(crate) fn sizes(slots: u32) -> [(&'static str, u32); 5] {
    let tables = (slots / SLOTS_PER_TABLE).max(LEAST_TABLES.min(slots));
    [
        // A power of two where the usable slots are: the kernel rounds up its buckets to one.
        (BLOCKS, slots.saturating_sub(1).max(1)),
        (HEADS, slots),
        (TABLES, tables + 1),
        (GROUPS, slots),
        (SLOTS, slots),
    ]
}

/// The directory's maps.
pub struct Directory {
    blocks: Mutex<HashMap<MapData, u64, u32>>,
    heads: Mapped<BlockHead>,
    tables: Mapped<BlockTable>,
    groups: Mapped<PageGroup>,
    slots: Mapped<Slot>,
    free: Mapped<FreeList>,
    generation: Mapped<Generation>,
}

impl Directory {
    pub(crate) fn new(maps: &Maps) -> Result<Self> {
        let blocks = maps.open_again(BLOCKS)?;
        let blocks = HashMap::try_from(blocks).map_err(|source| Error::Map {
            name: BLOCKS,
            source: Box::new(source),
        })?;
        Ok(Self {
            blocks: Mutex::new(blocks),
            heads: maps.mapped(HEADS)?,
            tables: maps.mapped(TABLES)?,
            groups: maps.mapped(GROUPS)?,
            slots: maps.mapped(SLOTS)?,
            free: maps.mapped(FREE)?,
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

    /// How many slots there are. Slot 0 means "no slot" and is never used.
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
}
