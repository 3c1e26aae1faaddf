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

use std::sync::{
    Mutex,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

use aya::maps::{HashMap, MapData};
use mind_common::{
    addr::{BLOCK_SHIFT, Prefix, Va},
    id::DomainId,
    memo::{Current, GENERATIONS, generation_of_block, generation_of_domain},
    table::{BlockHead, BlockTable, FreeList, Generation, PageGroup, Slot},
};

use crate::{Error, Result, mapped::Mapped, maps::Maps};

pub use index::Retired;
pub use slot::SlotHandle;

const BLOCKS: &str = "BLOCKS";
const HEADS: &str = "HEADS";
const TABLES: &str = "TABLES";
const GROUPS: &str = "GROUPS";
const SLOTS: &str = "SLOTS";
const FREE: &str = "FREE";
const BLOCK_GENERATIONS: &str = "BLOCK_GENERATIONS";
const DOMAIN_GENERATIONS: &str = "DOMAIN_GENERATIONS";
const INVALIDATED: &str = "INVALIDATED";

/// The names of its maps.
pub(crate) const MAPS: [&str; 9] = [
    BLOCKS,
    HEADS,
    TABLES,
    GROUPS,
    SLOTS,
    FREE,
    BLOCK_GENERATIONS,
    DOMAIN_GENERATIONS,
    INVALIDATED,
];

/// Units of a block that have a slot, at which its table is worth its memory: so many tables there are for all slots.
const SLOTS_PER_TABLE: u32 = 16;
/// Tables that there are even for few slots.
const LEAST_TABLES: u32 = 64;

/// The sizes of its maps with that many slots, the first of which is never used.
pub(crate) fn sizes(slots: u32) -> [(&'static str, u32); 6] {
    let tables = (slots / SLOTS_PER_TABLE).max(LEAST_TABLES.min(slots));
    [
        // A power of two where the usable slots are: the kernel rounds up its buckets to one.
        (BLOCKS, slots.saturating_sub(1).max(1)),
        (HEADS, slots),
        (TABLES, tables + 1),
        (GROUPS, slots),
        (SLOTS, slots),
        (INVALIDATED, slots.div_ceil(u64::BITS)),
    ]
}

/// An address in each block of which an entry for `prefix` covers something; no more than there are generations of blocks.
fn blocks_of(prefix: Prefix) -> impl Iterator<Item = Va> {
    let blocks = (prefix.size() >> BLOCK_SHIFT).clamp(1, GENERATIONS.into());
    (0..blocks).map(move |block| Va(prefix.base.0 + (block << BLOCK_SHIFT)))
}

/// The directory's maps.
pub struct Directory {
    blocks: Mutex<HashMap<MapData, u64, u32>>,
    heads: Mapped<BlockHead>,
    tables: Mapped<BlockTable>,
    groups: Mapped<PageGroup>,
    slots: Mapped<Slot>,
    free: Mapped<FreeList>,
    block_generations: Mapped<Generation>,
    domain_generations: Mapped<u64>,
    invalidated: Mapped<u64>,
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
            block_generations: maps.mapped(BLOCK_GENERATIONS)?,
            domain_generations: maps.mapped(DOMAIN_GENERATIONS)?,
            invalidated: maps.mapped(INVALIDATED)?,
        })
    }

    /// The generations that the memo of a page must have to be valid.
    pub fn current(&self, domain: DomainId, va: Va) -> Current {
        let (number, finest) = self.of_block(va);
        Current {
            block: Generation {
                number: number.load(Ordering::Acquire),
                finest: finest.load(Ordering::Acquire),
                reserved: 0,
            },
            domain: self.of_domain(domain).load(Ordering::Acquire),
        }
    }

    /// Makes the memos of a domain invalid, so that its packets search the tries again. To be called after one of its
    /// protection entries was changed ([`Switch`](crate::Switch) does).
    pub(crate) fn invalidate_domain(&self, domain: DomainId) {
        self.of_domain(domain).fetch_add(1, Ordering::AcqRel);
    }

    /// Makes the memos of all blocks of which an entry for `prefix` covers something invalid. To be called after a
    /// translation entry was changed ([`Switch`](crate::Switch) does).
    pub(crate) fn invalidate_prefix(&self, prefix: Prefix) {
        for va in blocks_of(prefix) {
            self.invalidate_block(va);
        }
    }

    /// Makes the memos of the block of `va` invalid. To be called while a slot there changes its region (its
    /// [handle](SlotHandle) does).
    pub(crate) fn invalidate_block(&self, va: Va) {
        self.of_block(va).0.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes a translation entry for `prefix`, before it is inserted.
    pub(crate) fn note_finest(&self, prefix: Prefix) {
        let smaller = |there| (there == 0 || prefix.shift < there).then_some(prefix.shift);
        for va in blocks_of(prefix) {
            // An error says that a smaller one is known.
            let _ = self
                .of_block(va)
                .1
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, smaller);
        }
    }

    /// The number and the finest of a block's generation.
    fn of_block(&self, va: Va) -> (&AtomicU64, &AtomicU32) {
        let at = self.block_generations.at(generation_of_block(va) as usize);
        let at = at.expect("there are that many").as_ptr();
        // SAFETY: fields of a value of the mapping, which lives as long as `self`; aligned, and reached through atomics
        // only.
        unsafe {
            (
                AtomicU64::from_ptr(&raw mut (*at).number),
                AtomicU32::from_ptr(&raw mut (*at).finest),
            )
        }
    }

    fn of_domain(&self, domain: DomainId) -> &AtomicU64 {
        let at = self
            .domain_generations
            .at(generation_of_domain(domain) as usize);
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(at.expect("there are that many").as_ptr()) }
    }

    /// The slots in whose regions pages were falsely invalidated since this was last asked. What is noted meanwhile is told
    /// this time or the next.
    pub fn take_invalidated(&self) -> impl Iterator<Item = u32> {
        let words = (0..self.invalidated.len()).filter_map(|index| {
            let at = self.invalidated.at(index)?;
            // SAFETY: a value of the mapping, which lives as long as `self`; aligned, and reached through atomics only.
            let word = unsafe { AtomicU64::from_ptr(at.as_ptr()) };
            let bits = match word.load(Ordering::Relaxed) {
                0 => 0,
                // What was counted before a bit was set is seen after this.
                _ => word.swap(0, Ordering::AcqRel),
            };
            (bits != 0).then_some((index as u32 * u64::BITS, bits))
        });
        words.flat_map(|(first, bits)| {
            (0..u64::BITS)
                .filter(move |bit| bits >> bit & 1 == 1)
                .map(move |bit| first + bit)
        })
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
