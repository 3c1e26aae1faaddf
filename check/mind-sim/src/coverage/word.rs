//! Kinds of words of the directory, and the events of a word.

use std::fmt;

use mind_common::{
    directory::{Prior, State, Want, Word, machine::on_loss},
    id::BladeId,
    verdict::Verdict,
};
use mind_machines::datagram::{Body, Datagram};

/// A kind of word: its state, and for a locked one the state before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kind(State, Option<Prior>);

impl Kind {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self(State::Free, None),
        Self(State::Invalid, None),
        Self(State::Shared, None),
        Self(State::Modified, None),
        Self(State::SharedToModified, None),
        Self(State::ModifiedToShared, None),
        Self(State::ModifiedToModified, None),
        Self(State::Locked, Some(Prior::Invalid)),
        Self(State::Locked, Some(Prior::Shared)),
        Self(State::Locked, Some(Prior::Modified)),
        Self(State::Locked, Some(Prior::Lost)),
    ];

    /// The kind of a word.
    pub const fn of(word: Word) -> Self {
        Self(word.state(), word.prior())
    }

    /// The kind of words in a state that is not locked.
    pub const fn of_state(state: State) -> Self {
        Self(state, None)
    }

    /// Its state.
    pub const fn state(self) -> State {
        self.0
    }

    /// The state before it was locked.
    pub const fn prior(self) -> Option<Prior> {
        self.1
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Some(was) => write!(f, "{:?} (was {was:?})", self.0),
            None => write!(f, "{:?}", self.0),
        }
    }
}

/// An event of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Happening {
    /// A blade asks for a page, again or for the first time.
    Request(Want, bool),
    /// An answer that is not the last.
    Counted,
    /// The last answer.
    Complete,
    /// An answer to something else.
    Stale,
    /// A write-back of the owner.
    WriteBack,
    /// A write-back of another blade.
    LateWriteBack,
    /// A blade that it lists is gone.
    ListedGone,
    /// The blade that it is busy for, and does not list, is gone.
    RequesterGone,
    /// The controller locks it.
    Taken,
    /// The controller unlocks it.
    Given,
}

impl Happening {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::Request(Want::Read, false),
        Self::Request(Want::Read, true),
        Self::Request(Want::Acquire, false),
        Self::Request(Want::Acquire, true),
        Self::Request(Want::Upgrade, false),
        Self::Request(Want::Upgrade, true),
        Self::Counted,
        Self::Complete,
        Self::Stale,
        Self::WriteBack,
        Self::LateWriteBack,
        Self::ListedGone,
        Self::RequesterGone,
        Self::Taken,
        Self::Given,
    ];

    /// The event that a packet of a compute blade is for the word of its page, if it reached the
    /// word.
    pub(crate) fn of_packet<P>(packet: &Datagram<P>, verdict: Verdict) -> Option<Self> {
        use Verdict::{
            Busy, Contended, Counted, DeadBlade, Fetch, Fetched, Grant, Granted, HandedOver,
            Invalidate, Lost, NoCopy, NoOrigin, NotOwner, PageForwarded, PassedUp, StaleAnswer,
            WriteBack,
        };
        match (&packet.body, verdict) {
            (
                Body::Request { want, .. },
                Fetch | Grant | Invalidate | PassedUp | HandedOver | Busy | NoCopy | Lost
                | NoOrigin | Contended | DeadBlade,
            ) => Some(Self::Request(*want, packet.envelope.attempt > 0)),
            (Body::Answer { .. } | Body::Forward { .. }, Counted) => Some(Self::Counted),
            (Body::Answer { .. } | Body::Forward { .. }, Granted | Fetched | PageForwarded) => {
                Some(Self::Complete)
            }
            (Body::Answer { .. } | Body::Forward { .. }, StaleAnswer) => Some(Self::Stale),
            (Body::Write { .. }, WriteBack) => Some(Self::WriteBack),
            (Body::Write { .. }, NotOwner) => Some(Self::LateWriteBack),
            _ => None,
        }
    }

    /// The event that changed `before` to `after`, where the controller did.
    pub(crate) fn of_change(before: Word, after: Word) -> Option<Self> {
        if before == after {
            return None;
        }
        let is_gone =
            |blade: &BladeId| on_loss(before, *blade).is_some_and(|step| step.next == after);
        let named = before.blades().with(before.requester());
        if let Some(gone) = named.iter().find(is_gone) {
            let is_listed = before.blades().contains(gone);
            return Some(if is_listed {
                Self::ListedGone
            } else {
                Self::RequesterGone
            });
        }
        match before.state() {
            State::Locked | State::Free => Some(Self::Given),
            _ => Some(Self::Taken),
        }
    }
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(want, false) => write!(f, "{want:?}"),
            Self::Request(want, true) => write!(f, "{want:?} again"),
            Self::Counted => f.write_str("an answer"),
            Self::Complete => f.write_str("the last answer"),
            Self::Stale => f.write_str("a stale answer"),
            Self::WriteBack => f.write_str("a write-back"),
            Self::LateWriteBack => f.write_str("a write-back of a blade that is not the owner"),
            Self::ListedGone => f.write_str("a listed blade is gone"),
            Self::RequesterGone => f.write_str("the requester is gone"),
            Self::Taken => f.write_str("the controller locks it"),
            Self::Given => f.write_str("the controller unlocks it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use mind_common::{id::BladeSet, serial::Episode};
    use mind_machines::controller::procedure::{lock, lock_by_force, unlock};

    use super::*;

    fn word(state: State, blades: &[u8]) -> Word {
        let blades = blades
            .iter()
            .map(|blade| BladeId::from_low_bits(u64::from(*blade)));
        let requester = BladeId::from_low_bits(9);
        Word::new(state, requester, Episode::new(3), blades.collect())
    }

    #[test]
    fn what_the_controller_did_shows_in_the_words() {
        let change = |before, after: Option<Word>| {
            let after = after.unwrap_or_else(|| panic!("{before:?} cannot be changed so"));
            Happening::of_change(before, after)
        };
        let gone = |before, blade| {
            let step = on_loss(before, BladeId::from_low_bits(blade));
            change(before, step.map(|step| step.next))
        };
        let owned =
            word(State::Modified, &[2]).settled(State::Modified, word(State::Free, &[2]).blades());
        assert_eq!(change(owned, lock(owned)), Some(Happening::Taken));
        assert_eq!(gone(owned, 2), Some(Happening::ListedGone));
        let busy = word(State::SharedToModified, &[2, 3]);
        assert_eq!(gone(busy, 3), Some(Happening::ListedGone));
        assert_eq!(gone(busy, 9), Some(Happening::RequesterGone));
        let seized = lock_by_force(busy, busy.blades());
        assert_eq!(change(busy, seized), Some(Happening::Taken));
        let locked = seized.unwrap_or_default();
        let given = unlock(locked, State::Invalid, BladeSet::EMPTY);
        assert_eq!(change(locked, given), Some(Happening::Given));
        assert_eq!(Happening::of_change(locked, locked), None);
    }
}
