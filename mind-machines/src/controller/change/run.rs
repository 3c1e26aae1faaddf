//! One region's part of a change: it is asked what to do, and its words are swapped.

use crate::controller::procedure::{Do, Procedure, Which};
#[cfg(feature = "mutants")]
use crate::{controller::procedure::Change, mutant::Mutant};
#[cfg(feature = "mutants")]
use mind_common::directory::{State, Word};
use mind_common::id::Connection;

use crate::{controller::Entry, switch::Switch};

/// One region's part of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Run {
    pub(super) procedure: Procedure,
    pub(super) entry: Entry,
    pub(super) upper: Option<Entry>,
    /// What it says; to be asked if nothing.
    pub(super) next: Option<Do>,
    /// Who took writes along.
    pub(super) lost_with: Option<Connection>,
}

impl Run {
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> {
        [Some(self.entry), self.upper].into_iter().flatten()
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.next, Some(Do::Done(_)))
    }

    /// Asks it what to do, or swaps the word that it wants swapped. Whether it is to be asked again:
    /// between the two, packets may come.
    pub(super) fn ask_or_swap(&mut self, now: u64, switch: &mut Switch) -> bool {
        let (first, second) = (self.entry.slot, self.upper.map(|upper| upper.slot));
        match self.next {
            Some(Do::Swap { slot, old, new }) => {
                let index = match slot {
                    Which::First => Some(first),
                    Which::Second => second,
                };
                #[cfg(feature = "mutants")]
                let new = spoilt(self.procedure.change(), slot, old, new);
                // Whether it was still there shows in the next word.
                let _ = index.map(|index| switch.swap_word(index, old, new));
                self.next = None;
                true
            }
            _ => {
                let word = |index: usize| switch.slots().get(index).map(|slot| slot.word);
                let first = word(first).unwrap_or_default();
                let second = second.and_then(word).unwrap_or_default();
                let next = self.procedure.next(now, first, second);
                self.next = Some(next);
                matches!(next, Do::Swap { .. })
            }
        }
    }
}

/// The word that a bug puts in the place of another.
#[cfg(feature = "mutants")]
fn spoilt(change: Change, slot: Which, old: Word, new: Word) -> Word {
    let is_merged = change == Change::Merge && slot == Which::First && old.prior().is_some();
    let is_seized = old.state() == State::SharedToModified;
    if Mutant::MergeForgetsSharers.is_active() && is_merged
        || Mutant::OnlyListedFlushed.is_active() && is_seized
    {
        return new.with_blades(old.blades());
    }
    new
}
