//! What the controller's machine wants done to the maps of the data plane: each [`Act`] on tables, words and slots, and
//! what comes of it. Here is which block table belongs to which block, too, since only the controller changes that.

use std::{collections::BTreeMap, sync::atomic::Ordering};

use mind_api::errno::{Errno, Failure};
use mind_common::{
    addr::{BLOCK_SHIFT, PAGE_SHIFT, PAGE_SIZE, PAGES_PER_BLOCK, Region, Va},
    directory::{
        Origin, State, Word,
        machine::{Loss, on_loss},
    },
    id::{BladeId, DomainId, MAX_BLADES},
    permission::PermissionClass,
    serial::Seq,
    table::{self, Peer, Slot},
};
use mind_dataplane::{SlotHandle, Switch};
use mind_machines::controller::{
    Act, Entry, FoundSlot, Seen,
    books::{
        blades,
        tables::{Key, Value},
    },
    procedure,
};

/// A block of addresses that has a block table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    /// The table's index.
    table: u32,
    /// Its pages that find a slot.
    pages: u32,
}

/// The maps, and which block has which table.
pub(in crate::serve) struct Tables {
    switch: Switch,
    /// Indices of the switch's interfaces.
    ports: Vec<u32>,
    /// By the block's number.
    blocks: BTreeMap<u64, Block>,
    /// Block tables of no block: those below `next` that were given back, then `next` and above.
    free: Vec<u32>,
    next: u32,
}

fn broken(error: &dyn std::fmt::Display) -> Failure {
    Failure::new(Errno::EIO, error.to_string())
}

/// The number of the block that an address is in.
const fn block_of(va: Va) -> u64 {
    va.0 >> BLOCK_SHIFT
}

/// The first address of a block.
const fn first_of(block: u64) -> Va {
    Va(block << BLOCK_SHIFT)
}

impl Tables {
    /// The maps of a switch with ports at these interfaces, as they are.
    ///
    /// # Errors
    ///
    /// When the kernel refuses to read them.
    pub(super) fn new(switch: Switch, ports: Vec<u32>) -> mind_dataplane::Result<Self> {
        let mut tables = Self {
            ports,
            blocks: BTreeMap::new(),
            free: Vec::new(),
            next: 0,
            switch,
        };
        let used: BTreeMap<u32, u64> = tables
            .switch
            .blocks()?
            .into_iter()
            .map(|(block, table)| (table, block))
            .collect();
        tables.next = used.keys().next_back().map_or(0, |last| last + 1);
        tables.free = (0..tables.next)
            .filter(|table| !used.contains_key(table))
            .collect();
        for (table, number) in used {
            let first = first_of(number);
            let pages = (0..PAGES_PER_BLOCK as u64).map(|page| Va(first.0 + (page << PAGE_SHIFT)));
            let pages = pages.filter(|page| tables.entry(table, *page) != 0).count() as u32;
            tables.blocks.insert(number, Block { table, pages });
        }
        Ok(tables)
    }

    /// The switch.
    pub(super) fn switch(&self) -> &Switch {
        &self.switch
    }

    /// Slots of the directory; the first is never used.
    pub(super) fn slots(&self) -> u32 {
        u32::try_from(self.switch.directory().slots()).unwrap_or(u32::MAX)
    }

    fn slot(&self, number: u32) -> Option<SlotHandle<'_>> {
        match self.switch.directory().slot(number) {
            Ok(slot) => Some(slot),
            Err(error) => {
                tracing::error!(%error, "the controller names a slot that is not there");
                None
            }
        }
    }

    /// Does something at once; `None` for what is not the maps' ([`Act::Keep`]).
    pub(super) fn execute(&mut self, act: &Act) -> Option<Seen> {
        Some(match act {
            Act::Look { slot } => {
                Seen::Word(self.slot(*slot).map_or_else(Word::default, |it| it.word()))
            }
            Act::Swap { slot, old, new } => Seen::Word(match self.slot(*slot) {
                Some(slot) => match slot.swap_word(*old, *new) {
                    Ok(()) => *new,
                    Err(there) => there,
                },
                None => Word::default(),
            }),
            Act::Open { slot, region, word } => {
                if let Some(slot) = self.slot(*slot) {
                    open(&slot, *region, *word);
                }
                Seen::Done(Ok(()))
            }
            Act::Cover { slot, region } => {
                if let Some(slot) = self.slot(*slot) {
                    match region {
                        Some(region) => slot.set_region(*region),
                        None => slot.clear_region(),
                    }
                }
                Seen::Done(Ok(()))
            }
            Act::Assign { region, slot } => Seen::Done(self.assign(*region, *slot)),
            Act::Find { from, to, most } => self.find(*from, *to, *most),
            Act::Forget { blade, from, most } => self.sweep(*from, *most, |_, word| {
                let step = on_loss(word, *blade)?;
                Some((step.next, step.verdict == Loss::Writes))
            }),
            Act::Lose { memory, from, most } => self.sweep(*from, *most, |slot, word| {
                let region = slot.region()?;
                let is_its = region.base().slice() == Some(*memory);
                let lost = is_its.then(|| procedure::lose(word)).flatten()?;
                Some((lost, true))
            }),
            Act::Install { key, value } => Seen::Done(self.install(*key, *value)),
            Act::ReadTables => match read(&self.switch, &self.ports) {
                Ok(entries) => Seen::Tables(entries),
                Err(error) => {
                    tracing::error!(%error, "the switch's tables cannot be read");
                    Seen::Tables(Vec::new())
                }
            },
            Act::ReadSlots { from, most } => self.read_slots(*from, *most),
            Act::Reindex { regions } => Seen::Done(self.reindex(regions)),
            Act::Keep { .. } => return None,
        })
    }

    // Slots.

    /// Changes words from a slot on; `change` says what one becomes, and whether something of its region is lost by
    /// that.
    fn sweep(
        &self,
        from: u32,
        most: u32,
        change: impl Fn(&SlotHandle<'_>, Word) -> Option<(Word, bool)>,
    ) -> Seen {
        let end = from.saturating_add(most).min(self.slots());
        let mut lost = Vec::new();
        for number in from..end {
            let Some(slot) = self.slot(number) else {
                continue;
            };
            loop {
                let word = slot.word();
                let Some((next, is_lost)) = change(&slot, word) else {
                    break;
                };
                if slot.swap_word(word, next).is_ok() {
                    let region = slot.region().filter(|_| is_lost);
                    lost.extend(region.map(|region| Entry {
                        region,
                        slot: number,
                    }));
                    break;
                }
            }
        }
        let next = (end < self.slots()).then_some(end);
        Seen::Swept { lost, next }
    }

    fn read_slots(&self, from: u32, most: u32) -> Seen {
        let end = from.saturating_add(most).min(self.slots());
        let used = (from..end).filter_map(|number| {
            let slot = self.slot(number)?;
            let (word, region) = (slot.word(), slot.region());
            let after = region.map(|region| Va(region.base().0 + region.size()));
            let found = FoundSlot {
                slot: number,
                region,
                word,
                neighbour: after.map_or(0, |va| self.slot_of(va)),
            };
            (word.state() != State::Free).then_some(found)
        });
        Seen::Slots {
            found: used.collect(),
            next: (end < self.slots()).then_some(end),
        }
    }

    // Blocks.

    /// The slot that a page finds; 0 for none.
    fn slot_of(&self, page: Va) -> u32 {
        let block = self.blocks.get(&block_of(page));
        block.map_or(0, |block| self.entry(block.table, page))
    }

    fn entry(&self, table: u32, page: Va) -> u32 {
        let entry = self.switch.directory().entry(table, page);
        entry.map_or(0, |entry| entry.load(Ordering::Acquire))
    }

    /// Takes a block table that no block has.
    fn take_table(&mut self) -> Result<u32, Failure> {
        if let Some(table) = self.free.pop() {
            return Ok(table);
        }
        if (self.next as usize) < self.switch.directory().tables() {
            self.next += 1;
            return Ok(self.next - 1);
        }
        let message = format!("all {} block tables are in use", self.next);
        Err(Failure::new(Errno::ENOMEM, message))
    }

    /// Makes the pages of a region find a slot, or none. A block gets its table with its first page, and gives it back
    /// with its last.
    fn assign(&mut self, region: Region, slot: Option<u32>) -> Result<(), Failure> {
        let number = block_of(region.base());
        let value = slot.unwrap_or(0);
        let (mut block, is_new) = match self.blocks.get(&number) {
            Some(block) => (*block, false),
            None if value == 0 => return Ok(()),
            None => {
                let table = self.take_table()?;
                let blank = self.switch.directory().blank(table);
                blank.map_err(|error| broken(&error))?;
                (Block { table, pages: 0 }, true)
            }
        };
        for page in region.pages() {
            let entry = self.switch.directory().entry(block.table, page);
            let before = entry
                .map_err(|error| broken(&error))?
                .swap(value, Ordering::AcqRel);
            block.pages += u32::from(before == 0 && value != 0);
            block.pages -= u32::from(before != 0 && value == 0);
        }
        if block.pages == 0 {
            let withdrawn = self.switch.set_block(first_of(number), None);
            withdrawn.map_err(|error| broken(&error))?;
            self.blocks.remove(&number);
            self.free.push(block.table);
            return Ok(());
        }
        if is_new {
            let published = self
                .switch
                .set_block(first_of(number), Some(block.table))
                .map_err(|error| broken(&error));
            if published.is_err() {
                self.free.push(block.table);
                return published;
            }
        }
        self.blocks.insert(number, block);
        Ok(())
    }

    /// Regions with their slots in a range, by address.
    pub(super) fn find(&self, from: Va, to: Va, most: usize) -> Seen {
        let mut found: Vec<Entry> = Vec::new();
        let mut next = from.page();
        for (number, block) in self.blocks.range(block_of(next)..) {
            next = next.max(first_of(*number));
            while next < to && block_of(next) == *number {
                let slot = self.entry(block.table, next);
                let region = match slot {
                    0 => None,
                    slot => self.slot(slot).and_then(|slot| slot.region()),
                };
                // The slot may cover nothing at the moment.
                let Some(region) = region.filter(|region| region.contains(next)) else {
                    next = Va(next.0 + PAGE_SIZE as u64);
                    continue;
                };
                if found.len() == most {
                    let next = Some(next);
                    return Seen::Regions { found, next };
                }
                found.push(Entry { region, slot });
                next = Va(region.base().0 + region.size());
            }
            if next >= to {
                break;
            }
        }
        Seen::Regions { found, next: None }
    }

    /// Makes all pages find exactly these slots.
    fn reindex(&mut self, regions: &[(Region, u32)]) -> Result<(), Failure> {
        let mut wanted: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for (region, slot) in regions {
            let entries = wanted
                .entry(block_of(region.base()))
                .or_insert_with(|| vec![0; PAGES_PER_BLOCK]);
            for page in region.pages() {
                entries[page.page_in_block()] = *slot;
            }
        }
        let stale: Vec<_> = self
            .blocks
            .keys()
            .copied()
            .filter(|number| !wanted.contains_key(number))
            .collect();
        for number in stale {
            let withdrawn = self.switch.set_block(first_of(number), None);
            withdrawn.map_err(|error| broken(&error))?;
            self.free
                .extend(self.blocks.remove(&number).map(|block| block.table));
        }
        for (number, entries) in wanted {
            let known = self.blocks.get(&number).map(|block| block.table);
            let table = known.map_or_else(|| self.take_table(), Ok)?;
            for (page, slot) in entries.iter().enumerate() {
                let page = Va(first_of(number).0 + ((page as u64) << PAGE_SHIFT));
                let entry = self.switch.directory().entry(table, page);
                let entry = entry.map_err(|error| broken(&error))?;
                if entry.load(Ordering::Acquire) != *slot {
                    entry.store(*slot, Ordering::Release);
                }
            }
            if known.is_none() {
                let published = self.switch.set_block(first_of(number), Some(table));
                published.map_err(|error| broken(&error))?;
            }
            let pages = entries.iter().filter(|slot| **slot != 0).count() as u32;
            self.blocks.insert(number, Block { table, pages });
        }
        Ok(())
    }

    // The other tables.

    fn install(&mut self, key: Key, value: Option<Value>) -> Result<(), Failure> {
        let switch = &mut self.switch;
        let result = match (key, value) {
            (Key::Port(blades::Port(ifindex)), value) => switch.port(ifindex).and_then(|found| {
                let entry = match value {
                    Some(Value::Port(entry)) => entry,
                    _ => table::Port::default(),
                };
                // The flags are those of the programs on the port.
                let flags = found.flags;
                switch.set_port(ifindex, table::Port { flags, ..entry })
            }),
            (Key::Compute(blade), value) => switch.set_compute(blade, peer(value)),
            (Key::Memory(number), value) => switch.set_memory(number, peer(value)),
            (Key::Translation(prefix), Some(Value::Translation(translation))) => {
                switch.translate(prefix, translation)
            }
            (Key::Translation(prefix), _) => switch.untranslate(prefix).map(|_| ()),
            (Key::Placement(domain), value) => {
                let blades = match value {
                    Some(Value::Placement(blades)) => blades,
                    _ => mind_common::id::BladeSet::EMPTY,
                };
                switch.place(DomainId(domain), blades)
            }
            (Key::Protection(domain, prefix), Some(Value::Protection(class))) => {
                switch.protect(DomainId(domain), prefix, class.permission())
            }
            (Key::Protection(domain, prefix), _) => {
                switch.unprotect(DomainId(domain), prefix).map(|_| ())
            }
        };
        result.map_err(|error| match error {
            mind_dataplane::Error::Limit { .. } => Failure::new(Errno::ENOMEM, error.to_string()),
            error => broken(&error),
        })
    }
}

fn peer(value: Option<Value>) -> Peer {
    match value {
        Some(Value::Peer(peer)) => peer,
        _ => Peer::default(),
    }
}

/// Makes a free slot a region's, with that word, in its next episode.
fn open(slot: &SlotHandle<'_>, region: Region, word: Word) {
    let episode = slot.word().episode().next();
    let mut fresh = Slot::new(word.with_episode(episode), region);
    // Of this episode, so that later origins replace it.
    fresh.origin = Origin::new(episode, Seq::default(), region.base()).raw();
    slot.reset(fresh);
}

/// All entries of all tables but the directory, of a switch with ports at these interfaces.
///
/// # Errors
///
/// When the kernel refuses.
pub(in crate::serve) fn read(
    switch: &Switch,
    ports: &[u32],
) -> mind_dataplane::Result<Vec<(Key, Value)>> {
    let mut entries = Vec::new();
    for ifindex in ports {
        let port = table::Port {
            flags: 0,
            ..switch.port(*ifindex)?
        };
        if port != table::Port::default() {
            entries.push((Key::Port(blades::Port(*ifindex)), Value::Port(port)));
        }
    }
    for number in 0..MAX_BLADES as u8 {
        let blade = BladeId::from_low_bits(number.into());
        for (key, peer) in [
            (Key::Compute(blade), switch.compute(blade)?),
            (Key::Memory(number), switch.memory(number)?),
        ] {
            if peer != Peer::default() {
                entries.push((key, Value::Peer(peer)));
            }
        }
    }
    let translations = switch.translations()?.into_iter();
    entries.extend(
        translations.map(|(prefix, translation)| {
            (Key::Translation(prefix), Value::Translation(translation))
        }),
    );
    let placements = switch.placements()?.into_iter();
    entries.extend(
        placements.map(|(domain, blades)| (Key::Placement(domain.0), Value::Placement(blades))),
    );
    let protections = switch.protections()?.into_iter();
    entries.extend(protections.map(|(domain, prefix, permission)| {
        (
            Key::Protection(domain.0, prefix),
            Value::Protection(PermissionClass::of(permission)),
        )
    }));
    Ok(entries)
}
