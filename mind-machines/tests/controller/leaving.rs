//! Processes and blades that give up many vmas: part by part, with other operations in between, and also when the
//! controller dies between two parts.

use std::collections::BTreeSet;

use mind_api::{
    errno::Errno,
    message::{Access, OnLoss, Open, RegionChange, Reply, Request},
};
use mind_common::{addr::Va, directory::Want, id::DomainId, verdict::Verdict};
use mind_machines::{Node, controller::books::Answer};

use crate::world::{World, blade, page};

/// Vmas of a domain: several times as many as are given up at once.
const VMAS: usize = 19;

/// Domain 1 has that many vmas, and one process on each of some blades; blade 0 has a copy of one of each three.
fn with_vmas(blades: u8) -> (World, Vec<Va>) {
    let mut world = World::new();
    for number in 0..blades {
        assert_eq!(world.enter(number, "domain", OnLoss::LastWritten), 1);
    }
    let vmas: Vec<_> = (0..VMAS).map(|_| world.map(0, 1, 1)).collect();
    for va in vmas.iter().step_by(3) {
        assert_eq!(world.request(0, Want::Acquire, *va), Verdict::Fetch);
    }
    (world, vmas)
}

/// The same, of areas without names that the process of blade 0 has open, and every other one that of blade 1 as well.
fn with_areas() -> (World, Vec<Va>) {
    let mut world = World::new();
    for number in 0..2 {
        assert_eq!(world.enter(number, "domain", OnLoss::LastWritten), 1);
    }
    let mut areas = Vec::new();
    for area in 0..VMAS {
        let users: &[u8] = if area % 2 == 0 { &[0] } else { &[0, 1] };
        for number in users {
            let Ok(Reply::Mapped { va, .. }) = world.call(*number, open(*number, area, 1)) else {
                panic!("area {area} cannot be opened");
            };
            areas.push(Va(va));
        }
        let unlink = Request::UnlinkArea {
            domain: 1,
            name: area.to_string(),
        };
        assert_eq!(world.call(0, unlink), Ok(Reply::Done));
    }
    areas.dedup();
    (world, areas)
}

fn open(number: u8, area: usize, pages: u64) -> Request {
    Request::OpenArea {
        domain: 1,
        pid: i32::from(number) + 10,
        name: area.to_string(),
        length: pages << 12,
        access: Access::Write,
        open: Open::OrCreate,
    }
}

fn exit(number: u8) -> Request {
    Request::ExitProcess {
        domain: 1,
        pid: i32::from(number) + 10,
    }
}

/// Asks, and goes on up to the answer.
fn at_once(world: &mut World, number: u8, body: Request) -> Answer {
    let id = world.ask(number, body);
    while !world.replies.contains_key(&id) {
        assert!(world.step(), "it waits");
    }
    world.replies[&id].clone()
}

fn vmas(world: &World) -> usize {
    world.controller.books().domains.vmas_from(Va(0)).count()
}

/// Does something while the controller dies at each act in turn, and its successor after some more, and checks what is
/// left whenever all is over.
fn die_at_each_act(
    make: impl Fn() -> World,
    begin: impl Fn(&mut World) -> Vec<u64>,
    check: impl Fn(&World),
) {
    for next in [None, Some(2), Some(9)] {
        for acts in 0.. {
            let mut world = make();
            world.acts_to_live = Some(acts);
            world.next_acts_to_live = next;
            let asked = begin(&mut world);
            world.run();
            let has_died = match next {
                Some(_) => world.next_acts_to_live.is_none(),
                None => world.acts_to_live.is_none(),
            };
            for id in asked {
                assert_eq!(
                    world.replies.get(&id),
                    Some(&Ok(Reply::Done)),
                    "{acts}, {next:?}"
                );
            }
            check(&world);
            world.check();
            if !has_died {
                assert!(acts > 10, "there is more to do than {acts} acts");
                break;
            }
        }
    }
}

#[test]
fn all_vmas_of_a_domain_that_has_ended_go_whenever_the_controller_dies() {
    let make = || with_vmas(1).0;
    let begin = |world: &mut World| vec![world.ask(0, exit(0))];
    die_at_each_act(make, begin, |world| assert_eq!(vmas(world), 0));
}

#[test]
fn areas_that_only_a_process_had_open_go_with_it_whenever_the_controller_dies() {
    let make = || with_areas().0;
    let begin = |world: &mut World| vec![world.ask(0, exit(0))];
    die_at_each_act(make, begin, |world| {
        assert_eq!(vmas(world), VMAS / 2);
        let mut vmas = world.controller.books().domains.vmas_from(Va(0));
        assert!(vmas.all(|vma| vma.users.count() == 1));
    });
}

#[test]
fn what_processes_of_a_blade_had_goes_with_it_whenever_the_controller_dies() {
    let make = || {
        let (mut world, _) = with_vmas(1);
        for pid in 20..20 + VMAS as i32 {
            let enter = Request::EnterProcess {
                domain: "other".into(),
                pid,
                on_loss: None,
            };
            assert_eq!(world.call(0, enter), Ok(Reply::Entered { domain: 2 }));
        }
        world.map(0, 2, 1);
        world
    };
    let begin = |world: &mut World| {
        // It does not come back to the next controller.
        world.hang.insert(Node::Compute(blade(0)));
        world.cut(Node::Compute(blade(0)));
        Vec::new()
    };
    die_at_each_act(make, begin, |world| {
        assert_eq!(vmas(world), 0);
        assert_eq!(world.controller.books().domains.all().count(), 0);
    });
}

#[test]
fn a_domain_that_has_ended_is_of_no_use_while_its_vmas_go() {
    let (mut world, all) = with_vmas(2);
    for number in 0..2 {
        assert_eq!(at_once(&mut world, number, exit(number)), Ok(Reply::Done));
    }
    // Most of it is still there.
    let last = |world: &World| {
        let vmas = world.controller.books().domains.vmas_from(Va(0));
        let last = vmas.filter(|vma| !vma.is_closing).last();
        last.map(|vma| vma.va())
    };
    let left = last(&world).expect("a vma that is not closing");
    assert_eq!(world.request(1, Want::Read, left), Verdict::NotPlaced);
    let protect = Request::Protect {
        domain: 1,
        va: left.0,
        length: 1,
        access: Access::Read,
    };
    let refused = at_once(&mut world, 1, protect).unwrap_err();
    assert_eq!(refused.errno, Errno::ESRCH);
    let enter = Request::EnterProcess {
        domain: "domain".into(),
        pid: 12,
        on_loss: None,
    };
    // It is another domain.
    let entered = at_once(&mut world, 1, enter);
    assert_eq!(entered, Ok(Reply::Entered { domain: 2 }));
    assert_eq!(last(&world), Some(left));
    world.run();
    assert_eq!(vmas(&world), 0, "{all:?}");
    world.check();
}

#[test]
fn others_are_served_between_the_parts_of_what_is_given_up_and_no_part_is_long() {
    let (mut world, _) = with_vmas(1);
    assert_eq!(world.enter(1, "other", OnLoss::LastWritten), 2);
    let map = Request::Map {
        domain: 2,
        length: 1 << 12,
        access: Access::Write,
    };
    let Ok(Reply::Mapped { va, .. }) = at_once(&mut world, 1, map) else {
        panic!("it is not mapped");
    };
    assert_eq!(at_once(&mut world, 0, exit(0)), Ok(Reply::Done));
    let protect = |world: &mut World, access| {
        world.ask(
            1,
            Request::Protect {
                domain: 2,
                va,
                length: 1 << 12,
                access,
            },
        )
    };
    let (mut access, mut next) = (Access::Read, Access::Write);
    let mut asked = protect(&mut world, access);
    let mut left = Vec::new();
    loop {
        let longest = world.longest_record;
        assert!(
            longest <= 2 * world.config.batch,
            "{longest} records at once"
        );
        if !world.step() {
            break;
        }
        if world.replies.contains_key(&asked) && left.last() != Some(&0) {
            let vmas = world.controller.books().domains.vmas_from(Va(0));
            left.push(vmas.filter(|vma| vma.domain == 1).count());
            std::mem::swap(&mut access, &mut next);
            asked = protect(&mut world, access);
        }
    }
    assert!(left.is_sorted_by(|one, next| one >= next), "{left:?}");
    let between: BTreeSet<_> = left.iter().filter(|count| **count > 0).collect();
    assert!(between.len() >= 3, "{left:?}");
    world.run();
    world.check();
}

#[test]
fn a_process_with_the_number_of_one_that_is_giving_up_keeps_what_it_opens() {
    let (mut world, _) = with_areas();
    world.ask(0, exit(0));
    let enter = Request::EnterProcess {
        domain: "domain".into(),
        pid: 10,
        on_loss: None,
    };
    let entered = world.ask(0, enter);
    // Asked for at once, it is refused or it stays.
    let opened = world.ask(0, open(0, 99, 1));
    world.run();
    assert_eq!(world.replies[&entered], Ok(Reply::Entered { domain: 1 }));
    let refused = world.replies[&opened].clone().unwrap_err();
    assert_eq!(refused.errno, Errno::ESRCH);
    assert!(matches!(
        world.call(0, open(0, 99, 1)),
        Ok(Reply::Mapped { .. })
    ));
    let vmas: Vec<_> = world.controller.books().domains.vmas_from(Va(0)).collect();
    assert_eq!(vmas.len(), VMAS / 2 + 1);
    assert!(vmas.iter().all(|vma| vma.users.count() == 1));
    world.check();
}

#[test]
fn vmas_between_those_that_go_may_be_accessed_all_the_while() {
    let mut world = World::new();
    for number in 0..2 {
        assert_eq!(world.enter(number, "domain", OnLoss::LastWritten), 1);
    }
    // Neighbours have one entry of the protection table together, which is cut when some of them go.
    let mut stay = BTreeSet::new();
    for area in 0..8 {
        let users: &[u8] = if area / 2 % 2 == 0 { &[0] } else { &[0, 1] };
        for number in users {
            let Ok(Reply::Mapped { va, .. }) = world.call(*number, open(*number, area, 4)) else {
                panic!("area {area} cannot be opened");
            };
            stay.extend(users.contains(&1).then_some(va));
        }
        let unlink = Request::UnlinkArea {
            domain: 1,
            name: area.to_string(),
        };
        assert_eq!(world.call(0, unlink), Ok(Reply::Done));
    }
    let id = world.ask(0, exit(0));
    while world.step() {
        for va in &stay {
            let may = world.switch.tables().permission(DomainId(1), Va(*va));
            assert!(may.is_some(), "{} may not be accessed", Va(*va));
        }
    }
    world.run();
    assert_eq!(world.replies[&id], Ok(Reply::Done));
    assert_eq!(vmas(&world), stay.len());
}

#[test]
fn all_regions_of_a_small_vma_go_whenever_the_controller_dies() {
    let make = || {
        let (mut world, va) = World::with_memory(1, OnLoss::LastWritten);
        assert_eq!(world.request(0, Want::Acquire, va), Verdict::Fetch);
        // Of a region of four pages two are behind the vma's last.
        let split = Request::ChangeRegion {
            va: va.0,
            change: RegionChange::Split,
        };
        let reply = world.operate(split);
        assert!(reply.is_ok(), "{reply:?}");
        world
    };
    let begin = |world: &mut World| {
        let unmap = Request::Unmap {
            domain: 1,
            pid: 10,
            va: page(0).0,
            length: 1 << 12,
        };
        vec![world.ask(0, unmap)]
    };
    die_at_each_act(make, begin, |world| assert_eq!(vmas(world), 0));
}
