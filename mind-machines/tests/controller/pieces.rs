//! Vmas that no memory blade has room for in one piece.

use std::collections::BTreeSet;

use mind_api::message::{OnLoss, Reply, Request};
use mind_common::{addr::Va, directory::Want, verdict::Verdict};
use mind_machines::{Node, controller::books::memory::Piece};

use crate::world::World;

/// More than the memory of one blade, and less than that of two.
const PAGES: u64 = 300;

const fn page(va: Va, number: u64) -> Va {
    Va(va.0 + (number << 12))
}

/// A vma in pieces on both memory blades, beside a small one.
fn world() -> (World, Va) {
    let (mut world, _) = World::with_memory(4, OnLoss::LastWritten);
    let va = world.map(0, 1, PAGES);
    (world, va)
}

fn pieces(world: &World, va: Va) -> Vec<Piece> {
    let vma = world.controller.books().domains.vma(va);
    vma.expect("it is mapped").pieces.clone()
}

/// Where the switch sends requests for the pages of the vma: memory blade and page there.
fn kept(world: &World, va: Va) -> BTreeSet<(u32, u64)> {
    let tables = world.switch.tables();
    let pages = (0..PAGES).map(|number| tables.location(page(va, number)).expect("it is kept"));
    pages
        .map(|kept| (kept.blade, kept.offset.0 >> 12))
        .collect()
}

#[test]
fn a_vma_that_is_larger_than_a_blade_is_kept_by_several() {
    let (mut world, va) = world();
    let memories = pieces(&world, va);
    let memories: BTreeSet<_> = memories.iter().map(|piece| piece.extent.blade).collect();
    assert_eq!(memories, [0, 1].into());
    // No two pages are kept in the same place, nor where the other vma is.
    assert_eq!(kept(&world, va).len() as u64, PAGES);
    assert!(!kept(&world, va).contains(&(0, 0)));
    for number in [0, 1, 255, 256, PAGES - 1] {
        assert_eq!(
            world.request(0, Want::Acquire, page(va, number)),
            Verdict::Fetch
        );
        let life = world.life(0);
        world.write_back(life, page(va, number), 1, number + 7);
        assert_eq!(world.in_memory(page(va, number)).data, number + 7);
    }
    world.check();

    assert_eq!(world.unmap(0, 1, va, PAGES), Ok(Reply::Done));
    assert_eq!(world.request(1, Want::Read, va), Verdict::Protected);
    world.run();
    world.check();
    // All of it is zeroed, and at home again.
    for number in 0..2 {
        let memory = &world.memories[&number];
        assert!((0..256).all(|page| memory.page(page).data == 0));
    }
    let again = world.map(0, 1, 256);
    assert!(pieces(&world, again)[0].is_home());
}

#[test]
fn a_controller_that_follows_knows_where_pieces_are() {
    let (mut world, va) = world();
    let (before, places) = (pieces(&world, va), kept(&world, va));
    world.die();
    world.run();
    assert_eq!(pieces(&world, va), before);
    assert_eq!(kept(&world, va), places);
    world.check();
    // The same while it waits to be zeroed: one of the blades comes back late, and empty.
    world.hang.insert(Node::Memory(1));
    assert_eq!(world.unmap(0, 1, va, PAGES), Ok(Reply::Done));
    world.die();
    world.run();
    let left: Vec<_> = world.controller.books().places.pieces().collect();
    assert!(!left.is_empty() && left.iter().all(|piece| piece.extent.blade == 1));
    world.check();
    world.hang.clear();
    world.register(Node::Memory(1));
    world.run();
    world.check();
    assert_eq!(world.controller.books().places.pieces().count(), 0);
}

#[test]
fn only_what_a_blade_that_is_gone_kept_is_lost() {
    let (mut world, va) = world();
    let all = pieces(&world, va);
    let (stays, goes) = match all[0].extent.blade {
        0 => (all[0], all[1]),
        _ => (all[1], all[0]),
    };
    for piece in [stays, goes] {
        assert_eq!(
            world.request(0, Want::Acquire, Va(piece.va)),
            Verdict::Fetch
        );
    }
    world.cut(Node::Memory(1));
    world.run();
    let sync = |piece: Piece| Request::Sync {
        domain: 1,
        va: piece.va,
        length: 1,
    };
    for returns in [false, true] {
        if returns {
            world.register(Node::Memory(1));
            world.run();
        }
        // Both have been touched, or have not.
        for at in [0, 1] {
            assert_eq!(
                world.request(1, Want::Read, page(Va(goes.va), 8 * at)),
                Verdict::Lost
            );
        }
        assert_ne!(
            world.request(1, Want::Read, page(Va(stays.va), 8)),
            Verdict::Lost
        );
        assert!(world.call(0, sync(goes)).is_err());
        assert_eq!(world.call(0, sync(stays)), Ok(Reply::Done));
        world.check();
    }
    assert_eq!(world.unmap(0, 1, va, PAGES), Ok(Reply::Done));
    world.run();
    world.check();
    assert_eq!(world.controller.books().places.pieces().count(), 0);
}

/// The controller dies after each of its acts while a vma in pieces is mapped and unmapped, and is followed.
#[test]
fn it_may_die_at_any_step() {
    for acts in 0..60 {
        let (mut world, _) = World::with_memory(4, OnLoss::LastWritten);
        world.acts_to_live = Some(acts);
        let va = world.map(0, 1, PAGES);
        assert_eq!(kept(&world, va).len() as u64, PAGES);
        assert_eq!(world.request(1, Want::Read, va), Verdict::Fetch);
        assert_eq!(world.unmap(0, 1, va, PAGES), Ok(Reply::Done));
        world.run();
        world.check();
        assert_eq!(world.controller.books().places.pieces().count(), 0);
    }
}
