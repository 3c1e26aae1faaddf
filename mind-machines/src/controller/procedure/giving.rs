//! The end of a change: which words its slots get.

use super::{
    Change, Do, Procedure, Which,
    locked::{as_before, both, is_orphan, joined, unlock},
};
use mind_common::{
    directory::word::{Prior, State, Word},
    id::BladeSet,
};

impl Procedure {
    /// The word of the first half, which is about to cover what the second one's owner has: it may
    /// write back at any time. `None` if the word says so, or there is no such owner.
    pub(super) fn with_owner_of_second(&self, first: Word, second: Word) -> Option<Word> {
        #[cfg(feature = "mutants")]
        if crate::mutant::Mutant::OwnerNotNamed.is_active() {
            return None;
        }
        let is_to_fail = self.fail && (is_orphan(first) || is_orphan(second));
        if self.change != Change::Merge || is_to_fail {
            return None;
        }
        match joined(first, second) {
            Some((State::Modified, owner)) => {
                let is_known = first.prior() == Some(Prior::Modified) && first.blades() == owner;
                (!is_known).then(|| first.locked(Prior::Modified, owner))
            }
            _ => None,
        }
    }

    /// The word of a split's second slot, which belonged to no region until now.
    pub(super) const fn upper(&self, first: Word, second: Word) -> Word {
        match first.prior() {
            Some(was) => second.locked(was, first.blades()),
            None => second,
        }
    }

    pub(super) fn give(&self, first: Word, second: Word) -> Option<Do> {
        const INVALID: Option<(State, BladeSet)> = Some((State::Invalid, BladeSet::EMPTY));
        const FREE: Option<(State, BladeSet)> = Some((State::Free, BladeSet::EMPTY));
        let (lower, upper) = match self.change {
            Change::Reset | Change::MarkLost => (INVALID, None),
            Change::Free | Change::Reclaim => (FREE, None),
            Change::Split => (as_before(first), as_before(second)),
            // Where they cannot be joined as they are, all blades have given them up.
            Change::Merge => (joined(first, second).or(INVALID), FREE),
        };
        // What two have become has the copies of both, and all of it fails if either half does.
        let whole = match self.change {
            Change::Merge => (is_orphan(first) || is_orphan(second), both(first, second)),
            _ => (is_orphan(first), first.blades()),
        };
        let half = (is_orphan(second), second.blades());
        let lower = self.give_back(Which::First, first, whole, lower);
        lower.or_else(|| self.give_back(Which::Second, second, half, upper))
    }

    /// Gives one word back, or lets accesses to it fail.
    fn give_back(
        &self,
        slot: Which,
        word: Word,
        (is_lost, copies): (bool, BladeSet),
        to: Option<(State, BladeSet)>,
    ) -> Option<Do> {
        let is_freed = matches!(to, Some((State::Free, _)));
        match word.prior() {
            _ if is_freed => swap_to(slot, word, to),
            // Until it is freed.
            Some(Prior::Lost) => None,
            Some(_) if self.fail && is_lost => Some(Do::Swap {
                slot,
                old: word,
                // Who has copies stays listed, and gives them up when it is freed.
                new: word.locked(Prior::Lost, copies),
            }),
            _ => swap_to(slot, word, to),
        }
    }

    /// What was locked is given back as it was, but for what lost writes: that stays locked until it is
    /// [marked](Change::MarkLost).
    pub(super) fn leave(&self, first: Word, second: Word) -> Option<Do> {
        let give = |slot, word| {
            let to = as_before(word).filter(|_| !is_orphan(word));
            swap_to(slot, word, to)
        };
        let second = match self.change {
            Change::Merge => give(Which::Second, second),
            _ => None,
        };
        second.or_else(|| give(Which::First, first))
    }
}

fn swap_to(slot: Which, word: Word, to: Option<(State, BladeSet)>) -> Option<Do> {
    let (state, blades) = to?;
    let new = unlock(word, state, blades)?;
    Some(Do::Swap {
        slot,
        old: word,
        new,
    })
}
