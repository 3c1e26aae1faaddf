//! Every (state, event) pair of the directory, with its expected outcome.
//!
//! A row is a word, an event and what must come of it. The last test sees to it that no pair is
//! missing.

use std::collections::HashSet;

use mind_common::{
    directory::{
        Answer, AnswerVerdict, Invalidations, Prior, Request, RequestVerdict, Source, State,
        Target, Transition, Want, Word,
        machine::{Loss, may_operate, may_write_back, on_answer, on_loss, on_request},
    },
    id::{BladeId, BladeSet},
    refusal::Refusal,
    serial::Episode,
};
use mind_machines::controller::procedure::{lock, lock_by_force, unlock};

const WANTS: [Want; 3] = [Want::Read, Want::Acquire, Want::Upgrade];

fn c(number: u8) -> BladeId {
    BladeId::new(number).expect("tests use blades below 32")
}

fn set(blades: &[u8]) -> BladeSet {
    blades.iter().map(|&number| c(number)).collect()
}

/// A settled word, or a busy one for c9, in episode 7.
fn word(state: State, blades: &[u8]) -> Word {
    let requester = if state.is_busy() { c(9) } else { c(0) };
    Word::new(state, requester, Episode::new(7), set(blades))
}

/// A locked word, in episode 8: what a word of episode 7 becomes.
fn locked(was: Prior, blades: &[u8]) -> Word {
    word(State::Invalid, &[]).locked(was, set(blades))
}

/// A busy word for `requester`, in episode 8: what a word of episode 7 becomes.
fn busy(state: State, requester: u8, blades: &[u8]) -> Word {
    Word::new(state, c(requester), Episode::new(8), set(blades))
}

fn invalidate(blades: &[u8], target: Target, source: Source) -> RequestVerdict {
    RequestVerdict::Invalidate(Invalidations {
        blades: set(blades),
        target,
        source,
        requester: c(1),
        episode: Episode::new(8),
        repeated: false,
    })
}

fn repeat(blades: &[u8], target: Target, source: Source) -> RequestVerdict {
    RequestVerdict::Invalidate(Invalidations {
        blades: set(blades),
        target,
        source,
        requester: c(9),
        episode: Episode::new(7),
        repeated: true,
    })
}

struct Row {
    before: Word,
    want: Want,
    repeated: bool,
    after: Word,
    verdict: RequestVerdict,
}

/// Requests of c1. `repeated` is false unless a row says so.
fn rows() -> Vec<Row> {
    use RequestVerdict::{Fetch, Grant, Refuse};
    use State::*;
    let mut rows = Vec::new();
    // A repeated request differs from a first one only where the word is busy: see the end.
    let mut row = |before: Word, want, after, verdict| {
        let repeats: &[bool] = if before.state().is_busy() {
            &[false]
        } else {
            &[false, true]
        };
        rows.extend(repeats.iter().map(|&repeated| Row {
            before,
            want,
            repeated,
            after,
            verdict,
        }));
    };

    // Free slots, and locked ones.
    for want in WANTS {
        row(
            word(Free, &[]),
            want,
            word(Free, &[]),
            Refuse(Refusal::Busy),
        );
        for was in Prior::ALL {
            let refusal = match was {
                Prior::Invalid | Prior::Shared | Prior::Modified => Refusal::Busy,
                Prior::Lost => Refusal::Unreachable,
            };
            for blades in [&[][..], &[1], &[1, 2]] {
                let locked = locked(was, blades);
                row(locked, want, locked, Refuse(refusal));
            }
        }
    }

    // I: nothing to invalidate, nothing to upgrade.
    let i = word(Invalid, &[]);
    row(i, Want::Read, word(Shared, &[1]), Fetch);
    row(i, Want::Acquire, word(Modified, &[1]), Fetch);
    row(i, Want::Upgrade, i, Refuse(Refusal::NoCopy));

    // S: readers join; a writer waits for the others.
    row(word(Shared, &[1]), Want::Read, word(Shared, &[1]), Fetch);
    row(
        word(Shared, &[2, 31]),
        Want::Read,
        word(Shared, &[1, 2, 31]),
        Fetch,
    );
    row(
        word(Shared, &[1]),
        Want::Acquire,
        word(Modified, &[1]),
        Fetch,
    );
    row(
        word(Shared, &[1]),
        Want::Upgrade,
        word(Modified, &[1]),
        Grant,
    );
    row(
        word(Shared, &[2]),
        Want::Upgrade,
        word(Shared, &[2]),
        Refuse(Refusal::NoCopy),
    );
    for sharers in [&[2][..], &[1, 2]] {
        row(
            word(Shared, sharers),
            Want::Acquire,
            busy(SharedToModified, 1, &[2]),
            invalidate(&[2], Target::Invalid, Source::Fetch),
        );
    }
    row(
        word(Shared, &[1, 2, 3, 4, 5]),
        Want::Acquire,
        busy(SharedToModified, 1, &[2, 3, 4, 5]),
        invalidate(&[2, 3, 4, 5], Target::Invalid, Source::Fetch),
    );
    row(
        word(Shared, &[1, 2, 3]),
        Want::Upgrade,
        busy(SharedToModified, 1, &[2, 3]),
        invalidate(&[2, 3], Target::Invalid, Source::Grant),
    );

    // M: the owner has all it asks for; any other blade waits for the owner.
    let mine = word(Modified, &[1]);
    row(mine, Want::Read, mine, Fetch);
    row(mine, Want::Acquire, mine, Fetch);
    row(mine, Want::Upgrade, mine, Grant);
    let theirs = word(Modified, &[2]);
    row(
        theirs,
        Want::Read,
        busy(ModifiedToShared, 1, &[2]),
        invalidate(&[2], Target::Shared, Source::Forward),
    );
    row(
        theirs,
        Want::Acquire,
        busy(ModifiedToModified, 1, &[2]),
        invalidate(&[2], Target::Invalid, Source::Forward),
    );
    row(theirs, Want::Upgrade, theirs, Refuse(Refusal::NoCopy));

    // Busy: refused; a repeated request sends the outstanding invalidations again.
    for want in WANTS {
        for (state, blades, target, source) in [
            (
                SharedToModified,
                &[2, 3][..],
                Target::Invalid,
                Source::Fetch,
            ),
            (SharedToModified, &[1], Target::Invalid, Source::Fetch),
            (ModifiedToShared, &[2], Target::Shared, Source::Forward),
            (ModifiedToModified, &[2], Target::Invalid, Source::Forward),
        ] {
            let before = word(state, blades);
            for (repeated, verdict) in [
                (false, Refuse(Refusal::Busy)),
                (true, repeat(blades, target, source)),
            ] {
                rows.push(Row {
                    before,
                    want,
                    repeated,
                    after: before,
                    verdict,
                });
            }
        }
    }
    rows
}

#[test]
fn every_request_has_its_expected_outcome() {
    for row in rows() {
        let request = Request {
            from: c(1),
            want: row.want,
            repeated: row.repeated,
        };
        let got = on_request(row.before, request);
        assert_eq!(
            (got.next, got.verdict),
            (row.after, row.verdict),
            "{request:?} at {:?}",
            row.before
        );
    }
}

#[test]
fn no_pair_of_state_and_request_is_missing() {
    let covered: HashSet<_> = rows()
        .iter()
        .map(|row| (row.before.state(), row.want, row.repeated))
        .collect();
    assert_eq!(covered.len(), State::ALL.len() * WANTS.len() * 2);
}

/// The slot that all are about.
const SLOT: u32 = 5;

/// The answer of `from` to the invalidation that `word` is busy with.
fn answer(word: Word, from: u8) -> Answer {
    Answer {
        from: c(from),
        slot: SLOT,
        requester: word.requester(),
        episode: word.episode(),
    }
}

#[test]
fn an_answer_strikes_its_blade_off_and_the_last_completes() {
    use AnswerVerdict::{Complete, Counted};
    use State::*;
    let rows = [
        (
            SharedToModified,
            &[2, 3][..],
            word(SharedToModified, &[3]),
            Counted,
        ),
        (SharedToModified, &[2], word(Modified, &[9]), Complete),
        (ModifiedToShared, &[2], word(Shared, &[2, 9]), Complete),
        (ModifiedToModified, &[2], word(Modified, &[9]), Complete),
    ];
    for (state, pending, after, verdict) in rows {
        let before = word(state, pending);
        let got = on_answer(SLOT, before, answer(before, 2));
        assert_eq!((got.next, got.verdict), (after, verdict), "{before:?}");
    }
}

#[test]
fn an_answer_to_anything_else_is_stale_and_changes_nothing() {
    for state in State::ALL {
        let before = word(state, &[2, 3]);
        let current = answer(before, 2);
        let mut stale = vec![
            Answer {
                from: c(4),
                ..current
            },
            Answer {
                slot: SLOT + 1,
                ..current
            },
            Answer {
                requester: c(8),
                ..current
            },
            Answer {
                episode: Episode::new(6),
                ..current
            },
            Answer {
                episode: Episode::new(8),
                ..current
            },
        ];
        if !state.is_busy() {
            stale.push(current);
        }
        for answer in stale {
            let got = on_answer(SLOT, before, answer);
            assert_eq!(
                (got.next, got.verdict),
                (before, AnswerVerdict::Stale),
                "{answer:?} at {before:?}"
            );
        }
    }
}

#[test]
fn a_repeated_answer_is_stale() {
    let before = word(State::SharedToModified, &[2, 3]);
    let once = on_answer(SLOT, before, answer(before, 2)).next;
    assert_eq!(
        on_answer(SLOT, once, answer(before, 2)).verdict,
        AnswerVerdict::Stale
    );
    let done = on_answer(SLOT, once, answer(before, 3)).next;
    assert_eq!(
        on_answer(SLOT, done, answer(before, 3)).verdict,
        AnswerVerdict::Stale
    );
}

#[test]
fn only_an_owner_writes_back_also_while_it_is_asked_to_give_up() {
    use State::*;
    for state in State::ALL {
        let owner_may = matches!(state, Modified | ModifiedToShared | ModifiedToModified);
        assert_eq!(
            may_write_back(word(state, &[2]), c(2)),
            owner_may,
            "{state:?}"
        );
        assert!(!may_write_back(word(state, &[2]), c(3)), "{state:?}");
        // Nor does the blade that waits for the region.
        assert!(!may_write_back(word(state, &[2]), c(9)), "{state:?}");
    }
    // And while the controller has it give up a region that was its own.
    for was in Prior::ALL {
        let word = locked(was, &[2]);
        assert_eq!(
            may_write_back(word, c(2)),
            was == Prior::Modified,
            "{was:?}"
        );
        assert!(!may_write_back(word, c(3)), "{was:?}");
    }
}

#[test]
fn an_atomic_operation_in_memory_is_for_the_owner_only() {
    use State::*;
    for state in State::ALL {
        let others = match state {
            Free | Locked => Err(Refusal::Busy),
            _ => Err(Refusal::NoCopy),
        };
        let owners = match state {
            Modified | ModifiedToShared | ModifiedToModified => Ok(()),
            _ => others,
        };
        let word = word(state, &[2]);
        assert_eq!(may_operate(word, c(2)), owners, "{state:?}");
        assert_eq!(may_operate(word, c(3)), others, "{state:?}");
        // Nor may the blade that waits for the region.
        assert_eq!(may_operate(word, c(9)), others, "{state:?}");
    }
}

#[test]
fn the_controller_locks_what_is_settled_and_locks_by_force_what_is_not() {
    use State::*;
    for state in State::ALL {
        let before = word(state, &[2, 3]);
        let (was, is_settled) = match state {
            Free | Locked => (None, false),
            Invalid => (Some(Prior::Invalid), true),
            Shared => (Some(Prior::Shared), true),
            Modified => (Some(Prior::Modified), true),
            SharedToModified => (Some(Prior::Shared), false),
            ModifiedToShared | ModifiedToModified => (Some(Prior::Modified), false),
        };
        let of_settled = was.filter(|_| is_settled).map(|was| locked(was, &[2, 3]));
        assert_eq!(lock(before), of_settled, "{state:?}");
        let of_busy = match was {
            _ if is_settled => None,
            // A blade that has answered is not listed any more, and may have a copy all the same.
            Some(Prior::Shared) => Some(locked(Prior::Shared, &[2, 3, 9])),
            was => was.map(|was| locked(was, &[2, 3])),
        };
        assert_eq!(lock_by_force(before, set(&[2, 3, 9])), of_busy, "{state:?}");
        let unlocked = unlock(before, Invalid, BladeSet::EMPTY);
        assert_eq!(unlocked.is_some(), state == Locked, "{state:?}");
        assert_eq!(unlock(before, SharedToModified, BladeSet::EMPTY), None);
    }
}

#[test]
fn an_answer_to_an_invalidation_that_was_locked_by_force_is_stale_for_good() {
    let before = word(State::ModifiedToModified, &[2]);
    let late = answer(before, 2);
    let locked = lock_by_force(before, set(&[2])).expect("a busy word can be locked by force");
    assert_eq!(on_answer(SLOT, locked, late).verdict, AnswerVerdict::Stale);
    let free = unlock(locked, State::Modified, set(&[2])).expect("a locked word can be unlocked");
    let request = Request {
        from: before.requester(),
        want: Want::Acquire,
        repeated: false,
    };
    let again = on_request(free, request).next;
    assert_eq!(again.state(), State::ModifiedToModified);
    assert_eq!(on_answer(SLOT, again, late).verdict, AnswerVerdict::Stale);
}

#[test]
fn the_transition_of_a_request_is_named_after_the_states_before_and_after() {
    use State::*;
    for (before, after, name) in [
        (Invalid, Shared, "I->S"),
        (Shared, Shared, "S->S"),
        (Invalid, Modified, "I->M"),
        (Shared, Modified, "S->M"),
        (SharedToModified, Modified, "S->M"),
        (ModifiedToShared, Shared, "M->S"),
        (ModifiedToModified, Modified, "M->M"),
        (Modified, Modified, "owned"),
    ] {
        let transition = Transition::between(word(before, &[1]), word(after, &[1]));
        assert_eq!(transition.name(), name, "{before:?} to {after:?}");
        assert_eq!(Transition::from_u8(transition as u8), Some(transition));
    }
    assert_eq!(Transition::from_u8(Transition::ALL.len() as u8), None);
}

#[test]
fn a_blade_that_is_gone_is_in_no_word() {
    use State::*;
    // c2 is gone; busy words have requester c9 unless they say c2.
    let busy_for = |state, requester, blades: &[u8]| {
        Word::new(state, c(requester), Episode::new(7), set(blades))
    };
    let invalid = word(Invalid, &[]);
    // Until memory is fenced against what the blade may still have sent.
    let without_owner = locked(Prior::Modified, &[]);
    for (before, expected) in [
        (word(Free, &[]), None),
        (word(Invalid, &[]), None),
        (word(Shared, &[3]), None),
        (word(Shared, &[2]), Some((invalid, Loss::Nothing))),
        (
            word(Shared, &[2, 3]),
            Some((word(Shared, &[3]), Loss::Nothing)),
        ),
        (word(Modified, &[3]), None),
        (word(Modified, &[2]), Some((without_owner, Loss::Writes))),
        (
            locked(Prior::Invalid, &[2, 3]),
            Some((locked(Prior::Invalid, &[3]), Loss::Nothing)),
        ),
        (
            locked(Prior::Shared, &[2, 3]),
            Some((locked(Prior::Shared, &[3]), Loss::Nothing)),
        ),
        (
            locked(Prior::Modified, &[2, 3]),
            Some((locked(Prior::Modified, &[3]), Loss::Writes)),
        ),
        (
            locked(Prior::Modified, &[2]),
            Some((without_owner, Loss::Writes)),
        ),
        (locked(Prior::Modified, &[3]), None),
        (locked(Prior::Lost, &[]), None),
        (busy_for(SharedToModified, 9, &[3]), None),
        (
            busy_for(SharedToModified, 9, &[2, 3]),
            Some((busy_for(SharedToModified, 9, &[3]), Loss::Nothing)),
        ),
        (
            busy_for(SharedToModified, 9, &[2]),
            Some((word(Modified, &[9]), Loss::Nothing)),
        ),
        (
            busy_for(SharedToModified, 2, &[3]),
            Some((word(Shared, &[3]), Loss::Nothing)),
        ),
        (
            busy_for(ModifiedToShared, 9, &[2]),
            Some((without_owner, Loss::Writes)),
        ),
        (
            busy_for(ModifiedToModified, 9, &[2]),
            Some((without_owner, Loss::Writes)),
        ),
        (
            busy_for(ModifiedToShared, 2, &[3]),
            Some((word(Modified, &[3]), Loss::Nothing)),
        ),
        (
            busy_for(ModifiedToModified, 2, &[3]),
            Some((word(Modified, &[3]), Loss::Nothing)),
        ),
        (busy_for(ModifiedToModified, 9, &[3]), None),
    ] {
        let outcome = on_loss(before, c(2)).map(|step| (step.next, step.verdict));
        assert_eq!(outcome, expected, "{before:?}");
        if let Some((after, _)) = outcome {
            assert_eq!(on_loss(after, c(2)), None, "{after:?}");
        }
    }
}
