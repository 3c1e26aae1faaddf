//! The directory: slots with the live words and queues, how pages find them, and which regions get them at first touch.

use mind_common::{
    addr::{PAGES_PER_BLOCK, Region, Va},
    directory::{Queue, State, Word},
    id::BladeSet,
};

use crate::trace::access::{page_of, va};

/// A slot.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slot {
    pub(super) word: Word,
    pub(super) queue: Queue,
    /// What it is for; nothing while it is in no use.
    pub(super) region: Option<Region>,
    /// Requests for pages of its region.
    pub(super) touches: u32,
    /// How many there were when it was last looked at to take it back.
    pub(super) seen: u32,
    /// Pages falsely invalidated in this epoch.
    pub(super) falsely: u32,
}

/// Slots that pages find. Number 0 is never used.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) slots: Vec<Slot>,
    /// Those in no use.
    free: Vec<u32>,
    /// How many there may be, number 0 among them.
    limit: Option<u32>,
    /// Which slot each page finds, or 0.
    blocks: Vec<Option<Box<[u32; PAGES_PER_BLOCK]>>>,
    used: u32,
    /// The most that were used.
    most: u32,
    /// Slots of whose regions pages were falsely invalidated in this epoch; some of them may be other regions' by now.
    marked: Vec<u32>,
}

impl Directory {
    /// An empty one, of at most `limit` slots.
    pub(super) fn new(limit: Option<u32>) -> Self {
        Self {
            slots: vec![Slot::default()],
            free: Vec::new(),
            limit,
            blocks: Vec::new(),
            used: 0,
            most: 0,
            marked: Vec::new(),
        }
    }

    /// The slot that a page finds; 0 for none.
    pub(super) fn find(&self, page: u32) -> u32 {
        let (block, at) = (
            page as usize / PAGES_PER_BLOCK,
            page as usize % PAGES_PER_BLOCK,
        );
        match self.blocks.get(block) {
            Some(Some(block)) => block[at],
            _ => 0,
        }
    }

    /// The slot of a region; `None` if it has none, or its pages are another region's.
    pub(super) fn slot_of(&self, region: Region) -> Option<u32> {
        let slot = self.find(page_of(region.base()));
        (self.slots[slot as usize].region == Some(region)).then_some(slot)
    }

    pub(super) fn slot(&self, number: u32) -> &Slot {
        &self.slots[number as usize]
    }

    pub(super) fn slot_mut(&mut self, number: u32) -> &mut Slot {
        &mut self.slots[number as usize]
    }

    /// Slots that are used, and the most that were.
    pub(super) const fn used(&self) -> (u32, u32) {
        (self.used, self.most)
    }

    /// Slots that can be used; `None` for any number.
    pub(super) fn usable(&self) -> Option<u32> {
        self.limit.map(|limit| limit.saturating_sub(1))
    }

    /// Slots that are left; `None` for any number.
    pub(super) fn left(&self) -> Option<u32> {
        self.usable().map(|usable| usable.saturating_sub(self.used))
    }

    /// Gives the region of a page that has no slot one, with the word of a region that no blade has: the region of that
    /// order, or the page alone where others of that region have slots (as `mind_machines::switch`). `None` if no slot
    /// is left.
    pub(super) fn open(&mut self, page: u32, order: u8) -> Option<u32> {
        let whole = Region::containing(va(page), order)?;
        let is_whole = whole.pages().all(|page| self.find(page_of(page)) == 0);
        let region = match is_whole {
            true => whole,
            false => Region::containing(va(page), 0)?,
        };
        let number = self.take()?;
        let slot = self.slot_mut(number);
        *slot = Slot {
            word: slot.word.settled(State::Invalid, BladeSet::EMPTY),
            region: Some(region),
            ..Slot::default()
        };
        self.lead(region, number);
        Some(number)
    }

    /// A slot that was in no use. Its word is free, and keeps its episode.
    pub(super) fn take(&mut self) -> Option<u32> {
        if self.left() == Some(0) {
            return None;
        }
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                self.slots.push(Slot::default());
                u32::try_from(self.slots.len() - 1).ok()?
            }
        };
        self.used += 1;
        self.most = self.most.max(self.used);
        Some(number)
    }

    /// A slot is in no use any more; no page finds it.
    pub(super) fn release(&mut self, number: u32) {
        let slot = self.slot_mut(number);
        *slot = Slot {
            word: slot.word.settled(State::Free, BladeSet::EMPTY),
            ..Slot::default()
        };
        self.free.push(number);
        self.used -= 1;
    }

    /// The pages of a region find that slot from now on, or none with 0.
    pub(super) fn lead(&mut self, region: Region, slot: u32) {
        let first = page_of(region.base()) as usize;
        let (block, at) = (first / PAGES_PER_BLOCK, first % PAGES_PER_BLOCK);
        if block >= self.blocks.len() {
            self.blocks.resize_with(block + 1, || None);
        }
        let entries = self.blocks[block].get_or_insert_with(|| Box::new([0; PAGES_PER_BLOCK]));
        entries[at..at + (1 << region.order())].fill(slot);
    }

    /// Adds to the pages of a slot's region that were falsely invalidated.
    pub(super) fn mark(&mut self, number: u32, falsely: u32) {
        if falsely == 0 {
            return;
        }
        let slot = self.slot_mut(number);
        let is_first = slot.falsely == 0;
        slot.falsely = slot.falsely.saturating_add(falsely);
        if is_first {
            self.marked.push(number);
        }
    }

    /// Ends the counting of an epoch: what was counted, by region.
    pub(super) fn counts(&mut self) -> Vec<(Region, u32)> {
        let marked = std::mem::take(&mut self.marked);
        let mut counts = Vec::with_capacity(marked.len());
        for number in marked {
            let slot = self.slot_mut(number);
            let falsely = std::mem::take(&mut slot.falsely);
            counts.extend(
                slot.region
                    .filter(|_| falsely > 0)
                    .map(|region| (region, falsely)),
            );
        }
        counts
    }

    /// Whether a part of that region has a slot.
    pub(super) fn has_part(&self, whole: Region) -> bool {
        let slots = whole.pages().map(|page: Va| self.find(page_of(page)));
        slots
            .filter(|slot| *slot != 0)
            .any(|slot| self.slot(slot).region.is_some_and(|region| region != whole))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_beside_others_that_have_slots_gets_one_by_itself() {
        let mut directory = Directory::new(None);
        let first = directory.open(5, 2).unwrap();
        assert!(
            [4, 5, 6, 7]
                .into_iter()
                .all(|page| directory.find(page) == first)
        );
        assert_eq!((directory.find(3), directory.find(8)), (0, 0));
        let region = directory.slot(first).region.unwrap();
        let (lower, upper) = region.halves().unwrap();
        directory.lead(upper, 0);
        directory.slot_mut(first).region = Some(lower);
        let second = directory.open(6, 2).unwrap();
        assert_eq!((directory.find(6), directory.find(7)), (second, 0));
        assert_eq!(directory.slot_of(lower), Some(first));
        assert_eq!(directory.slot_of(region), None);
        assert!(directory.has_part(region) && !directory.has_part(lower));
    }

    #[test]
    fn slots_are_limited_and_used_again() {
        let mut directory = Directory::new(Some(3));
        assert_eq!((directory.usable(), directory.left()), (Some(2), Some(2)));
        let one = directory.open(0, 2).unwrap();
        let other = directory.open(4, 2).unwrap();
        assert_eq!(directory.open(8, 2), None);
        directory.lead(directory.slot(one).region.unwrap(), 0);
        directory.release(one);
        assert_eq!(directory.used(), (1, 2));
        assert_eq!(directory.open(8, 2), Some(one));
        assert_ne!(one, other);
    }

    #[test]
    fn counts_are_of_one_epoch() {
        let mut directory = Directory::new(None);
        let slot = directory.open(0, 2).unwrap();
        directory.mark(slot, 0);
        assert_eq!(directory.counts(), []);
        directory.mark(slot, 2);
        directory.mark(slot, 3);
        let region = directory.slot(slot).region.unwrap();
        assert_eq!(directory.counts(), [(region, 5)]);
        assert_eq!(directory.counts(), []);
    }
}
