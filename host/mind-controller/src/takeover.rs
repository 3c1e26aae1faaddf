//! How a controller takes over maps that another left, perhaps in the middle of a change. Pure.
//!
//! What the books say counts, and they are written down when a request is done and before it is answered. So what was
//! half done is undone here:
//!
//! * a *map*: its slots are in no vma, and go;
//! * an *unmap*: blades have given everything up before the first slot is freed, so pages whose slot is gone get a
//!   fresh one, that lists nobody;
//! * a *split*: a held region whose upper half nobody covers covers it again;
//! * a *merge*: a held region that covers another one's pages gives them back; one that is not held has what it was to
//!   have, and the other one's slot goes.
//!
//! Regions that are still held are reset afterwards.

use std::collections::{BTreeMap, BTreeSet};

use mind_common::addr::{Region, Va};

use crate::directory::{Entry, Slot, Table, initial_regions};

/// A slot in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundSlot {
    /// Which, and what it covers.
    pub entry: Entry,
    /// Whether it is held for a change, and not because writes in it are lost.
    pub is_locked: bool,
}

/// What the maps say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The slots in use.
    pub slots: Vec<FoundSlot>,
    /// The tables of blocks, by the block's number.
    pub blocks: BTreeMap<u64, Table>,
}

/// What there is, and what is to be changed in the maps for that, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Takeover {
    /// All regions, each with its slot.
    pub entries: Vec<Entry>,
    /// All blocks that have regions, each with its table. Each page's number in there is to be as `entries` say.
    pub blocks: BTreeMap<u64, Table>,
    /// Locked slots that are to cover this.
    pub cover: Vec<Entry>,
    /// Free slots that are to be these regions'.
    pub open: Vec<Entry>,
    /// Blocks that are to be found.
    pub publish: Vec<(u64, Table)>,
    /// Blocks that are not to be found.
    pub withdraw: Vec<u64>,
    /// Slots that are to be free.
    pub strays: Vec<Slot>,
}

/// Numbers that nobody has.
struct Free<'a> {
    numbers: std::ops::Range<u32>,
    used: &'a BTreeSet<u32>,
}

impl Free<'_> {
    fn take(&mut self) -> Option<u32> {
        self.numbers
            .by_ref()
            .find(|number| !self.used.contains(number))
    }
}

impl Takeover {
    /// Of vmas (first address and length, by address) in a directory of so many slots and tables.
    pub fn of(vmas: &[(Va, u64)], found: &Found, (slots, tables): (u32, u32)) -> Self {
        let mut takeover = Self::default();
        let mut by_base: BTreeMap<u64, Vec<FoundSlot>> = BTreeMap::new();
        for slot in &found.slots {
            by_base
                .entry(slot.entry.region.base().0)
                .or_default()
                .push(*slot);
        }
        for slots in by_base.values_mut() {
            slots.sort_by_key(|slot| std::cmp::Reverse(slot.entry.region.size()));
        }
        let used = found.slots.iter().map(|slot| slot.entry.slot.0).collect();
        let mut free = Free {
            numbers: 0..slots,
            used: &used,
        };
        for (va, length) in vmas {
            takeover.walk(va.0, va.0 + length, &by_base, &mut free);
        }
        let kept: BTreeSet<_> = takeover.entries.iter().map(|entry| entry.slot).collect();
        let strays = found.slots.iter().map(|slot| slot.entry.slot);
        takeover.strays = strays.filter(|slot| !kept.contains(slot)).collect();
        takeover.find_tables(found, tables);
        takeover
    }

    /// The regions of a vma.
    fn walk(
        &mut self,
        start: u64,
        end: u64,
        found: &BTreeMap<u64, Vec<FoundSlot>>,
        free: &mut Free<'_>,
    ) {
        let mut next = start;
        let mut before: Option<FoundSlot> = None;
        while next < end {
            let here = found.get(&next).and_then(|slots| slots.first());
            let fits = |slot: &&FoundSlot| next + slot.entry.region.size() <= end;
            let Some(slot) = here.filter(fits).copied() else {
                let gap = found
                    .range(next + 1..end)
                    .next()
                    .map_or(end, |(base, _)| *base);
                next = self.fill(before.take(), next, gap, free);
                continue;
            };
            let mut entry = slot.entry;
            let last = next + entry.region.size();
            let upper = entry.region.halves().filter(|(_, upper)| {
                let covered = found.get(&upper.base().0).into_iter().flatten();
                slot.is_locked
                    && covered
                        .map(|other| other.entry.region)
                        .any(|other| other == *upper)
            });
            // A merge that was not finished.
            if let Some((lower, _)) = upper {
                entry.region = lower;
                self.cover.push(entry);
            }
            next = upper.map_or(last, |(_, upper)| upper.base().0);
            self.entries.push(entry);
            before = Some(FoundSlot { entry, ..slot });
        }
    }

    /// Pages from `next` to `gap` have no slot. Where they go on.
    fn fill(&mut self, before: Option<FoundSlot>, next: u64, gap: u64, free: &mut Free<'_>) -> u64 {
        let whole = before.filter(|before| before.is_locked).and_then(|before| {
            let (lower, upper) = before.entry.region.whole()?.halves()?;
            let is_its = lower == before.entry.region
                && upper.base().0 == next
                && next + upper.size() <= gap;
            is_its.then_some((before.entry.slot, before.entry.region.whole()?))
        });
        // A split that was not finished.
        if let Some((slot, region)) = whole {
            self.entries.pop();
            let entry = Entry { slot, region };
            self.entries.push(entry);
            self.cover.push(entry);
            return region.base().0 + region.size();
        }
        for region in initial_regions(Va(next), gap - next) {
            // There was a slot for each of these, which is free now.
            let Some(slot) = free.take().map(Slot) else {
                break;
            };
            let entry = Entry { slot, region };
            self.entries.push(entry);
            self.open.push(entry);
        }
        gap
    }

    fn find_tables(&mut self, found: &Found, tables: u32) {
        let block = |region: Region| region.base().block();
        let wanted: BTreeSet<_> = self
            .entries
            .iter()
            .map(|entry| block(entry.region))
            .collect();
        let used = found.blocks.values().map(|table| table.0).collect();
        let mut free = Free {
            numbers: 0..tables,
            used: &used,
        };
        for number in wanted {
            let table = match found.blocks.get(&number) {
                Some(table) => *table,
                None => {
                    let Some(table) = free.take().map(Table) else {
                        continue;
                    };
                    self.publish.push((number, table));
                    table
                }
            };
            self.blocks.insert(number, table);
        }
        let is_extra = |number: &&u64| !self.blocks.contains_key(number);
        self.withdraw = found.blocks.keys().filter(is_extra).copied().collect();
    }
}

#[cfg(test)]
mod tests;
