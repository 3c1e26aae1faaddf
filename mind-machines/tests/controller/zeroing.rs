//! Memory that was freed is zeroed before it is used again.

use mind_api::{
    errno::Errno,
    message::{Access, OnLoss, Reply, Request},
};
use mind_common::{addr::Va, directory::Want, verdict::Verdict};
use mind_machines::Node;

use crate::world::{World, host};

#[test]
fn memory_that_was_freed_is_zeros_before_it_is_given_out_again() {
    let (mut world, va) = World::with_memory(1, OnLoss::LastWritten);
    assert_eq!(world.request(0, Want::Acquire, va), Verdict::Fetch);
    let life = world.life(0);
    let version = world.in_memory(va).version.next().get();
    assert_eq!(
        world.write_back(life, va, version, 7),
        Some(Verdict::Stored)
    );
    world.hang.insert(Node::Memory(va.slice().unwrap()));
    assert_eq!(world.unmap(0, 1, va, 1), Ok(Reply::Done));
    // All that there is, but for what is not zeroed yet.
    let other = world.map(0, 1, 256);
    let id = world.ask(
        0,
        Request::Map {
            domain: 1,
            length: 256 << 12,
            access: Access::Write,
        },
    );
    world.run();
    assert!(!world.replies.contains_key(&id), "{:?}", world.replies[&id]);
    assert_eq!(world.in_memory(va).data, 7);
    world.wake(Node::Memory(va.slice().unwrap()));
    world.run();
    assert!(
        matches!(world.replies[&id], Ok(Reply::Mapped { .. })),
        "{:?}",
        world.replies[&id]
    );
    assert_eq!(world.in_memory(va).data, 0);
    assert_ne!(other.slice(), va.slice());
    world.check();
}

/// Two memory blades, of which the second has no page left, and all of the first's is freed and cannot be zeroed; a
/// request for memory waits for that.
fn waiting_for_zeros() -> (World, u64) {
    let (mut world, va) = World::with_memory(256, OnLoss::LastWritten);
    assert_ne!(world.map(0, 1, 256).slice(), va.slice());
    world.fail.insert(Node::Memory(va.slice().unwrap()));
    let unmap = Request::Unmap {
        domain: 1,
        pid: 10,
        va: va.0,
        length: 256 << 12,
    };
    let unmapped = world.ask(0, unmap);
    world.run_now();
    assert_eq!(world.replies[&unmapped], Ok(Reply::Done));
    let map = Request::Map {
        domain: 1,
        length: 4 << 12,
        access: Access::Write,
    };
    let id = world.ask(0, map);
    world.run_now();
    assert!(!world.replies.contains_key(&id));
    (world, id)
}

#[test]
fn a_memory_blade_that_could_not_zero_is_told_again() {
    let (mut world, id) = waiting_for_zeros();
    world.fail.clear();
    world.run();
    assert!(matches!(world.replies[&id], Ok(Reply::Mapped { .. })));
    world.check();
}

#[test]
fn memory_that_is_gone_with_its_blade_is_not_waited_for() {
    let (mut world, id) = waiting_for_zeros();
    let blade = *world.fail.first().unwrap();
    world.cut(blade);
    world.run();
    assert_eq!(world.replies[&id].clone().unwrap_err().errno, Errno::ENOMEM);
    world.check();
}

#[test]
fn a_request_that_waited_is_not_carried_out_for_a_blade_that_has_gone_meanwhile_and_come_back() {
    let (mut world, _) = waiting_for_zeros();
    world.cut(host(0));
    world.run_now();
    world.register(host(0));
    world.run_now();
    let enter = Request::EnterProcess {
        domain: "domain".into(),
        pid: 10,
        on_loss: None,
    };
    let entered = world.ask(0, enter);
    world.run_now();
    assert_eq!(world.replies[&entered], Ok(Reply::Entered { domain: 1 }));
    world.fail.clear();
    world.run();
    assert_eq!(world.controller.books().domains.vmas_from(Va(0)).count(), 1);
    world.check();
}
