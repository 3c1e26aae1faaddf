//! Which pairs are impossible, and why. The tests fail if one happens.

use mind_common::{
    directory::{Prior, State},
    refusal::Refusal,
};
use mind_machines::{
    compute::page::{Event, Phase},
    controller::phase::{self, Incident},
};

use super::{Happening, Kind, Pair};

/// Why the pair is impossible, if it is.
pub(super) fn why(pair: Pair) -> Option<&'static str> {
    match pair {
        Pair::Word(kind, happening) => of_word(kind, happening),
        Pair::Page(phase, event) => of_page(phase, event.kind()),
        Pair::Operation(phase, incident) => of_operation(phase, incident),
    }
}

fn of_word(kind: Kind, happening: Happening) -> Option<&'static str> {
    use Happening::{
        Complete, Counted, Given, LateWriteBack, ListedGone, Request, RequesterGone, Stale, Taken,
        WriteBack,
    };
    use State::{
        Free, Invalid, Locked, Modified, ModifiedToModified, ModifiedToShared, Shared,
        SharedToModified,
    };
    Some(match (kind.state(), happening) {
        (Free, Request(..) | Counted | Complete | Stale | WriteBack | LateWriteBack) => {
            "pages lead to a slot after it was opened, and no longer before it is freed; a packet \
             that looked up before finds it free only if it is held up within the switch"
        }
        (Free, ListedGone | RequesterGone | Taken) => "no region has it",
        (Invalid | Shared | Modified | Locked, Counted | Complete) => {
            "no invalidation is under way"
        }
        (ModifiedToShared | ModifiedToModified, Counted) => "there is one owner to answer",
        (Invalid | Shared | SharedToModified, WriteBack) => "it has no owner",
        (Locked, WriteBack) if kind.prior() != Some(Prior::Modified) => "it has no owner",
        (Invalid, ListedGone) => "it lists no blade",
        (Locked, ListedGone) if kind.prior() == Some(Prior::Invalid) => "it lists no blade",
        (Invalid | Shared | Modified | Locked, RequesterGone) => "no blade waits for it",
        (Locked, Taken) => "the controller has locked it, and makes one change after the other",
        (
            Invalid | Shared | Modified | SharedToModified | ModifiedToShared | ModifiedToModified,
            Given,
        ) => "the controller unlocks only what it has locked",
        _ => return None,
    })
}

fn of_page(phase: Phase, event: Event) -> Option<&'static str> {
    use Phase::{Absent, Acquiring, Cleaning, Leaving, Modified, Reading, Shared, Upgrading};
    Some(match (phase, event) {
        (
            Absent | Shared | Modified | Cleaning { .. } | Leaving,
            Event::Data(_) | Event::Granted | Event::Refused(_),
        ) => "no request is under way; an answer to an earlier one is ignored",
        (
            Absent | Reading | Acquiring | Shared | Upgrading | Modified | Leaving,
            Event::Stored | Event::NotStored(_),
        ) => "no write-back is under way; an answer to an earlier one is ignored",
        (Reading | Acquiring, Event::Granted) => "only an upgrade is granted without the page",
        (Reading | Acquiring, Event::Refused(Refusal::NoCopy)) => {
            "only an upgrade is refused for want of a copy"
        }
        (Upgrading, Event::Refused(Refusal::NoCopy)) => {
            "a blade with a copy is listed until it has answered, and it does not answer before its \
             upgrade is over"
        }
        (Absent | Reading | Acquiring | Upgrading | Cleaning { .. } | Leaving, Event::Evict) => {
            "a page that is evicted is shared or modified"
        }
        (
            Cleaning { .. } | Leaving,
            Event::Invalidate {
                residency_over: false,
                ..
            },
        ) => "only a page whose residency is over is written back",
        (Acquiring | Upgrading | Modified | Cleaning { .. }, Event::Answered { .. }) => {
            "it owes an invalidation, which is not answered before that is done"
        }
        _ => return None,
    })
}

fn of_operation(phase: phase::Phase, incident: Incident) -> Option<&'static str> {
    use phase::Phase::{
        Adapting, Awaiting, Clearing, Counting, Deciding, EndingProcesses, Exit, Exits, Fencing,
        FencingOperations, Finding, Finishing, Flushing, FlushingLost, Forgetting, FreeingNext,
        FreeingRegions, Giving, GivingUp, Installing, Joining, Losing, Mapping, MarkingLost,
        Reclaiming, Recording, Releasing, Replying, Syncing, TakingOver, Unbegun, Unmapped,
        Zeroing,
    };
    Some(match (phase, incident) {
        (
            Awaiting | Exit | Fencing | FencingOperations | Finishing | FreeingNext | GivingUp
            | Mapping | Releasing | Replying | Unmapped,
            _,
        ) => "it waits for nothing there",
        (
            Unbegun | Deciding | Flushing | EndingProcesses | MarkingLost | Zeroing | FlushingLost
            | Joining | Counting | Exits | Adapting,
            Incident::Done | Incident::NotDone,
        ) => "it has had nothing done there",
        (_, Incident::NotDone) => {
            "tables and records of the simulator take everything; the controller's own tests have \
             some that do not"
        }
        (
            Unbegun | Deciding | Installing | Recording | Giving | Clearing | Reclaiming
            | FreeingRegions | Syncing | Finding | Joining | Forgetting | MarkingLost | Losing
            | FlushingLost | TakingOver | Exits | Adapting,
            Incident::CarriedOut | Incident::NotCarriedOut | Incident::TooLate | Incident::CutOff,
        ) => "it has told no agent anything there",
        (EndingProcesses | Zeroing, Incident::TooLate) => {
            "a memory blade has as long as it takes, until it is gone"
        }
        (EndingProcesses, Incident::NotCarriedOut) => "a memory blade that is there carries it out",
        (
            Installing | Recording | Giving | Clearing | FreeingRegions | Flushing | Syncing
            | Finding | Forgetting | EndingProcesses | Losing | Counting,
            Incident::Over,
        ) => "it waits for no time and no other operation there",
        (
            Deciding | Clearing | Reclaiming | FreeingRegions | Flushing | Syncing | Forgetting
            | EndingProcesses | MarkingLost | Losing | Zeroing | FlushingLost | TakingOver | Exits
            | Adapting,
            Incident::NotAwaited,
        ) => "an agent asks for it, whose answer waits for it to come back, or nothing asks for it",
        _ => return None,
    })
}
