//! Wrong decisions: each function changes what a pure function of the protocol decided, as the
//! active bug would.

use super::Mutant;
use crate::compute::page::{Event, Page, Phase, Reaction, Reactions};
use mind_common::{
    directory::{
        Admission, Answer, AnswerVerdict, Request, RequestVerdict, State, Want, Word,
        machine::{Loss, Step, on_answer},
    },
    id::BladeSet,
    refusal::Refusal,
};

/// [`admit`](mind_common::directory::admit)'s decision on a request, with the active bug.
pub fn admitted(word: Word, request: Request, right: Admission) -> Admission {
    let alone = BladeSet::only(request.from);
    let decided = |next, verdict| Admission {
        next,
        verdict,
        ..right
    };
    let is_shared = word.state() == State::Shared;
    match right.verdict {
        RequestVerdict::Fetch
            if Mutant::SharersForgotten.is_active() && is_shared && request.want == Want::Read =>
        {
            decided(word.settled(State::Shared, alone), right.verdict)
        }
        RequestVerdict::Invalidate(invalidations) if !invalidations.repeated => {
            if Mutant::WriterNotAlone.is_active() && is_shared {
                let verdict = match request.want {
                    Want::Upgrade => RequestVerdict::Grant,
                    Want::Read | Want::Acquire => RequestVerdict::Fetch,
                };
                return decided(word.settled(State::Modified, alone), verdict);
            }
            if Mutant::OwnerNotAsked.is_active() && request.want == Want::Read {
                let both = word.blades().with(request.from);
                return decided(word.settled(State::Shared, both), RequestVerdict::Fetch);
            }
            if Mutant::EpisodeStays.is_active() {
                let (next, episode) = (right.next, word.episode());
                let next = Word::new(next.state(), next.requester(), episode, next.blades());
                let invalidations = mind_common::directory::Invalidations {
                    episode,
                    ..invalidations
                };
                return decided(next, RequestVerdict::Invalidate(invalidations));
            }
            right
        }
        RequestVerdict::Refuse(Refusal::NoCopy) if Mutant::CopyNotChecked.is_active() => {
            decided(word.settled(State::Modified, alone), RequestVerdict::Grant)
        }
        _ => right,
    }
}

/// [`on_answer`]'s decision, with the active bug.
pub fn answered(
    slot: u32,
    word: Word,
    answer: Answer,
    right: Step<AnswerVerdict>,
) -> Step<AnswerVerdict> {
    match right.verdict {
        AnswerVerdict::Stale if Mutant::OldAnswersCount.is_active() => {
            let episode = word.episode();
            let requester = word.requester();
            let answer = Answer {
                episode,
                requester,
                ..answer
            };
            on_answer(slot, word, answer)
        }
        AnswerVerdict::Stale if Mutant::AnySlotsAnswerCounts.is_active() => {
            on_answer(slot, word, Answer { slot, ..answer })
        }
        AnswerVerdict::Counted if Mutant::BusyClearedEarly.is_active() => {
            let only = word.with_blades(BladeSet::only(answer.from));
            on_answer(slot, only, answer)
        }
        AnswerVerdict::Complete
            if Mutant::PastOwnerForgotten.is_active()
                && word.state() == State::ModifiedToShared =>
        {
            let alone = BladeSet::only(answer.requester);
            Step {
                next: right.next.with_blades(alone),
                ..right
            }
        }
        _ => right,
    }
}

/// [`on_loss`](mind_common::directory::machine::on_loss)'s decision, with the active bug.
pub fn lost(word: Word, right: Option<Step<Loss>>) -> Option<Step<Loss>> {
    let step = right?;
    if Mutant::LostOwnerNotMarked.is_active() && step.verdict == Loss::Writes {
        return Some(Step {
            next: word.settled(State::Invalid, BladeSet::EMPTY),
            verdict: Loss::Nothing,
        });
    }
    if Mutant::LostRequesterKept.is_active()
        && word.state().is_busy()
        && step.verdict == Loss::Nothing
        && !step.next.state().is_busy()
    {
        return None;
    }
    right
}

/// [`step`](crate::compute::page::step)'s decision on a page, with the active bug.
pub fn stepped(
    before: Page,
    event: Event,
    (after, reactions): (Page, Reactions),
) -> (Page, Reactions) {
    let is_invalidated = matches!(event, Event::Invalidate { .. });
    let is_asking = matches!(
        before.phase,
        Phase::Reading | Phase::Acquiring | Phase::Upgrading
    );
    if Mutant::InvalidationForgotten.is_active() && is_invalidated && is_asking {
        let after = Page {
            owed: None,
            ..after
        };
        return (after, reactions);
    }
    if Mutant::WrittenWhileCleaned.is_active() {
        return (after, without(reactions, Reaction::Protect));
    }
    if Mutant::CopyKept.is_active() && is_invalidated {
        return (after, without(reactions, Reaction::Drop));
    }
    if Mutant::DirtyDropped.is_active() && event == Event::Evict && before.phase == Phase::Modified
    {
        let after = Page {
            phase: Phase::Absent,
            ..before
        };
        return (after, just(Reaction::Drop));
    }
    if Mutant::BusyNotGivenUp.is_active() && is_asking && event == Event::Refused(Refusal::Busy) {
        return (before, just(Reaction::Retry));
    }
    (after, reactions)
}

fn just(reaction: Reaction) -> Reactions {
    [reaction].into_iter().collect()
}

fn without(reactions: Reactions, missing: Reaction) -> Reactions {
    let rest = reactions.iter().filter(|reaction| *reaction != missing);
    rest.collect()
}
