//! A region's first touch: it gets a slot, which the [index](super) leads to from then on; and how a page finds
//! its slot at all.
//!
//! Packets on other processors may touch the same region or block first at the same time, and the controller may take
//! other regions out: every change is one compare-and-swap. A slot is filled in before anything leads to it; where
//! another packet was faster, it goes back to the list, and the other packet's counts.
//!
//! Written over [`Entries`], [`Finding`] and [`Changing`]: the XDP program has its maps for them, user space the same maps, and the
//! test of all orders in which two processors may go on memory of its own.

use super::{CLOSED, Head, UNIT_ORDER, UnitEntry, page_in_unit, unit_in_block};
use crate::{
    addr::{Region, Va},
    table::{FreeKind, MAX_TRIES},
};

/// Tables and groups. Loads are atomic.
pub trait Entries {
    /// Where an entry of one is.
    type EntryAt: Copy;

    /// Where the entry of a unit of that table is; `None` if there is no such table.
    fn unit_at(&self, table: u32, unit: usize) -> Option<Self::EntryAt>;
    /// Where the entry of a page of that group is; `None` if there is no such group.
    fn page_at(&self, group: u32, page: usize) -> Option<Self::EntryAt>;
    /// What is there.
    fn entry(&self, at: Self::EntryAt) -> u32;
}

/// An index in which pages find slots. Loads are atomic.
pub trait Finding: Entries {
    /// Where a head is.
    type HeadAt: Copy;

    /// The head of the block that `va` is in, or [that of another one](Head::is_of); `None` if the block has none.
    fn head_of(&self, va: Va) -> Option<Self::HeadAt>;
    /// What is there.
    fn head(&self, at: Self::HeadAt) -> Head;
}

/// An index in which regions get slots. Swaps are atomic.
pub trait Changing: Finding {
    /// Stores `new` if `old` is there; whether it was.
    fn swap_head(&self, at: Self::HeadAt, old: Head, new: Head) -> bool;
    /// Stores `slot` if nothing, 0, is there; whether that was so.
    fn fill_entry(&self, at: Self::EntryAt, slot: u32) -> bool;
    /// Gives the block that `va` is in the head of that number, which becomes `head`; whether it had none.
    fn insert_head(&self, number: u32, va: Va, head: Head) -> bool;
    /// Has a table that nothing leads to lead to what `head` leads to, and the unit to `slot`; nothing else.
    fn fill_table(&self, table: u32, head: Head, unit: usize, slot: u32);
    /// Makes that table empty again.
    fn clear_table(&self, table: u32, head: Head, unit: usize);
    /// Makes a slot that nothing leads to that of a region that no blade has.
    fn prepare_slot(&self, slot: u32, region: Region);
    /// Makes a slot that nothing leads to free.
    fn free_slot(&self, slot: u32);
    /// Takes one from a list; 0 if none is left, or others take too many at the same time.
    fn take(&self, kind: FreeKind) -> u32;
    /// Gives one back to its list.
    fn give(&self, kind: FreeKind, number: u32);

    /// See [`attempt`]. The XDP program has a subprogram of it, so that the verifier goes through one of them only.
    fn attempt(&self, va: Va, slot: u32) -> u32;
}

/// What the page at `va` finds: its slot's number, 0 for none, or [`CLOSED`].
#[inline(always)]
pub fn find<I: Finding>(index: &I, va: Va) -> u32 {
    let Some(at) = index.head_of(va) else {
        return 0;
    };
    let head = index.head(at);
    // The entry may have become another block's since it was found (`htab_map_update_elem` uses entries again at once).
    if !head.is_of(va) {
        return 0;
    }
    find_from(index, head, va)
}

/// The same, where the head of its block is known.
#[inline(always)]
pub fn find_from<I: Entries>(index: &I, head: Head, va: Va) -> u32 {
    if !head.is_table() {
        return head.slot_at(va);
    }
    let Some(at) = index.unit_at(head.number(), unit_in_block(va)) else {
        return 0;
    };
    let entry = UnitEntry::from_raw(index.entry(at));
    if !entry.is_group() {
        return entry.number();
    }
    match index.page_at(entry.number(), page_in_unit(va)) {
        Some(at) => index.entry(at),
        None => 0,
    }
}

/// Gives the region of the page at `va` a slot, unless it has one meanwhile. The slot's number; 0 if none is left,
/// [`CLOSED`] if that cannot be said just now.
#[inline(always)]
pub fn open<I: Changing>(index: &I, va: Va) -> u32 {
    let slot = index.take(FreeKind::Slots);
    if slot == 0 {
        return 0;
    }
    for _ in 0..MAX_TRIES {
        let found = index.attempt(va, slot);
        if found == slot {
            return slot;
        }
        if found != CLOSED {
            give_back(index, slot);
            return found;
        }
    }
    give_back(index, slot);
    CLOSED
}

#[inline(always)]
fn give_back<I: Changing>(index: &I, slot: u32) {
    index.free_slot(slot);
    index.give(FreeKind::Slots, slot);
}

/// Tries to give the region of the page at `va` that slot, which is in no use. What the page finds then, as of [`open`];
/// [`CLOSED`] if another attempt may do it.
#[inline(always)]
pub fn attempt<I: Changing>(index: &I, va: Va, slot: u32) -> u32 {
    match insert(index, va, slot) {
        Insertion::Done => slot,
        Insertion::Full => 0,
        Insertion::Changed => match find(index, va) {
            0 => CLOSED,
            found => found,
        },
    }
}

/// What came of making a page find a slot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Insertion {
    /// The page finds the slot.
    Done,
    /// Something was changed meanwhile.
    Changed,
    /// No head or table is left.
    Full,
}

impl Insertion {
    #[inline(always)]
    const fn of(is_done: bool) -> Self {
        if is_done { Self::Done } else { Self::Changed }
    }
}

/// Makes the region of the page find the slot.
#[inline(always)]
fn insert<I: Changing>(index: &I, va: Va, slot: u32) -> Insertion {
    let Some(unit) = Region::containing(va, UNIT_ORDER) else {
        return Insertion::Changed;
    };
    let Some(at) = index.head_of(va) else {
        index.prepare_slot(slot, unit);
        return insert_head(index, va, Head::one(slot, unit));
    };
    let head = index.head(at);
    if !head.is_of(va) {
        return Insertion::Changed;
    }
    if head.is_table() {
        return insert_in_table(index, head.number(), va, slot);
    }
    index.prepare_slot(slot, unit);
    if head.is_empty() {
        return Insertion::of(index.swap_head(at, head, Head::one(slot, unit)));
    }
    // The page may have one since another packet touched it, or the head be closed.
    if head.slot_at(va) != 0 {
        return Insertion::Changed;
    }
    // A second region: a table takes the place of the first one.
    let table = index.take(FreeKind::Tables);
    if table == 0 {
        return Insertion::Full;
    }
    index.fill_table(table, head, unit_in_block(va), slot);
    let is_in_place = index.swap_head(at, head, Head::table(table, va));
    if !is_in_place {
        index.clear_table(table, head, unit_in_block(va));
        index.give(FreeKind::Tables, table);
    }
    Insertion::of(is_in_place)
}

#[inline(always)]
fn insert_in_table<I: Changing>(index: &I, table: u32, va: Va, slot: u32) -> Insertion {
    let Some(at) = index.unit_at(table, unit_in_block(va)) else {
        return Insertion::Changed;
    };
    let entry = UnitEntry::from_raw(index.entry(at));
    if !entry.is_group() {
        prepare(index, slot, va, UNIT_ORDER);
        return Insertion::of(index.fill_entry(at, slot));
    }
    let Some(at) = index.page_at(entry.number(), page_in_unit(va)) else {
        return Insertion::Changed;
    };
    // Regions of this unit are smaller, and where there is none, only a page is sure to be in no other.
    prepare(index, slot, va, 0);
    Insertion::of(index.fill_entry(at, slot))
}

#[inline(always)]
fn prepare<I: Changing>(index: &I, slot: u32, va: Va, order: u8) {
    if let Some(region) = Region::containing(va, order) {
        index.prepare_slot(slot, region);
    }
}

/// The block has no head: it gets that one.
#[inline(always)]
fn insert_head<I: Changing>(index: &I, va: Va, head: Head) -> Insertion {
    let number = index.take(FreeKind::Heads);
    if number == 0 {
        return Insertion::Full;
    }
    let is_in_place = index.insert_head(number, va, head);
    if !is_in_place {
        index.give(FreeKind::Heads, number);
    }
    Insertion::of(is_in_place)
}
