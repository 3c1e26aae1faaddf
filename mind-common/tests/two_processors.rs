//! Two processors touch regions first at the same time: in every order in which their loads and swaps can meet, a region
//! has one slot, which both find, and nothing of the lists is lost. Nor is it where one takes and the other gives back.

use loom::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    thread,
};
use mind_common::{
    addr::{PAGE_SHIFT, Region, Va, WINDOW_BASE},
    directory::index::{
        CLOSED, Head, UNIT_ORDER, UnitEntry,
        free::{self, FreeTop, Given, Lists, Taken},
        opening::{self, Changing, Entries, Finding},
    },
    table::{FreeKind, Slot},
};

/// How many there are of each kind, the first of which is never used.
const NUMBERS: usize = 4;
/// Units of the block that are kept; pages of a unit that are.
const PLACES: usize = 2;

const FIRST_UNIT: Va = page(0);
const SAME_UNIT: Va = page(1);
const NEXT_UNIT: Va = page(1 << UNIT_ORDER);

const fn page(number: u64) -> Va {
    Va(WINDOW_BASE + (number << PAGE_SHIFT))
}

/// An index of one block.
struct Index {
    /// The number of the block's head; 0 for none.
    block: AtomicU32,
    heads: [AtomicU64; NUMBERS],
    tables: [[AtomicU32; PLACES]; NUMBERS],
    group: [AtomicU32; PLACES],
    /// The slots' regions; 0 for a free one.
    regions: [AtomicU64; NUMBERS],
    /// The next ones of free slots.
    places: [AtomicU64; NUMBERS],
    tops: [AtomicU64; 3],
}

impl Index {
    /// A block that no processor has touched. All but what is never used is in the lists.
    fn new() -> Self {
        let index = Self {
            block: AtomicU32::new(0),
            heads: std::array::from_fn(|_| AtomicU64::new(0)),
            tables: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU32::new(0))),
            group: std::array::from_fn(|_| AtomicU32::new(0)),
            regions: std::array::from_fn(|_| AtomicU64::new(0)),
            places: std::array::from_fn(|_| AtomicU64::new(0)),
            tops: std::array::from_fn(|_| AtomicU64::new(0)),
        };
        for kind in [FreeKind::Slots, FreeKind::Heads, FreeKind::Tables] {
            for number in 1..NUMBERS {
                index.give(kind, number as u32);
            }
        }
        index
    }

    /// A block in which this region alone has a slot.
    fn touched(va: Va) -> Self {
        let index = Self::new();
        index.touch(va);
        index
    }

    /// A block with a table, where the first unit has a group.
    fn grouped() -> Self {
        let index = Self::touched(NEXT_UNIT);
        index.touch(FIRST_UNIT);
        let head = index.head(index.block.load(Ordering::Acquire) as usize);
        let entry = &index.tables[head.number() as usize][0];
        let slot = entry.swap(UnitEntry::group(1).raw(), Ordering::AcqRel);
        index.free_slot(slot);
        index.give(FreeKind::Slots, slot);
        index
    }

    /// A packet for the page: what it finds.
    fn touch(&self, va: Va) -> u32 {
        let found = match opening::find(self, va) {
            0 => opening::open(self, va),
            found => found,
        };
        assert!(found != 0 && found != CLOSED, "no slot for {va:?}");
        let region = self.regions[found as usize].load(Ordering::Acquire);
        assert!(
            Slot::region_with(region, va).is_some(),
            "slot {found} is not that of {va:?}"
        );
        found
    }

    /// What is in a list, which is empty then.
    fn drain(&self, kind: FreeKind) -> Vec<usize> {
        std::iter::from_fn(|| match self.take(kind) {
            0 => None,
            number => Some(number as usize),
        })
        .collect()
    }

    /// What must be so when no packet is in the switch: everything is in its list or in the index, and only once.
    fn check(&self, slots: &[u32]) {
        let block = self.block.load(Ordering::Acquire) as usize;
        let head = self.head(block);
        let tables = head.is_table().then(|| head.number() as usize);
        let slots = slots.iter().map(|slot| *slot as usize);
        let cases = [
            (FreeKind::Slots, slots.collect::<Vec<_>>()),
            (FreeKind::Heads, vec![block]),
            (FreeKind::Tables, tables.into_iter().collect()),
        ];
        for (kind, used) in cases {
            let free = self.drain(kind);
            for number in &free {
                match kind {
                    FreeKind::Slots => {
                        assert_eq!(self.regions[*number].load(Ordering::Acquire), 0)
                    }
                    FreeKind::Tables => {
                        assert_eq!(self.tables[*number][1].load(Ordering::Acquire), 0)
                    }
                    _ => {}
                }
            }
            let mut all = [free, used].concat();
            all.sort_unstable();
            assert!(
                all.iter().copied().eq(1..NUMBERS),
                "{kind:?} in use or in the list: {all:?}"
            );
        }
    }
}

fn swap(at: &AtomicU64, old: u64, new: u64) -> bool {
    at.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
        .is_ok()
}

impl Entries for Index {
    type EntryAt = (Option<usize>, usize);

    fn unit_at(&self, table: u32, unit: usize) -> Option<Self::EntryAt> {
        Some((Some(table as usize), unit))
    }

    fn page_at(&self, _: u32, page: usize) -> Option<Self::EntryAt> {
        Some((None, page))
    }

    fn entry(&self, at: Self::EntryAt) -> u32 {
        self.at(at).load(Ordering::Acquire)
    }
}

impl Index {
    fn at(&self, (table, place): (Option<usize>, usize)) -> &AtomicU32 {
        match table {
            Some(table) => &self.tables[table][place],
            None => &self.group[place],
        }
    }
}

impl Finding for Index {
    type HeadAt = usize;

    fn head_of(&self, _: Va) -> Option<usize> {
        let number = self.block.load(Ordering::Acquire) as usize;
        (number != 0).then_some(number)
    }

    fn head(&self, at: usize) -> Head {
        Head::from_raw(self.heads[at].load(Ordering::Acquire))
    }
}

impl Changing for Index {
    fn swap_head(&self, at: usize, old: Head, new: Head) -> bool {
        swap(&self.heads[at], old.raw(), new.raw())
    }

    fn fill_entry(&self, at: Self::EntryAt, slot: u32) -> bool {
        self.at(at)
            .compare_exchange(0, slot, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    fn insert_head(&self, number: u32, _: Va, head: Head) -> bool {
        self.heads[number as usize].store(head.raw(), Ordering::Release);
        self.block
            .compare_exchange(0, number, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    fn fill_table(&self, table: u32, head: Head, unit: usize, slot: u32) {
        let entries = &self.tables[table as usize];
        entries[0].store(0, Ordering::Release);
        // Regions are of one unit here.
        entries[head.units().0].store(head.number(), Ordering::Release);
        entries[unit].store(slot, Ordering::Release);
    }

    fn clear_table(&self, table: u32, head: Head, unit: usize) {
        let entries = &self.tables[table as usize];
        entries[head.units().0].store(0, Ordering::Release);
        entries[unit].store(0, Ordering::Release);
    }

    fn prepare_slot(&self, slot: u32, region: Region) {
        self.regions[slot as usize].store(Slot::pack(region), Ordering::Release);
    }

    fn free_slot(&self, slot: u32) {
        self.regions[slot as usize].store(0, Ordering::Release);
    }

    fn take(&self, kind: FreeKind) -> u32 {
        loop {
            match free::try_take(self, kind as usize, kind) {
                Taken::One(number) => return number,
                Taken::Nothing => return 0,
                Taken::Changed => {}
            }
        }
    }

    fn give(&self, kind: FreeKind, number: u32) {
        while free::try_give(self, kind as usize, kind, number) != Given::Done {}
    }

    fn attempt(&self, va: Va, slot: u32) -> u32 {
        opening::attempt(self, va, slot)
    }
}

impl Lists for Index {
    type TopAt = usize;

    fn top(&self, at: usize) -> FreeTop {
        FreeTop::from_raw(self.tops[at].load(Ordering::Acquire))
    }

    fn swap_top(&self, at: usize, old: FreeTop, new: FreeTop) -> bool {
        swap(&self.tops[at], old.raw(), new.raw())
    }

    fn next(&self, kind: FreeKind, number: u32) -> u32 {
        let number = number as usize;
        match kind {
            FreeKind::Slots => self.places[number].load(Ordering::Acquire) as u32,
            FreeKind::Heads => self.head(number).number(),
            _ => self.tables[number][0].load(Ordering::Acquire),
        }
    }

    fn set_next(&self, kind: FreeKind, number: u32, next: u32) {
        let number = number as usize;
        match kind {
            FreeKind::Slots => self.places[number].store(next.into(), Ordering::Release),
            FreeKind::Heads => self.heads[number].store(Head::free(next).raw(), Ordering::Release),
            _ => self.tables[number][0].store(next, Ordering::Release),
        }
    }
}

/// Both pages are touched at the same time, each by its processor. Slots that `others` find are in use as well.
fn at_once(before: fn() -> Index, pages: [Va; 2], others: &'static [Va]) {
    loom::model(move || {
        let index = Arc::new(before());
        let other = {
            let index = Arc::clone(&index);
            thread::spawn(move || index.touch(pages[1]))
        };
        let found = [index.touch(pages[0]), other.join().unwrap()];
        for (page, found) in pages.into_iter().zip(found) {
            assert_eq!(opening::find(&*index, page), found, "{page:?}");
        }
        let mut slots = found.to_vec();
        slots.extend(others.iter().map(|page| opening::find(&*index, *page)));
        slots.sort_unstable();
        slots.dedup();
        index.check(&slots);
    });
}

#[test]
fn the_first_region_of_a_block() {
    at_once(Index::new, [FIRST_UNIT, FIRST_UNIT], &[]);
}

#[test]
fn two_regions_of_a_block_that_has_none() {
    at_once(Index::new, [FIRST_UNIT, NEXT_UNIT], &[]);
}

#[test]
fn the_second_region_of_a_block() {
    at_once(
        || Index::touched(NEXT_UNIT),
        [FIRST_UNIT, SAME_UNIT],
        &[NEXT_UNIT],
    );
}

#[test]
fn two_pages_of_a_unit_whose_regions_are_smaller() {
    at_once(Index::grouped, [FIRST_UNIT, SAME_UNIT], &[NEXT_UNIT]);
}

#[test]
fn a_page_of_a_unit_whose_regions_are_smaller() {
    at_once(Index::grouped, [SAME_UNIT, SAME_UNIT], &[NEXT_UNIT]);
}

#[test]
fn what_one_processor_takes_while_the_other_gives_the_same_back() {
    loom::model(|| {
        let index = Arc::new(Index::new());
        let other = {
            let index = Arc::clone(&index);
            thread::spawn(move || {
                let (first, second) = (index.take(FreeKind::Slots), index.take(FreeKind::Slots));
                index.give(FreeKind::Slots, first);
                second
            })
        };
        let mut all = vec![index.take(FreeKind::Slots), other.join().unwrap()];
        all.extend(index.drain(FreeKind::Slots).into_iter().map(|it| it as u32));
        all.sort_unstable();
        assert!(all.iter().copied().eq(1..NUMBERS as u32), "{all:?}");
    });
}
