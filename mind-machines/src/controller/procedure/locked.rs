//! Words that the controller holds: how a region's word gets there, what it tells while it is held,
//! and what it becomes.

use mind_common::{
    directory::word::{Prior, State, Word},
    id::BladeSet,
};

/// The controller takes a settled region; the blades stay listed, so that an owner can still write
/// back. `None` for words of other states.
pub const fn lock(word: Word) -> Option<Word> {
    let was = match word.state() {
        State::Invalid => Prior::Invalid,
        State::Shared => Prior::Shared,
        State::Modified => Prior::Modified,
        _ => return None,
    };
    Some(word.locked(was, word.blades()))
}

/// The controller takes a busy region whose invalidation does not complete (paper, section 4.4).
/// Of an owner's, the owner has what there is, until it has answered. Of one that was shared, any of
/// `all_blades` may have a copy: some have answered and are not listed any more, and one of them, or
/// the requester, may have fetched it before. `None` for words of other states.
pub const fn lock_by_force(word: Word, all_blades: BladeSet) -> Option<Word> {
    match word.state() {
        State::SharedToModified => Some(word.locked(Prior::Shared, all_blades)),
        State::ModifiedToShared | State::ModifiedToModified => {
            Some(word.locked(Prior::Modified, word.blades()))
        }
        _ => None,
    }
}

/// The region of a memory blade that is gone: every access fails until the region is unmapped, and no blade may write
/// any of it back. `None` where there is no region, or it is lost already.
pub const fn lose(word: Word) -> Option<Word> {
    match (word.state(), word.prior()) {
        (State::Free, _) | (State::Locked, Some(Prior::Lost)) => None,
        _ => Some(word.locked(Prior::Lost, BladeSet::EMPTY)),
    }
}

/// No blade has any of the region, and none gets any.
pub(super) fn is_idle(word: Word) -> bool {
    let was = match word.state() {
        State::Invalid => Some(Prior::Invalid),
        _ => word.prior(),
    };
    was == Some(Prior::Invalid) && word.blades().is_empty()
}

/// What [`on_loss`](mind_common::directory::machine::on_loss) of an owner leaves.
pub(in crate::controller) fn is_orphan(word: Word) -> bool {
    word.prior() == Some(Prior::Modified) && word.blades().is_empty()
}

/// The controller gives a held region back, settled or free. `None` when it is not held, or
/// `state` is one that only packets lead to.
pub const fn unlock(word: Word, state: State, blades: BladeSet) -> Option<Word> {
    match (word.state(), state) {
        (State::Locked, State::Free | State::Invalid | State::Shared | State::Modified) => {
            Some(word.settled(state, blades))
        }
        _ => None,
    }
}

/// What a held region is when it is given back as it was, less the blades that are gone. `None` for
/// one that has lost writes: it is not given back, whether or not a blade still has copies.
pub(super) const fn as_before(word: Word) -> Option<(State, BladeSet)> {
    let blades = word.blades();
    match word.prior() {
        Some(Prior::Invalid | Prior::Shared | Prior::Modified) if blades.is_empty() => {
            Some((State::Invalid, blades))
        }
        Some(Prior::Invalid) => Some((State::Invalid, BladeSet::EMPTY)),
        Some(Prior::Shared) => Some((State::Shared, blades)),
        Some(Prior::Modified) => Some((State::Modified, blades)),
        Some(Prior::Lost) | None => None,
    }
}

/// Who is listed in either word.
pub(super) fn both(first: Word, second: Word) -> BladeSet {
    second.blades().iter().fold(first.blades(), BladeSet::with)
}

/// What two held halves are together, if that needs no invalidation: sharers with sharers, and an
/// owner with copies of its own. Where writes into either are lost, memory fences the pages of both, which makes copies
/// of them out of date.
pub(super) fn joined(first: Word, second: Word) -> Option<(State, BladeSet)> {
    if is_orphan(first) || is_orphan(second) {
        return None;
    }
    let (lower, upper) = (as_before(first)?, as_before(second)?);
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
