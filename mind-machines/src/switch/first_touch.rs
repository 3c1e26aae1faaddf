//! Slots that are in no use: packets open them for regions that they touch first, as the XDP program does
//! (`mind-ebpf/src/switch/first_touch.rs`). The index can run out of tables as well, of which a block with several slots
//! takes one.

use std::collections::BTreeSet;

use mind_common::{
    addr::{BLOCK_SHIFT, PAGE_SHIFT, Region, Va},
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
        if !self.is_opening || !self.has_table_for(va.block()) {
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
        let left = self.left();
        let is_short = left.slots < left.low_slots || left.tables < left.low_tables;
        let was_told = std::mem::replace(&mut self.is_told, is_short);
        is_short && !was_told
    }

    pub(super) fn tell_again(&mut self) {
        self.is_told = false;
    }

    /// From now on, no more than so many blocks can have several slots which packets open.
    pub fn limit_tables(&mut self, tables: usize) {
        self.most_tables = Some(tables);
    }

    /// The slots that the pages of a block find.
    fn slots_in(&self, block: u64) -> BTreeSet<usize> {
        let (first, end) = (Va(block << BLOCK_SHIFT), Va((block + 1) << BLOCK_SHIFT));
        let pages = self.tables.pages.range(first..end);
        pages.map(|(_, slot)| *slot).collect()
    }

    /// How many tables are in no use, if that is limited.
    fn tables_left(&self) -> Option<usize> {
        let most = self.most_tables?;
        let blocks: BTreeSet<_> = self.tables.pages.keys().map(|page| page.block()).collect();
        let used = blocks
            .into_iter()
            .filter(|block| self.slots_in(*block).len() > 1);
        Some(most.saturating_sub(used.count()))
    }

    /// Whether the block can have one more slot.
    fn has_table_for(&self, block: u64) -> bool {
        self.tables_left() != Some(0) || self.slots_in(block).len() != 1
    }

    pub(super) fn left(&self) -> Left {
        let count = |slots: usize| u32::try_from(slots).unwrap_or(u32::MAX);
        Left {
            slots: count(self.free.len()),
            low_slots: count(self.slots.len().div_ceil(LOW_PART)),
            tables: count(self.tables_left().unwrap_or_default()),
            low_tables: count(self.most_tables.unwrap_or_default().div_ceil(LOW_PART)),
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
        (from..to).filter_map(|index| self.use_of(index)).collect()
    }

    /// The same of all slots of blocks whose first slot is among them, until there are `enough`; and the slot to go on
    /// with.
    pub(super) fn uses_in_blocks(
        &self,
        from: usize,
        to: usize,
        enough: usize,
    ) -> (Vec<Use>, usize) {
        let mut found = Vec::new();
        for index in from..to {
            if found.len() >= enough {
                return (found, index);
            }
            let Some(used) = self.use_of(index) else {
                continue;
            };
            let slots = self.slots_in(used.entry.region.base().block());
            if slots.first() == Some(&index) {
                found.extend(slots.into_iter().filter_map(|index| self.use_of(index)));
            }
        }
        (found, to)
    }

    fn use_of(&self, index: usize) -> Option<Use> {
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
