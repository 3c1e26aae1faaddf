//! The controller's changes of regions, among everything that packets and the loss of blades can do
//! between any two of its steps: all interleavings of a few such events, and random ones of many.

mod changes;

use changes::{Ending, Event, Scene, explore};
use mind_common::{
    directory::{Prior, State, Want, Word, machine::Loss},
    id::BladeSet,
};
use mind_machines::controller::procedure::{Change, Outcome};
use proptest::prelude::*;

const CHANGES: [Change; 5] = [
    Change::Reset,
    Change::Free,
    Change::Split,
    Change::Merge,
    Change::MarkLost,
];

/// Every way that a change can go with so many events of others in between, from each of these
/// words; what holds in every step is for [`Scene`] to check.
#[test]
fn a_change_is_right_and_ends_whatever_else_happens() {
    for change in CHANGES {
        let mut endings = std::collections::HashSet::new();
        for scene in Scene::all(change) {
            if change == Change::Reset {
                endings.extend(explore(scene.clone().for_stuck(), 3));
            }
            endings.extend(explore(scene, 3));
        }
        // It can succeed, with and without a loss, and it can find nothing to do.
        assert!(
            endings.contains(&Outcome::Changed(Loss::Writes)),
            "{change:?}"
        );
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
        appealed: bool,
        events in prop::collection::vec((any::<u16>(), 0u8..4), 0..200),
    ) {
        let scenes: Vec<_> = Scene::all(change).collect();
        let mut scene = scenes[start % scenes.len()].clone();
        if appealed && change == Change::Reset {
            scene = scene.for_stuck();
        }
        if fails {
            scene = scene.failing_on_loss();
        }
        for (choice, steps) in events {
            let possible = scene.events();
            if !possible.is_empty() {
                scene.happen(possible[choice as usize % possible.len()]);
            }
            for _ in 0..steps {
                scene.step();
            }
        }
        scene.finish();
    }
}

fn settled(state: State, blades: &[u8]) -> Word {
    changes::word(state, blades)
}

#[test]
fn a_reset_leaves_nobody_with_anything_and_a_later_episode() {
    for (state, blades) in [
        (State::Invalid, &[][..]),
        (State::Shared, &[0, 2]),
        (State::Modified, &[1]),
    ] {
        let mut scene = Scene::new(Change::Reset, settled(state, blades), Word::default());
        let asked = scene.run();
        assert_eq!(asked, changes::set(blades), "{state:?}");
        let word = scene.words[0];
        assert_eq!(
            (word.state(), word.blades()),
            (State::Invalid, BladeSet::EMPTY)
        );
        assert!(word.episode().is_after(settled(state, blades).episode()));
    }
}

#[test]
fn an_appeal_resets_what_is_stuck_and_nothing_else() {
    use State::*;
    for (state, blades) in [
        (Free, &[][..]),
        (Invalid, &[]),
        (Shared, &[1]),
        (Modified, &[1]),
    ] {
        let word = settled(state, blades);
        let mut scene = Scene::new(Change::Reset, word, Word::default()).for_stuck();
        scene.run();
        assert_eq!(scene.ending(), Ending::Over(Outcome::Nothing), "{word:?}");
        assert_eq!(scene.words[0], word);
    }
    for (state, blades, asked) in [
        (SharedToModified, &[1, 2][..], &[0, 1, 2][..]),
        (ModifiedToShared, &[1], &[1]),
        (ModifiedToModified, &[1], &[1]),
    ] {
        let word = settled(state, blades);
        let mut scene = Scene::new(Change::Reset, word, Word::default()).for_stuck();
        assert_eq!(scene.run(), changes::set(asked), "{word:?}");
        assert_eq!(scene.words[0].state(), Invalid);

        // Busy for somebody else when it is looked at again: it moves.
        let mut scene = Scene::new(Change::Reset, word, Word::default()).for_stuck();
        scene.step();
        for blade in blades {
            scene.happen(Event::Answer(0, changes::blade(*blade)));
        }
        for (blade, want) in [(1, Want::Acquire), (2, Want::Acquire)] {
            scene.happen(Event::Ask(0, changes::blade(blade), want));
        }
        assert!(scene.words[0].state().is_busy());
        scene.run();
        assert_eq!(scene.ending(), Ending::Over(Outcome::Nothing), "{word:?}");
    }
    // Locked, and nobody is changing it: what did was given up half way.
    let word = settled(Shared, &[1]).locked(Prior::Shared, changes::set(&[1]));
    let mut scene = Scene::new(Change::Reset, word, Word::default()).for_stuck();
    assert_eq!(scene.run(), changes::set(&[1]));
    assert_eq!(scene.words[0].state(), Invalid);
}

#[test]
fn a_split_disturbs_nobody() {
    for (state, blades) in [
        (State::Invalid, &[][..]),
        (State::Shared, &[0, 2]),
        (State::Modified, &[1]),
    ] {
        let mut scene = Scene::new(Change::Split, settled(state, blades), Word::default());
        assert_eq!(scene.run(), BladeSet::EMPTY);
        for word in scene.words {
            assert_eq!((word.state(), word.blades()), (state, changes::set(blades)));
        }
    }
}

#[test]
fn a_merge_disturbs_those_only_whose_copies_do_not_go_together() {
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
            let mut scene = Scene::new(Change::Merge, words.0, words.1);
            assert_eq!(scene.run(), changes::set(asked), "{words:?}");
            let word = scene.words[0];
            assert_eq!(
                (word.state(), word.blades()),
                (joined.0, changes::set(joined.1)),
                "{words:?}"
            );
            assert_eq!(scene.words[1].state(), Free, "{words:?}");
        }
    }
}

#[test]
fn who_chose_to_be_told_of_a_loss_gets_nothing_of_the_region_any_more() {
    for fails in [false, true] {
        let mut scene = Scene::new(
            Change::MarkLost,
            settled(State::Modified, &[1]),
            Word::default(),
        );
        if fails {
            scene = scene.failing_on_loss();
        }
        scene.happen(Event::Lose(changes::blade(1)));
        assert_eq!(scene.run(), BladeSet::EMPTY);
        let word = scene.words[0];
        assert_eq!(scene.ending(), Ending::Over(Outcome::Changed(Loss::Writes)));
        match fails {
            true => assert_eq!(word.prior(), Some(Prior::Lost)),
            false => assert_eq!(word.state(), State::Invalid),
        }
        // A second mourning, or any other change, finds it as it is.
        for change in CHANGES {
            let mut again = Scene::new(change, word, Word::default());
            again.run();
            let is_free = again.words[0].state() == State::Free;
            assert_eq!(is_free, change == Change::Free, "{change:?}");
            if fails && !is_free {
                assert_eq!(again.words[0], word, "{change:?}");
            }
        }
    }
}
