//! Slots that are in no use: packets open them for regions that they touch first, as the XDP program does
//! (`mind-ebpf/src/switch/first_touch.rs`). The real index can run out of tables as well; this one cannot.

use mind_common::{
    addr::{PAGE_SHIFT, Region, Va},
    directory::{State, Word, index::UNIT_ORDER},
    id::BladeSet,
};

use super::{Switch, slot::index};
use crate::controller::{Left, Use, interface::Entry};

/// Of all slots, the part below which little is left.
const LOW_PART: usize = 16;

impl Switch {
    /// Opens a slot for the region of a page that has none, unless another packet did so meanwhile; its index.
    pub(super) fn touch_first(&mut self, va: Va) -> Option<usize> {
        if let Some(index) = self.tables.slot(va) {
            return Some(index);
        }
        if !self.is_opening {
            return None;
        }
        let index = self.free.pop_first()?;
        let unit = Region::containing(va, UNIT_ORDER)?;
        // Where other pages of the unit have slots, their regions are smaller.
        let is_whole = unit.pages().all(|page| self.tables.slot(page).is_none());
        let order = if is_whole { UNIT_ORDER } else { 0 };
        let region = Region::containing(va, order)?;
        let word = Word::default().settled(State::Invalid, BladeSet::EMPTY);
        self.open(index, region, word);
        self.assign(region, Some(index));
        Some(index)
    }

    /// Slots that packets can open, or will be able to.
    pub fn free_slots(&self) -> usize {
        self.free.len() + self.retired.len()
    }

    /// Slots that the controller [gives](crate::controller::Act::GiveSlots) while packets are in the switch that may have
    /// found them: they cannot be opened yet.
    pub fn retire(&mut self, slots: &[u32]) {
        self.retired.extend(slots.iter().map(|slot| index(*slot)));
    }

    /// The packets have left: these can be opened now.
    pub fn packets_left(&mut self, slots: &[u32]) {
        for index in slots.iter().map(|slot| index(*slot)) {
            if self.retired.remove(&index) {
                self.free.insert(index);
            }
        }
    }

    /// Whether the controller is to be told now that little is left: once, until enough is left again or it wants to be
    /// [told again](crate::controller::Act::TellAgain).
    pub fn tells_of_shortage(&mut self) -> bool {
        let is_short = self.free.len() < self.low();
        let was_told = std::mem::replace(&mut self.is_told, is_short);
        is_short && !was_told
    }

    pub(super) fn tell_again(&mut self) {
        self.is_told = false;
    }

    fn low(&self) -> usize {
        self.slots.len().div_ceil(LOW_PART)
    }

    pub(super) fn left(&self) -> Left {
        let count = |slots: usize| u32::try_from(slots).unwrap_or(u32::MAX);
        Left {
            slots: count(self.free.len()),
            low_slots: count(self.low()),
            tables: 0,
            low_tables: 0,
        }
    }

    pub(super) fn take_slot(&mut self) -> Option<usize> {
        self.free.pop_first()
    }

    pub(super) fn give_slot(&mut self, index: usize) {
        self.free.insert(index);
    }

    pub(super) fn stop_opening(&mut self) {
        self.is_opening = false;
        self.free.clear();
        self.retired.clear();
    }

    pub(super) fn start_opening(&mut self) {
        let free =
            (0..self.slots.len()).filter(|index| self.slots[*index].word.state() == State::Free);
        self.free = free.collect();
        self.is_opening = true;
    }

    /// What the slots from one to another are used for.
    pub(super) fn uses(&self, from: usize, to: usize) -> Vec<Use> {
        let used = (from..to).filter_map(|index| {
            let slot = &self.slots[index];
            let region = slot.region.filter(|_| slot.word.state() != State::Free)?;
            Some(Use {
                entry: Entry {
                    region,
                    slot: super::slot::number(index),
                },
                word: slot.word,
                // Accesses are not counted; each invalidation begins an episode.
                accesses: slot.word.episode().get(),
            })
        });
        used.collect()
    }

    /// The region that the pages are which find a slot, if they are one.
    pub(super) fn region_of_pages(&self, index: usize) -> Option<Region> {
        let pages = self.tables.pages.iter();
        let mut pages = pages.filter(|(_, slot)| **slot == index);
        let first = *pages.next()?.0;
        let count = pages.count() as u64 + 1;
        let region = Region::containing(first, count.ilog2() as u8)?;
        (region.base() == first && region.size() == count << PAGE_SHIFT).then_some(region)
    }
}
