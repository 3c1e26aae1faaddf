//! A region's first touch: it gets a slot, which the [index](mind_common::directory::index) leads to from then on.
//!
//! Packets on other processors may touch the same region or block first at the same time, and the controller may take
//! other regions out: every change is one compare-and-swap. A slot is filled in before anything leads to it; where
//! another packet was faster, it goes back to the list, and the other packet's counts.
//!
//! All of this is a subprogram that the verifier checks by itself: few packets come here.

use mind_common::{
    addr::{Region, Va},
    directory::{
        Origin, State, Word,
        index::{self, CLOSED, FreeTop, Head, UNIT_ORDER, UNITS_PER_BLOCK, UnitEntry},
    },
    id::BladeSet,
    serial::Seq,
    table::{FreeKind, FreeList, MAX_TRIES, Slot},
};

use super::directory;
use crate::{atomics, maps};

/// `BPF_NOEXIST` of `bpf_map_update_elem`: only where there is no entry.
const NO_EXIST: u64 = 1;

/// Gives the region of the page at `va` a slot, unless it has one meanwhile. The slot's number; 0 if none is left,
/// [`CLOSED`] if that cannot be said just now.
#[inline(always)]
pub fn open(va: Va) -> u32 {
    mind_open_slot(va.0)
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn mind_open_slot(va: u64) -> u32 {
    let va = Va(va);
    let slot = take(FreeKind::Slots);
    if slot == 0 {
        return 0;
    }
    for _ in 0..MAX_TRIES {
        match insert(va, slot) {
            Insertion::Done => return slot,
            Insertion::Full => {
                give_back(slot);
                return 0;
            }
            Insertion::Changed => {}
        }
        let found = directory::number(va);
        if found != 0 {
            give_back(slot);
            return found;
        }
    }
    give_back(slot);
    CLOSED
}

/// What came of an attempt.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Insertion {
    /// The page finds the slot.
    Done,
    /// Something was changed meanwhile.
    Changed,
    /// No head or table is left.
    Full,
}

/// Makes the region of the page find the slot.
#[inline(always)]
fn insert(va: Va, slot: u32) -> Insertion {
    let unit = index::unit_in_block(va);
    let Some(at) = directory::head_of(va) else {
        prepare(slot, va, UNIT_ORDER);
        return insert_block(va, slot);
    };
    // SAFETY: the pointer is a lookup's; so below.
    let head = Head::from_raw(unsafe { atomics::load(at) });
    if !head.is_of(va) {
        return Insertion::Changed;
    }
    if head.is_table() {
        let Some(table) = maps::TABLES.get_ptr_mut(head.number()) else {
            return Insertion::Changed;
        };
        // SAFETY: a unit's place in its block is below their number.
        let at = unsafe { (&raw mut (*table)[0]).add(unit) };
        // SAFETY: see above.
        let entry = UnitEntry::from_raw(unsafe { atomics::load(at) });
        if !entry.is_group() {
            prepare(slot, va, UNIT_ORDER);
            // SAFETY: see above.
            return swapped(unsafe { atomics::swap(at, 0, slot) });
        }
        let Some(group) = maps::GROUPS.get_ptr_mut(entry.number()) else {
            return Insertion::Changed;
        };
        // Regions of this unit are smaller, and where there is none, only a page is sure to be in no other.
        prepare(slot, va, 0);
        // SAFETY: a page's place in its unit is below their number.
        return swapped(unsafe {
            let at = (&raw mut (*group)[0]).add(index::page_in_unit(va));
            atomics::swap(at, 0, slot)
        });
    }
    prepare(slot, va, UNIT_ORDER);
    if head.is_empty() {
        let Some(region) = Region::containing(va, UNIT_ORDER) else {
            return Insertion::Changed;
        };
        let one = Head::one(slot, region);
        // SAFETY: see above.
        return swapped(unsafe { atomics::swap(at, head.raw(), one.raw()) });
    }
    // It may be the only one of its block since another packet touched it.
    if head.is_closed() || head.slot_at(va) != 0 {
        return Insertion::Changed;
    }
    // A second region: a table takes the place of the first one.
    let table = take(FreeKind::Tables);
    if table == 0 {
        return Insertion::Full;
    }
    mind_fill_table(table, head.raw(), head.number());
    put(table, unit, slot);
    let new = Head::table(table, va);
    // SAFETY: see above.
    let is_in_place = unsafe { atomics::swap(at, head.raw(), new.raw()) };
    if !is_in_place {
        mind_fill_table(table, head.raw(), 0);
        put(table, unit, 0);
        give(FreeKind::Tables, table);
    }
    swapped(is_in_place)
}

#[inline(always)]
const fn swapped(is_swapped: bool) -> Insertion {
    if is_swapped {
        Insertion::Done
    } else {
        Insertion::Changed
    }
}

/// The block has no head: it gets one that leads to the slot.
#[inline(always)]
fn insert_block(va: Va, slot: u32) -> Insertion {
    let number = take(FreeKind::Heads);
    let (Some(at), Some(region)) = (
        maps::HEADS.get_ptr_mut(number),
        Region::containing(va, UNIT_ORDER),
    ) else {
        return Insertion::Full;
    };
    if number == 0 {
        return Insertion::Full;
    }
    // SAFETY: the pointer is a lookup's; nothing leads to it yet.
    unsafe { at.write_volatile(Head::one(slot, region).raw()) };
    if maps::BLOCKS.insert(va.block(), number, NO_EXIST).is_ok() {
        return Insertion::Done;
    }
    give(FreeKind::Heads, number);
    Insertion::Changed
}

/// Has a unit find a slot in a table that nothing leads to.
#[inline(always)]
fn put(table: u32, unit: usize, slot: u32) {
    if let Some(at) = maps::TABLES.get_ptr_mut(table) {
        // SAFETY: the pointer is a lookup's, and the place below the table's length.
        unsafe {
            (&raw mut (*at)[0])
                .add(unit % UNITS_PER_BLOCK)
                .write_volatile(slot);
        }
    }
}

/// Has the units of `head`'s only region find `slot` in a table that nothing leads to, and is otherwise empty.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn mind_fill_table(table: u32, head: u64, slot: u32) -> u32 {
    let Some(at) = maps::TABLES.get_ptr_mut(table) else {
        return 0;
    };
    // SAFETY: the pointer is a lookup's; so below. The first entry had the number of the next one in the list.
    unsafe { (&raw mut (*at)[0]).write_volatile(0) };
    let (first, units) = Head::from_raw(head).units();
    for unit in 0..UNITS_PER_BLOCK {
        if unit >= units {
            break;
        }
        // SAFETY: the place is below the table's length.
        unsafe {
            (&raw mut (*at)[0])
                .add((first + unit) % UNITS_PER_BLOCK)
                .write_volatile(slot);
        }
    }
    1
}

/// Makes a slot of this processor's own that of the region of that order which `va` is in; no blade has it.
#[inline(always)]
fn prepare(slot: u32, va: Va, order: u8) {
    let (Some(at), Some(region)) = (maps::SLOTS.get_ptr_mut(slot), Region::containing(va, order))
    else {
        return;
    };
    // SAFETY: the pointer is a lookup's; nothing leads to the slot yet.
    unsafe {
        let episode = Word::from_raw(atomics::load(&raw const (*at).word))
            .episode()
            .next();
        let word = Word::default()
            .with_episode(episode)
            .settled(State::Invalid, BladeSet::EMPTY);
        // Of this episode, so that later origins replace it.
        let origin = Origin::new(episode, Seq::default(), region.base());
        (&raw mut (*at).permit).write_volatile(0);
        (&raw mut (*at).place).write_volatile(0);
        (&raw mut (*at).origin).write_volatile(origin.raw());
        (&raw mut (*at).queue).write_volatile(0);
        (&raw mut (*at).accesses).write_volatile(0);
        (&raw mut (*at).invalidations).write_volatile(0);
        (&raw mut (*at).dropped).write_volatile(0);
        (&raw mut (*at).flushed).write_volatile(0);
        (&raw mut (*at).region).write_volatile(Slot::pack(region));
        (&raw mut (*at).word).write_volatile(word.raw());
    }
}

/// A slot to which nothing leads goes back.
#[inline(always)]
fn give_back(slot: u32) {
    if let Some(at) = maps::SLOTS.get_ptr_mut(slot) {
        // SAFETY: the pointer is a lookup's; nothing leads to the slot.
        unsafe {
            let word = Word::from_raw(atomics::load(&raw const (*at).word));
            let free = word.settled(State::Free, BladeSet::EMPTY);
            (&raw mut (*at).word).write_volatile(free.raw());
            (&raw mut (*at).region).write_volatile(0);
        }
        give(FreeKind::Slots, slot);
    }
}

/// Takes one from a list; 0 if none is left, or others take too many at the same time.
#[inline(always)]
fn take(kind: FreeKind) -> u32 {
    mind_take(kind as u32)
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn mind_take(kind: u32) -> u32 {
    let Some(list) = maps::FREE.get_ptr_mut(kind) else {
        return 0;
    };
    for _ in 0..MAX_TRIES {
        // SAFETY: the pointer is a lookup's; so below.
        let top = FreeTop::from_raw(unsafe { atomics::load(&raw const (*list).top) });
        let number = top.number();
        if number == 0 {
            break;
        }
        let new = top.with(next(kind, number));
        // SAFETY: see above.
        if unsafe { atomics::swap(&raw mut (*list).top, top.raw(), new.raw()) } {
            // SAFETY: see above.
            unsafe { atomics::add(&raw mut (*list).taken, 1) };
            tell(list, kind);
            return number;
        }
    }
    tell(list, kind);
    0
}

/// Gives one back to its list. If the list is closed, or others change it too often meanwhile, it is in no use until the
/// controller looks for such.
#[inline(always)]
fn give(kind: FreeKind, number: u32) {
    mind_give(kind as u32, number);
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn mind_give(kind: u32, number: u32) -> u32 {
    let Some(list) = maps::FREE.get_ptr_mut(kind) else {
        return 0;
    };
    for _ in 0..MAX_TRIES {
        // SAFETY: the pointer is a lookup's; so below.
        let top = FreeTop::from_raw(unsafe { atomics::load(&raw const (*list).top) });
        if top.is_closed() {
            break;
        }
        set_next(kind, number, top.number());
        // SAFETY: see above.
        if unsafe { atomics::swap(&raw mut (*list).top, top.raw(), top.with(number).raw()) } {
            // SAFETY: see above.
            unsafe { atomics::add(&raw mut (*list).given, 1) };
            return 1;
        }
    }
    0
}

/// Which is the next one in the list.
#[inline(always)]
fn next(kind: u32, number: u32) -> u32 {
    // SAFETY: pointers are lookups'.
    unsafe {
        if kind == FreeKind::Slots as u32 {
            maps::SLOTS
                .get_ptr(number)
                .map_or(0, |at| atomics::load(&raw const (*at).place) as u32)
        } else if kind == FreeKind::Heads as u32 {
            maps::HEADS
                .get_ptr(number)
                .map_or(0, |at| Head::from_raw(atomics::load(at)).number())
        } else {
            maps::TABLES
                .get_ptr(number)
                .map_or(0, |at| atomics::load(&raw const (*at)[0]))
        }
    }
}

#[inline(always)]
fn set_next(kind: u32, number: u32, next: u32) {
    // SAFETY: pointers are lookups'; nothing else leads to what is given back.
    unsafe {
        if kind == FreeKind::Slots as u32 {
            if let Some(at) = maps::SLOTS.get_ptr_mut(number) {
                (&raw mut (*at).place).write_volatile(next as u64);
            }
        } else if kind == FreeKind::Heads as u32 {
            if let Some(at) = maps::HEADS.get_ptr_mut(number) {
                at.write_volatile(Head::free(next).raw());
            }
        } else if let Some(at) = maps::TABLES.get_ptr_mut(number) {
            (&raw mut (*at)[0]).write_volatile(next);
        }
    }
}

/// Tells the controller, once, that little is left.
#[inline(always)]
fn tell(list: *mut FreeList, kind: u32) {
    // SAFETY: the pointer is a lookup's.
    unsafe {
        let given = atomics::load(&raw const (*list).given);
        let left = given.wrapping_sub(atomics::load(&raw const (*list).taken));
        let low = atomics::load(&raw const (*list).low) as u64;
        if left < low && atomics::swap(&raw mut (*list).is_told, 0u32, 1u32) {
            // Where the ring is full, the controller has been told of something.
            let _ = maps::SHORT.output::<u64>(&(kind as u64), 0);
        }
    }
}
