//! Why only the model or only the simulator finds a bug.

use mind_machines::mutant::Mutant;

/// What looks for bugs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Finder {
    /// The search of the model's states.
    Model,
    /// The simulator's seeds.
    Simulator,
}

/// Why the other one does not find it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reason {
    /// Which one finds it.
    pub(crate) finder: Finder,
    /// Why the other one does not.
    pub(crate) sentence: &'static str,
}

/// Why only the model or only the simulator finds it; `None` where both do.
pub(crate) const fn of(mutant: Mutant) -> Option<Reason> {
    let (finder, sentence) = match mutant {
        Mutant::OldAnswersCount => (
            Finder::Simulator,
            "with one slot the model forgets answers to earlier invalidations, as episodes do not come \
             back; with two it repeats no packet long enough",
        ),
        Mutant::AnySlotsAnswerCounts => (
            Finder::Simulator,
            "takes an answer of before a split that finds its number come back in the other slot, five \
             faults later: deeper than the model's search comes",
        ),
        Mutant::NumberUsedAgain => (
            Finder::Simulator,
            "takes an answer that is late for a whole request; the model forgets answers that no request \
             waits for, as numbers do not come back",
        ),
        Mutant::DeniedToLater => (
            Finder::Simulator,
            "in the model no domain is given a permission that it did not have",
        ),
        Mutant::WriteStoredTwice | Mutant::PagesNotFenced => (
            Finder::Model,
            "takes a write-back that is on its way to memory when its blade's departure is handled: \
             milliseconds, where the simulator's packets take microseconds",
        ),
        Mutant::OperatedTwice | Mutant::BladeNotFenced => (
            Finder::Model,
            "the simulator's programs have no atomic operations carried out in memory",
        ),
        Mutant::AnsweredBeforeRecord
        | Mutant::DepartureNotRecorded
        | Mutant::DepartureNotResumed
        | Mutant::ClosingNotResumed
        | Mutant::OpenedWhileRepaired => (
            Finder::Simulator,
            "the model's controller does not die; mind-machines/tests/seeded.rs has it die at each act",
        ),
        Mutant::PacketsNotAwaited | Mutant::FreedOnce => (
            Finder::Simulator,
            "takes a packet that is held up between the tables and its word; the model's are handled in one \
             step",
        ),
        Mutant::LostStaysAllowed | Mutant::LostAfterGone => {
            (Finder::Simulator, "the model's memory blade does not crash")
        }
        Mutant::LossForgotten => (
            Finder::Simulator,
            "the model's slots are never few, so that regions which are lost keep theirs",
        ),
        Mutant::CarriedOutTwice => (
            Finder::Simulator,
            "the model's blades make no request twice; mind-machines/tests/seeded.rs does",
        ),
        _ => return None,
    };
    Some(Reason { finder, sentence })
}
