//! What the controller does to regions: it takes one (or two, to join them), has blades give it up
//! where that is needed, and gives it back changed. A machine without I/O: whoever runs it shows it
//! the words as they are, does what it says, and comes back; the words change by compare-and-swap,
//! under the packets of all blades.
//!
//! From when a word is held until it is given back, no blade gets any page of the region, and an
//! owner can still write back. What the slots cover changes in between ([`Do::Rewire`]), so a packet
//! that looked up the old region finds a held word, or a later episode.

mod giving;
mod jointly;
mod locked;

use mind_common::{
    directory::{Prior, State, Word, machine::Loss},
    id::{BladeId, BladeSet},
    serial::Episode,
};

pub use jointly::{Jointly, jointly};
pub use locked::{lock, lock_by_force, lose, unlock};

pub(super) use locked::is_orphan;
use locked::{both, is_idle, joined};

/// What is to become of a region, or of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// No blade has any of it any more, and the next access starts clean (paper, section 4.4: reset).
    Reset,
    /// Its slot belongs to no region any more: the vma is gone.
    Free,
    /// If no blade has any of it, it does without a slot until the next access.
    Reclaim,
    /// Its upper half becomes a region of its own, in the second slot, which is free.
    Split,
    /// The second slot's region, which is the upper half, joins it, and that slot gets free.
    Merge,
    /// What a blade wrote into it went with the blade ([`Loss::Writes`]), and left the region held.
    /// The last version that was written back is what there is.
    MarkLost,
}

impl Change {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Reset,
        Self::Free,
        Self::Reclaim,
        Self::Split,
        Self::Merge,
        Self::MarkLost,
    ];

    /// Its name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reset => "reset",
            Self::Free => "free",
            Self::Reclaim => "reclaim",
            Self::Split => "split",
            Self::Merge => "merge",
            Self::MarkLost => "mark-lost",
        }
    }

    /// Whether it takes two slots.
    pub const fn is_of_two(self) -> bool {
        matches!(self, Self::Split | Self::Merge)
    }

    /// Whether it can be left: nothing is wrong when a region stays as large as it is.
    const fn is_optional(self) -> bool {
        self.is_of_two()
    }
}

/// Which slot of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Which {
    /// The region's, or that of the lower half.
    First,
    /// That of the upper half.
    Second,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Do {
    /// Put a word in the place of another, and come back, whether it was still there or not.
    Swap {
        /// In which slot.
        slot: Which,
        /// The word that was shown.
        old: Word,
        /// The word to put there.
        new: Word,
    },
    /// The region is busy: come back at this time, or when it is not.
    Wait {
        /// In the caller's nanoseconds.
        until: u64,
    },
    /// Have these blades write back and drop what they have of the regions; tell each one's end by
    /// [`flushed`](Procedure::flushed) or [`lost`](Procedure::lost), and come back.
    Flush {
        /// Those that have not been asked yet; none when all were, and some are still at it.
        blades: BladeSet,
    },
    /// Have memory [fence](mind_common::memory::fenced) the pages of the regions; tell it by
    /// [`fenced`](Procedure::fenced), and come back.
    Fence,
    /// Every word is held: change what the slots cover, and who finds them; tell it by
    /// [`rewired`](Procedure::rewired), and come back. Of a split, the second slot is free and gets
    /// the word given here, before packets find it.
    Rewire {
        /// What the second slot holds then.
        second: Word,
    },
    /// It is over.
    Done(Outcome),
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// As it was to be. Says whether what a blade had written is gone.
    Changed(Loss),
    /// The region stayed busy for too long, or blades were to be spared, and is as it was.
    LeftAlone,
    /// There was nothing to do: the slot is free, or the region is in use, not stuck, or not to be marked.
    Nothing,
    /// The region is lost, and stays as it is until it is freed.
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// Looks whether the region is stuck, in this episode if it was busy before.
    Watching(Option<Episode>),
    /// Takes the words.
    Taking,
    /// Blades give up what they have: those not asked yet, and those asked.
    Flushing { ask: BladeSet, asked: BladeSet },
    /// What the slots cover changes.
    Rewiring,
    /// The words are given back.
    Giving,
    /// The words are given back as they were.
    Leaving,
    /// Nothing is left to do.
    Over(Outcome),
}

/// A change under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Procedure {
    change: Change,
    stage: Stage,
    /// When to stop waiting for a busy region.
    limit: u64,
    /// How long to look away from one.
    pause: u64,
    /// The blades that may have copies when a busy word is taken by force.
    all_blades: BladeSet,
    /// Whether accesses fail from now on if something is lost.
    fail: bool,
    /// Whether it leaves what blades would have to give up for it.
    spares: bool,
    loss: Loss,
    is_fenced: bool,
}

impl Procedure {
    /// A change that begins at `now` and waits for a busy region for at most `patience`, looking at
    /// it every `pause`, in nanoseconds. `all_blades` are the compute blades there are.
    pub const fn new(
        change: Change,
        now: u64,
        patience: u64,
        pause: u64,
        all_blades: BladeSet,
    ) -> Self {
        Self {
            change,
            stage: Stage::Taking,
            limit: now.saturating_add(patience),
            pause,
            all_blades,
            fail: false,
            spares: false,
            loss: Loss::Nothing,
            is_fenced: false,
        }
    }

    /// A [reset](Change::Reset) because a blade says that a request of its does not complete: only
    /// if the region stays busy with one invalidation for `patience`, or is held though no operation
    /// changes it. Where requests are answered, if slowly, there is nothing to reset.
    pub const fn for_stuck(now: u64, patience: u64, pause: u64, all_blades: BladeSet) -> Self {
        let mut reset = Self::new(Change::Reset, now, patience, pause, all_blades);
        reset.stage = Stage::Watching(None);
        reset
    }

    /// The same, for a domain that wants accesses to fail rather than find what was written back
    /// last, if what was written after that is gone.
    #[must_use]
    pub const fn failing_on_loss(mut self) -> Self {
        self.fail = true;
        self
    }

    /// A merge only of halves that are one without an invalidation; others are left as they are.
    #[must_use]
    pub const fn sparing_copies(mut self) -> Self {
        self.spares = true;
        self
    }

    /// What is to become of it.
    pub const fn change(&self) -> Change {
        self.change
    }

    /// The episode in which it watches a busy region, for a model checker that renames episodes.
    #[cfg(feature = "model")]
    pub const fn watched_mut(&mut self) -> Option<&mut Episode> {
        match &mut self.stage {
            Stage::Watching(episode) => episode.as_mut(),
            _ => None,
        }
    }

    /// What to do next, at `now`, where these are the words: the second one's counts only for a
    /// change of two slots.
    pub fn next(&mut self, now: u64, first: Word, second: Word) -> Do {
        loop {
            // A region that is left as it was is not fenced: of another half, a blade may be the owner.
            let is_to_be_fenced =
                matches!(self.loss, Loss::Writes) && !self.is_fenced && !seeded!(LossNotFenced);
            match self.stage {
                Stage::Rewiring | Stage::Giving if is_to_be_fenced => {
                    return Do::Fence;
                }
                Stage::Watching(before) => {
                    if let Some(act) = self.watch(now, first, before) {
                        return act;
                    }
                }
                Stage::Taking => {
                    if let Some(act) = self.take(now, first, second) {
                        return act;
                    }
                }
                Stage::Flushing { ask, asked } => {
                    if !ask.is_empty() {
                        self.stage = Stage::Flushing {
                            ask: BladeSet::EMPTY,
                            asked: ask.iter().fold(asked, BladeSet::with),
                        };
                        return Do::Flush { blades: ask };
                    }
                    if !asked.is_empty() {
                        return Do::Flush { blades: ask };
                    }
                    self.stage = match self.change {
                        Change::Reset | Change::MarkLost => Stage::Giving,
                        Change::Free | Change::Reclaim | Change::Split | Change::Merge => {
                            Stage::Rewiring
                        }
                    };
                }
                Stage::Rewiring => {
                    if let Some(new) = self.with_owner_of_second(first, second) {
                        return Do::Swap {
                            slot: Which::First,
                            old: first,
                            new,
                        };
                    }
                    let second = match self.change {
                        // It is held as the first one is, until both are given back.
                        Change::Split => self.upper(first, second),
                        _ => second,
                    };
                    return Do::Rewire { second };
                }
                Stage::Giving => match self.give(first, second) {
                    Some(swap) => return swap,
                    None => self.stage = Stage::Over(Outcome::Changed(self.loss)),
                },
                Stage::Leaving => match self.leave(first, second) {
                    Some(swap) => return swap,
                    None => self.stage = Stage::Over(Outcome::LeftAlone),
                },
                Stage::Over(outcome) => return Do::Done(outcome),
            }
        }
    }

    /// A blade has written back and dropped what it had.
    pub fn flushed(&mut self, blade: BladeId) {
        if let Stage::Flushing { ask, asked } = self.stage {
            let (ask, asked) = (ask.without(blade), asked.without(blade));
            self.stage = Stage::Flushing { ask, asked };
        }
    }

    /// A blade is gone, and the words do not list it any more; what that cost, by
    /// [`on_loss`](mind_common::directory::machine::on_loss).
    pub fn lost(&mut self, blade: BladeId, loss: Loss) {
        if matches!(loss, Loss::Writes) {
            self.loss = loss;
            self.is_fenced = false;
        }
        self.flushed(blade);
    }

    /// Memory has fenced the pages.
    pub fn fenced(&mut self) {
        self.is_fenced = true;
    }

    /// The slots cover what they are to cover.
    pub fn rewired(&mut self) {
        if self.stage == Stage::Rewiring {
            self.stage = Stage::Giving;
        }
    }

    fn watch(&mut self, now: u64, word: Word, before: Option<Episode>) -> Option<Do> {
        let is_same = before.is_none_or(|episode| episode == word.episode());
        self.stage = match word.state() {
            State::Locked => Stage::Taking,
            state if state.is_busy() && is_same && now < self.limit => {
                self.stage = Stage::Watching(Some(word.episode()));
                return Some(self.wait(now));
            }
            state if state.is_busy() && is_same => Stage::Taking,
            _ => Stage::Over(Outcome::Nothing),
        };
        None
    }

    fn wait(&self, now: u64) -> Do {
        let until = now.saturating_add(self.pause).min(self.limit);
        Do::Wait { until }
    }

    fn take(&mut self, now: u64, first: Word, second: Word) -> Option<Do> {
        let void = match self.change {
            Change::MarkLost => (!is_orphan(first)).then_some(Outcome::Nothing),
            Change::Free => None,
            _ if first.prior() == Some(Prior::Lost) => Some(Outcome::Lost),
            Change::Reclaim if !seeded!(ReclaimedInUse) => {
                (!is_idle(first)).then_some(Outcome::Nothing)
            }
            Change::Reclaim | Change::Reset | Change::Split | Change::Merge => None,
        };
        if let Some(outcome) = void {
            self.stage = Stage::Over(outcome);
            return None;
        }
        for (slot, word) in [(Which::First, first), (Which::Second, second)] {
            let is_of_both = self.change == Change::Merge && !seeded!(SecondNotLocked);
            if slot == Which::Second && !is_of_both {
                continue;
            }
            match word.state() {
                State::Locked if slot == Which::Second && word.prior() == Some(Prior::Lost) => {
                    self.stage = Stage::Leaving;
                    return None;
                }
                // An operation before left it like that: the report of the loss comes later and finds nothing to do.
                State::Locked if is_orphan(word) && !matches!(self.loss, Loss::Writes) => {
                    self.loss = Loss::Writes;
                    self.is_fenced = false;
                }
                State::Locked => {}
                State::Free => {
                    self.stage = match slot {
                        Which::First => Stage::Over(Outcome::Nothing),
                        Which::Second => Stage::Leaving,
                    };
                    return None;
                }
                State::Invalid | State::Shared | State::Modified => {
                    let new = lock(word)?;
                    return Some(Do::Swap {
                        slot,
                        old: word,
                        new,
                    });
                }
                State::SharedToModified | State::ModifiedToShared | State::ModifiedToModified => {
                    if now < self.limit {
                        return Some(self.wait(now));
                    }
                    if self.change.is_optional() {
                        self.stage = Stage::Leaving;
                        return None;
                    }
                    let new = lock_by_force(word, self.all_blades)?;
                    return Some(Do::Swap {
                        slot,
                        old: word,
                        new,
                    });
                }
            }
        }
        let ask = match self.change {
            // A word that was lost with its memory blade lists no blade, and copies are still there.
            Change::Free if first.prior() == Some(Prior::Lost) => self.all_blades,
            Change::Free if seeded!(FreedUnflushed) => BladeSet::EMPTY,
            Change::Reset | Change::Free => first.blades(),
            // No blade has it; and both halves are as the whole was.
            Change::MarkLost | Change::Split | Change::Reclaim => BladeSet::EMPTY,
            Change::Merge if joined(first, second).is_some() => BladeSet::EMPTY,
            Change::Merge if self.spares => {
                self.stage = Stage::Leaving;
                return None;
            }
            Change::Merge => both(first, second),
        };
        self.stage = Stage::Flushing {
            ask,
            asked: BladeSet::EMPTY,
        };
        None
    }
}
