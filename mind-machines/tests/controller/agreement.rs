//! Each way in which controller and switch can disagree is found, and none where they agree.

use mind_api::message::OnLoss;
use mind_common::{
    addr::Va,
    directory::{Prior, State, Want},
    id::{BladeSet, DomainId},
    table::{MAY_READ, Permission},
};
use mind_machines::{
    Node,
    agreement::{Disagreement, disagreement},
};

use super::world::{World, blade};

/// Eight pages of a domain, of which the first region is shared by two blades.
fn shared() -> (World, Va) {
    let (mut world, va) = World::with_memory(8, OnLoss::LastWritten);
    for number in 0..2 {
        world.request(number, Want::Read, va);
    }
    world.check();
    (world, va)
}

fn found(spoil: impl FnOnce(&mut World, Va)) -> Disagreement {
    let (mut world, va) = shared();
    spoil(&mut world, va);
    disagreement(&world.controller, &world.switch).expect("they disagree")
}

fn slot_of(world: &World, va: Va) -> usize {
    world.switch.tables().slot(va).expect("it has a slot")
}

#[test]
fn an_entry_that_is_missing_too_much_or_says_something_else_is_found() {
    let missing = found(|world, _| {
        world.switch.tables_mut().memory.clear();
    });
    assert!(
        matches!(missing, Disagreement::Entry { found: None, .. }),
        "{missing}"
    );
    let extra = found(|world, _| world.switch.place(DomainId(7), BladeSet::only(blade(0))));
    assert!(
        matches!(extra, Disagreement::Entry { wanted: None, .. }),
        "{extra}"
    );
    let other = found(|world, _| {
        let mut entries = world.switch.tables_mut().protection.values_mut();
        *entries.next().expect("an entry") = Permission { bits: MAY_READ };
    });
    let is_other = |it: &Disagreement| {
        matches!(
            it,
            Disagreement::Entry {
                wanted: Some(_),
                found: Some(_),
                ..
            }
        )
    };
    assert!(is_other(&other), "{other}");
    let port = found(|world, _| {
        let tables = world.switch.tables_mut();
        let other = tables.ports[&Node::Compute(blade(1))];
        tables.ports.insert(Node::Compute(blade(0)), other);
    });
    assert!(is_other(&port), "{port}");
}

#[test]
fn a_slot_that_covers_no_region_of_a_vma_is_found() {
    let stray = found(|world, va| {
        let slot = slot_of(world, va);
        let far = Va(va.0 + (64 << 12));
        let region = mind_common::addr::Region::containing(far, 2);
        world.switch.slot_mut(slot).expect("it is there").region = region;
    });
    assert!(matches!(stray, Disagreement::Stray { .. }), "{stray}");
}

#[test]
fn pages_that_find_no_slot_or_one_that_does_not_cover_them_are_found() {
    let elsewhere = found(|world, va| {
        world.switch.tables_mut().pages.remove(&va);
    });
    assert!(
        matches!(elsewhere, Disagreement::Elsewhere { found: None, .. }),
        "{elsewhere}"
    );
    let uncovered = found(|world, va| {
        let slot = slot_of(world, va);
        let beyond = Va(va.0 + (8 << 12));
        world.switch.tables_mut().pages.insert(beyond, slot);
    });
    assert!(
        matches!(uncovered, Disagreement::Uncovered { .. }),
        "{uncovered}"
    );
}

#[test]
fn a_word_that_is_locked_or_names_a_blade_that_is_gone_is_found() {
    let word = |state, blades| {
        found(move |world, va| {
            let slot = slot_of(world, va);
            let slot = world.switch.slot_mut(slot).expect("it is there");
            slot.word = match state {
                State::Locked => slot.word.locked(Prior::Shared, blades),
                state => slot.word.settled(state, blades),
            };
        })
    };
    let locked = word(State::Locked, BladeSet::only(blade(0)));
    assert!(matches!(locked, Disagreement::Locked { .. }), "{locked}");
    let gone = word(State::Modified, BladeSet::only(blade(7)));
    assert!(
        matches!(gone, Disagreement::Gone { blade: of, .. } if of == blade(7)),
        "{gone}"
    );
}

#[test]
fn a_slot_that_is_neither_in_use_nor_free_is_found() {
    let lost = found(|world, va| {
        let index = slot_of(world, va);
        let slot = world.switch.slot_mut(index).expect("it is there");
        slot.word = slot.word.settled(State::Free, BladeSet::EMPTY);
    });
    assert!(matches!(lost, Disagreement::Slots { .. }), "{lost}");
}

#[test]
fn nothing_is_found_while_the_controller_has_something_to_do() {
    let (mut world, va) = shared();
    world.begin_operating(mind_api::message::Request::ChangeRegion {
        va: va.0,
        change: mind_api::message::RegionChange::Reset,
    });
    world.switch.tables_mut().pages.clear();
    assert_eq!(disagreement(&world.controller, &world.switch), None);
}
