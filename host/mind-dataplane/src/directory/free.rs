//! The lists of slots, heads, tables and groups that are in no use: packets take from them and give back at the same time
//! (see [`FreeTop`]).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use mind_common::{
    directory::index::{
        Head,
        free::{self, FreeTop, Given, Lists, Taken},
    },
    table::FreeKind,
};

use super::Directory;

/// Of what is in a list when it is full, the part below which the controller is told that little is left.
const LOW_PART: u32 = 16;

impl Directory {
    /// How many things of a kind there are, the one that is never used among them.
    pub fn capacity(&self, kind: FreeKind) -> usize {
        match kind {
            FreeKind::Slots => self.slots.len(),
            FreeKind::Heads => self.heads.len(),
            FreeKind::Tables => self.tables.len(),
            FreeKind::Groups => self.groups.len(),
        }
    }

    /// How many are in the list of that kind.
    pub fn left(&self, kind: FreeKind) -> usize {
        let (given, taken) = self.counts(kind);
        let taken = taken.load(Ordering::Acquire);
        let left = given.load(Ordering::Acquire).wrapping_sub(taken);
        // Others take and give meanwhile.
        usize::try_from(left).map_or(0, |left| left.min(self.capacity(kind)))
    }

    /// Below how many the controller is told.
    pub fn low(&self, kind: FreeKind) -> usize {
        self.low_of(kind).load(Ordering::Acquire) as usize
    }

    /// Has the controller told again, of each kind, when some is taken and little is left.
    pub fn tell_again(&self) {
        for kind in FreeKind::ALL {
            self.is_told(kind).store(0, Ordering::Release);
        }
    }

    /// Takes one from the list; `None` if none is left.
    pub fn take(&self, kind: FreeKind) -> Option<u32> {
        loop {
            match free::try_take(self, kind, kind) {
                Taken::One(number) => {
                    self.counts(kind).1.fetch_add(1, Ordering::AcqRel);
                    return Some(number);
                }
                Taken::Nothing => return None,
                Taken::Changed => {}
            }
        }
    }

    /// Gives one to the list, to which no packet can have a way any more: it was never in use, or is
    /// [retired](super::Retired) and the packets that found it have left the switch. Numbers that there are not are
    /// ignored, and nothing gets into a closed list.
    pub fn give(&self, kind: FreeKind, number: u32) {
        if number == 0 || number as usize >= self.capacity(kind) {
            return;
        }
        loop {
            match free::try_give(self, kind, kind, number) {
                Given::Done => break,
                Given::Closed => return,
                Given::Changed => {}
            }
        }
        self.counts(kind).0.fetch_add(1, Ordering::AcqRel);
        if self.left(kind) >= self.low(kind) {
            self.is_told(kind).store(0, Ordering::Release);
        }
    }

    /// The list as it stands, and the number below the topmost.
    #[cfg(feature = "harness")]
    pub fn free_list(&self, kind: FreeKind) -> (mind_common::table::FreeList, u32) {
        // SAFETY: a value of the mapping, which lives as long as `self`; volatile, since programs may change it meanwhile,
        // and any bytes are a list.
        let list = unsafe { self.list(kind).read_volatile() };
        let topmost = FreeTop::from_raw(list.top).number();
        (list, self.next(kind, topmost))
    }

    /// Takes all that is in the list.
    pub fn drain(&self, kind: FreeKind) -> Vec<u32> {
        std::iter::from_fn(|| self.take(kind)).collect()
    }

    /// Closes the list: nothing can be taken from it, and what is given back does not get into it.
    pub fn close(&self, kind: FreeKind) {
        let top = self.top_at(kind);
        loop {
            let old = FreeTop::from_raw(top.load(Ordering::Acquire));
            if old.is_closed() || swap(top, old, old.closed()) {
                return;
            }
        }
    }

    /// Opens a closed list, with nothing in it; when the packets have left the switch that came before it was closed.
    pub fn reopen_list(&self, kind: FreeKind) {
        self.count_anew(kind);
        let top = self.top_at(kind);
        let old = FreeTop::from_raw(top.load(Ordering::Acquire));
        if old.is_closed() {
            top.store(old.with(0).raw(), Ordering::Release);
        }
    }

    /// Counts an empty list as empty, while nothing is taken or given: a controller that was killed may have taken what
    /// it did not count.
    fn count_anew(&self, kind: FreeKind) {
        let (given, taken) = self.counts(kind);
        taken.store(given.load(Ordering::Acquire), Ordering::Release);
    }

    /// Fills the lists of a directory that is in no use.
    pub(crate) fn fill_lists(&self) {
        for kind in FreeKind::ALL {
            let capacity = u32::try_from(self.capacity(kind)).unwrap_or(u32::MAX);
            // The lowest on top.
            for number in (1..capacity).rev() {
                self.give(kind, number);
            }
            let low = match kind {
                FreeKind::Slots | FreeKind::Tables => (capacity - 1).div_ceil(LOW_PART),
                // There are as many as can be needed.
                FreeKind::Heads | FreeKind::Groups => 0,
            };
            self.low_of(kind).store(low, Ordering::Release);
        }
    }

    /// What is neither in its list nor in `used`: a controller that has ended had retired it.
    pub(super) fn give_forgotten(&self, kind: FreeKind, used: impl IntoIterator<Item = u32>) {
        let mut known = vec![false; self.capacity(kind)];
        let listed = self.drain(kind);
        self.count_anew(kind);
        for number in used {
            if let Some(known) = known.get_mut(number as usize) {
                *known = true;
            }
        }
        for number in &listed {
            known[*number as usize] = true;
        }
        let forgotten = (1..).zip(&known[1..]).filter(|(_, known)| !**known);
        let forgotten = forgotten.map(|(number, _)| number);
        for number in listed.into_iter().chain(forgotten) {
            self.give(kind, number);
        }
    }

    fn top_at(&self, kind: FreeKind) -> &AtomicU64 {
        let at = self.list(kind);
        // SAFETY: a field of a value of the mapping, which lives as long as `self`; aligned, and reached through atomics
        // only. So below.
        unsafe { AtomicU64::from_ptr(&raw mut (*at).top) }
    }

    /// Given, and taken.
    fn counts(&self, kind: FreeKind) -> (&AtomicU64, &AtomicU64) {
        let at = self.list(kind);
        // SAFETY: see `top_at`.
        unsafe {
            (
                AtomicU64::from_ptr(&raw mut (*at).given),
                AtomicU64::from_ptr(&raw mut (*at).taken),
            )
        }
    }

    fn low_of(&self, kind: FreeKind) -> &AtomicU32 {
        let at = self.list(kind);
        // SAFETY: see `top_at`.
        unsafe { AtomicU32::from_ptr(&raw mut (*at).low) }
    }

    fn is_told(&self, kind: FreeKind) -> &AtomicU32 {
        let at = self.list(kind);
        // SAFETY: see `top_at`.
        unsafe { AtomicU32::from_ptr(&raw mut (*at).is_told) }
    }

    fn list(&self, kind: FreeKind) -> *mut mind_common::table::FreeList {
        let at = self.free.at(kind as usize);
        at.expect("the map has a value for each kind").as_ptr()
    }
}

impl Lists for Directory {
    type TopAt = FreeKind;

    fn top(&self, kind: FreeKind) -> FreeTop {
        FreeTop::from_raw(self.top_at(kind).load(Ordering::Acquire))
    }

    fn swap_top(&self, kind: FreeKind, old: FreeTop, new: FreeTop) -> bool {
        swap(self.top_at(kind), old, new)
    }

    fn next(&self, kind: FreeKind, number: u32) -> u32 {
        match kind {
            FreeKind::Slots => self.slot(number).map_or(0, |slot| slot.next_free()),
            FreeKind::Heads => self.head_at(number).map_or(0, |head| head.get().number()),
            FreeKind::Tables => self
                .table_at(number)
                .map_or(0, |table| table[0].load(Ordering::Acquire)),
            FreeKind::Groups => self
                .group_at(number)
                .map_or(0, |group| group[0].load(Ordering::Acquire)),
        }
    }

    fn set_next(&self, kind: FreeKind, number: u32, next: u32) {
        match kind {
            FreeKind::Slots => {
                if let Ok(slot) = self.slot(number) {
                    slot.set_next_free(next);
                }
            }
            FreeKind::Heads => {
                if let Some(head) = self.head_at(number) {
                    head.set(Head::free(next));
                }
            }
            FreeKind::Tables => link(self.table_at(number), next),
            FreeKind::Groups => link(self.group_at(number), next),
        }
    }
}

fn swap(top: &AtomicU64, old: FreeTop, new: FreeTop) -> bool {
    let swapped = top.compare_exchange(old.raw(), new.raw(), Ordering::AcqRel, Ordering::Acquire);
    swapped.is_ok()
}

/// Clears a table or a group but for its first entry, which becomes the number of the next one.
fn link(entries: Option<&[AtomicU32]>, next: u32) {
    if let Some([first, rest @ ..]) = entries {
        rest.iter()
            .for_each(|entry| entry.store(0, Ordering::Release));
        first.store(next, Ordering::Release);
    }
}
