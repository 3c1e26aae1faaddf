//! The directory word: all of a region's coherence state in 64 bits, changed only by
//! compare-and-swap.
//!
//! ```text
//! bit  63..61   60..56     55..32    31..0
//!      state 3  requester  episode   blades
//! ```
//!
//! `blades` are the sharers (the owner, when modified); while the region is busy, the blades that
//! have not answered the invalidation yet. `requester` counts only while busy; while the region is
//! locked, the field has the region's [prior](Word::prior) state. `episode` counts up whenever the
//! region becomes busy or locked and never goes back, also when a slot is given to another region.

use crate::{
    id::{BladeId, BladeSet},
    serial::Episode,
};

/// The state of a region: the three states of MSI, the three transitions between them that need
/// invalidations, and two in which requests are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// The slot belongs to no region.
    Free = 0,
    /// No blade caches any of its pages; memory is current.
    Invalid = 1,
    /// Any of `blades` may cache pages to read; memory is current.
    Shared = 2,
    /// The one blade in `blades` may cache pages to write; memory is current for those it does
    /// not cache.
    Modified = 3,
    /// Busy: `requester` will be the owner when the sharers in `blades` have given it up.
    SharedToModified = 4,
    /// Busy: `requester` will share with the owner in `blades` when that has written back.
    ModifiedToShared = 5,
    /// Busy: `requester` will be the owner when the owner in `blades` has given it up.
    ModifiedToModified = 6,
    /// The controller changes the region, or flushes it; `blades` may still write back.
    Locked = 7,
}

impl State {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Free,
        Self::Invalid,
        Self::Shared,
        Self::Modified,
        Self::SharedToModified,
        Self::ModifiedToShared,
        Self::ModifiedToModified,
        Self::Locked,
    ];

    /// Its name on the command line and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Invalid => "invalid",
            Self::Shared => "shared",
            Self::Modified => "modified",
            Self::SharedToModified => "shared-to-modified",
            Self::ModifiedToShared => "modified-to-shared",
            Self::ModifiedToModified => "modified-to-modified",
            Self::Locked => "locked",
        }
    }

    /// Whether an invalidation is under way.
    #[inline(always)]
    pub const fn is_busy(self) -> bool {
        matches!(
            self,
            Self::SharedToModified | Self::ModifiedToShared | Self::ModifiedToModified
        )
    }
}

/// The state of a locked region before it was locked. The region returns to it unless the
/// controller changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Prior {
    /// No blade had it.
    Invalid = 0,
    /// The blades listed may have copies to read.
    Shared = 1,
    /// One of the blades listed may have copies that it wrote into.
    Modified = 2,
    /// Writes to it were lost with a blade, and its domain chose that accesses then fail: every
    /// access fails until the region is unmapped.
    Lost = 3,
}

impl Prior {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Invalid, Self::Shared, Self::Modified, Self::Lost];
}

const STATE_SHIFT: u32 = 61;
const REQUESTER_SHIFT: u32 = 56;
const EPISODE_SHIFT: u32 = 32;

const _: () = assert!(State::ALL.len() == 1 << (64 - STATE_SHIFT));
const _: () = assert!(crate::id::MAX_BLADES == 1 << (STATE_SHIFT - REQUESTER_SHIFT));
const _: () = assert!(crate::serial::BITS == REQUESTER_SHIFT - EPISODE_SHIFT);
const _: () = assert!(crate::id::MAX_BLADES as u32 == EPISODE_SHIFT);

/// A directory word.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct Word(u64);

impl Word {
    /// A word of these fields.
    #[inline(always)]
    pub const fn new(state: State, requester: BladeId, episode: Episode, blades: BladeSet) -> Self {
        Self(
            (state as u64) << STATE_SHIFT
                | (requester.get() as u64) << REQUESTER_SHIFT
                | (episode.get() as u64) << EPISODE_SHIFT
                | blades.bits() as u64,
        )
    }

    /// The word that a slot stores as `raw`: every 64-bit value is one.
    #[inline(always)]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The word as it stands in the slot.
    #[inline(always)]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The region's state.
    #[inline(always)]
    pub const fn state(self) -> State {
        match self.0 >> STATE_SHIFT {
            0 => State::Free,
            1 => State::Invalid,
            2 => State::Shared,
            3 => State::Modified,
            4 => State::SharedToModified,
            5 => State::ModifiedToShared,
            6 => State::ModifiedToModified,
            _ => State::Locked,
        }
    }

    /// The blade that wants the region, while it is busy; otherwise blade 0.
    #[inline(always)]
    pub const fn requester(self) -> BladeId {
        BladeId::from_low_bits(self.0 >> REQUESTER_SHIFT)
    }

    /// The number of its latest invalidation.
    #[inline(always)]
    pub const fn episode(self) -> Episode {
        Episode::new((self.0 >> EPISODE_SHIFT) as u32)
    }

    /// Sharers, owner, or blades that are still to answer.
    #[inline(always)]
    pub const fn blades(self) -> BladeSet {
        BladeSet::from_bits(self.0 as u32)
    }

    /// The state before the lock; `None` when the region is not locked. Values that
    /// [`locked`](Self::locked) never writes are read as [`Prior::Lost`].
    #[inline(always)]
    pub const fn prior(self) -> Option<Prior> {
        match (self.state(), self.requester().get()) {
            (State::Locked, 0) => Some(Prior::Invalid),
            (State::Locked, 1) => Some(Prior::Shared),
            (State::Locked, 2) => Some(Prior::Modified),
            (State::Locked, _) => Some(Prior::Lost),
            _ => None,
        }
    }

    /// The word of a locked region that was `was`, next episode. The new episode makes the swap of
    /// a packet fail that read the word before the lock, even after the controller has unlocked the
    /// region again; and no answer to an earlier invalidation counts.
    #[inline(always)]
    #[must_use]
    pub const fn locked(self, was: Prior, blades: BladeSet) -> Self {
        let was = BladeId::from_low_bits(was as u64);
        Self::new(State::Locked, was, self.episode().next(), blades)
    }

    /// The word in a state that is not busy, same episode.
    #[inline(always)]
    #[must_use]
    pub const fn settled(self, state: State, blades: BladeSet) -> Self {
        Self::new(state, BladeId::from_low_bits(0), self.episode(), blades)
    }

    /// The word in a busy state, next episode.
    #[inline(always)]
    #[must_use]
    pub const fn busy(self, state: State, requester: BladeId, pending: BladeSet) -> Self {
        Self::new(state, requester, self.episode().next(), pending)
    }

    /// The word in another episode, all else the same.
    #[must_use]
    pub const fn with_episode(self, episode: Episode) -> Self {
        let requester = BladeId::from_low_bits(self.0 >> REQUESTER_SHIFT);
        Self::new(self.state(), requester, episode, self.blades())
    }

    /// The word with other blades, all else the same.
    #[inline(always)]
    #[must_use]
    pub const fn with_blades(self, blades: BladeSet) -> Self {
        Self(self.0 & !(u32::MAX as u64) | blades.bits() as u64)
    }
}

impl core::fmt::Debug for Word {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "{:?} {:?} e{}",
            self.state(),
            self.blades(),
            self.episode()
        )?;
        if self.state().is_busy() {
            write!(f, " for {}", self.requester())?;
        }
        if let Some(was) = self.prior() {
            write!(f, " was {was:?}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_slot_of_zeros_is_free() {
        assert_eq!(Word::default().state(), State::Free);
    }

    #[test]
    fn a_locked_word_has_its_prior_state() {
        for was in Prior::ALL {
            let word = Word::default().locked(was, BladeSet::EMPTY);
            assert_eq!((word.state(), word.prior()), (State::Locked, Some(was)));
            assert_eq!(word.settled(State::Shared, BladeSet::EMPTY).prior(), None);
        }
    }

    #[test]
    fn states_have_the_numbers_of_their_place() {
        for (number, state) in State::ALL.into_iter().enumerate() {
            assert_eq!(state as usize, number);
            assert_eq!(Word::from_raw((number as u64) << 61).state(), state);
        }
    }

    proptest! {
        #[test]
        fn every_value_is_the_word_of_its_fields(raw: u64) {
            let word = Word::from_raw(raw);
            let again = Word::new(word.state(), word.requester(), word.episode(), word.blades());
            prop_assert_eq!(again.raw(), raw);
        }

        #[test]
        fn other_blades_leave_the_rest_alone(raw: u64, bits: u32) {
            let word = Word::from_raw(raw);
            let other = word.with_blades(BladeSet::from_bits(bits));
            prop_assert_eq!(other.blades().bits(), bits);
            prop_assert_eq!(other.state(), word.state());
            prop_assert_eq!(other.requester(), word.requester());
            prop_assert_eq!(other.episode(), word.episode());
        }
    }
}
