//! What the directory holds: a slot for each region, and for each 2 MiB block a table of its pages' slots. Here is the
//! bookkeeping of both, and the order in which the maps are changed; the words themselves change by compare-and-swap
//! in the maps.

use std::collections::BTreeMap;

use mind_common::addr::{
    BLOCK_SHIFT, INITIAL_REGION_ORDER, PAGE_SHIFT, PAGE_SIZE, Region, Va, prefixes,
};
use mind_common::id::BladeId;

use crate::alloc::Extent;
use crate::protect::Change;

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
        change: Change,
    },
    /// The slot's word becomes held, so that no request gets through; repeated while it is busy.
    Hold(Entry),
    /// Every blade that the held word lists writes back and drops the region.
    Flush(Entry),
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
    /// The slot belongs to nobody: its word becomes free and keeps its episode.
    Close(Entry),
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

/// A block's table, and how many regions use it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Block {
    table: Table,
    regions: u32,
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

    /// Slots there are.
    pub fn capacity(&self) -> u32 {
        self.capacity
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

    /// The entries of the regions in the range, by address.
    pub fn entries(&self, va: Va, length: u64) -> Vec<Entry> {
        let range = self.regions.range(va.0..va.0 + length);
        range.map(|(_, entry)| *entry).collect()
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
        for region in regions {
            let number = region.base().block();
            let block = self.blocks.entry(number).or_insert_with(|| {
                let table = Table(
                    self.tables
                        .take()
                        .expect("as many are left as were counted"),
                );
                publish.push(Step::Publish {
                    block: number,
                    table,
                });
                Block { table, regions: 0 }
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
        steps.append(&mut fills);
        steps.append(&mut publish);
        Ok(steps)
    }

    /// How the maps forget the regions of a vma. They stay booked until [`forget`](Self::forget).
    pub fn close(&self, va: Va, length: u64) -> Vec<Step> {
        let entries = self.entries(va, length);
        let with_tables = |entry: &Entry| {
            let table = self.table_of(entry.region)?;
            Some((table, *entry))
        };
        let mut gone: BTreeMap<u64, u32> = BTreeMap::new();
        for entry in &entries {
            *gone.entry(entry.region.base().block()).or_default() += 1;
        }
        let withdraw = gone.into_iter().filter_map(|(number, count)| {
            let block = self.blocks.get(&number)?;
            (block.regions == count).then_some(Step::Withdraw {
                block: number,
                table: block.table,
            })
        });

        let hold = entries.iter().copied().map(Step::Hold);
        let flush = entries.iter().copied().map(Step::Flush);
        let clear = entries
            .iter()
            .filter_map(with_tables)
            .map(|(table, entry)| Step::Clear { table, entry });
        let close = entries.iter().copied().map(Step::Close);
        hold.chain(flush)
            .chain(withdraw)
            .chain(clear)
            .chain(close)
            .collect()
    }

    /// The steps of [`close`](Self::close) have been carried out: slots and tables may be used again.
    pub fn forget(&mut self, va: Va, length: u64) {
        for entry in self.entries(va, length) {
            self.regions.remove(&entry.region.base().0);
            self.slots.give(entry.slot.0);
            let number = entry.region.base().block();
            if let Some(block) = self.blocks.get_mut(&number) {
                block.regions -= 1;
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
mod tests {
    use super::*;
    use mind_common::addr::WINDOW_BASE;
    use proptest::prelude::*;

    const PAGE: u64 = PAGE_SIZE as u64;
    const BLOCK: u64 = 1 << BLOCK_SHIFT;

    fn kinds(steps: &[Step]) -> Vec<&'static str> {
        let mut kinds: Vec<_> = steps
            .iter()
            .map(|step| match step {
                Step::Zero(_) => "zero",
                Step::Open(_) => "open",
                Step::Fill { .. } => "fill",
                Step::Publish { .. } => "publish",
                Step::Grant { .. } => "grant",
                Step::Revoke { .. } => "revoke",
                Step::Protect { .. } => "protect",
                Step::Hold(_) => "hold",
                Step::Flush(_) => "flush",
                Step::Clear { .. } => "clear",
                Step::Withdraw { .. } => "withdraw",
                Step::Close(_) => "close",
            })
            .collect();
        kinds.dedup();
        kinds
    }

    #[test]
    fn the_last_partial_region_is_smaller() {
        let orders: Vec<_> = initial_regions(Va(WINDOW_BASE), 11 * PAGE)
            .map(Region::order)
            .collect();
        assert_eq!(orders, [2, 2, 1, 0]);
    }

    #[test]
    fn a_slot_is_ready_before_a_table_names_it_and_a_table_before_it_is_found() {
        let mut directory = Directory::new(600, 2);
        let va = Va(WINDOW_BASE);
        let steps = directory.open(va, BLOCK + PAGE).unwrap();
        assert_eq!(kinds(&steps), ["open", "fill", "publish"]);
        assert_eq!(directory.used(), 129);
        let steps = directory.close(va, BLOCK + PAGE);
        assert_eq!(
            kinds(&steps),
            ["hold", "flush", "withdraw", "clear", "close"]
        );
    }

    #[test]
    fn a_table_is_withdrawn_with_its_last_region_only() {
        let mut directory = Directory::new(8, 1);
        let first = Va(WINDOW_BASE);
        let second = Va(WINDOW_BASE + 4 * PAGE);
        directory.open(first, 4 * PAGE).unwrap();
        let steps = directory.open(second, 4 * PAGE).unwrap();
        assert_eq!(
            kinds(&steps),
            ["open", "fill"],
            "the block is found already"
        );
        assert!(!kinds(&directory.close(first, 4 * PAGE)).contains(&"withdraw"));
        directory.forget(first, 4 * PAGE);
        assert!(kinds(&directory.close(second, 4 * PAGE)).contains(&"withdraw"));
    }

    #[test]
    fn a_full_directory_says_of_what_and_stays_as_it_was() {
        let mut directory = Directory::new(2, 1);
        let va = Va(WINDOW_BASE);
        let error = directory.open(va, 12 * PAGE).unwrap_err();
        assert_eq!(error.to_string(), "the directory has no 3 slots left");
        let error = directory
            .open(Va(va.0 + BLOCK - PAGE), 2 * PAGE)
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "the directory has no 2 block tables left"
        );
        assert_eq!(directory.used(), 0);
        assert!(directory.open(va, 8 * PAGE).is_ok());
    }

    proptest! {
        #[test]
        fn the_regions_of_a_vma_cover_it_exactly(first in 0u64..2000, pages in 1u64..2000) {
            let start = WINDOW_BASE + first * PAGE;
            let mut next = start;
            for region in initial_regions(Va(start), pages * PAGE) {
                prop_assert_eq!(region.base().0, next);
                prop_assert!(region.order() <= INITIAL_REGION_ORDER);
                next += region.size();
            }
            prop_assert_eq!(next, start + pages * PAGE);
        }

        #[test]
        fn no_slot_or_table_is_used_twice_or_lost(
            actions in prop::collection::vec((0u64..6, 1u64..1200, any::<bool>()), 1..40),
        ) {
            // Six places for vmas, far enough apart.
            let mut directory = Directory::new(1500, 8);
            let mut vmas: BTreeMap<u64, u64> = BTreeMap::new();
            for (place, pages, open) in actions {
                let va = Va(WINDOW_BASE + place * 1201 * PAGE);
                if open {
                    if !vmas.contains_key(&place) && directory.open(va, pages * PAGE).is_ok() {
                        vmas.insert(place, pages);
                    }
                } else if let Some(pages) = vmas.remove(&place) {
                    directory.forget(va, pages * PAGE);
                }
                let mut slots: Vec<_> = directory.regions.values().map(|entry| entry.slot).collect();
                slots.sort_unstable();
                slots.dedup();
                prop_assert_eq!(slots.len(), directory.regions.len());
                prop_assert_eq!(slots.len() + directory.slots.left(), 1500);
                let mut tables: Vec<_> = directory.blocks.values().map(|block| block.table).collect();
                tables.sort_unstable();
                tables.dedup();
                prop_assert_eq!(tables.len(), directory.blocks.len());
                prop_assert_eq!(tables.len() + directory.tables.left(), 8);
            }
        }
    }
}
