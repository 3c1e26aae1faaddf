//! Bugs that the model or the simulator finds within a second or two; and without a bug, neither
//! finds anything.

use mind_machines::mutant::Mutant;

use crate::detection::{Settings, by_model, by_simulator};

/// Enough of the simplest setting of the model.
const STATES: usize = 20_000;
/// Three times what the slowest of them takes.
const SEEDS: u64 = 240;

const BY_MODEL: [Mutant; 9] = [
    Mutant::SharersForgotten,
    Mutant::WriterNotAlone,
    Mutant::OwnerNotAsked,
    Mutant::PastOwnerForgotten,
    Mutant::AnsweredBeforeStored,
    Mutant::InvalidationForgotten,
    Mutant::WrittenWhileCleaned,
    Mutant::CopyKept,
    Mutant::SameVersionWritten,
];

const BY_SIMULATOR: [Mutant; 11] = [
    Mutant::AnySlotsAnswerCounts,
    Mutant::BusyClearedEarly,
    Mutant::EpisodeStays,
    Mutant::DomainNotChecked,
    Mutant::OldWriteStored,
    Mutant::LostOwnerNotMarked,
    Mutant::FlushNotAwaited,
    Mutant::SplitForgetsSharers,
    Mutant::MergeForgetsSharers,
    Mutant::DirtyDropped,
    Mutant::NumberUsedAgain,
];

// One test, for a bug is active in the whole process.
#[test]
fn bugs_are_found_at_once_and_nothing_without_them() {
    const SETTING: &str = "two blades share a page without end";

    let detected = by_model(Settings::Quick, SETTING, STATES).or_else(|| by_simulator(SEEDS));
    assert!(
        detected.is_none(),
        "without a bug: {}",
        text(detected.as_ref())
    );
    for mutant in BY_MODEL {
        Mutant::activate(Some(mutant));
        let detected = by_model(Settings::Quick, SETTING, STATES);
        assert!(detected.is_some(), "the model does not find {mutant:?}");
    }
    for mutant in BY_SIMULATOR {
        Mutant::activate(Some(mutant));
        let detected = by_simulator(SEEDS);
        assert!(detected.is_some(), "the simulator does not find {mutant:?}");
    }
    Mutant::activate(None);
}

fn text(detected: Option<&crate::detection::Detection>) -> String {
    detected.map_or_else(String::new, ToString::to_string)
}
