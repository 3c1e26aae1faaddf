//! How a page finds its slot.
//!
//! A region has a slot from the first request for one of its pages on (its *first touch*) until no blade caches any of
//! it and room is wanted. A page without a slot is as one whose word is [`Invalid`](super::State::Invalid).
//!
//! A hash map leads from a block's number to a *head*, of which each block that has slots has one. A head says what the
//! block's pages find: nothing, the only region that has a slot, or a *table* with an entry for each *unit*, 16 KiB.
//! Where regions of a unit are smaller, its entry names a *group*, which has an entry for each page of the unit.
//!
//! ```text
//! block -> head -+-> slot
//!                +-> table [unit] -+-> slot
//!                                  +-> group [page] -> slot
//! ```
//!
//! So a block with one region costs a head, and a block with many 512 bytes for all of them.
//!
//! # At the same time
//!
//! Packets and the controller change heads and entries by compare-and-swap. Packets only add: they put a slot where
//! there is nothing, and a table in the place of a block's only region. The controller takes out. Before it uses a head
//! or a table for another block it *closes* it, so that no packet adds anything, and then waits until all packets that
//! may have found it have left the switch. It waits likewise before a slot that was taken out is used again. So what a
//! packet has found stays what it is as long as the packet is in the switch.
//!
//! Slots, heads and tables that are not in use are kept in [lists](free), from which packets and the controller take
//! them.
//!
//! Here is how heads and entries are laid out; [`opening`] is how a packet finds a slot, and how a region gets one.

pub mod free;
pub mod opening;

use crate::addr::{
    BLOCK_SHIFT, INITIAL_REGION_ORDER, PAGE_SHIFT, PAGES_PER_BLOCK, Region, Va, WINDOW_BASE,
    WINDOW_SIZE,
};

/// Order of a unit, the region that is opened at first touch.
pub const UNIT_ORDER: u8 = INITIAL_REGION_ORDER;
/// Pages of a unit.
pub const PAGES_PER_UNIT: usize = 1 << UNIT_ORDER;
/// Units of a block.
pub const UNITS_PER_BLOCK: usize = PAGES_PER_BLOCK / PAGES_PER_UNIT;

/// The number that pages find where nothing can be found or added for a moment: no slot has it.
pub const CLOSED: u32 = u32::MAX;

const _: () = assert!(UNITS_PER_BLOCK << (PAGE_SHIFT + UNIT_ORDER as u32) == 1 << BLOCK_SHIFT);

/// Which unit of its block an address is in.
#[inline(always)]
pub const fn unit_in_block(va: Va) -> usize {
    va.page_in_block() >> UNIT_ORDER
}

/// Which page of its unit an address is in.
#[inline(always)]
pub const fn page_in_unit(va: Va) -> usize {
    va.page_in_block() & (PAGES_PER_UNIT - 1)
}

const BLOCK_BITS: u32 = 24;
const UNIT_BITS: u32 = 7;
const ORDER_BITS: u32 = 3;
const NUMBER_BITS: u32 = 28;

const UNIT_SHIFT: u32 = NUMBER_BITS;
const UNITS_SHIFT: u32 = UNIT_SHIFT + UNIT_BITS;
const KIND_SHIFT: u32 = UNITS_SHIFT + ORDER_BITS;
const WHOSE_SHIFT: u32 = KIND_SHIFT + 2;

const _: () = assert!(WHOSE_SHIFT + BLOCK_BITS == u64::BITS);
const _: () = assert!(UNITS_PER_BLOCK == 1 << UNIT_BITS);
// One block number is left over, that of heads in no use.
const _: () = assert!(WINDOW_SIZE >> BLOCK_SHIFT < 1 << BLOCK_BITS);

/// How many slots, tables and heads there may be, the one among them that is never used.
pub const MAX_NUMBER: u32 = 1 << NUMBER_BITS;

const NOTHING: u64 = 0;
const ONE: u64 = 1;
const TABLE: u64 = 2;
const SHUT: u64 = 3;

/// The number of no block.
const NO_BLOCK: u64 = (1 << BLOCK_BITS) - 1;

/// What a block's head says, and which block it is for: the hash map's entry may have become another block's since a
/// packet found it.
///
/// ```text
/// bit  63..40              39..38    37..35           34..28        27..0
///      block of window     kind      log2 of units    first unit    slot, or table
/// ```
///
/// ```
/// use mind_common::{addr::{Region, Va, WINDOW_BASE}, directory::index::Head};
///
/// let region = Region::containing(Va(WINDOW_BASE), 4).unwrap();
/// let head = Head::one(7, region);
/// assert!(head.is_of(Va(WINDOW_BASE)) && !head.is_of(Va(WINDOW_BASE + 0x20_0000)));
/// assert_eq!(head.slot_at(Va(WINDOW_BASE + 0xf000)), 7);
/// assert_eq!(head.slot_at(Va(WINDOW_BASE + 0x1_0000)), 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Head(u64);

impl Head {
    #[inline(always)]
    const fn new(va: Va, kind: u64) -> Self {
        let block = va.0.wrapping_sub(WINDOW_BASE) >> BLOCK_SHIFT;
        Self((block & NO_BLOCK) << WHOSE_SHIFT | kind << KIND_SHIFT)
    }

    /// No page of the block that `va` is in has a slot.
    #[inline(always)]
    pub const fn empty(va: Va) -> Self {
        Self::new(va, NOTHING)
    }

    /// Nothing can be found or added: the head is about to be used for another block.
    #[inline(always)]
    pub const fn closed(va: Va) -> Self {
        Self::new(va, SHUT)
    }

    /// The only region of its block that has a slot; of the order of a [unit](UNIT_ORDER) at least.
    #[inline(always)]
    pub const fn one(slot: u32, region: Region) -> Self {
        let order = region.order().saturating_sub(UNIT_ORDER) as u64;
        let first = unit_in_block(region.base()) as u64;
        let of = order << UNITS_SHIFT | first << UNIT_SHIFT | slot as u64;
        Self(Self::new(region.base(), ONE).0 | of)
    }

    /// The block that `va` is in has this table.
    #[inline(always)]
    pub const fn table(table: u32, va: Va) -> Self {
        Self(Self::new(va, TABLE).0 | table as u64)
    }

    /// A head in no use, before the one of that number in the list.
    #[inline(always)]
    pub const fn free(next: u32) -> Self {
        Self(NO_BLOCK << WHOSE_SHIFT | next as u64)
    }

    /// The head that is stored as `raw`.
    #[inline(always)]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// As it is stored.
    #[inline(always)]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Whether it is that of the block that `va`, an address of the window, is in.
    #[inline(always)]
    pub const fn is_of(self, va: Va) -> bool {
        self.0 >> WHOSE_SHIFT == Self::new(va, NOTHING).0 >> WHOSE_SHIFT
    }

    #[inline(always)]
    const fn kind(self) -> u64 {
        (self.0 >> KIND_SHIFT) & 3
    }

    /// Whether no page of the block has a slot.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.kind() == NOTHING
    }

    /// Whether the block has one region with a slot.
    #[inline(always)]
    pub const fn is_one(self) -> bool {
        self.kind() == ONE
    }

    /// Whether the block has a table.
    #[inline(always)]
    pub const fn is_table(self) -> bool {
        self.kind() == TABLE
    }

    /// Whether it is closed.
    #[inline(always)]
    pub const fn is_closed(self) -> bool {
        self.kind() == SHUT
    }

    /// The number of its slot, of its table, or of the next one in the list.
    #[inline(always)]
    pub const fn number(self) -> u32 {
        self.0 as u32 & (MAX_NUMBER - 1)
    }

    /// The units of its only region: the first, and how many.
    #[inline(always)]
    pub const fn units(self) -> (usize, usize) {
        let order = (self.0 >> UNITS_SHIFT) & ((1 << ORDER_BITS) - 1);
        let first = (self.0 >> UNIT_SHIFT) & ((1 << UNIT_BITS) - 1);
        (first as usize, 1 << order)
    }

    /// What a page of its block finds, where the block has no table: a slot's number, 0 for none, or [`CLOSED`].
    #[inline(always)]
    pub const fn slot_at(self, va: Va) -> u32 {
        let (first, units) = self.units();
        if self.is_one() && unit_in_block(va) & !(units - 1) == first {
            self.number()
        } else if self.is_closed() {
            CLOSED
        } else {
            0
        }
    }
}

const GROUP: u32 = 1 << 31;

/// What pages of a unit find, as a table says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct UnitEntry(u32);

impl UnitEntry {
    /// The unit has no slot.
    pub const EMPTY: Self = Self(0);
    /// Nothing can be found or added: the table is about to be used for another block.
    pub const CLOSED: Self = Self(CLOSED);

    /// All pages of the unit find this slot.
    #[inline(always)]
    pub const fn slot(slot: u32) -> Self {
        Self(slot)
    }

    /// Each page has an entry in this group.
    #[inline(always)]
    pub const fn group(group: u32) -> Self {
        Self(GROUP | group)
    }

    /// The entry that is stored as `raw`.
    #[inline(always)]
    pub const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// As it is stored.
    #[inline(always)]
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// Whether it names a group.
    #[inline(always)]
    pub const fn is_group(self) -> bool {
        self.0 & GROUP != 0 && self.0 != CLOSED
    }

    /// The number of its slot, 0 for none, or [`CLOSED`]; or of its group.
    #[inline(always)]
    pub const fn number(self) -> u32 {
        if self.is_group() {
            self.0 & !GROUP
        } else {
            self.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::{MAX_REGION_ORDER, WINDOW_BASE};
    use proptest::prelude::*;

    #[test]
    fn what_is_empty_or_closed_has_no_slot() {
        for va in [Va(WINDOW_BASE), Va(WINDOW_BASE + WINDOW_SIZE - 1)] {
            assert_eq!(Head::empty(va).slot_at(va), 0);
            assert_eq!(Head::closed(va).slot_at(va), CLOSED);
            assert_eq!(Head::table(3, va).slot_at(va), 0);
            assert!(!Head::free(5).is_of(va));
            assert_eq!(Head::free(5).number(), 5);
        }
        assert!(!UnitEntry::EMPTY.is_group() && !UnitEntry::CLOSED.is_group());
        assert_eq!(UnitEntry::EMPTY.number(), 0);
        assert_eq!(UnitEntry::CLOSED.number(), CLOSED);
        assert_eq!(UnitEntry::default(), UnitEntry::EMPTY);
    }

    #[test]
    fn an_entry_is_a_slot_or_a_group() {
        assert!(UnitEntry::group(5).is_group() && !UnitEntry::slot(5).is_group());
        assert_eq!(UnitEntry::group(5).number(), 5);
        assert_eq!(UnitEntry::slot(5).number(), 5);
    }

    proptest! {
        #[test]
        fn the_pages_of_a_blocks_only_region_find_its_slot_and_no_others(
            page in 0..PAGES_PER_BLOCK as u64, order in UNIT_ORDER..=MAX_REGION_ORDER,
            slot in 1..MAX_NUMBER, other in 0..PAGES_PER_BLOCK as u64,
        ) {
            let at = |page: u64| Va(WINDOW_BASE + 0x20_0000 + (page << PAGE_SHIFT));
            let region = Region::containing(at(page), order).unwrap();
            let head = Head::one(slot, region);
            prop_assert!(head.is_one() && !head.is_table() && !head.is_closed() && !head.is_empty());
            let expected = if region.contains(at(other)) { slot } else { 0 };
            prop_assert_eq!(head.slot_at(at(other)), expected);
            prop_assert_eq!(head.number(), slot);
            prop_assert!(head.is_of(at(other)) && !head.is_of(Va(WINDOW_BASE)));
            let (first, units) = head.units();
            prop_assert_eq!(first, unit_in_block(region.base()));
            prop_assert_eq!(units * PAGES_PER_UNIT, region.pages().count());
        }
    }
}
