//! Blades that go, what is lost with them, and blades that do not answer.

use mind_api::{
    errno::Errno,
    message::{Access, OnLoss, RegionChange, Reply, Request},
};
use mind_common::{
    addr::Va,
    directory::{Prior, State, Want},
    serial::Version,
    verdict::Verdict,
};
use mind_machines::{
    Node,
    controller::Event,
    datagram::{Body, PageRequest},
};

use crate::world::{INVALID, World, host};

#[test]
fn what_a_blade_wrote_is_lost_with_it_and_its_late_write_back_refused() {
    for on_loss in [OnLoss::LastWritten, OnLoss::Fail] {
        let (mut world, va) = World::with_memory(4, on_loss);
        assert_eq!(world.request(0, Want::Acquire, va), Verdict::Fetch);
        let gone = world.life(0);
        let late = Body::Write {
            page: PageRequest {
                page: va,
                domain: mind_common::id::DomainId(1),
            },
            version: Version::new(world.in_memory(va).version.next().get()),
            data: 13,
        };
        // On its way to memory when the blade goes.
        let (to, late) = world.send(gone, late).sent[0];
        world.cut(host(0));
        world.run();
        let Node::Memory(number) = to else {
            panic!("{to:?} is no memory blade");
        };
        let (verdict, _) = world.memories.get_mut(&number).unwrap().handle(late);
        assert_ne!(verdict, Verdict::Stored);
        assert_eq!(world.in_memory(va).data, 0);
        let lost = world
            .events
            .iter()
            .filter(|event| matches!(event, Event::Lost { .. }));
        assert_eq!(lost.count(), 1);
        let lost = world
            .controller
            .books()
            .domains
            .vma_at(va)
            .and_then(|vma| vma.lost.clone());
        assert_eq!(
            lost.map(|lost| (lost.regions, lost.blade)),
            Some((1, "c0".to_owned()))
        );
        let (word, verdict) = match on_loss {
            OnLoss::Fail => ((State::Locked, Some(Prior::Lost), 0), Verdict::Lost),
            OnLoss::LastWritten => (INVALID, Verdict::Fetch),
        };
        assert_eq!(world.word_at(va), word);
        assert_eq!(world.request(1, Want::Read, va), verdict);
        let placed = world.switch.tables().grants[&mind_common::id::DomainId(1)];
        assert_eq!(placed.bits(), 0b110);
        world.check();
    }
}

#[test]
fn an_earlier_incarnation_is_not_listened_to() {
    let (mut world, va) = World::with_memory(4, OnLoss::LastWritten);
    let earlier = world.life(0);
    world.register(host(0));
    world.run();
    let later = world.life(0);
    assert_eq!(later.incarnation, earlier.incarnation + 1);
    assert_eq!(world.left, [host(0)]);
    assert_eq!(world.write_back(earlier, va, 7, 7), None);
    world.check();
}

#[test]
fn a_blade_that_does_not_flush_is_fenced() {
    let (mut world, va) = World::with_memory(4, OnLoss::LastWritten);
    assert_eq!(world.request(0, Want::Acquire, va), Verdict::Fetch);
    world.hang.insert(host(0));
    assert_eq!(world.request(1, Want::Read, va), Verdict::Invalidate);
    let before = world.now;
    assert_eq!(
        world.call(1, Request::ReportStuck { va: va.0 }),
        Ok(Reply::Done)
    );
    assert!(world.now >= before + world.config.stuck);
    assert_eq!(world.left, [host(0)]);
    assert_eq!(world.word_at(va), INVALID);
    assert_eq!(world.request(1, Want::Acquire, va), Verdict::Fetch);
    world.check();
}

#[test]
fn a_half_is_given_up_before_it_joins_one_of_which_writes_are_lost() {
    for on_loss in [OnLoss::LastWritten, OnLoss::Fail] {
        let (mut world, va) = World::with_memory(4, on_loss);
        let upper = Va(va.0 + 0x2000);
        let change = |change| Request::ChangeRegion { va: va.0, change };
        world.touch(va);
        world.operate(change(RegionChange::Split)).unwrap();
        assert_eq!(world.request(1, Want::Acquire, va), Verdict::Fetch);
        assert_eq!(world.request(2, Want::Acquire, upper), Verdict::Fetch);
        // The merge has claimed the halves when the loss is to be noted.
        world.begin_operating(change(RegionChange::Merge));
        world.cut(host(2));
        world.run();
        // Otherwise its write-back would come after memory has fenced its pages.
        assert_eq!(world.flushed, [host(1)]);
        let word = match on_loss {
            OnLoss::Fail => (State::Locked, Some(Prior::Lost), 0b10),
            OnLoss::LastWritten => INVALID,
        };
        assert_eq!([world.word_at(va), world.word_at(upper)], [word, word]);
        world.check();
    }
}

#[test]
fn writes_that_are_lost_while_halves_do_not_join_are_reported_and_the_other_half_not_fenced() {
    for on_loss in [OnLoss::LastWritten, OnLoss::Fail] {
        let (mut world, va) = World::with_memory(4, on_loss);
        let upper = Va(va.0 + 0x2000);
        let change = |change| Request::ChangeRegion { va: va.0, change };
        world.touch(va);
        world.operate(change(RegionChange::Split)).unwrap();
        assert_eq!(world.request(1, Want::Acquire, va), Verdict::Fetch);
        assert_eq!(world.request(0, Want::Acquire, upper), Verdict::Fetch);
        assert_eq!(world.request(2, Want::Read, upper), Verdict::Invalidate);
        let version = world.in_memory(upper).version;
        // The lower half is locked, and the upper one stays busy.
        world.begin_operating(change(RegionChange::Merge));
        world.run_now();
        assert_eq!(world.word_at(va).0, State::Locked);
        world.cut(host(1));
        world.run();
        let lost = world
            .events
            .iter()
            .filter(|event| matches!(event, Event::Lost { .. }));
        assert_eq!(lost.count(), 1);
        let word = match on_loss {
            OnLoss::Fail => (State::Locked, Some(Prior::Lost), 0),
            OnLoss::LastWritten => INVALID,
        };
        assert_eq!(world.word_at(va), word);
        assert_eq!(world.word_at(upper).0, State::ModifiedToShared);
        assert_eq!(world.in_memory(upper).version, version);
    }
}

#[test]
fn a_memory_blade_that_is_gone_takes_its_regions_along() {
    let (mut world, va) = World::with_memory(8, OnLoss::LastWritten);
    assert_eq!(world.request(0, Want::Acquire, va), Verdict::Fetch);
    let number = va.slice().unwrap();
    let other = world.map(0, 1, 8);
    assert_ne!(other.slice(), va.slice());
    world.cut(Node::Memory(number));
    world.run();
    assert_eq!(world.word_at(va), (State::Locked, Some(Prior::Lost), 0));
    // What blades have of it goes, too, and a refused write-back is no further loss.
    assert_eq!(world.flushed, [host(0), host(1), host(2)]);
    let lost = world.lost_regions(va);
    assert_eq!(
        world.call(0, Request::ReportLoss { va: va.0 }),
        Ok(Reply::Done)
    );
    assert_eq!(world.lost_regions(va), lost);
    assert_eq!(world.request(1, Want::Read, va), Verdict::Lost);
    assert_eq!(world.request(1, Want::Read, other), Verdict::Fetch);
    let sync = Request::Sync {
        domain: 1,
        va: va.0,
        length: 1,
    };
    assert_eq!(world.call(0, sync).unwrap_err().errno, Errno::EIO);
    world.check();
    // It comes back, empty, and does not make what was lost zeros, whether or not a blade had touched it.
    world.register(Node::Memory(number));
    world.run();
    for page in 0..8 {
        let page = Va(va.0 + (page << 12));
        assert_eq!(world.request(1, Want::Read, page), Verdict::Lost);
    }
    // Nor does a change of what may be done with it.
    let protect = Request::Protect {
        domain: 1,
        va: va.0,
        length: 0x1000,
        access: Access::Write,
    };
    assert_eq!(world.call(0, protect), Ok(Reply::Done));
    assert_eq!(world.request(1, Want::Read, va), Verdict::Lost);
    // Copies that blades have got since are dropped before the addresses are given out again.
    world.flushed.clear();
    assert_eq!(world.unmap(0, 1, va, 8), Ok(Reply::Done));
    assert_eq!(world.flushed, [host(0), host(1), host(2)]);
    world.check();
    let again = world.map(0, 1, 256 - 8);
    assert_eq!(again.slice(), va.slice());
}

#[test]
fn vmas_of_a_memory_blade_are_lost_some_at_a_time_and_all_of_them_once_whenever_the_controller_dies()
 {
    let count = 40;
    for acts in 0.. {
        let (mut world, va) = World::with_memory(1, OnLoss::LastWritten);
        let number = va.slice().unwrap();
        let mut kept = vec![va];
        while kept.len() < count {
            let va = world.map(0, 1, 1);
            kept.extend((va.slice() == Some(number)).then_some(va));
        }
        world.acts_to_live = Some(acts);
        world.longest_record = 0;
        // It does not come back to the next controller.
        world.hang.insert(Node::Memory(number));
        world.cut(Node::Memory(number));
        let lost = |world: &World| {
            let its = kept.iter().filter(|va| world.lost_regions(**va) > 0);
            its.count()
        };
        while lost(&world) == 0 && world.step() {}
        // Some are not lost yet when another request is answered, except by a controller that takes over.
        if world.acts_to_live.is_some() {
            let enter = Request::EnterProcess {
                domain: "other".into(),
                pid: 50,
                on_loss: None,
            };
            let asked = world.ask(0, enter);
            while !world.replies.contains_key(&asked) {
                assert!(world.step());
            }
            let has_died = world.acts_to_live.is_none();
            assert!(has_died || lost(&world) < count, "{acts}: all at once");
        }
        world.run();
        let has_died = world.acts_to_live.is_none();
        let few = world.longest_record < count / 2;
        assert!(has_died || few, "{acts}: {} in one", world.longest_record);
        for va in &kept {
            assert_eq!(world.lost_regions(*va), 1, "{acts}: {va:?}");
            assert_eq!(world.request(1, Want::Read, *va), Verdict::Lost, "{acts}");
        }
        world.check();
        if !has_died {
            assert!(acts > 10, "{acts}");
            break;
        }
    }
}

#[test]
fn what_others_answered_counts_though_a_blade_is_fenced_in_between() {
    let (mut world, va) = World::with_memory(4, OnLoss::LastWritten);
    for number in 0..3 {
        assert_eq!(world.request(number, Want::Read, va), Verdict::Fetch);
    }
    world.hang.insert(host(0));
    let change = RegionChange::Reset;
    let reply = world.operate(Request::ChangeRegion { va: va.0, change });
    assert!(
        matches!(reply, Ok(Reply::Region { changed: true, .. })),
        "{reply:?}"
    );
    assert_eq!(world.flushed, [host(1), host(2)]);
    assert_eq!(world.word_at(va), INVALID);
    world.check();
}

#[test]
fn regions_of_which_writes_are_lost_leave_slots_for_others_and_stay_lost() {
    const SLOTS: u64 = 8;
    let (mut world, va) = World::with_memory_of(SLOTS as usize, 4 * SLOTS + 10, OnLoss::Fail);
    let first = |region: u64| Va(va.0 + (region << 14));
    for region in 0..SLOTS {
        assert_eq!(
            world.request(0, Want::Acquire, first(region)),
            Verdict::Fetch
        );
    }
    world.cut(host(0));
    world.run();
    let touch = |world: &mut World, page| {
        while world.request(1, Want::Read, page) != Verdict::Fetch {
            world.run();
        }
    };
    let of_others = [0, 1, 2].map(|other| first(SLOTS + other));
    for page in of_others {
        touch(&mut world, page);
        world.run();
    }
    let has_slot = |world: &World, region| world.switch.tables().slot(first(region)).is_some();
    assert!((0..SLOTS).any(|region| !has_slot(&world, region)));
    let is_lost = |world: &mut World| {
        for page in 0..4 * SLOTS {
            let page = Va(va.0 + (page << 12));
            assert_eq!(world.request(1, Want::Read, page), Verdict::Lost, "{page}");
        }
        let sync = |length| Request::Sync {
            domain: 1,
            va: va.0,
            length,
        };
        assert_eq!(world.call(1, sync(1)).unwrap_err().errno, Errno::EIO);
        world.check();
    };
    is_lost(&mut world);
    let lost = world.lost_regions(va);
    assert_eq!(lost, SLOTS);
    world.die();
    world.run();
    is_lost(&mut world);
    for page in of_others {
        assert_eq!(world.request(1, Want::Read, page), Verdict::Fetch);
    }
    let protect = Request::Protect {
        domain: 1,
        va: va.0,
        length: (4 * SLOTS + 10) << 12,
        access: Access::Read,
    };
    assert_eq!(world.call(1, protect), Ok(Reply::Done));
    is_lost(&mut world);
    let write = world.request(1, Want::Acquire, of_others[0]);
    assert_eq!(write, Verdict::Protected);
    // What is mapped at the same addresses next is not.
    assert_eq!(world.unmap(1, 1, va, 4 * SLOTS + 10), Ok(Reply::Done));
    world.run();
    let again = world.map(1, 1, 256 - 16);
    assert_eq!(world.request(1, Want::Read, again), Verdict::Fetch);
    world.check();
}

#[test]
fn a_sync_of_a_region_of_which_writes_are_lost_fails_whether_or_not_it_has_a_slot() {
    let (mut world, va) = World::with_memory(16, OnLoss::Fail);
    let kept = Va(va.0 + 0x8000);
    assert_eq!(world.request(0, Want::Acquire, va), Verdict::Fetch);
    assert_eq!(world.request(1, Want::Acquire, kept), Verdict::Fetch);
    world.cut(host(0));
    world.run();
    let sync = |from: Va, length| Request::Sync {
        domain: 1,
        va: from.0,
        length,
    };
    let refused = world.call(1, sync(va, 0x10000)).unwrap_err();
    assert_eq!(refused.errno, Errno::EIO, "{refused}");
    // What else the blade has of the range is written back all the same.
    assert_eq!(world.word_at(kept), INVALID);
    assert_eq!(world.call(1, sync(kept, 0x1000)), Ok(Reply::Done));
    world.check();
}
