//! Words that the controller holds: how a region's word gets there, what it tells while it is held,
//! and what it becomes.

use mind_common::{
    directory::word::{State, Was, Word},
    id::BladeSet,
};

/// The controller takes a settled region; the blades stay listed, so that an owner can still write
/// back. `None` for words of other states.
pub const fn hold(word: Word) -> Option<Word> {
    let was = match word.state() {
        State::Invalid => Was::Invalid,
        State::Shared => Was::Shared,
        State::Modified => Was::Modified,
        _ => return None,
    };
    Some(word.held(was, word.blades()))
}

/// The controller takes a busy region whose invalidation does not complete (paper, section 4.4).
/// Of an owner's, the owner has what there is, until it has answered. Of one that was shared, any of
/// `everybody` may have a copy: some have answered and are not listed any more, and one of them, or
/// the requester, may have fetched it before. `None` for words of other states.
pub const fn seize(word: Word, everybody: BladeSet) -> Option<Word> {
    match word.state() {
        State::SharedToModified => Some(word.held(Was::Shared, everybody)),
        State::ModifiedToShared | State::ModifiedToModified => {
            Some(word.held(Was::Modified, word.blades()))
        }
        _ => None,
    }
}

/// The region of a memory blade that is gone: every access fails until the region is unmapped, and no blade may write
/// any of it back. `None` where there is no region, or it is lost already.
pub const fn lose(word: Word) -> Option<Word> {
    match (word.state(), word.was()) {
        (State::Free, _) | (State::Held, Some(Was::Lost)) => None,
        _ => Some(word.held(Was::Lost, BladeSet::EMPTY)),
    }
}

/// What [`on_loss`](mind_common::directory::machine::on_loss) of an owner leaves.
pub(super) fn is_orphan(word: Word) -> bool {
    word.was() == Some(Was::Modified) && word.blades().is_empty()
}

/// The controller gives a held region back, settled or to nobody. `None` when it is not held, or
/// `state` is one that only packets lead to.
pub const fn release(word: Word, state: State, blades: BladeSet) -> Option<Word> {
    match (word.state(), state) {
        (State::Held, State::Free | State::Invalid | State::Shared | State::Modified) => {
            Some(word.settled(state, blades))
        }
        _ => None,
    }
}

/// What a held region is when it is given back as it was, less the blades that are gone. `None` for
/// one that has lost writes: it is not given back, whether or not somebody still has copies.
pub(super) const fn as_was(word: Word) -> Option<(State, BladeSet)> {
    let blades = word.blades();
    match word.was() {
        Some(Was::Invalid | Was::Shared | Was::Modified) if blades.is_empty() => {
            Some((State::Invalid, blades))
        }
        Some(Was::Invalid) => Some((State::Invalid, BladeSet::EMPTY)),
        Some(Was::Shared) => Some((State::Shared, blades)),
        Some(Was::Modified) => Some((State::Modified, blades)),
        Some(Was::Lost) | None => None,
    }
}

/// Who is listed in either word.
pub(super) fn both(first: Word, second: Word) -> BladeSet {
    second.blades().iter().fold(first.blades(), BladeSet::with)
}

/// What two held halves are together, if that needs no invalidation: sharers with sharers, and an
/// owner with copies of its own.
pub(super) fn joined(first: Word, second: Word) -> Option<(State, BladeSet)> {
    let (lower, upper) = (as_was(first)?, as_was(second)?);
    let all = upper.1.iter().fold(lower.1, BladeSet::with);
    match (lower.0, upper.0) {
        (State::Invalid, State::Invalid) => Some((State::Invalid, BladeSet::EMPTY)),
        (State::Invalid | State::Shared, State::Invalid | State::Shared) => {
            Some((State::Shared, all))
        }
        _ if all.is_single() => Some((State::Modified, all)),
        _ => None,
    }
}
