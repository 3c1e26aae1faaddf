//! What the controller does to regions: it splits and merges them after epochs, and takes slots back when few are left.
//! Each change is carried out by the live controller's machine ([`Procedure`]), at one moment of modelled time.
//!
//! A region that is busy is changed when it no longer is, if that is within the live controller's patience. Slots are taken
//! back as the live controller does it, with a hand that goes round: first from regions that no blade has, then from those
//! without a request since the hand passed them last, then from any. Live, that is since the controller looked last while
//! it took slots back, which takes time there and none here; regions that are busy, or whose pages are on their way, are
//! passed over here, and waited for there.

use mind_common::{
    addr::Region,
    directory::{State, Word},
    id::BladeSet,
};
use mind_machines::controller::procedure::{Change, Do, Outcome, Procedure, Which};
use rustc_hash::FxHashMap;

use super::System;

/// For how long a busy region is waited for, in nanoseconds: the live controller's patience with a split or a merge. And
/// how long no slots are taken back after none could be.
pub(super) const PATIENCE: u64 = 100_000_000;
/// Of all slots, the part below which slots are taken back, as in `mind_machines::switch`; until twice as many are left.
const LOW_PART: u32 = 16;

/// A change that the policy wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Split(Region),
    Merge(Region),
}

/// Changes of regions that are busy, by slot, and until when they are waited for.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    changes: FxHashMap<u32, (Wanted, u64)>,
}

impl Deferred {
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

/// Which regions are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    Idle,
    Cold,
    All,
}

impl System {
    /// Gives the region of a page a slot. `None` if none is left.
    pub(super) fn open(&mut self, now: u64, page: u32) -> Option<u32> {
        if let (Some(left), Some(usable)) = (self.directory.left(), self.directory.usable()) {
            let low = (usable + 1).div_ceil(LOW_PART);
            if left < low && now >= self.reclaim_at {
                self.reclaim(now, usable, (2 * low).min(usable));
            }
        }
        self.directory.open(page, self.mode.order())
    }

    /// Takes slots back until so many are left.
    fn reclaim(&mut self, now: u64, usable: u32, wanted: u32) {
        for pass in [Pass::Idle, Pass::Cold, Pass::All] {
            for _ in 0..usable {
                if self.directory.left().is_none_or(|left| left >= wanted) {
                    return;
                }
                let number = self.hand;
                self.hand = if number >= usable { 1 } else { number + 1 };
                if (number as usize) < self.directory.slots.len() && self.is_taken(number, pass) {
                    self.take_back(now, number);
                }
            }
        }
        self.reclaim_at = now.saturating_add(PATIENCE);
    }

    fn is_taken(&mut self, number: u32, pass: Pass) -> bool {
        let slot = self.directory.slot_mut(number);
        let Some(region) = slot.region else {
            return false;
        };
        let (word, touches) = (slot.word, slot.touches);
        let is_cold = match pass {
            Pass::Idle => false,
            Pass::Cold | Pass::All => std::mem::replace(&mut slot.seen, touches) == touches,
        };
        let is_taken = match (word.state(), pass) {
            (State::Invalid, _) => true,
            (State::Shared | State::Modified, Pass::Cold) => is_cold,
            (State::Shared | State::Modified, Pass::All) => true,
            _ => false,
        };
        is_taken && !word.blades().iter().any(|blade| self.awaits(blade, region))
    }

    /// Blades write back and drop what they have of a region, and it does without its slot.
    fn take_back(&mut self, now: u64, number: u32) {
        for change in [Change::Reset, Change::Reclaim] {
            self.change(now, change, number, number);
        }
        self.counters.reclaimed += 1;
    }

    /// Carries out what the policy wants, unless the region is busy: then later, by `until` at the latest.
    pub(super) fn carry_out(&mut self, now: u64, wanted: Wanted, until: u64) {
        match wanted {
            Wanted::Split(region) => self.split(now, region, until),
            Wanted::Merge(whole) => self.merge(now, whole, until),
        }
    }

    /// An invalidation of that slot is over.
    pub(super) fn after_busy(&mut self, now: u64, slot: u32) {
        if self.deferred.is_empty() {
            return;
        }
        if let Some((wanted, until)) = self.deferred.changes.remove(&slot) {
            self.carry_out(now, wanted, until);
        }
    }

    /// Leaves what was waited for long enough.
    pub(super) fn leave_deferred(&mut self, now: u64) {
        let mut left = Vec::new();
        self.deferred.changes.retain(|_, (wanted, until)| {
            let is_kept = now < *until;
            if !is_kept && let Wanted::Merge(whole) = wanted {
                left.push(*whole);
            }
            is_kept
        });
        left.sort_unstable();
        if let Some(policy) = &mut self.epochs.policy {
            left.into_iter()
                .for_each(|whole| policy.not_merged(whole, true));
        }
    }

    fn split(&mut self, now: u64, region: Region, until: u64) {
        let Some(slot) = self.directory.slot_of(region) else {
            return;
        };
        if self.directory.slot(slot).word.state().is_busy() {
            self.deferred
                .changes
                .insert(slot, (Wanted::Split(region), until));
            return;
        }
        let Some(second) = self.directory.take() else {
            return;
        };
        let is_changed = self.change(now, Change::Split, slot, second);
        if !is_changed {
            self.directory.release(second);
            return;
        }
        self.counters.splits += 1;
        if let Some(policy) = &mut self.epochs.policy {
            policy.split(region);
        }
    }

    fn merge(&mut self, now: u64, whole: Region, until: u64) {
        let halves = whole.halves().and_then(|(lower, upper)| {
            self.directory
                .slot_of(lower)
                .zip(self.directory.slot_of(upper))
        });
        let Some((first, second)) = halves else {
            let is_split = self.directory.has_part(whole);
            if let Some(policy) = &mut self.epochs.policy {
                policy.not_merged(whole, is_split);
            }
            return;
        };
        for slot in [first, second] {
            if self.directory.slot(slot).word.state().is_busy() {
                self.deferred
                    .changes
                    .insert(slot, (Wanted::Merge(whole), until));
                return;
            }
        }
        let is_changed = self.change(now, Change::Merge, first, second);
        self.counters.merges += u64::from(is_changed);
        if let Some(policy) = &mut self.epochs.policy {
            match is_changed {
                true => policy.merged(whole),
                false => policy.not_merged(whole, true),
            }
        }
    }

    /// Carries a change out, of a region that is not busy; whether it was made. Of a change of one slot, both are the
    /// same.
    fn change(&mut self, now: u64, change: Change, first: u32, second: u32) -> bool {
        let all_blades = self
            .blades
            .iter()
            .map(|blade| blade.id)
            .collect::<BladeSet>();
        let mut procedure = Procedure::new(change, now, 0, 0, all_blades);
        if change == Change::Merge {
            procedure = procedure.sparing_copies();
        }
        loop {
            let words = [first, second].map(|slot| self.directory.slot(slot).word);
            match procedure.next(now, words[0], words[1]) {
                Do::Swap { slot, new, .. } => {
                    let slot = match slot {
                        Which::First => first,
                        Which::Second => second,
                    };
                    self.directory.slot_mut(slot).word = new;
                }
                Do::Flush { blades } => {
                    let region = self.directory.slot(first).region;
                    for blade in blades.iter() {
                        if let Some(region) = region {
                            self.counters.reclaimed_pages += self.flush(now, blade, region);
                        }
                        procedure.flushed(blade);
                    }
                }
                Do::Fence => procedure.fenced(),
                Do::Rewire { second: word } => {
                    self.rewire(change, first, second, word);
                    procedure.rewired();
                }
                // No region that is changed is busy.
                Do::Wait { .. } => return false,
                Do::Done(outcome) => {
                    for slot in [first, second] {
                        let entry = self.directory.slot(slot);
                        if entry.word.state() == State::Free
                            && entry.region.is_none()
                            && change != Change::Split
                        {
                            self.directory.release(slot);
                            break;
                        }
                    }
                    return matches!(outcome, Outcome::Changed(_));
                }
            }
        }
    }

    /// What the slots cover changes.
    fn rewire(&mut self, change: Change, first: u32, second: u32, word: Word) {
        let Some(region) = self.directory.slot(first).region else {
            return;
        };
        match change {
            Change::Split => {
                let Some((lower, upper)) = region.halves() else {
                    return;
                };
                self.directory.slot_mut(first).region = Some(lower);
                let slot = self.directory.slot_mut(second);
                (slot.region, slot.word) = (Some(upper), word);
                self.directory.lead(upper, second);
            }
            Change::Merge => {
                let Some(whole) = region.whole() else {
                    return;
                };
                self.directory.slot_mut(first).region = Some(whole);
                self.directory.slot_mut(second).region = None;
                self.directory.lead(whole, first);
            }
            Change::Free | Change::Reclaim => {
                self.directory.slot_mut(first).region = None;
                self.directory.lead(region, 0);
            }
            Change::Reset | Change::MarkLost => {}
        }
    }
}
