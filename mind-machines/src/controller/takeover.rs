//! A controller that follows another: the books from records, the directory from the tables, and the agents, which come
//! back by themselves.
//!
//! The data plane goes on all the while. Until all agents are back, or have had time enough, nothing is changed and
//! requests wait; then tables become what the books say, blades that did not come back are fenced, vmas that were being
//! given up or unmapped go on so, and regions that were locked for a change are reset. What was half done in the
//! directory:
//!
//! * a slot of no vma, or of pages that another slot has, is free;
//! * a *split*: a locked lower half whose upper half finds the same slot covers both again;
//! * a *merge*: a locked region that covers another one's pages covers its lower half again;
//! * a locked slot that covers nothing, since it was about to cover something else, covers the pages that find it, or
//!   what a split or merge makes of them;
//! * a locked slot that its pages do not find, since its region was to do without one, is free if a packet has opened
//!   another one for them.
//!
//! Packets open no slots while slots are read and repaired; requests that need one wait.
//!
//! A mapping that was half done is in no record. The blade asks again for what it has no answer to.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use mind_api::message::BladeKind;
use mind_common::{
    addr::{Region, Va},
    directory::{Prior, State, Word},
    id::BladeSet,
};

use super::{
    Act, Controller, Entry, Event, FoundSlot, OperationId, Seen, Stage,
    books::blades::Incarnation,
    operation::{Claim, Operation, Otherwise, Task, Waits},
    procedure::Change,
};

/// How far a controller is that takes over.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum TakingOver {
    /// It waits for blades, since a time.
    Awaiting(u64),
    /// It has packets open no more slots.
    Stopping,
    /// It waits for packets that may open one to leave the switch.
    Leaving,
    /// It reads the tables.
    ReadingTables,
    /// It makes the tables what the books say; then it reads slots, from this one on.
    ReadingSlots(u32, Vec<FoundSlot>),
    /// It repairs what was half done in the directory: locked words that stay, and what is to be done.
    Repairing(Vec<Entry>, VecDeque<Act>),
    /// It waits for packets to leave the switch that may have found a slot which is free now; packets may open slots
    /// then.
    Opening(Vec<Entry>),
    /// They may.
    Opened(Vec<Entry>),
    /// It waits for blades to be fenced and regions to be reset.
    Settling,
}

/// What is to be done about slots, so that each page of a vma finds at most one that covers it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Repair {
    /// All regions, with their slots.
    entries: Vec<Entry>,
    /// Those of them that are locked for a change.
    locked: Vec<Entry>,
    /// Slots that are to cover this.
    cover: Vec<Entry>,
    /// Slots that are to be free: with the words that they have.
    free: Vec<(u32, Word)>,
}

/// Whether a word is locked for a change, and not because its region is lost.
fn is_for_a_change(word: Word) -> bool {
    word.state() == State::Locked && word.prior() != Some(Prior::Lost)
}

impl Repair {
    /// Of the slots that were found, where `is_mapped` says whether a region is within a vma, or within memory that was
    /// freed and is not zeroed yet.
    fn of(found: &[FoundSlot], is_mapped: impl Fn(Region) -> bool) -> Self {
        let mut repair = Self::default();
        let opened = |slot: &&FoundSlot| slot.is_found && !is_for_a_change(slot.word);
        let opened: Vec<Region> = found
            .iter()
            .filter(opened)
            .filter_map(|slot| slot.region)
            .collect();
        let overlaps = |region: Region| {
            let overlaps =
                |other: &Region| region.contains(other.base()) || other.contains(region.base());
            opened.iter().any(overlaps)
        };
        let mut by_base: BTreeMap<Va, Vec<(FoundSlot, Region)>> = BTreeMap::new();
        for slot in found {
            // What slots cover changes for one after the other.
            let covered = slot.region.or(slot.pages);
            let region = covered.filter(|region| {
                let is_replaced = !slot.is_found && is_for_a_change(slot.word) && overlaps(*region);
                is_mapped(*region)
                    && (slot.region.is_some() || is_for_a_change(slot.word))
                    && !is_replaced
            });
            match region {
                Some(region) => by_base
                    .entry(region.base())
                    .or_default()
                    .push((*slot, region)),
                None => repair.free.push((slot.slot, slot.word)),
            }
        }
        let bases: BTreeSet<_> = by_base.keys().copied().collect();
        let mut end = Va(0);
        for (base, mut slots) in by_base {
            // The largest first, if there are several.
            slots.sort_by_key(|(_, region)| std::cmp::Reverse(*region));
            for (slot, region) in slots {
                if base < end {
                    repair.free.push((slot.slot, slot.word));
                    continue;
                }
                let region = repair.mended(slot, region, &bases, &is_mapped);
                end = Va(region.base().0 + region.size());
                let entry = Entry {
                    region,
                    slot: slot.slot,
                };
                repair.entries.push(entry);
                if is_for_a_change(slot.word) {
                    repair.locked.push(entry);
                }
            }
        }
        repair
    }

    /// What a slot is to cover, which is locked for a change that was not finished.
    fn mended(
        &mut self,
        slot: FoundSlot,
        region: Region,
        bases: &BTreeSet<Va>,
        is_mapped: &impl Fn(Region) -> bool,
    ) -> Region {
        if !is_for_a_change(slot.word) {
            return region;
        }
        let others = region
            .halves()
            .filter(|(_, upper)| bases.contains(&upper.base()));
        let whole = region.whole().filter(|whole| {
            let (lower, upper) = whole.halves().unwrap_or((region, region));
            lower == region
                && slot.neighbour == slot.slot
                && !bases.contains(&upper.base())
                && is_mapped(*whole)
        });
        let mended = match (others, whole) {
            (Some((lower, _)), _) => lower,
            (None, Some(whole)) => whole,
            (None, None) if slot.region.is_none() => region,
            (None, None) => return region,
        };
        self.cover.push(Entry {
            region: mended,
            slot: slot.slot,
        });
        mended
    }
}

impl Controller {
    pub(super) fn begin_takeover(&mut self, now: u64) {
        let task = Task::TakeOver(TakingOver::Awaiting(now));
        self.begin(Claim::default(), None, vec![task]);
    }

    pub(super) fn proceed_with_takeover(
        &mut self,
        now: u64,
        id: OperationId,
        operation: &mut Operation,
        taking_over: TakingOver,
    ) {
        match taking_over {
            TakingOver::Awaiting(since) => {
                let (grace, memory_grace) = (self.config.grace, self.config.memory_grace);
                let until = |blade: &Incarnation| {
                    since.saturating_add(match blade.kind {
                        BladeKind::Compute => grace,
                        BladeKind::Memory => memory_grace,
                    })
                };
                let missed: Vec<_> = self.awaited().filter(|blade| until(blade) <= now).collect();
                for incarnation in missed {
                    if let Stage::TakingOver(awaited) = &mut self.stage {
                        awaited.remove(&incarnation);
                    }
                    let name = self.name_of(incarnation);
                    self.event(Event::Missed(incarnation.kind, name));
                }
                if let Some(until) = self.awaited().map(|blade| until(&blade)).min() {
                    operation.waits = Waits::Blades(until);
                    return operation
                        .tasks
                        .push(Task::TakeOver(TakingOver::Awaiting(since)));
                }
                let next = Task::TakeOver(TakingOver::Stopping);
                match seeded!(OpenedWhileRepaired) {
                    true => operation.tasks.push(next),
                    false => self.act(id, operation, Act::StopOpening, next),
                }
            }
            TakingOver::Stopping => {
                operation.seen = None;
                operation.tasks.push(Task::TakeOver(TakingOver::Leaving));
                self.wait_for_packets(id, operation);
            }
            TakingOver::Leaving => {
                operation.seen = None;
                self.act(
                    id,
                    operation,
                    Act::ReadTables,
                    Task::TakeOver(TakingOver::ReadingTables),
                );
            }
            TakingOver::ReadingTables => {
                if let Some(Seen::Tables(entries)) = operation.seen.take() {
                    self.installed = entries.into_iter().collect();
                }
                self.lose_what_is_left();
                let wanted = self.books.all_wanted().map(|(key, _)| key);
                let mut keys: VecDeque<_> = wanted.collect();
                keys.extend(self.installed.keys().copied());
                operation.first([
                    Task::Install(keys, Otherwise::Report),
                    Task::Keep,
                    Task::Release,
                    Task::TakeOver(TakingOver::ReadingSlots(1, Vec::new())),
                ]);
            }
            TakingOver::ReadingSlots(from, mut slots) => {
                let next = match operation.seen.take() {
                    Some(Seen::Slots { found, next }) => {
                        slots.extend(found);
                        next
                    }
                    _ => Some(from),
                };
                if let Some(from) = next {
                    let most = self.config.sweep;
                    let task = Task::TakeOver(TakingOver::ReadingSlots(from, slots));
                    return self.act(id, operation, Act::ReadSlots { from, most }, task);
                }
                self.note_sizes(&slots);
                let repairing = self.repair(&slots);
                operation.tasks.push(Task::TakeOver(repairing));
            }
            TakingOver::Repairing(locked, mut acts) => {
                operation.seen = None;
                if let Some(act) = acts.pop_front() {
                    let task = Task::TakeOver(TakingOver::Repairing(locked, acts));
                    return self.act(id, operation, act, task);
                }
                operation
                    .tasks
                    .push(Task::TakeOver(TakingOver::Opening(locked)));
                self.wait_for_packets(id, operation);
            }
            TakingOver::Opening(locked) => {
                operation.seen = None;
                let next = Task::TakeOver(TakingOver::Opened(locked));
                self.act(id, operation, Act::StartOpening, next);
            }
            TakingOver::Opened(locked) => {
                operation.seen = None;
                self.settle(now, operation, locked);
            }
            TakingOver::Settling => {
                self.serve();
            }
        }
    }

    /// What is to be done about the slots that were found.
    fn repair(&self, slots: &[FoundSlot]) -> TakingOver {
        let books = &self.books;
        let repair = Repair::of(slots, |region| books.has_memory_for(region));
        let cover = repair.cover.iter().map(|entry| Act::Cover {
            slot: entry.slot,
            region: Some(entry.region),
        });
        let regions = repair
            .entries
            .iter()
            .map(|entry| (entry.region, entry.slot))
            .collect();
        let free = repair.free.iter().map(|(slot, word)| Act::Swap {
            slot: *slot,
            old: *word,
            new: word.settled(State::Free, BladeSet::EMPTY),
        });
        let acts = cover.chain([Act::Reindex { regions }]).chain(free);
        TakingOver::Repairing(repair.locked, acts.collect())
    }

    /// Blades that did not come back are fenced, vmas that were closing go on so, locked regions are reset.
    fn settle(&mut self, now: u64, operation: &mut Operation, locked: Vec<Entry>) {
        let mut others = BTreeSet::new();
        let known = self
            .books
            .blades
            .all()
            .map(|blade| (blade.incarnation, blade.is_here));
        let known: Vec<_> = known.collect();
        for (incarnation, is_here) in known {
            match (is_here, self.session(incarnation)) {
                (true, Some(_)) => {}
                (true, None) => others.extend(self.begin_fencing(incarnation, None)),
                (false, _) if seeded!(DepartureNotResumed) => {}
                // Its departure may not have come to its end.
                (false, _) => others.extend([self.begin_departure(incarnation)]),
            }
        }
        for entry in locked {
            let claim = Claim::range(entry.region.base(), entry.region.size());
            let reset = self.changing(now, Change::Reset, [(entry, None)]);
            others.insert(self.begin(claim, None, vec![Task::Change(reset)]));
        }
        self.go_on_leaving();
        let memories = self.books.blades.of(BladeKind::Memory);
        let memories: Vec<_> = memories.map(|blade| blade.incarnation.number).collect();
        for memory in memories {
            self.begin_zeroing(memory);
        }
        operation.waits = Waits::Operations(others);
        operation.tasks.push(Task::TakeOver(TakingOver::Settling));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mind_common::{addr::WINDOW_BASE, serial::Episode};

    fn region(page: u64, order: u8) -> Region {
        Region::containing(Va(WINDOW_BASE + page * 4096), order).unwrap()
    }

    fn word(is_locked: bool) -> Word {
        let word = Word::default()
            .settled(State::Invalid, BladeSet::EMPTY)
            .with_episode(Episode::default());
        match is_locked {
            true => word.locked(Prior::Invalid, BladeSet::EMPTY),
            false => word,
        }
    }

    fn slot(slot: u32, region: Region, is_locked: bool, neighbour: u32) -> FoundSlot {
        FoundSlot {
            slot,
            region: Some(region),
            word: word(is_locked),
            pages: None,
            is_found: true,
            neighbour,
        }
    }

    fn entry(slot: u32, region: Region) -> Entry {
        Entry { region, slot }
    }

    #[test]
    fn slots_of_no_vma_and_of_no_region_are_free() {
        let stray = slot(1, region(64, 2), false, 0);
        let nothing = FoundSlot {
            region: None,
            ..slot(2, region(0, 2), true, 0)
        };
        let good = slot(3, region(0, 2), false, 0);
        let repair = Repair::of(&[stray, nothing, good], |region| {
            region.base() < Va(WINDOW_BASE + 64 * 4096)
        });
        assert_eq!(repair.entries, [entry(3, region(0, 2))]);
        assert_eq!(
            repair
                .free
                .iter()
                .map(|(slot, _)| *slot)
                .collect::<Vec<_>>(),
            [1, 2]
        );
        assert!(repair.cover.is_empty() && repair.locked.is_empty());
    }

    #[test]
    fn a_split_that_was_not_finished_is_undone_or_done() {
        // The upper half has no slot yet, and finds the lower half's.
        let repair = Repair::of(&[slot(1, region(0, 1), true, 1)], |_| true);
        assert_eq!(repair.cover, [entry(1, region(0, 2))]);
        assert_eq!(
            (&repair.entries, &repair.locked),
            (&repair.cover, &repair.cover)
        );
        // It has one, whether or not its pages find it.
        for neighbour in [1, 2] {
            let repair = Repair::of(
                &[
                    slot(1, region(0, 1), true, neighbour),
                    slot(2, region(2, 1), true, 0),
                ],
                |_| true,
            );
            assert_eq!(
                repair.entries,
                [entry(1, region(0, 1)), entry(2, region(2, 1))]
            );
            assert!(repair.cover.is_empty() && repair.free.is_empty());
        }
        // A locked half whose other half no blade has touched is what it is.
        let repair = Repair::of(&[slot(1, region(0, 1), true, 0)], |_| true);
        assert_eq!(repair.entries, [entry(1, region(0, 1))]);
    }

    #[test]
    fn a_merge_that_was_not_finished_is_undone() {
        let found = [
            slot(1, region(0, 2), true, 0),
            slot(2, region(2, 1), true, 0),
        ];
        let repair = Repair::of(&found, |_| true);
        assert_eq!(repair.cover, [entry(1, region(0, 1))]);
        assert_eq!(
            repair.entries,
            [entry(1, region(0, 1)), entry(2, region(2, 1))]
        );
        // Given back already: the other half's slot goes.
        let found = [
            slot(1, region(0, 2), false, 0),
            slot(2, region(2, 1), true, 0),
        ];
        let repair = Repair::of(&found, |_| true);
        assert_eq!(repair.entries, [entry(1, region(0, 2))]);
        assert_eq!(repair.free.len(), 1);
    }

    #[test]
    fn a_slot_that_was_about_to_cover_something_else_covers_the_pages_that_find_it() {
        let blank = FoundSlot {
            region: None,
            pages: Some(region(0, 2)),
            is_found: false,
            ..slot(1, region(0, 2), true, 0)
        };
        let other = slot(3, region(8, 2), false, 0);
        // Of a split, all of the region; of a merge, its lower half.
        let upper = FoundSlot {
            is_found: false,
            ..slot(2, region(2, 1), true, 0)
        };
        for (found, covers) in [
            (vec![blank, other], region(0, 2)),
            (vec![blank, upper, other], region(0, 1)),
        ] {
            let repair = Repair::of(&found, |_| true);
            assert_eq!(repair.cover, [entry(1, covers)]);
            assert!(repair.locked.contains(&entry(1, covers)));
            assert!(repair.free.is_empty());
        }
        // No page finds it.
        let lonely = FoundSlot {
            pages: None,
            ..blank
        };
        let repair = Repair::of(&[lonely, other], |_| true);
        assert_eq!(repair.free, [(1, lonely.word)]);
    }

    #[test]
    fn a_slot_that_was_taken_out_is_free_once_a_packet_has_opened_another() {
        let out = FoundSlot {
            is_found: false,
            ..slot(1, region(0, 2), true, 0)
        };
        // Nothing else has its pages: it is put back, and reset.
        let repair = Repair::of(&[out], |_| true);
        assert_eq!(repair.locked, [entry(1, region(0, 2))]);
        for opened in [
            slot(2, region(0, 2), false, 0),
            slot(2, region(3, 0), false, 0),
        ] {
            let repair = Repair::of(&[out, opened], |_| true);
            assert_eq!(repair.free, [(1, out.word)]);
            assert_eq!(repair.entries, [entry(2, opened.region.unwrap())]);
            assert!(repair.locked.is_empty() && repair.cover.is_empty());
        }
    }
}
