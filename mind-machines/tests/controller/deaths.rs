//! The controller dies at any act, and the next one goes on.

use mind_api::{
    errno::Errno,
    message::{Access, BladeKind, OnLoss, RegionChange, Reply, Request},
};
use mind_common::{addr::Va, directory::Want, verdict::Verdict};
use mind_machines::{Node, controller::Event, controller::books::records::Key};

use crate::world::{World, host};

/// What is done while a controller may die at any act.
type Scene = (&'static str, fn(&mut World, Va) -> Vec<u64>);

const SCENES: [Scene; 9] = [
    ("map", |world, _| {
        vec![world.ask(
            0,
            Request::Map {
                domain: 1,
                length: 9 << 12,
                access: Access::Write,
            },
        )]
    }),
    ("unmap", |world, va| {
        vec![world.ask(
            0,
            Request::Unmap {
                domain: 1,
                pid: 10,
                va: va.0,
                length: 8 << 12,
            },
        )]
    }),
    ("protect", |world, va| {
        vec![world.ask(
            0,
            Request::Protect {
                domain: 1,
                va: va.0 + 0x3000,
                length: 0x1000,
                access: Access::Read,
            },
        )]
    }),
    ("sync", |world, va| {
        vec![world.ask(
            0,
            Request::Sync {
                domain: 1,
                va: va.0,
                length: 8 << 12,
            },
        )]
    }),
    ("a process leaves", |world, _| {
        vec![world.ask(2, Request::ExitProcess { domain: 1, pid: 12 })]
    }),
    ("the last process leaves", |world, _| {
        (0..3)
            .map(|number| {
                let pid = i32::from(number) + 10;
                world.ask(number, Request::ExitProcess { domain: 1, pid })
            })
            .collect()
    }),
    ("a compute blade goes", |world, _| {
        world.cut(host(0));
        Vec::new()
    }),
    ("a memory blade goes", |world, va| {
        world.cut(Node::Memory(va.slice().unwrap()));
        Vec::new()
    }),
    ("a region is reported as stuck", |world, va| {
        world.hang.insert(host(0));
        vec![world.ask(1, Request::ReportStuck { va: va.0 })]
    }),
];

/// Three blades, the first of which owns a region that the second waits for, and shares another with it.
fn scene() -> (World, Va) {
    let (mut world, va) = World::with_memory(8, OnLoss::LastWritten);
    let second = Va(va.0 + 0x4000);
    assert_eq!(world.request(0, Want::Acquire, va), Verdict::Fetch);
    assert_eq!(world.request(1, Want::Read, va), Verdict::Invalidate);
    for number in 0..2 {
        assert_eq!(world.request(number, Want::Read, second), Verdict::Fetch);
    }
    (world, va)
}

#[test]
fn a_controller_may_die_at_any_act_and_the_next_one_goes_on() {
    for (name, begin) in SCENES {
        let mut deaths = 0;
        for acts in 0.. {
            let (mut world, va) = scene();
            world.acts_to_live = Some(acts);
            let asked = begin(&mut world, va);
            world.run();
            let has_died = world.acts_to_live.is_none();
            for id in asked {
                let answer = world.replies.get(&id);
                assert!(matches!(answer, Some(Ok(_))), "{name}, {acts}: {answer:?}");
            }
            assert!(world.controller.is_serving(), "{name}, {acts}");
            world.check();
            if !has_died {
                break;
            }
            deaths += 1;
        }
        assert!(deaths >= 2, "{name}: {deaths}");
    }
}

#[test]
fn the_next_one_may_die_as_well() {
    for (name, begin) in SCENES {
        for acts in 0.. {
            let mut has_died = false;
            for next in 0..8 {
                let (mut world, va) = scene();
                world.acts_to_live = Some(acts);
                world.next_acts_to_live = Some(next);
                let asked = begin(&mut world, va);
                world.run();
                has_died |= world.next_acts_to_live.is_none();
                for id in asked {
                    let answer = world.replies.get(&id);
                    assert!(
                        matches!(answer, Some(Ok(_))),
                        "{name}, {acts} and {next}: {answer:?}"
                    );
                }
                assert!(world.controller.is_serving(), "{name}, {acts} and {next}");
                world.check();
            }
            if !has_died {
                break;
            }
        }
    }
}

#[test]
fn a_vma_is_recorded_before_a_blade_can_have_copies_of_it() {
    let (mut world, _) = World::with_memory(4, OnLoss::LastWritten);
    let before = world.switch.tables().protection.len();
    let map = Request::Map {
        domain: 1,
        length: 12 << 12,
        access: Access::Write,
    };
    let id = world.ask(0, map);
    while world.switch.tables().protection.len() == before {
        assert!(world.step());
    }
    let is_vma = |key: &&Key| matches!(key, Key::Vma(_));
    assert_eq!(world.records.keys().filter(is_vma).count(), 2);
    world.run();
    assert!(matches!(world.replies[&id], Ok(Reply::Mapped { .. })));
    world.check();
}

#[test]
fn a_region_whose_vma_is_in_no_record_has_no_slot_after_a_takeover() {
    let (mut world, va) = World::with_memory(4, OnLoss::LastWritten);
    assert_eq!(world.request(0, Want::Read, va), Verdict::Fetch);
    assert!(world.switch.tables().slot(va).is_some());
    // As where the records are those of a day before.
    assert!(world.records.remove(&Key::Vma(va.0)).is_some());
    world.die();
    world.run();
    assert_eq!(world.switch.tables().slot(va), None);
    world.check();
}

#[test]
fn protection_is_answered_once_blades_have_fetched_anew_whenever_the_controller_dies() {
    for acts in 0.. {
        let (mut world, va) = World::with_memory(4, OnLoss::LastWritten);
        world.acts_to_live = Some(acts);
        let protect = Request::Protect {
            domain: 1,
            va: va.0,
            length: 4 << 12,
            access: Access::Read,
        };
        // Agents have not answered when the controller dies, and do so when the next one tells them.
        world.hang.extend([1, 2].map(host));
        let id = world.ask(0, protect);
        world.run_now();
        assert!(!world.replies.contains_key(&id), "{acts}");
        let has_died = world.acts_to_live.take().is_none();
        world.hang.clear();
        world.flushed.clear();
        world.die();
        world.run();
        assert_eq!(world.replies[&id], Ok(Reply::Done), "{acts}");
        assert!(world.flushed.contains(&host(1)), "{acts}");
        world.check();
        if !has_died {
            break;
        }
    }
}

#[test]
fn no_process_of_an_earlier_incarnation_is_left_whenever_the_controller_dies() {
    for acts in 0.. {
        let (mut world, _) = World::with_memory(4, OnLoss::LastWritten);
        world.acts_to_live = Some(acts);
        world.register(host(0));
        world.run();
        let has_died = world.acts_to_live.take().is_none();
        if has_died {
            world.register(host(0));
            world.run();
        }
        // It has the number of a process that ran there before.
        assert_eq!(world.enter(0, "domain", OnLoss::LastWritten), 1, "{acts}");
        world.check();
        if !has_died {
            break;
        }
    }
}

#[test]
fn a_compute_blade_that_does_not_come_back_is_gone_before_accesses_of_others_fail() {
    let (mut world, _) = World::with_memory(4, OnLoss::LastWritten);
    let memory = Node::Memory(1);
    let (missing, late) = (world.incarnation(host(0)), world.incarnation(memory));
    let missed = |world: &World| {
        let missed = world.events.iter().filter_map(|event| match event {
            Event::Missed(kind, _) => Some(*kind),
            _ => None,
        });
        missed.collect::<Vec<_>>()
    };
    world.hang.extend([host(0), memory]);
    world.die();
    let begin = world.now;
    world.run_now();
    world.now = begin + world.config.grace - 1;
    world.run_now();
    assert_eq!(missed(&world), []);
    world.now += 1;
    world.run_now();
    assert_eq!(missed(&world), [BladeKind::Compute]);
    let id = world.resume(host(0), missing);
    world.run_now();
    assert_eq!(world.replies[&id].as_ref().unwrap_err().errno, Errno::ESRCH);
    assert!(!world.controller.is_serving(), "a memory blade is awaited");
    world.hang.clear();
    world.resume(memory, late);
    world.run_now();
    assert!(world.controller.is_serving());
    assert_eq!(missed(&world), [BladeKind::Compute]);
    world.check();
}

#[test]
fn lost_writes_are_reported_whenever_the_controller_dies() {
    for acts in 0.. {
        let (mut world, va) = World::with_memory(4, OnLoss::LastWritten);
        assert_eq!(world.request(0, Want::Acquire, va), Verdict::Fetch);
        world.hang.insert(host(0));
        world.acts_to_live = Some(acts);
        world.cut(host(0));
        world.run();
        let is_told =
            |event: &Event| matches!(event, Event::Lost { region, .. } if region.contains(va));
        assert!(world.events.iter().any(is_told), "{acts}");
        let vma = world.controller.books().domains.vma_at(va).unwrap();
        assert!(vma.lost.is_some(), "{acts}");
        world.check();
        if world.acts_to_live.is_some() {
            break;
        }
    }
}

#[test]
fn regions_change_or_stay_whenever_the_controller_dies() {
    for (first, second) in [
        (RegionChange::Split, None),
        (RegionChange::Split, Some(RegionChange::Merge)),
    ] {
        for acts in 0.. {
            let (mut world, va) = scene();
            let change = |change| Request::ChangeRegion {
                va: va.0 + 0x4000,
                change,
            };
            let last = match second {
                Some(second) => {
                    assert!(world.operate(change(first)).is_ok());
                    second
                }
                None => first,
            };
            world.acts_to_live = Some(acts);
            world.begin_operating(change(last));
            world.run();
            let has_died = world.acts_to_live.is_none();
            world.unstick(va);
            world.check();
            if !has_died {
                break;
            }
        }
    }
}

#[test]
fn two_blades_may_go_at_any_point_of_any_operation() {
    for (name, begin) in SCENES {
        for acts in 0..200 {
            let (mut world, va) = scene();
            begin(&mut world, va);
            for _ in 0..acts {
                world.step();
            }
            world.cut(host(1));
            for _ in 0..3 {
                world.step();
            }
            world.cut(host(0));
            world.run();
            world.check();
            let _ = name;
        }
    }
}
