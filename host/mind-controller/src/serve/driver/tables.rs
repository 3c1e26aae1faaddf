//! What the controller's machine wants done to the maps of the data plane: each [`Act`] on tables, words and slots, and
//! what comes of it.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    time::{Duration, Instant},
};

use mind_api::errno::{Errno, Failure};
use mind_common::{
    addr::{BLOCK_SHIFT, PAGE_SHIFT, PAGE_SIZE, PAGES_PER_BLOCK, Region, Va},
    directory::{
        Origin, State, Word,
        index::CLOSED,
        machine::{Loss, on_loss},
    },
    id::{BladeId, DomainId, MAX_BLADES},
    permission::PermissionClass,
    serial::Seq,
    table::{self, FreeKind, Peer, Slot},
};
use mind_dataplane::{Retired, SlotHandle, Switch};
use mind_machines::controller::{
    Act, Entry, FoundSlot, Left, Seen, Use,
    books::{
        blades,
        tables::{Key, Value},
    },
    interface, procedure,
};

/// How long a list of blocks is good for further lists.
const FRESH: Duration = Duration::from_millis(500);
/// Blocks that are looked at in one act.
const MOST_BLOCKS: usize = 1024;
/// Slots that are looked at, in memory, in the time that the kernel takes to say whether a block has any.
const SLOTS_PER_BLOCK: u64 = 64;
/// Blocks that there could be and that are passed over in that time, where those are listed that there are.
const BLOCKS_PER_BLOCK: u64 = 256;

/// The maps.
pub(in crate::serve) struct Tables {
    switch: Switch,
    /// Indices of the switch's interfaces.
    ports: Vec<u32>,
    /// What was taken out of the directory, and packets may still find.
    retired: Retired,
    /// The blocks that had slots when lists were last made.
    blocks: RefCell<Vec<u64>>,
    /// When that was.
    blocks_at: Cell<Option<Instant>>,
}

fn broken(error: &dyn std::fmt::Display) -> Failure {
    Failure::new(Errno::EIO, error.to_string())
}

/// The first address of a block.
const fn first_of(block: u64) -> Va {
    Va(block << BLOCK_SHIFT)
}

/// The first of some blocks, as many as are looked at in one act, by number; and where to go on, if there are more.
fn first_blocks(blocks: impl Iterator<Item = u64>) -> (Vec<u64>, Option<Va>) {
    let mut first = BTreeSet::new();
    let mut beyond: Option<u64> = None;
    for block in blocks {
        first.insert(block);
        if first.len() > MOST_BLOCKS {
            beyond = beyond.into_iter().chain(first.pop_last()).min();
        }
    }
    (first.into_iter().collect(), beyond.map(first_of))
}

impl Tables {
    /// The maps of a switch with ports at these interfaces, as they are.
    pub(super) fn new(switch: Switch, ports: Vec<u32>) -> Self {
        Self {
            switch,
            ports,
            retired: Retired::default(),
            blocks: RefCell::default(),
            blocks_at: Cell::new(None),
        }
    }

    /// What was taken out of the directory since this was last asked.
    pub(super) fn take_retired(&mut self) -> Retired {
        std::mem::take(&mut self.retired)
    }

    /// The switch.
    pub(super) fn switch(&self) -> &Switch {
        &self.switch
    }

    /// Slots of the directory; the first is never used.
    pub(super) fn slots(&self) -> u32 {
        u32::try_from(self.switch.directory().slots()).unwrap_or(u32::MAX)
    }

    /// How many pages of the region of a slot were falsely invalidated since it has the slot; wraps.
    pub(super) fn falsely_invalidated(&self, slot: u32) -> u32 {
        let slot = self.switch.directory().slot(slot);
        // It has 32 bits.
        slot.map_or(0, |slot| slot.dropped() as u32)
    }

    /// The region of a slot.
    pub(super) fn region_of(&self, slot: u32) -> Option<Region> {
        self.switch.directory().slot(slot).ok()?.region()
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
            Act::TakeSlot => Seen::Slot(self.switch.directory().take(FreeKind::Slots)),
            Act::GiveSlots { slots } => {
                slots.iter().for_each(|slot| self.retired.push_slot(*slot));
                Seen::Done(Ok(()))
            }
            Act::StopOpening => {
                self.switch.directory().close(FreeKind::Slots);
                Seen::Done(Ok(()))
            }
            Act::StartOpening => {
                self.give_free_slots();
                Seen::Done(Ok(()))
            }
            Act::TellAgain => {
                self.switch.directory().tell_again();
                Seen::Done(Ok(()))
            }
            Act::LookForUses { from, most } => self.uses(*from, *most),
            Act::LookIntoBlocks { from, most, enough } => {
                self.uses_in_blocks(*from, *most, *enough)
            }
            Act::Open { slot, region, word } => {
                if let Some(slot) = self.slot(*slot) {
                    open(&slot, *region, *word);
                }
                Seen::Done(Ok(()))
            }
            Act::Cover { slot, region } => {
                if let Some(slot) = self.slot(*slot) {
                    match region {
                        Some(region) => {
                            slot.set_region(*region);
                            return Some(Seen::Done(self.tidy(*region)));
                        }
                        None => slot.clear_region(),
                    }
                }
                Seen::Done(Ok(()))
            }
            Act::Assign { region, slot } => {
                let assigned = self
                    .switch
                    .directory()
                    .assign(*region, slot.unwrap_or_default());
                Seen::Done(self.retire(assigned))
            }
            Act::Find { from, to, most } => self.find(*from, *to, *most),
            Act::Forget { blade, from, most } => self.sweep(*from, *most, |_, word| {
                let step = on_loss(word, *blade)?;
                Some((step.next, step.verdict == Loss::Writes))
            }),
            Act::Lose { kept, from, most } => self.sweep(*from, *most, |slot, word| {
                let region = slot.region()?;
                let is_its = interface::is_within(kept, region.base());
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
            Act::Reindex { regions } => {
                let rebuilt = self.switch.directory().rebuild(regions);
                Seen::Done(self.retire(rebuilt))
            }
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
            if word.state() == State::Free {
                return None;
            }
            let pages = match region {
                Some(_) => None,
                None => self.region_of_pages(number),
            };
            let after = region
                .or(pages)
                .map(|region| Va(region.base().0 + region.size()));
            Some(FoundSlot {
                slot: number,
                region,
                word,
                pages,
                is_found: region.is_some_and(|region| self.slot_of(region.base()) == number),
                neighbour: after.map_or(0, |va| self.slot_of(va)),
            })
        });
        Seen::Slots {
            found: used.collect(),
            next: (end < self.slots()).then_some(end),
        }
    }

    /// What slots are used for.
    fn uses(&self, from: u32, most: u32) -> Seen {
        let end = from.saturating_add(most).min(self.slots());
        let used = (from..end).filter_map(|number| self.use_of(number));
        Seen::Uses {
            found: used.collect(),
            next: (end < self.slots()).then_some(end),
            left: self.left(),
        }
    }

    /// The same of all slots of blocks whose first slot is among them, until there are `enough`.
    fn uses_in_blocks(&self, from: u32, most: u32, enough: usize) -> Seen {
        let end = from.saturating_add(most).min(self.slots());
        let mut found = Vec::new();
        let mut next = from;
        while next < end && found.len() < enough {
            let number = next;
            next += 1;
            let Some(used) = self.use_of(number) else {
                continue;
            };
            let pages = self.slots_in(used.entry.region.base().block());
            let mut slots: Vec<_> = pages.into_iter().flatten().collect();
            slots.sort_unstable();
            slots.dedup();
            slots.retain(|slot| !matches!(*slot, 0 | CLOSED));
            if slots.first() == Some(&number) {
                found.extend(slots.into_iter().filter_map(|slot| self.use_of(slot)));
            }
        }
        Seen::Uses {
            found,
            next: (next < self.slots()).then_some(next),
            left: self.left(),
        }
    }

    fn use_of(&self, number: u32) -> Option<Use> {
        let slot = self.slot(number)?;
        let word = slot.word();
        let region = slot.region().filter(|_| word.state() != State::Free)?;
        // Both are of 32 bits, and wrap.
        let accesses = slot.accesses().wrapping_add(slot.invalidations()) as u32;
        Some(Use {
            entry: Entry {
                region,
                slot: number,
            },
            word,
            accesses,
        })
    }

    /// How much of the directory is in no use.
    fn left(&self) -> Left {
        let directory = self.switch.directory();
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Left {
            slots: count(directory.left(FreeKind::Slots)),
            low_slots: count(directory.low(FreeKind::Slots)),
            tables: count(directory.left(FreeKind::Tables)),
            low_tables: count(directory.low(FreeKind::Tables)),
        }
    }

    /// Packets can open all slots that are free, the lowest first.
    fn give_free_slots(&self) {
        let directory = self.switch.directory();
        directory.reopen_list(FreeKind::Slots);
        for number in (1..self.slots()).rev() {
            let word = self.slot(number).map(|slot| slot.word());
            if word.is_some_and(|word| word.state() == State::Free) {
                directory.give(FreeKind::Slots, number);
            }
        }
    }

    // The index.

    /// The slot that a page finds; 0 for none.
    fn slot_of(&self, page: Va) -> u32 {
        self.switch
            .directory()
            .slot_of(page)
            .unwrap_or_else(|error| {
                tracing::error!(%error, "the directory's index cannot be read");
                0
            })
    }

    fn slots_in(&self, block: u64) -> Option<[u32; PAGES_PER_BLOCK]> {
        let found = self.switch.directory().slots_in(block);
        found.unwrap_or_else(|error| {
            tracing::error!(%error, "the directory's index cannot be read");
            None
        })
    }

    /// Remembers what a change took out of the index.
    fn retire(&mut self, changed: mind_dataplane::Result<Retired>) -> Result<(), Failure> {
        self.retired
            .append(changed.map_err(|error| broken(&error))?);
        Ok(())
    }

    /// A region has become another.
    fn tidy(&mut self, region: Region) -> Result<(), Failure> {
        let tidied = self.switch.directory().tidy_block(region.base());
        self.retire(tidied)
    }

    /// The region that the pages are which find a slot, if they are one.
    fn region_of_pages(&self, slot: u32) -> Option<Region> {
        let blocks = self.switch.directory().blocks().ok()?;
        let block = blocks.into_iter().find_map(|block| {
            let found = self.slots_in(block)?;
            let first = found.iter().position(|number| *number == slot)?;
            let count = found.iter().filter(|number| **number == slot).count();
            Some((block, first, count))
        });
        let (block, first, count) = block?;
        let base = Va(first_of(block).0 + ((first as u64) << PAGE_SHIFT));
        let region = Region::containing(base, u8::try_from(count.ilog2()).ok()?)?;
        (region.base() == base && region.size() == (count as u64) << PAGE_SHIFT).then_some(region)
    }

    /// Regions with their slots in a range, by address. Looks at a bounded number of blocks.
    pub(super) fn find(&self, from: Va, to: Va, most: usize) -> Seen {
        let mut found: Vec<Entry> = Vec::new();
        let mut next = from.page();
        let end = to.0.div_ceil(1 << BLOCK_SHIFT);
        let (first, most_blocks) = (next.block(), MOST_BLOCKS as u64);
        // The kernel is asked for each block of the range, for each that there is at all, or not before slots have said
        // which these may be: whichever is the least.
        let directory = self.switch.directory();
        let all = directory.blocks_at_most() as u64;
        if all == 0 {
            let next = None;
            return Seen::Regions { found, next };
        }
        let list = all + directory.most_blocks() as u64 / BLOCKS_PER_BLOCK;
        let few = u64::from(self.slots()) / SLOTS_PER_BLOCK;
        let (blocks, beyond) = if end.saturating_sub(first) <= 1 + list.min(few) {
            let end = end.min(first + most_blocks);
            let beyond = Some(first_of(end)).filter(|beyond| *beyond < to);
            ((first..end).collect(), beyond)
        } else if list <= few {
            let blocks = self.switch.directory().blocks().unwrap_or_else(|error| {
                tracing::error!(%error, "the directory's index cannot be read");
                Vec::new()
            });
            first_blocks(
                blocks
                    .into_iter()
                    .filter(|block| (first..end).contains(block)),
            )
        } else {
            let used = (1..self.slots()).filter_map(|number| {
                let region = self.slot(number)?.region()?;
                Some(region.base().block())
            });
            first_blocks(used.filter(|block| (first..end).contains(block)))
        };
        for block in blocks {
            next = next.max(first_of(block));
            let end = first_of(block + 1).min(to);
            let Some(slots) = self.slots_in(block) else {
                continue;
            };
            while next < end {
                let slot = slots[next.page_in_block()];
                let region = match slot {
                    0 | CLOSED => None,
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
        }
        Seen::Regions {
            found,
            next: beyond,
        }
    }

    /// The same, for a list: what is new since a moment ago may be missing, which spares looking at blocks without slots.
    pub(super) fn list(&self, from: Va, to: Va, most: usize) -> (Vec<Entry>, Option<Va>) {
        let mut found = Vec::new();
        let mut next = from;
        let blocks = self.used_blocks();
        let first = blocks.partition_point(|block| *block < next.block());
        for block in &blocks[first..] {
            next = next.max(first_of(*block));
            if next >= to {
                break;
            }
            let end = first_of(block + 1).min(to);
            let Seen::Regions {
                found: more,
                next: rest,
            } = self.find(next, end, most - found.len())
            else {
                break;
            };
            found.extend(more);
            if rest.is_some() {
                return (found, rest);
            }
            next = end;
        }
        (found, None)
    }

    /// The blocks in which there are slots, by number, as they were a moment ago at most.
    fn used_blocks(&self) -> std::cell::Ref<'_, Vec<u64>> {
        let is_fresh = self.blocks_at.get().is_some_and(|at| at.elapsed() < FRESH);
        if !is_fresh {
            let used = (1..self.slots()).filter_map(|number| {
                let region = self.slot(number)?.region()?;
                Some(region.base().block())
            });
            let mut blocks: Vec<_> = used.collect();
            blocks.sort_unstable();
            blocks.dedup();
            self.blocks.replace(blocks);
            self.blocks_at.set(Some(Instant::now()));
        }
        self.blocks.borrow()
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
    let placements = switch.placements().into_iter();
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
