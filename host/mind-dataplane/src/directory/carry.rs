//! What a directory takes over from another one, while packets are in neither.

use mind_common::{
    addr::{BLOCK_SHIFT, PAGE_SHIFT, PAGES_PER_BLOCK, Region, Va},
    directory::Word,
    table::{FreeKind, Slot},
};

use super::{Directory, SlotHandle};
use crate::Result;

impl Directory {
    /// The words of all slots, by number.
    pub fn words(&self) -> impl Iterator<Item = (u32, Word)> + '_ {
        let numbers = 1..u32::try_from(self.slots()).unwrap_or(u32::MAX);
        numbers.filter_map(|number| Some((number, self.slot(number).ok()?.word())))
    }

    /// Takes over from `old` the slots listed, each with the number that it has there and the one that it gets here, and
    /// what finds them; all other slots can be opened and have the word `free`. Here, all lists are full.
    ///
    /// # Errors
    ///
    /// When a number is of no slot, and when there are too few tables for what finds the slots.
    pub(crate) fn carry(&self, old: &Self, slots: &[(u32, u32)], free: Word) -> Result<()> {
        let _ = self.drain(FreeKind::Slots);
        let mut is_used = vec![false; self.slots()];
        let mut becomes = vec![0; old.slots()];
        for &(from, to) in slots {
            let slot = old.slot(from)?.contents();
            self.slot(to)?.reset(slot);
            becomes[from as usize] = to;
            is_used[to as usize] = true;
        }
        for block in old.blocks()? {
            let Some(found) = old.slots_in(block)? else {
                continue;
            };
            // A closed page finds none: whoever has closed it has ended.
            let found = found.map(|slot| becomes.get(slot as usize).copied().unwrap_or(0));
            for (region, slot) in regions(block, &found) {
                let retired = self.assign(region, slot)?;
                self.give_retired(retired);
            }
        }
        let unused = is_used.iter().enumerate().skip(1).rev();
        for number in unused.filter_map(|(number, is_used)| (!is_used).then_some(number as u32)) {
            self.slot(number)?.reset(Slot {
                word: free.raw(),
                ..Slot::default()
            });
            self.give(FreeKind::Slots, number);
        }
        Ok(())
    }
}

impl SlotHandle<'_> {
    /// All of it but its memo, which is of its directory's generation; for a slot that no packet can find.
    fn contents(self) -> Slot {
        Slot {
            word: self.word().raw(),
            region: self.region().map_or(0, Slot::pack),
            origin: self.origin().raw(),
            // They are of 32 bits.
            accesses: self.accesses() as u32,
            invalidations: self.invalidations() as u32,
            queue: self.queue(),
            dropped: self.dropped() as u32,
            flushed: self.flushed() as u32,
            permit: 0,
            place: 0,
        }
    }
}

/// The regions, as large as they can be, of the pages of a block that find the same slot.
fn regions(block: u64, found: &[u32; PAGES_PER_BLOCK]) -> impl Iterator<Item = (Region, u32)> {
    let mut page = 0;
    std::iter::from_fn(move || {
        while page < PAGES_PER_BLOCK {
            let slot = found[page];
            let same = found[page..].iter().take_while(|other| **other == slot);
            let order = page.trailing_zeros().min(same.count().ilog2()) as u8;
            let va = Va((block << BLOCK_SHIFT) + ((page as u64) << PAGE_SHIFT));
            page += 1 << order;
            if slot != 0
                && let Some(region) = Region::containing(va, order)
            {
                return Some((region, slot));
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_become_the_largest_regions() {
        let mut found = [0; PAGES_PER_BLOCK];
        found[3..9].fill(7);
        found[9] = 8;
        found[256..].fill(9);
        let base = 5 << BLOCK_SHIFT;
        let region =
            |page: u64, order| Region::containing(Va(base + (page << PAGE_SHIFT)), order).unwrap();
        let wanted = [
            (region(3, 0), 7),
            (region(4, 2), 7),
            (region(8, 0), 7),
            (region(9, 0), 8),
            (region(256, 8), 9),
        ];
        assert!(regions(5, &found).eq(wanted));
        let whole = regions(5, &[1; PAGES_PER_BLOCK]);
        assert!(whole.eq([(region(0, 9), 1)]));
    }
}
