//! Why only one of the two finds a bug.

use mind_common::mutant::Mutant;

/// Why only the model or only the simulator finds it; `None` where both do.
pub(crate) const fn of(mutant: Mutant) -> Option<&'static str> {
    Some(match mutant {
        Mutant::OldAnswersCount => {
            "with one slot the model forgets answers to earlier invalidations, as episodes do not come \
             back; with two it repeats no packet long enough"
        }
        Mutant::AnyonesAnswerCounts => {
            "takes an answer of before a split that finds its number come back in the other slot, five \
             faults later: deeper than the model's search comes"
        }
        Mutant::RequesterNotMissed => {
            "blades that wait appeal to the controller, which resets the region: they wait for longer \
             and go on"
        }
        Mutant::NumberUsedAgain => {
            "takes an answer that is late for a whole request; the model forgets answers that nobody \
             waits for, as numbers do not come back"
        }
        Mutant::DeniedToLater => "in the model nobody is given a right that it did not have",
        Mutant::WriteStoredTwice | Mutant::PagesNotFenced => {
            "takes a write-back that is on its way to memory when its blade's departure is dealt with: \
             milliseconds, where the simulator's packets take microseconds"
        }
        Mutant::OperatedTwice | Mutant::BladeNotFenced => {
            "the simulator's programs have no atomic operations carried out in memory"
        }
        _ => return None,
    })
}
