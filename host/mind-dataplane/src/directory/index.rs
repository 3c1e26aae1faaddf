//! How pages find slots ([`mind_common::directory::index`]), and how the controller changes that while packets add to it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use aya::maps::MapError;
use mind_common::{
    addr::{BLOCK_SHIFT, PAGE_SHIFT, PAGES_PER_BLOCK, Region, Va},
    directory::index::{
        CLOSED, Head, PAGES_PER_UNIT, UNIT_ORDER, UNITS_PER_BLOCK, UnitEntry,
        opening::{self, Entries},
        page_in_unit, unit_in_block,
    },
    table::FreeKind,
};

use super::{BLOCKS, Directory};
use crate::{Error, Result};

/// How often a change is tried that packets come in the way of. Each of them adds something, of which there is an end.
const TRIES: usize = 10_000;

/// `BPF_NOEXIST` of `bpf_map_update_elem`: only where there is no entry.
const NO_EXIST: u64 = 1;

/// What was taken out of the index: to be [given](Directory::give) when the packets have left the switch that may have
/// found it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retired(Vec<(FreeKind, u32)>);

impl Retired {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A slot, of which neither a page nor the controller knows any more.
    pub fn push_slot(&mut self, slot: u32) {
        self.0.push((FreeKind::Slots, slot));
    }

    /// How many slots there are.
    pub fn slots(&self) -> usize {
        let slots = self.0.iter().filter(|(kind, _)| *kind == FreeKind::Slots);
        slots.count()
    }

    /// All of another.
    pub fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }
}

/// A head, where programs change it at the same time.
pub(super) struct HeadHandle<'a>(&'a AtomicU64);

impl HeadHandle<'_> {
    pub(super) fn get(&self) -> Head {
        Head::from_raw(self.0.load(Ordering::Acquire))
    }

    pub(super) fn set(&self, head: Head) {
        self.0.store(head.raw(), Ordering::Release);
    }

    fn swap(&self, old: Head, new: Head) -> bool {
        let swapped =
            self.0
                .compare_exchange(old.raw(), new.raw(), Ordering::AcqRel, Ordering::Acquire);
        swapped.is_ok()
    }
}

/// The first address of a block.
const fn first_of(block: u64) -> Va {
    Va(block << BLOCK_SHIFT)
}

/// The first address of a unit of a block.
const fn unit_of(block: u64, unit: usize) -> Va {
    Va(first_of(block).0 + ((unit as u64) << (PAGE_SHIFT + UNIT_ORDER as u32)))
}

fn swap(entry: &AtomicU32, old: u32, new: u32) -> bool {
    entry
        .compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
        .is_ok()
}

/// Where an entry of a table or of a group is.
#[derive(Clone, Copy)]
pub struct EntryAt<'a>(&'a AtomicU32);

impl<'a> Entries for &'a Directory {
    type EntryAt = EntryAt<'a>;

    fn unit_at(&self, table: u32, unit: usize) -> Option<EntryAt<'a>> {
        self.table_at(table)?.get(unit).map(EntryAt)
    }

    fn page_at(&self, group: u32, page: usize) -> Option<EntryAt<'a>> {
        self.group_at(group)?.get(page).map(EntryAt)
    }

    fn entry(&self, at: EntryAt<'a>) -> u32 {
        at.0.load(Ordering::Acquire)
    }
}

impl Directory {
    /// What the page at `va` finds: its slot's number, 0 for none, or
    /// [`CLOSED`](mind_common::directory::index::CLOSED).
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn slot_of(&self, va: Va) -> Result<u32> {
        let Some((_, head)) = self.head_of(va.block())? else {
            return Ok(0);
        };
        Ok(opening::find_from(&self, head.get(), va))
    }

    /// The slots that the pages of a block find, by their place in it; none if the block has no head.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn slots_in(&self, block: u64) -> Result<Option<[u32; PAGES_PER_BLOCK]>> {
        let Some((_, head)) = self.head_of(block)? else {
            return Ok(None);
        };
        let head = head.get();
        let first = first_of(block).0;
        Ok(Some(std::array::from_fn(|page| {
            opening::find_from(&self, head, Va(first + ((page as u64) << PAGE_SHIFT)))
        })))
    }

    /// How many blocks have a head, at most: those that were taken out a moment ago are counted, too.
    pub fn blocks_at_most(&self) -> usize {
        self.capacity(FreeKind::Heads) - 1 - self.left(FreeKind::Heads)
    }

    /// How many blocks can have a head.
    pub fn most_blocks(&self) -> usize {
        self.capacity(FreeKind::Heads) - 1
    }

    /// The numbers of the blocks that have a head, in no order. Blocks that get one meanwhile may be among them or not.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn blocks(&self) -> Result<Vec<u64>> {
        let blocks = self.map_of_blocks();
        let all: Result<Vec<_>, _> = blocks.keys().collect();
        all.map_err(|error| failed("list", "all", error))
    }

    /// Makes all pages of a region find `slot`, or none for 0; whatever they found before. Returns what is in no use
    /// since.
    ///
    /// # Errors
    ///
    /// When nothing is left to make that change with, and when the kernel refuses. Then the pages find what they found.
    pub fn assign(&self, region: Region, slot: u32) -> Result<Retired> {
        let mut retired = Retired::default();
        for _ in 0..TRIES {
            if self.try_assign(region, slot, &mut retired)? {
                if slot == 0 {
                    self.tidy(region.base().block(), &mut retired)?;
                }
                return Ok(retired);
            }
            std::thread::yield_now();
        }
        Err(Error::Contended { region })
    }

    /// Makes pages find exactly these slots. Only while no packet adds anything: the list of slots is
    /// [drained](Self::drain), and the packets that had taken one have left the switch.
    ///
    /// # Errors
    ///
    /// As for [`assign`](Self::assign).
    pub fn rebuild(&self, regions: &[(Region, u32)]) -> Result<Retired> {
        self.give_all_forgotten()?;
        let mut retired = Retired::default();
        let mut wanted: std::collections::BTreeMap<u64, Vec<(Region, u32)>> =
            std::collections::BTreeMap::new();
        for (region, slot) in regions {
            let block = wanted.entry(region.base().block()).or_default();
            block.push((*region, *slot));
        }
        for block in self.blocks()? {
            let regions = wanted.get(&block).map_or(&[][..], Vec::as_slice);
            let found = self.slots_in(block)?.unwrap_or([0; PAGES_PER_BLOCK]);
            for (page, slot) in found.iter().enumerate() {
                let va = Va(first_of(block).0 + ((page as u64) << PAGE_SHIFT));
                let is_wanted = regions
                    .iter()
                    .any(|(region, wanted)| region.contains(va) && wanted == slot);
                if *slot != 0
                    && !is_wanted
                    && let Some(page) = Region::containing(va, 0)
                {
                    retired.append(self.assign(page, 0)?);
                }
            }
        }
        for (region, slot) in regions {
            let found = self.slots_in(region.base().block())?;
            let is_there = found.is_some_and(|found| {
                let mut pages = region.pages();
                pages.all(|page| found[page.page_in_block()] == *slot)
            });
            if !is_there {
                retired.append(self.assign(*region, *slot)?);
            }
        }
        Ok(retired)
    }

    /// Gives everything for further use that was retired before the packets that are in the switch came.
    pub fn give_retired(&self, retired: Retired) {
        for (kind, number) in retired.0 {
            self.give(kind, number);
        }
    }

    /// Heads, tables and groups that a controller had retired which has ended.
    fn give_all_forgotten(&self) -> Result<()> {
        let mut used = [Vec::new(), Vec::new(), Vec::new()];
        for block in self.blocks()? {
            let Some((number, head)) = self.head_of(block)? else {
                continue;
            };
            used[0].push(number);
            let head = head.get();
            let Some(entries) = head.is_table().then(|| self.table_at(head.number())) else {
                continue;
            };
            used[1].push(head.number());
            for entry in entries.into_iter().flatten() {
                let entry = UnitEntry::from_raw(entry.load(Ordering::Acquire));
                if entry.is_group() {
                    used[2].push(entry.number());
                } else if entry == UnitEntry::CLOSED {
                    // The controller ended before the block had done without its table.
                    self.reopen(head.number());
                }
            }
        }
        let kinds = [FreeKind::Heads, FreeKind::Tables, FreeKind::Groups];
        for (kind, used) in kinds.into_iter().zip(used) {
            self.give_forgotten(kind, used);
        }
        Ok(())
    }

    /// One attempt of [`assign`](Self::assign); whether it is done.
    fn try_assign(&self, region: Region, slot: u32, retired: &mut Retired) -> Result<bool> {
        let block = region.base().block();
        let Some((_, at)) = self.head_of(block)? else {
            return match slot {
                0 => Ok(true),
                _ => self.insert_block(region, slot),
            };
        };
        let head = at.get();
        if head.is_closed() {
            return Ok(false);
        }
        if head.is_table() {
            return self.assign_in_table(head.number(), region, slot, retired);
        }
        let is_whole = region.order() >= UNIT_ORDER;
        let first = unit_in_block(region.base());
        let units = 1 << region.order().saturating_sub(UNIT_ORDER);
        let is_other = |unit: usize| !(first..first + units).contains(&unit);
        let has_others = (0..UNITS_PER_BLOCK)
            .any(|unit| is_other(unit) && head.slot_at(unit_of(block, unit)) != 0);
        if !has_others && is_whole {
            let new = match slot {
                0 => Head::empty(region.base()),
                _ => Head::one(slot, region),
            };
            return Ok(at.swap(head, new));
        }
        if slot == 0 && head.slot_at(region.base()) == 0 {
            return Ok(true);
        }
        // A table, in which the change is made before it is found.
        let table = self.need(FreeKind::Tables)?;
        if let Some(entries) = self.table_at(table) {
            for (unit, entry) in entries.iter().enumerate() {
                entry.store(head.slot_at(unit_of(block, unit)), Ordering::Release);
            }
        }
        if let Err(error) = self.assign_in_table(table, region, slot, retired) {
            self.give(FreeKind::Tables, table);
            return Err(error);
        }
        let is_in_place = at.swap(head, Head::table(table, region.base()));
        if !is_in_place {
            // Nothing has found it, nor its group.
            if let Some(entries) = self.table_at(table) {
                let entry = UnitEntry::from_raw(entries[first].load(Ordering::Acquire));
                if entry.is_group() {
                    self.give(FreeKind::Groups, entry.number());
                }
            }
            self.give(FreeKind::Tables, table);
        }
        Ok(is_in_place)
    }

    /// The same, in a table.
    fn assign_in_table(
        &self,
        table: u32,
        region: Region,
        slot: u32,
        retired: &mut Retired,
    ) -> Result<bool> {
        let Some(entries) = self.table_at(table) else {
            return Ok(true);
        };
        let first = unit_in_block(region.base());
        if region.order() >= UNIT_ORDER {
            for entry in &entries[first..first + (1 << (region.order() - UNIT_ORDER))] {
                let old = UnitEntry::from_raw(entry.swap(slot, Ordering::AcqRel));
                if old.is_group() {
                    // What a packet adds to it from here on is found by no page.
                    self.shut(old.number(), retired);
                }
            }
            return Ok(true);
        }
        let entry = &entries[first];
        let old = UnitEntry::from_raw(entry.load(Ordering::Acquire));
        if old == UnitEntry::CLOSED {
            return Ok(false);
        }
        if old.is_group() {
            if let Some(pages) = self.group_at(old.number()) {
                for page in region.pages() {
                    pages[page_in_unit(page)].store(slot, Ordering::Release);
                }
            }
            return Ok(true);
        }
        if slot == 0 && old == UnitEntry::EMPTY {
            return Ok(true);
        }
        let group = self.need(FreeKind::Groups)?;
        if let Some(pages) = self.group_at(group) {
            for page in pages {
                page.store(old.number(), Ordering::Release);
            }
            for page in region.pages() {
                pages[page_in_unit(page)].store(slot, Ordering::Release);
            }
        }
        let is_in_place = swap(entry, old.raw(), UnitEntry::group(group).raw());
        if !is_in_place {
            self.give(FreeKind::Groups, group);
        }
        Ok(is_in_place)
    }

    /// The block has no head: it gets one that leads to the region's slot. Whether it has got it.
    fn insert_block(&self, region: Region, slot: u32) -> Result<bool> {
        let block = region.base().block();
        let number = self.need(FreeKind::Heads)?;
        let Some(at) = self.head_at(number) else {
            return Ok(false);
        };
        // Smaller regions come by a table, in the next attempt.
        let head = match region.order() >= UNIT_ORDER {
            true => Head::one(slot, region),
            false => Head::empty(region.base()),
        };
        at.set(head);
        let inserted = self.map_of_blocks().insert(block, number, NO_EXIST);
        match inserted {
            Ok(()) => Ok(region.order() >= UNIT_ORDER),
            Err(error) => {
                self.give(FreeKind::Heads, number);
                match self.head_of(block)? {
                    // A packet was faster.
                    Some(_) => Ok(false),
                    None => Err(failed("write", block, error)),
                }
            }
        }
    }

    /// After a region has become larger, has the block do with less, as it does after something was taken out.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn tidy_block(&self, va: Va) -> Result<Retired> {
        let mut retired = Retired::default();
        self.tidy(va.block(), &mut retired)?;
        Ok(retired)
    }

    /// Has a block closed that has no slots, as while its head is given back.
    ///
    /// # Panics
    ///
    /// When the kernel refuses.
    #[cfg(feature = "harness")]
    pub fn close_block(&self, va: Va) {
        let number = self.need(FreeKind::Heads).expect("a head is left");
        let at = self.head_at(number).expect("the head is there");
        at.set(Head::closed(va));
        let inserted = self.map_of_blocks().insert(va.block(), number, NO_EXIST);
        inserted.expect("the block has no head");
    }

    /// Has it open again.
    ///
    /// # Panics
    ///
    /// When the kernel refuses.
    #[cfg(feature = "harness")]
    pub fn open_block(&self, va: Va) {
        let head = self.head_of(va.block()).expect("it can be looked up");
        let (_, at) = head.expect("the block has a head");
        at.set(Head::empty(va));
    }

    /// The table of the block of `va`, and which unit of it `va` is in; `None` where the block has no table.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    #[cfg(feature = "harness")]
    pub fn table_of(&self, va: Va) -> Result<Option<(u32, usize)>> {
        let head = self.head_of(va.block())?;
        let head = head
            .map(|(_, head)| head.get())
            .filter(|head| head.is_table());
        Ok(head.map(|head| (head.number(), unit_in_block(va))))
    }

    /// A unit with one slot or none does without its group, a block with one region without its
    /// table, and one with none without its head.
    fn tidy(&self, block: u64, retired: &mut Retired) -> Result<()> {
        let Some((number, at)) = self.head_of(block)? else {
            return Ok(());
        };
        let head = at.get();
        if head.is_table() {
            self.tidy_table(&at, head, block, retired);
        }
        let head = at.get();
        if head.is_empty() && at.swap(head, Head::closed(first_of(block))) {
            let removed = self.map_of_blocks().remove(&block);
            removed.map_err(|error| failed("remove", block, error))?;
            retired.0.push((FreeKind::Heads, number));
        }
        Ok(())
    }

    /// Does without a table that leads to one region at most.
    fn tidy_table(&self, at: &HeadHandle<'_>, old: Head, block: u64, retired: &mut Retired) {
        let table = old.number();
        let Some(entries) = self.table_at(table) else {
            return;
        };
        for entry in entries {
            self.tidy_group(entry, retired);
        }
        let there = |entry: &AtomicU32| UnitEntry::from_raw(entry.load(Ordering::Acquire));
        let used = || {
            entries
                .iter()
                .enumerate()
                .filter(|(_, entry)| there(entry) != UnitEntry::EMPTY)
        };
        let region = match used().next() {
            None => None,
            Some((_, entry)) => {
                let number = there(entry);
                if number.is_group() || used().any(|(_, other)| there(other) != number) {
                    return;
                }
                let slot = number.number();
                let region = self.slot(slot).ok().and_then(|slot| slot.region());
                let region = region.filter(|region| region.order() >= UNIT_ORDER);
                let Some(head) = region.map(|region| Head::one(slot, region)) else {
                    return;
                };
                // It may just be changed.
                let is_all = (0..UNITS_PER_BLOCK).all(|unit| {
                    head.slot_at(unit_of(block, unit)) == there(&entries[unit]).number()
                });
                if !is_all {
                    return;
                }
                region.map(|region| (slot, region))
            }
        };
        let is_shut = entries.iter().all(|entry| {
            swap(entry, 0, CLOSED)
                || region.is_some_and(|(slot, _)| entry.load(Ordering::Acquire) == slot)
        });
        let empty = Head::empty(first_of(block));
        let new = region.map_or(empty, |(slot, region)| Head::one(slot, region));
        if is_shut && at.swap(old, new) {
            retired.0.push((FreeKind::Tables, table));
        } else {
            self.reopen(table);
        }
    }

    /// Does without a group that leads to nothing, or to one slot.
    fn tidy_group(&self, entry: &AtomicU32, retired: &mut Retired) {
        let there = UnitEntry::from_raw(entry.load(Ordering::Acquire));
        let Some(pages) = there.is_group().then(|| self.group_at(there.number())) else {
            return;
        };
        let pages = pages.unwrap_or_default();
        let first = pages.first().map_or(0, |page| page.load(Ordering::Acquire));
        let is_one = first != 0
            && pages
                .iter()
                .all(|page| page.load(Ordering::Acquire) == first);
        if is_one {
            // No packet adds anything where there is something.
            if swap(entry, there.raw(), first) {
                retired.0.push((FreeKind::Groups, there.number()));
            }
            return;
        }
        let mut shut = 0;
        while shut < pages.len() && swap(&pages[shut], 0, CLOSED) {
            shut += 1;
        }
        if shut == pages.len() && swap(entry, there.raw(), 0) {
            retired.0.push((FreeKind::Groups, there.number()));
            return;
        }
        for page in &pages[..shut] {
            page.store(0, Ordering::Release);
        }
    }

    /// A group that no page finds any more.
    fn shut(&self, group: u32, retired: &mut Retired) {
        for page in self.group_at(group).unwrap_or_default() {
            page.store(CLOSED, Ordering::Release);
        }
        retired.0.push((FreeKind::Groups, group));
    }

    /// What was closed of a table is open again.
    fn reopen(&self, table: u32) {
        for entry in self.table_at(table).unwrap_or_default() {
            swap(entry, CLOSED, 0);
        }
    }

    fn need(&self, kind: FreeKind) -> Result<u32> {
        self.take(kind).ok_or(Error::UsedUp {
            what: match kind {
                FreeKind::Slots => "slots of the directory",
                FreeKind::Heads => "heads of the directory's index",
                FreeKind::Tables => "tables of the directory's index",
                FreeKind::Groups => "groups of the directory's index",
            },
            number: self.capacity(kind) - 1,
        })
    }

    /// The head of a block, and its number.
    fn head_of(&self, block: u64) -> Result<Option<(u32, HeadHandle<'_>)>> {
        let number = match self.map_of_blocks().get(&block, 0) {
            Ok(number) => number,
            Err(MapError::KeyNotFound) => return Ok(None),
            Err(error) => return Err(failed("read", block, error)),
        };
        let head = self.head_at(number);
        let head = head.filter(|head| head.get().is_of(first_of(block)));
        Ok(head.map(|head| (number, head)))
    }

    pub(super) fn head_at(&self, number: u32) -> Option<HeadHandle<'_>> {
        let at = self.heads.at(number as usize).filter(|_| number != 0)?;
        // SAFETY: a value of the mapping, which lives as long as `self`; aligned, and reached through atomics only. So
        // below.
        Some(HeadHandle(unsafe { AtomicU64::from_ptr(at.as_ptr()) }))
    }

    pub(super) fn table_at(&self, number: u32) -> Option<&[AtomicU32]> {
        let at = self.tables.at(number as usize).filter(|_| number != 0)?;
        // SAFETY: see `head_at`.
        Some(unsafe { std::slice::from_raw_parts(at.as_ptr().cast(), UNITS_PER_BLOCK) })
    }

    pub(super) fn group_at(&self, number: u32) -> Option<&[AtomicU32]> {
        let at = self.groups.at(number as usize).filter(|_| number != 0)?;
        // SAFETY: see `head_at`.
        Some(unsafe { std::slice::from_raw_parts(at.as_ptr().cast(), PAGES_PER_UNIT) })
    }

    fn map_of_blocks(
        &self,
    ) -> std::sync::MutexGuard<'_, aya::maps::HashMap<aya::maps::MapData, u64, u32>> {
        // A handle of a map is as good after a panic as before.
        self.blocks
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn failed(action: &'static str, key: impl ToString, source: MapError) -> Error {
    Error::Entry {
        name: BLOCKS,
        action,
        key: key.to_string(),
        source: Box::new(source),
    }
}
