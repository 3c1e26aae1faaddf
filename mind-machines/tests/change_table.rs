//! The controller's changes of regions, among everything that packets and the loss of blades can do
//! between any two of its steps: all interleavings of a few such events, and random ones of many.

mod changes;

use changes::{Ending, Event, Setup, explore};
use mind_common::{
    directory::{Prior, State, Want, Word, machine::Loss},
    id::BladeSet,
};
use mind_machines::controller::procedure::{Change, Outcome};
use proptest::prelude::*;

const CHANGES: [Change; 6] = [
    Change::Reset,
    Change::Free,
    Change::Reclaim,
    Change::Split,
    Change::Merge,
    Change::MarkLost,
];

/// Every way that a change can go with so many events of others in between, from each of these
/// words; [`Setup`] checks what holds after every step.
#[test]
fn a_change_is_right_and_ends_whatever_else_happens() {
    for change in CHANGES {
        let mut endings = std::collections::HashSet::new();
        for setup in Setup::all(change) {
            if change == Change::Reset {
                endings.extend(explore(setup.clone().for_stuck(), 3));
            }
            endings.extend(explore(setup, 3));
        }
        // It can succeed, with and without a loss, and it can find nothing to do.
        let with_loss = endings.contains(&Outcome::Changed(Loss::Writes));
        assert_eq!(with_loss, change != Change::Reclaim, "{change:?}");
        assert!(endings.contains(&Outcome::Nothing), "{change:?}");
        let without_loss = endings.contains(&Outcome::Changed(Loss::Nothing));
        assert_eq!(without_loss, change != Change::MarkLost, "{change:?}");
        let left = endings.contains(&Outcome::LeftAlone);
        assert_eq!(left, change.is_of_two(), "{change:?}");
    }
}

proptest! {
    #[test]
    fn nor_do_many_events_make_it_wrong(
        change in prop::sample::select(&CHANGES[..]),
        start in 0usize..1000,
        fails: bool,
        reported: bool,
        events in prop::collection::vec((any::<u16>(), 0u8..4), 0..200),
    ) {
        let scenes: Vec<_> = Setup::all(change).collect();
        let mut setup = scenes[start % scenes.len()].clone();
        if reported && change == Change::Reset {
            setup = setup.for_stuck();
        }
        if fails {
            setup = setup.failing_on_loss();
        }
        for (choice, steps) in events {
            let possible = setup.events();
            if !possible.is_empty() {
                setup.happen(possible[choice as usize % possible.len()]);
            }
            for _ in 0..steps {
                setup.step();
            }
        }
        setup.finish();
    }
}

fn settled(state: State, blades: &[u8]) -> Word {
    changes::word(state, blades)
}

#[test]
fn a_reset_leaves_no_copies_and_a_later_episode() {
    for (state, blades) in [
        (State::Invalid, &[][..]),
        (State::Shared, &[0, 2]),
        (State::Modified, &[1]),
    ] {
        let mut setup = Setup::new(Change::Reset, settled(state, blades), Word::default());
        let asked = setup.run();
        assert_eq!(asked, changes::set(blades), "{state:?}");
        let word = setup.words[0];
        assert_eq!(
            (word.state(), word.blades()),
            (State::Invalid, BladeSet::EMPTY)
        );
        assert!(word.episode().is_after(settled(state, blades).episode()));
    }
}

#[test]
fn a_report_resets_what_is_stuck_and_nothing_else() {
    use State::*;
    for (state, blades) in [
        (Free, &[][..]),
        (Invalid, &[]),
        (Shared, &[1]),
        (Modified, &[1]),
    ] {
        let word = settled(state, blades);
        let mut setup = Setup::new(Change::Reset, word, Word::default()).for_stuck();
        setup.run();
        assert_eq!(setup.ending(), Ending::Over(Outcome::Nothing), "{word:?}");
        assert_eq!(setup.words[0], word);
    }
    for (state, blades, asked) in [
        (SharedToModified, &[1, 2][..], &[0, 1, 2][..]),
        (ModifiedToShared, &[1], &[1]),
        (ModifiedToModified, &[1], &[1]),
    ] {
        let word = settled(state, blades);
        let mut setup = Setup::new(Change::Reset, word, Word::default()).for_stuck();
        assert_eq!(setup.run(), changes::set(asked), "{word:?}");
        assert_eq!(setup.words[0].state(), Invalid);

        // Busy for another blade when it is looked at again: the region makes progress.
        let mut setup = Setup::new(Change::Reset, word, Word::default()).for_stuck();
        setup.step();
        for blade in blades {
            setup.happen(Event::Answer(0, changes::blade(*blade)));
        }
        for (blade, want) in [(1, Want::Acquire), (2, Want::Acquire)] {
            setup.happen(Event::Ask(0, changes::blade(blade), want));
        }
        assert!(setup.words[0].state().is_busy());
        setup.run();
        assert_eq!(setup.ending(), Ending::Over(Outcome::Nothing), "{word:?}");
    }
    // Locked without a change under way: the change that locked it was given up half way.
    let word = settled(Shared, &[1]).locked(Prior::Shared, changes::set(&[1]));
    let mut setup = Setup::new(Change::Reset, word, Word::default()).for_stuck();
    assert_eq!(setup.run(), changes::set(&[1]));
    assert_eq!(setup.words[0].state(), Invalid);
}

#[test]
fn a_region_that_a_blade_has_does_not_do_without_a_slot() {
    for (state, blades) in [(State::Shared, &[0, 2][..]), (State::Modified, &[1])] {
        let word = settled(state, blades);
        let mut setup = Setup::new(Change::Reclaim, word, Word::default());
        assert_eq!(setup.run(), BladeSet::EMPTY);
        assert_eq!(setup.ending(), Ending::Over(Outcome::Nothing));
        assert_eq!(setup.words[0], word);
    }
    let mut setup = Setup::new(
        Change::Reclaim,
        settled(State::Invalid, &[]),
        Word::default(),
    );
    assert_eq!(setup.run(), BladeSet::EMPTY);
    assert_eq!(setup.words[0].state(), State::Free);
}

#[test]
fn a_split_invalidates_no_copy() {
    for (state, blades) in [
        (State::Invalid, &[][..]),
        (State::Shared, &[0, 2]),
        (State::Modified, &[1]),
    ] {
        let mut setup = Setup::new(Change::Split, settled(state, blades), Word::default());
        assert_eq!(setup.run(), BladeSet::EMPTY);
        for word in setup.words {
            assert_eq!((word.state(), word.blades()), (state, changes::set(blades)));
        }
    }
}

#[test]
fn a_merge_invalidates_only_copies_that_conflict() {
    use State::*;
    for (lower, upper, asked, joined) in [
        (
            (Invalid, &[][..]),
            (Invalid, &[][..]),
            &[][..],
            (Invalid, &[][..]),
        ),
        ((Invalid, &[]), (Shared, &[1, 2]), &[], (Shared, &[1, 2])),
        ((Shared, &[0]), (Shared, &[1, 2]), &[], (Shared, &[0, 1, 2])),
        ((Shared, &[1]), (Modified, &[1]), &[], (Modified, &[1])),
        ((Modified, &[1]), (Modified, &[1]), &[], (Modified, &[1])),
        ((Modified, &[1]), (Invalid, &[]), &[], (Modified, &[1])),
        ((Modified, &[1]), (Modified, &[2]), &[1, 2], (Invalid, &[])),
        ((Shared, &[0, 1]), (Modified, &[1]), &[0, 1], (Invalid, &[])),
    ] {
        for (lower, upper) in [(lower, upper), (upper, lower)] {
            let words = (settled(lower.0, lower.1), settled(upper.0, upper.1));
            let mut setup = Setup::new(Change::Merge, words.0, words.1);
            assert_eq!(setup.run(), changes::set(asked), "{words:?}");
            let word = setup.words[0];
            assert_eq!(
                (word.state(), word.blades()),
                (joined.0, changes::set(joined.1)),
                "{words:?}"
            );
            assert_eq!(setup.words[1].state(), Free, "{words:?}");
        }
    }
}

#[test]
fn after_a_loss_a_domain_that_chose_failing_gets_nothing_of_the_region() {
    for fails in [false, true] {
        let mut setup = Setup::new(
            Change::MarkLost,
            settled(State::Modified, &[1]),
            Word::default(),
        );
        if fails {
            setup = setup.failing_on_loss();
        }
        setup.happen(Event::Lose(changes::blade(1)));
        assert_eq!(setup.run(), BladeSet::EMPTY);
        let word = setup.words[0];
        assert_eq!(setup.ending(), Ending::Over(Outcome::Changed(Loss::Writes)));
        match fails {
            true => assert_eq!(word.prior(), Some(Prior::Lost)),
            false => assert_eq!(word.state(), State::Invalid),
        }
        // Marking it lost again, or any other change, leaves it as it is.
        for change in CHANGES {
            let mut again = Setup::new(change, word, Word::default());
            again.run();
            let is_free = again.words[0].state() == State::Free;
            // What does not fail is a region that no blade has.
            let is_to_be_free = match change {
                Change::Free => true,
                Change::Reclaim => !fails,
                _ => false,
            };
            assert_eq!(is_free, is_to_be_free, "{change:?}");
            if fails && !is_free {
                assert_eq!(again.words[0], word, "{change:?}");
            }
        }
    }
}
