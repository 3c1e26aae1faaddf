//! What the directory holds: a slot for each region, and for each 2 MiB block a table of its pages' slots. Here is the
//! bookkeeping of both, and the order in which the maps are changed; the words themselves change by compare-and-swap
//! in the maps.

use std::collections::{BTreeMap, BTreeSet};

use mind_common::{
    addr::{BLOCK_SHIFT, INITIAL_REGION_ORDER, PAGE_SHIFT, PAGE_SIZE, Region, Va, prefixes},
    id::BladeId,
};
use mind_machines::controller::procedure::Change;

use crate::{alloc::Extent, protect};

/// A slot's index in the directory's array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// A block table's index in the array of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Table(pub u32);

/// A slot and the region that it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The slot.
    pub slot: Slot,
    /// The region.
    pub region: Region,
}

/// One change of the maps, or one thing that a blade is to do. A plan's steps are carried out in order, and each is
/// finished before the next begins; all may be done twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The memory blade makes the pages zeros.
    Zero(Extent),
    /// The slot becomes the region's: its word goes from free to invalid, next episode.
    Open(Entry),
    /// The table, which nobody finds, names no slot anywhere.
    Blank(Table),
    /// The table's entries for the region's pages name the slot.
    Fill {
        /// The table of the block that the region is in.
        table: Table,
        /// The region and its slot.
        entry: Entry,
    },
    /// The hash map leads from the block to its table, from now on.
    Publish {
        /// The block's number.
        block: u64,
        /// Its table.
        table: Table,
    },
    /// Processes of the domain run on the blade: the switch takes its packets for the domain.
    Grant {
        /// The protection domain.
        domain: u32,
        /// The compute blade.
        blade: BladeId,
    },
    /// They no longer do.
    Revoke {
        /// The protection domain.
        domain: u32,
        /// The compute blade.
        blade: BladeId,
    },
    /// The domain's protection changes.
    Protect {
        /// The protection domain.
        domain: u32,
        /// The change.
        change: protect::Change,
    },
    /// Regions change, all at once: see [`Regions`].
    Change(Regions),
    /// The table's entries for the region's pages name no slot.
    Clear {
        /// The table of the block that the region is in.
        table: Table,
        /// The region and its slot.
        entry: Entry,
    },
    /// The hash map leads nowhere from the block, from now on.
    Withdraw {
        /// The block's number.
        block: u64,
        /// Its table.
        table: Table,
    },
    /// The slot's region becomes this one, which is part of what it was or contains it.
    Cover(Entry),
}

/// Regions that change at once, each by a [`Procedure`](mind_machines::controller::procedure::Procedure).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regions {
    /// What becomes of them.
    pub change: Change,
    /// Each region as it is; of a change of two, with the upper half's slot.
    pub entries: Vec<(Entry, Option<Entry>)>,
    /// How the maps follow, once all words are held.
    pub rewire: Vec<Step>,
}

impl Regions {
    /// A change that the maps do not see: of the words only.
    pub fn of_words(change: Change, entries: impl IntoIterator<Item = Entry>) -> Self {
        Self {
            change,
            entries: entries.into_iter().map(|entry| (entry, None)).collect(),
            rewire: Vec::new(),
        }
    }
}

/// There is no room for so many regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the directory has no {wanted} {what} left")]
pub struct DirectoryFull {
    /// How many more are needed.
    pub wanted: usize,
    /// Of what.
    pub what: &'static str,
}

/// Indices of an array: the freed ones first, then those never used.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Indices {
    next: u32,
    end: u32,
    freed: Vec<u32>,
}

impl Indices {
    fn new(count: u32) -> Self {
        Self {
            next: 0,
            end: count,
            freed: Vec::new(),
        }
    }

    /// All but these.
    fn without(count: u32, used: impl Iterator<Item = u32>) -> Self {
        let used: BTreeSet<_> = used.collect();
        let next = used.last().map_or(0, |last| last + 1);
        Self {
            next,
            end: count,
            freed: (0..next)
                .rev()
                .filter(|index| !used.contains(index))
                .collect(),
        }
    }

    fn left(&self) -> usize {
        self.freed.len() + (self.end - self.next) as usize
    }

    fn take(&mut self) -> Option<u32> {
        if let Some(index) = self.freed.pop() {
            return Some(index);
        }
        (self.next < self.end).then(|| {
            self.next += 1;
            self.next - 1
        })
    }

    fn give(&mut self, index: u32) {
        self.freed.push(index);
    }
}

/// A block's table, how many regions use it, and how many of these are about to go.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Block {
    table: Table,
    regions: u32,
    closing: u32,
}

impl Block {
    fn new(table: Table, regions: u32) -> Self {
        Self {
            table,
            regions,
            closing: 0,
        }
    }
}

/// The directory's bookkeeping.
#[derive(Clone, Debug)]
pub struct Directory {
    slots: Indices,
    tables: Indices,
    capacity: u32,
    regions: BTreeMap<u64, Entry>,
    blocks: BTreeMap<u64, Block>,
}

impl Directory {
    /// A directory of so many slots and tables, all free.
    pub fn new(slots: u32, tables: u32) -> Self {
        Self {
            slots: Indices::new(slots),
            tables: Indices::new(tables),
            capacity: slots,
            regions: BTreeMap::new(),
            blocks: BTreeMap::new(),
        }
    }

    /// A directory of so many slots and tables, of which these are in use.
    pub fn restore(
        (slots, tables): (u32, u32),
        entries: &[Entry],
        blocks: &BTreeMap<u64, Table>,
    ) -> Self {
        let mut regions_of: BTreeMap<u64, u32> = BTreeMap::new();
        for entry in entries {
            *regions_of.entry(entry.region.base().block()).or_default() += 1;
        }
        let with_regions = |(number, table): (&u64, &Table)| {
            let regions = regions_of.get(number).copied().unwrap_or(0);
            let table = *table;
            (*number, Block::new(table, regions))
        };
        Self {
            slots: Indices::without(slots, entries.iter().map(|entry| entry.slot.0)),
            tables: Indices::without(tables, blocks.values().map(|table| table.0)),
            capacity: slots,
            regions: entries
                .iter()
                .map(|entry| (entry.region.base().0, *entry))
                .collect(),
            blocks: blocks.iter().map(with_regions).collect(),
        }
    }

    /// Slots there are.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Block tables there are.
    pub fn tables(&self) -> u32 {
        self.tables.end
    }

    /// Slots in use.
    pub fn used(&self) -> u32 {
        // As many as there are regions, and these are counted in u32.
        self.regions.len() as u32
    }

    /// Table of the block that the region is in.
    fn table_of(&self, region: Region) -> Option<Table> {
        self.blocks
            .get(&region.base().block())
            .map(|block| block.table)
    }

    /// The blocks that have regions, by number, and their tables.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, Table)> {
        self.blocks
            .iter()
            .map(|(number, block)| (*number, block.table))
    }

    /// All entries, by address, with the table of the block that each is in.
    pub fn all(&self) -> impl Iterator<Item = (Table, Entry)> {
        let with_table = |entry: &Entry| Some((self.table_of(entry.region)?, *entry));
        self.regions.values().filter_map(with_table)
    }

    /// The entries of the regions in the range, by address.
    pub fn entries(&self, va: Va, length: u64) -> Vec<Entry> {
        let range = self.regions.range(va.0..va.0 + length);
        range.map(|(_, entry)| *entry).collect()
    }

    /// The entries of the regions that have something of the range, by address.
    pub fn entries_over(&self, va: Va, length: u64) -> Vec<Entry> {
        let first = self.at(va).map_or(va, |entry| entry.region.base());
        let end = va.0.saturating_add(length);
        self.entries(first, end.saturating_sub(first.0))
    }

    /// Makes room for the regions of a new vma and says how the maps get to know them.
    ///
    /// # Errors
    ///
    /// [`DirectoryFull`]; then nothing has changed.
    pub fn open(&mut self, va: Va, length: u64) -> Result<Vec<Step>, DirectoryFull> {
        let regions: Vec<_> = initial_regions(va, length).collect();
        let mut blocks: Vec<_> = regions.iter().map(|region| region.base().block()).collect();
        blocks.dedup();
        blocks.retain(|block| !self.blocks.contains_key(block));
        for (wanted, left, what) in [
            (regions.len(), self.slots.left(), "slots"),
            (blocks.len(), self.tables.left(), "block tables"),
        ] {
            if wanted > left {
                return Err(DirectoryFull { wanted, what });
            }
        }

        let mut steps = Vec::with_capacity(2 * regions.len() + blocks.len());
        let mut fills = Vec::with_capacity(regions.len());
        let mut publish = Vec::with_capacity(blocks.len());
        let mut blank = Vec::with_capacity(blocks.len());
        for region in regions {
            let number = region.base().block();
            let block = self.blocks.entry(number).or_insert_with(|| {
                let table = Table(
                    self.tables
                        .take()
                        .expect("as many are left as were counted"),
                );
                blank.push(Step::Blank(table));
                publish.push(Step::Publish {
                    block: number,
                    table,
                });
                Block::new(table, 0)
            });
            block.regions += 1;
            let slot = Slot(self.slots.take().expect("as many are left as were counted"));
            let entry = Entry { slot, region };
            self.regions.insert(region.base().0, entry);
            steps.push(Step::Open(entry));
            fills.push(Step::Fill {
                table: block.table,
                entry,
            });
        }
        steps.append(&mut blank);
        steps.append(&mut fills);
        steps.append(&mut publish);
        Ok(steps)
    }

    /// How the maps forget the regions of a vma. They stay booked until [`forget`](Self::forget).
    pub fn close(&mut self, va: Va, length: u64) -> Vec<Step> {
        let entries = self.entries(va, length);
        let with_tables = |entry: &Entry| {
            let table = self.table_of(entry.region)?;
            Some((table, *entry))
        };
        let clear: Vec<_> = entries
            .iter()
            .filter_map(with_tables)
            .map(|(table, entry)| Step::Clear { table, entry })
            .collect();
        let mut rewire = Vec::with_capacity(clear.len() + 1);
        for entry in &entries {
            let number = entry.region.base().block();
            let Some(block) = self.blocks.get_mut(&number) else {
                continue;
            };
            block.closing += 1;
            if block.closing == block.regions {
                rewire.push(Step::Withdraw {
                    block: number,
                    table: block.table,
                });
            }
        }
        rewire.extend(clear);
        vec![Step::Change(Regions {
            rewire,
            ..Regions::of_words(Change::Free, entries)
        })]
    }

    /// The entry of the region that the address is in.
    pub fn at(&self, va: Va) -> Option<Entry> {
        let (_, entry) = self.regions.range(..=va.0).next_back()?;
        entry.region.contains(va).then_some(*entry)
    }

    /// The two halves of a region become regions of their own: how the maps follow. They are booked
    /// by [`was_split`](Self::was_split) if that was done, otherwise given up by
    /// [`was_left`](Self::was_left).
    ///
    /// # Errors
    ///
    /// [`DirectoryFull`]: there is no second slot. `Ok(None)`: there is no such region, or it is a
    /// page.
    pub fn split(&mut self, va: Va) -> Result<Option<Regions>, DirectoryFull> {
        let Some((entry, table)) = self.at(va).zip(self.table_at(va)) else {
            return Ok(None);
        };
        let Some((lower, upper)) = entry.region.halves() else {
            return Ok(None);
        };
        let slot = self.slots.take().map(Slot).ok_or(DirectoryFull {
            wanted: 1,
            what: "slots",
        })?;
        let upper = Entry {
            slot,
            region: upper,
        };
        let lower = Entry {
            slot: entry.slot,
            region: lower,
        };
        Ok(Some(Regions {
            change: Change::Split,
            entries: vec![(entry, Some(upper))],
            rewire: vec![
                Step::Cover(lower),
                Step::Open(upper),
                Step::Fill {
                    table,
                    entry: upper,
                },
            ],
        }))
    }

    /// A region joins the other half of the region twice its size: how the maps follow. Booked by
    /// [`was_merged`](Self::was_merged) if that was done. `None`: there is no such region, or the
    /// other half is no region of the same size, or both would be larger than a region can be.
    pub fn merge(&self, va: Va) -> Option<Regions> {
        let entry = self.at(va)?;
        let whole = entry.region.whole()?;
        let table = self.table_at(va)?;
        let (lower, upper) = whole.halves()?;
        let find = |half: Region| self.regions.get(&half.base().0).copied();
        let (first, second) = find(lower).zip(find(upper))?;
        if (first.region, second.region) != (lower, upper) {
            return None;
        }
        let joined = Entry {
            slot: first.slot,
            region: whole,
        };
        let filled = Entry {
            slot: first.slot,
            region: upper,
        };
        Some(Regions {
            change: Change::Merge,
            entries: vec![(first, Some(second))],
            rewire: vec![
                Step::Fill {
                    table,
                    entry: filled,
                },
                Step::Cover(joined),
            ],
        })
    }

    fn table_at(&self, va: Va) -> Option<Table> {
        self.blocks.get(&va.block()).map(|block| block.table)
    }

    /// A [`split`](Self::split) was carried out.
    pub fn was_split(&mut self, regions: &Regions) {
        for (entry, upper) in &regions.entries {
            let Some((upper, (lower, _))) = upper.zip(entry.region.halves()) else {
                continue;
            };
            let lower = Entry {
                region: lower,
                ..*entry
            };
            self.regions.insert(lower.region.base().0, lower);
            self.regions.insert(upper.region.base().0, upper);
            if let Some(block) = self.blocks.get_mut(&upper.region.base().block()) {
                block.regions += 1;
            }
        }
    }

    /// A [`split`](Self::split) was not carried out.
    pub fn was_left(&mut self, regions: &Regions) {
        for (_, upper) in &regions.entries {
            if let Some(upper) = upper {
                self.slots.give(upper.slot.0);
            }
        }
    }

    /// A [`merge`](Self::merge) was carried out.
    pub fn was_merged(&mut self, regions: &Regions) {
        for (first, second) in &regions.entries {
            let Some((second, whole)) = second.zip(first.region.whole()) else {
                continue;
            };
            self.regions.remove(&second.region.base().0);
            self.slots.give(second.slot.0);
            let joined = Entry {
                region: whole,
                ..*first
            };
            self.regions.insert(whole.base().0, joined);
            if let Some(block) = self.blocks.get_mut(&whole.base().block()) {
                block.regions -= 1;
            }
        }
    }

    /// The steps of [`close`](Self::close) have been carried out: slots and tables may be used again.
    pub fn forget(&mut self, va: Va, length: u64) {
        for entry in self.entries(va, length) {
            self.regions.remove(&entry.region.base().0);
            self.slots.give(entry.slot.0);
            let number = entry.region.base().block();
            if let Some(block) = self.blocks.get_mut(&number) {
                block.regions -= 1;
                block.closing = block.closing.saturating_sub(1);
                if block.regions == 0 {
                    self.tables.give(block.table.0);
                    self.blocks.remove(&number);
                }
            }
        }
    }
}

/// The regions of a new vma: of the initial order, and smaller ones where it begins or ends in the middle of such.
pub fn initial_regions(va: Va, length: u64) -> impl Iterator<Item = Region> {
    const LARGEST: u64 = (PAGE_SIZE as u64) << INITIAL_REGION_ORDER;
    const _: () = assert!(LARGEST <= 1 << BLOCK_SHIFT);
    prefixes(va, length).flat_map(|prefix| {
        let size = prefix.size().min(LARGEST);
        let order = (size.trailing_zeros() - PAGE_SHIFT) as u8;
        (0..prefix.size() / size)
            .filter_map(move |number| Region::containing(Va(prefix.base.0 + number * size), order))
    })
}

#[cfg(test)]
mod tests;
