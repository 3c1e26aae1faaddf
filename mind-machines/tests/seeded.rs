//! Bugs seeded into the controller that only show when it dies, or in what it records: each is found by what must be so
//! whenever nothing is left to do, and nothing is found without them.

#[path = "controller/world.rs"]
#[allow(dead_code, reason = "the controller's tests use all of it")]
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use mind_api::message::{Access, OnLoss, Request};
use mind_common::{addr::Va, directory::Want, verdict::Verdict};
use mind_machines::{Node, mutant::Mutant};
use world::{World, blade};

const LENGTH: u64 = 8 << 12;

const MAP: Request = Request::Map {
    domain: 1,
    length: LENGTH,
    access: Access::Write,
};

/// Two blades share a region of memory of domain 1.
fn shared() -> (World, Va) {
    let (mut world, va) = World::with_memory(LENGTH >> 12, OnLoss::LastWritten);
    for number in 0..2 {
        assert_eq!(world.request(number, Want::Read, va), Verdict::Fetch);
    }
    (world, va)
}

/// Does something while the controller dies at each act in turn, and once not.
fn die_at_each_act(begin: impl Fn(&mut World, Va)) {
    for acts in 0.. {
        let (mut world, va) = shared();
        world.acts_to_live = Some(acts);
        begin(&mut world, va);
        world.run();
        let has_died = world.acts_to_live.is_none();
        world.check();
        if !has_died {
            return;
        }
    }
}

fn map_and_die() {
    die_at_each_act(|world, _| {
        world.ask(0, MAP);
    });
}

fn unmap_and_die() {
    die_at_each_act(|world, va| {
        let unmap = Request::Unmap {
            domain: 1,
            pid: 10,
            va: va.0,
            length: LENGTH,
        };
        world.ask(0, unmap);
    });
}

fn lose_a_blade_and_die() {
    die_at_each_act(|world, _| world.cut(Node::Compute(blade(0))));
}

fn map_twice_by_one_request() {
    let (mut world, _) = shared();
    let id = world.ask(0, MAP);
    world.run();
    let first = world.replies.remove(&id);
    world.ask_again(0, id);
    world.run();
    assert_eq!(world.replies.remove(&id), first);
    world.check();
}

/// Each bug, and what finds it.
const FOUND: [(Mutant, fn()); 5] = [
    (Mutant::AnsweredBeforeRecord, map_and_die),
    (Mutant::CarriedOutTwice, map_twice_by_one_request),
    (Mutant::DepartureNotRecorded, lose_a_blade_and_die),
    (Mutant::DepartureNotResumed, lose_a_blade_and_die),
    (Mutant::ClosingNotResumed, unmap_and_die),
];

// One test, for a bug is active in the whole process.
#[test]
fn bugs_that_show_when_the_controller_dies_are_found_and_nothing_without_them() {
    for (_, find) in FOUND {
        find();
    }
    for (mutant, find) in FOUND {
        Mutant::activate(Some(mutant));
        let found = catch_unwind(AssertUnwindSafe(find));
        Mutant::activate(None);
        assert!(found.is_err(), "{mutant:?} is not found");
    }
}
