//! A region's first touch: it gets a slot, as [`opening`] says, here in the program's maps.
//!
//! All of this is in subprograms that the verifier checks by themselves: few packets come here.

use mind_common::{
    addr::{Region, Va},
    directory::{
        Origin, State, Word,
        index::{
            Head, UNITS_PER_BLOCK,
            free::{self, FreeTop, Given, Lists, Taken},
            opening::{self, Changing},
        },
    },
    id::BladeSet,
    serial::Seq,
    table::{FreeKind, FreeList, MAX_TRIES, Slot},
};

use super::directory::Index;
use crate::{atomics, maps};

/// `BPF_NOEXIST` of `bpf_map_update_elem`: only where there is no entry.
const NO_EXIST: u64 = 1;

/// Gives the region of the page at `va` a slot: see [`opening::open`].
#[inline(always)]
pub fn open(va: Va) -> u32 {
    mind_open_slot(va.0)
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn mind_open_slot(va: u64) -> u32 {
    opening::open(&Index, Va(va))
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn mind_attempt(va: u64, slot: u32) -> u32 {
    opening::attempt(&Index, Va(va), slot)
}

impl Changing for Index {
    #[inline(always)]
    fn swap_head(&self, at: *mut u64, old: Head, new: Head) -> bool {
        // SAFETY: the pointer is a lookup's.
        unsafe { atomics::swap(at, old.raw(), new.raw()) }
    }

    #[inline(always)]
    fn fill_entry(&self, at: *mut u32, slot: u32) -> bool {
        // SAFETY: the pointer is a lookup's, and the place below the length of what it leads to.
        unsafe { atomics::swap(at, 0, slot) }
    }

    #[inline(always)]
    fn insert_head(&self, number: u32, va: Va, head: Head) -> bool {
        let Some(at) = maps::HEADS.get_ptr_mut(number) else {
            return false;
        };
        // SAFETY: the pointer is a lookup's; nothing leads to it yet.
        unsafe { at.write_volatile(head.raw()) };
        maps::BLOCKS.insert(va.block(), number, NO_EXIST).is_ok()
    }

    #[inline(always)]
    fn fill_table(&self, table: u32, head: Head, unit: usize, slot: u32) {
        mind_fill_table(table, head.raw(), head.number());
        put(table, unit, slot);
    }

    #[inline(always)]
    fn clear_table(&self, table: u32, head: Head, unit: usize) {
        mind_fill_table(table, head.raw(), 0);
        put(table, unit, 0);
    }

    #[inline(always)]
    fn prepare_slot(&self, slot: u32, region: Region) {
        prepare(slot, region);
    }

    #[inline(always)]
    fn free_slot(&self, slot: u32) {
        if let Some(at) = maps::SLOTS.get_ptr_mut(slot) {
            // SAFETY: the pointer is a lookup's; nothing leads to the slot.
            unsafe {
                let word = Word::from_raw(atomics::load(&raw const (*at).word));
                let free = word.settled(State::Free, BladeSet::EMPTY);
                (&raw mut (*at).word).write_volatile(free.raw());
                (&raw mut (*at).region).write_volatile(0);
            }
        }
    }

    #[inline(always)]
    fn take(&self, kind: FreeKind) -> u32 {
        mind_take(kind as u32)
    }

    #[inline(always)]
    fn give(&self, kind: FreeKind, number: u32) {
        mind_give(kind as u32, number);
    }

    #[inline(always)]
    fn attempt(&self, va: Va, slot: u32) -> u32 {
        mind_attempt(va.0, slot)
    }
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

/// Makes a slot of this processor's own that of a region that no blade has.
#[inline(always)]
fn prepare(slot: u32, region: Region) {
    let Some(at) = maps::SLOTS.get_ptr_mut(slot) else {
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

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn mind_take(kind: u32) -> u32 {
    let (Some(list), Some(kind)) = (maps::FREE.get_ptr_mut(kind), FreeKind::from_raw(kind)) else {
        return 0;
    };
    for _ in 0..MAX_TRIES {
        match free::try_take(&Index, list, kind) {
            Taken::One(number) => {
                // SAFETY: the pointer is a lookup's.
                unsafe { atomics::add(&raw mut (*list).taken, 1) };
                tell(list, kind);
                return number;
            }
            Taken::Nothing => {
                tell(list, kind);
                return 0;
            }
            Taken::Changed => {}
        }
    }
    0
}

/// If the list is closed, or others change it too often meanwhile, it is in no use until the controller looks for such.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn mind_give(kind: u32, number: u32) -> u32 {
    let (Some(list), Some(kind)) = (maps::FREE.get_ptr_mut(kind), FreeKind::from_raw(kind)) else {
        return 0;
    };
    for _ in 0..MAX_TRIES {
        match free::try_give(&Index, list, kind, number) {
            Given::Done => {
                // SAFETY: the pointer is a lookup's.
                unsafe { atomics::add(&raw mut (*list).given, 1) };
                return 1;
            }
            Given::Closed => break,
            Given::Changed => {}
        }
    }
    0
}

impl Lists for Index {
    type TopAt = *mut FreeList;

    #[inline(always)]
    fn top(&self, at: *mut FreeList) -> FreeTop {
        // SAFETY: the pointer is a lookup's.
        FreeTop::from_raw(unsafe { atomics::load(&raw const (*at).top) })
    }

    #[inline(always)]
    fn swap_top(&self, at: *mut FreeList, old: FreeTop, new: FreeTop) -> bool {
        // SAFETY: the pointer is a lookup's.
        unsafe { atomics::swap(&raw mut (*at).top, old.raw(), new.raw()) }
    }

    #[inline(always)]
    fn next(&self, kind: FreeKind, number: u32) -> u32 {
        // SAFETY: pointers are lookups'.
        unsafe {
            match kind {
                FreeKind::Slots => maps::SLOTS
                    .get_ptr(number)
                    .map_or(0, |at| atomics::load(&raw const (*at).place) as u32),
                FreeKind::Heads => maps::HEADS
                    .get_ptr(number)
                    .map_or(0, |at| Head::from_raw(atomics::load(at)).number()),
                FreeKind::Tables | FreeKind::Groups => maps::TABLES
                    .get_ptr(number)
                    .map_or(0, |at| atomics::load(&raw const (*at)[0])),
            }
        }
    }

    #[inline(always)]
    fn set_next(&self, kind: FreeKind, number: u32, next: u32) {
        // SAFETY: pointers are lookups'; nothing else leads to what is given back.
        unsafe {
            match kind {
                FreeKind::Slots => {
                    if let Some(at) = maps::SLOTS.get_ptr_mut(number) {
                        (&raw mut (*at).place).write_volatile(next as u64);
                    }
                }
                FreeKind::Heads => {
                    if let Some(at) = maps::HEADS.get_ptr_mut(number) {
                        at.write_volatile(Head::free(next).raw());
                    }
                }
                FreeKind::Tables | FreeKind::Groups => {
                    if let Some(at) = maps::TABLES.get_ptr_mut(number) {
                        (&raw mut (*at)[0]).write_volatile(next);
                    }
                }
            }
        }
    }
}

/// Tells the controller, once, that little is left.
#[inline(always)]
fn tell(list: *mut FreeList, kind: FreeKind) {
    // SAFETY: the pointer is a lookup's.
    unsafe {
        let given = atomics::load(&raw const (*list).given);
        let left = given.wrapping_sub(atomics::load(&raw const (*list).taken));
        let low = atomics::load(&raw const (*list).low) as u64;
        if left < low && atomics::swap(&raw mut (*list).is_told, 0u32, 1u32) {
            // Where the ring is full, the controller has been told of something.
            let _ = maps::SHORT.output::<u64>(&(kind as u32 as u64), 0);
        }
    }
}
