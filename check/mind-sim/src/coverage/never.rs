//! What cannot happen, and why. The tests fail if it does.

use mind_common::{
    directory::{Prior, State},
    refusal::Refusal,
};
use mind_machines::compute::page::{Event, Phase};

use super::{Happening, Kind, Pair};

/// Why it never happens, if it cannot.
pub(super) fn why(pair: Pair) -> Option<&'static str> {
    match pair {
        Pair::Word(kind, happening) => of_word(kind, happening),
        Pair::Page(phase, event) => of_page(phase, event.kind()),
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
        (Free, ListedGone | RequesterGone | Taken) => "it is nobody's",
        (Invalid | Shared | Modified | Locked, Counted | Complete) => {
            "no invalidation is under way"
        }
        (ModifiedToShared | ModifiedToModified, Counted) => "there is one owner to answer",
        (Invalid | Shared | SharedToModified, WriteBack) => "it has no owner",
        (Locked, WriteBack) if kind.prior() != Some(Prior::Modified) => "it has no owner",
        (Invalid, ListedGone) => "it lists nobody",
        (Locked, ListedGone) if kind.prior() == Some(Prior::Invalid) => "it lists nobody",
        (Invalid | Shared | Modified | Locked, RequesterGone) => "nobody waits for it",
        (Locked, Taken) => "the controller has it, and does one thing after the other",
        (
            Invalid | Shared | Modified | SharedToModified | ModifiedToShared | ModifiedToModified,
            Given,
        ) => "the controller gives back what it holds",
        _ => return None,
    })
}

fn of_page(phase: Phase, event: Event) -> Option<&'static str> {
    use Phase::{Absent, Acquiring, Cleaning, Leaving, Modified, Reading, Shared, Upgrading};
    Some(match (phase, event) {
        (
            Absent | Shared | Modified | Cleaning { .. } | Leaving,
            Event::Data(_) | Event::Granted | Event::Refused(_),
        ) => "no request is under way; an answer to an earlier one is not looked at",
        (
            Absent | Reading | Acquiring | Shared | Upgrading | Modified | Leaving,
            Event::Stored | Event::NotStored(_),
        ) => "no write-back is under way; an answer to an earlier one is not looked at",
        (Reading | Acquiring, Event::Granted) => "only an upgrade is granted without the page",
        (Reading | Acquiring, Event::Refused(Refusal::NoCopy)) => {
            "only an upgrade is refused for want of a copy"
        }
        (Upgrading, Event::Refused(Refusal::NoCopy)) => {
            "who has a copy is listed until it has answered, and it does not answer before its \
             upgrade is over"
        }
        (Absent | Reading | Acquiring | Upgrading | Cleaning { .. } | Leaving, Event::Evict) => {
            "what goes to make room is shared or modified"
        }
        (Cleaning { .. }, Event::NotStored(Refusal::Unreachable)) => {
            "memory blades stay as long as a run"
        }
        (Cleaning { .. }, Event::NotStored(Refusal::Stale)) => {
            "whom the switch listens to owns what it writes back, and memory is fenced only \
             against those that it does not"
        }
        (
            Cleaning { .. } | Leaving,
            Event::Invalidate {
                residency_over: false,
                ..
            },
        ) => "only what was here for long enough is written back",
        (Acquiring | Upgrading | Modified | Cleaning { .. }, Event::Answered { .. }) => {
            "it owes what an invalidation asks, which is not answered before it is given"
        }
        _ => return None,
    })
}
