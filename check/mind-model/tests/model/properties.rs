//! No property holds vacuously: runs come to states to which each property applies, and a state
//! that is broken in one respect fails the property about it.

use mind_common::permission::PermissionClass;
use mind_common::{
    directory::State,
    id::{BladeSet, DomainId},
};
use mind_model::{
    action::Action,
    liveness::walk,
    property::{
        Violation, acknowledged_is_kept, cache_agrees, controller_agrees, directory_agrees,
        is_quiet, latest_is_read, no_deadlock, nothing_wrong, rights_are_kept, single_writer,
    },
    settings::{FULL, QUICK},
    step::step,
    value::Age,
    world::{Copied, World},
};

type Holds = fn(&World) -> bool;

const RUNS: u64 = 40;

/// States that runs end in, after any number of steps.
fn states() -> impl Iterator<Item = World> {
    QUICK.iter().chain(FULL).flat_map(|named| {
        (0..RUNS).map(|seed| {
            let mut random = fastrand::Rng::with_seed(seed);
            let steps = random.usize(..80);
            walk(&named.setting, &mut random, steps)
        })
    })
}

fn copies(world: &World) -> Vec<Copied> {
    let hosts = world.hosts.iter().flatten();
    let copies = hosts.filter_map(|host| host.cache.first().copied());
    copies
        .filter(|copy| copy.mapping != PermissionClass::None)
        .collect()
}

fn is_owned(world: &World) -> bool {
    copies(world)
        .iter()
        .any(|copy| copy.mapping == PermissionClass::Write)
}

fn memory_is_latest(world: &World) -> bool {
    world.memory.page(0).data.age == Age::Latest
}

/// Breaks a state that is right; `false` if there is nothing in it to break.
type Spoil = fn(&mut World) -> bool;

/// Each property, and what breaks it.
const BROKEN: [(&str, Holds, Spoil); 9] = [
    ("another copy beside the writer's", single_writer, |world| {
        let number = world.hosts.len();
        let free = (0..number).find(|at| {
            let host = world.hosts[*at].as_ref();
            world.is_accepted(*at)
                && host.is_some_and(|host| host.cache[0].mapping == PermissionClass::None)
        });
        let heard = (0..number).filter(|at| world.is_accepted(*at));
        let is_owned = heard
            .filter_map(|at| world.hosts[at].as_ref())
            .any(|host| host.cache[0].mapping == PermissionClass::Write);
        if let (true, Some(at)) = (is_owned, free)
            && let Some(host) = &mut world.hosts[at]
        {
            host.cache[0] = Copied {
                mapping: PermissionClass::Read,
                age: Age::Latest,
            };
            return true;
        }
        false
    }),
    ("an old copy", latest_is_read, |world| {
        let at = (0..world.hosts.len()).find(|at| {
            let host = world.hosts[*at].as_ref();
            world.is_accepted(*at)
                && host.is_some_and(|host| host.cache[0].mapping != PermissionClass::None)
        });
        let host = at.and_then(|at| world.hosts[at].as_mut());
        host.map(|host| host.cache[0].age = Age::Old).is_some()
    }),
    ("an old page in memory", acknowledged_is_kept, |world| {
        let mut page = world.memory.page(0);
        page.data.age = Age::Old;
        world.memory.set_page(0, page);
        world.rights.is_mapped
    }),
    ("a copy that may not be had", rights_are_kept, |world| {
        let is_had = (0..world.hosts.len()).any(|at| {
            let host = world.hosts[at].as_ref();
            world.is_accepted(at)
                && host.is_some_and(|host| host.cache[0].mapping != PermissionClass::None)
        });
        world.rights.most = PermissionClass::None;
        is_had
    }),
    ("pages find no slot", controller_agrees, |world| {
        let is_mapped = !world.switch.tables().pages.is_empty();
        world.switch.tables_mut().pages.clear();
        is_mapped && world.controller.is_idle()
    }),
    ("no blade is listed", directory_agrees, |world| {
        let is_fit = is_quiet(world)
            && (0..world.hosts.len()).any(|at| {
                let host = world.hosts[at].as_ref();
                world.is_accepted(at)
                    && host.is_some_and(|host| host.cache[0].mapping != PermissionClass::None)
            });
        if let (true, Some(slot)) = (is_fit, world.switch.slot_mut(0)) {
            slot.word = slot.word.settled(State::Invalid, BladeSet::EMPTY);
            return true;
        }
        false
    }),
    ("a page is gone from a cache", cache_agrees, |world| {
        let mut caches = world
            .hosts
            .iter_mut()
            .flatten()
            .map(|host| &mut host.cache[0]);
        let copy = caches.find(|copy| copy.mapping != PermissionClass::None);
        copy.map(|copy| *copy = Copied::default()).is_some()
    }),
    ("a grant across domains", nothing_wrong, |world| {
        world.violation = Some(Violation::Granted(DomainId(2)));
        true
    }),
    ("the controller's messages are lost", no_deadlock, |world| {
        if !is_quiet(world) {
            return false;
        }
        world.budget.resets = 1;
        let mut next = step(world, &Action::Reset);
        while let Some(after) = next {
            *world = after;
            next = world.wanted().and_then(|_| step(world, &Action::Control));
        }
        !std::mem::take(&mut world.links).is_empty()
    }),
];

#[test]
fn a_state_that_is_wrong_in_one_thing_fails_the_property_that_is_about_it() {
    for (what, holds, spoil) in BROKEN {
        let mut broken = 0;
        for mut world in states() {
            assert!(holds(&world), "{what}: before");
            if spoil(&mut world) {
                assert!(!holds(&world), "{what}: must be seen in {world:#?}");
                broken += 1;
            }
        }
        println!("{what}: {broken} states");
        assert!(broken > 0, "{what}: no state had something to break");
    }
}

/// Each property without a part of its condition, or negated: random runs must reach a state in
/// which it fails.
const MUTATED: [(&str, Holds); 13] = [
    ("a page has one copy at most", |world| {
        copies(world).len() < 2
    }),
    ("no blade may write", |world| !is_owned(world)),
    ("no blade has a copy", |world| copies(world).is_empty()),
    ("memory always has the latest write", memory_is_latest),
    ("memory never has it while a blade may write", |world| {
        !is_owned(world) || !memory_is_latest(world)
    }),
    ("no blade has a copy when all is quiet", |world| {
        !is_quiet(world) || copies(world).is_empty()
    }),
    ("no region is busy", |world| {
        !world
            .switch
            .slots()
            .iter()
            .any(|slot| slot.word.state().is_busy())
    }),
    ("memory is always mapped", |world| world.rights.is_mapped),
    (
        "no blade has a copy of memory that was mapped later",
        |world| world.budget.maps == world.setting.budget.maps || copies(world).is_empty(),
    ),
    (
        "no blade has a copy of memory that may only be read",
        |world| world.rights.most != PermissionClass::Read || copies(world).is_empty(),
    ),
    ("no blade returns that was late", |world| {
        world.budget.overdue == world.setting.budget.overdue
            || world.budget.rejoins == world.setting.budget.rejoins
    }),
    ("something is always under way", |world| !is_quiet(world)),
    ("nothing is ever under way", is_quiet),
];

#[test]
fn properties_with_another_condition_do_not_hold() {
    for (what, holds) in MUTATED {
        let failing = states().filter(|world| !holds(world)).count();
        println!("{what}: fails in {failing} states");
        assert!(failing > 0, "{what}: must fail in some state");
    }
}
