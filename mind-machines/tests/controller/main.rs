//! The controller as a machine: what becomes of requests, blades and regions, whatever else is under way, and whenever
//! it dies.

mod agreement;
mod bounds;
mod leaving;
mod old_answers;
mod world;

use mind_api::{
    errno::Errno,
    message::{Access, OnLoss, Open, RegionChange, Reply, Request},
};
use mind_common::{
    addr::Va,
    directory::{Prior, State, Want},
    serial::Version,
    verdict::Verdict,
};
use mind_machines::{
    Node,
    controller::{Event, books::records::Key},
    datagram::{Body, PageRequest},
};
use world::{SLOTS, World, blade, page};

const INVALID: (State, Option<Prior>, u32) = (State::Invalid, None, 0);

fn host(number: u8) -> Node {
    Node::Compute(blade(number))
}

#[test]
fn blades_get_numbers_in_the_order_in_which_they_join() {
    let mut world = World::empty();
    for number in [2, 0, 1] {
        world.register(host(number));
    }
    world.run();
    let numbers = [2, 0, 1].map(|number| world.incarnation(host(number)).number);
    assert_eq!(numbers, [0, 1, 2]);
}

#[test]
fn what_is_mapped_can_be_had_and_what_is_unmapped_cannot() {
    let (mut world, va) = World::with_memory(6, OnLoss::LastWritten);
    world.check();
    assert_eq!(world.request(0, Want::Acquire, va), Verdict::Fetch);
    assert_eq!(world.word_at(va), (State::Modified, None, 1));
    let last = Va(va.0 + 0x5000);
    assert_eq!(world.request(1, Want::Read, last), Verdict::Fetch);
    assert_eq!(
        world.request(1, Want::Read, Va(va.0 + 0x6000)),
        Verdict::Protected
    );
    assert_eq!(world.unmap(0, 1, va, 6), Ok(Reply::Done));
    assert_eq!(world.flushed, [host(0), host(1)]);
    assert_eq!(world.request(0, Want::Read, va), Verdict::Protected);
    world.check();
    assert!(world.switch.tables().pages.is_empty());
    assert_eq!(world.unmap(0, 1, va, 6).unwrap_err().errno, Errno::EINVAL);
}

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

#[test]
fn areas_go_with_their_last_user_once_they_have_no_name() {
    let mut world = World::new();
    let domain = world.enter(0, "d", OnLoss::LastWritten);
    world.enter(1, "d", OnLoss::LastWritten);
    let open = |pid, length, open| Request::OpenArea {
        domain,
        pid,
        name: "a".into(),
        length,
        access: Access::Write,
        open,
    };
    assert_eq!(
        world
            .call(0, open(10, 0, Open::Existing))
            .unwrap_err()
            .errno,
        Errno::ENOENT
    );
    let made = world.call(0, open(10, 5000, Open::OrCreate)).unwrap();
    assert!(matches!(made, Reply::Mapped { length: 8192, .. }));
    assert_eq!(world.call(1, open(11, 8192, Open::Existing)).unwrap(), made);
    assert_eq!(
        world.call(1, open(11, 1, Open::New)).unwrap_err().errno,
        Errno::EEXIST
    );
    assert_eq!(
        world
            .call(1, open(11, 9000, Open::OrCreate))
            .unwrap_err()
            .errno,
        Errno::EINVAL
    );
    let unlink = Request::UnlinkArea {
        domain,
        name: "a".into(),
    };
    assert_eq!(world.call(0, unlink.clone()), Ok(Reply::Done));
    assert_eq!(world.call(0, unlink).unwrap_err().errno, Errno::ENOENT);
    let exit = |pid| Request::ExitProcess { domain, pid };
    assert_eq!(world.call(0, exit(10)), Ok(Reply::Done));
    assert_eq!(world.controller.books().domains.vmas_from(Va(0)).count(), 1);
    assert_eq!(world.call(1, exit(11)), Ok(Reply::Done));
    assert_eq!(world.controller.books().domains.vmas_from(Va(0)).count(), 0);
    world.check();
}

#[test]
fn a_domain_that_has_ended_is_another_one_under_the_same_name() {
    let (mut world, va) = World::with_memory(8, OnLoss::Fail);
    world.hang.insert(host(2));
    world.request(2, Want::Read, va);
    for number in 0..2 {
        let pid = i32::from(number) + 10;
        assert_eq!(
            world.call(number, Request::ExitProcess { domain: 1, pid }),
            Ok(Reply::Done)
        );
    }
    let id = world.ask(2, Request::ExitProcess { domain: 1, pid: 12 });
    world.run_now();
    assert_eq!(world.replies[&id], Ok(Reply::Done));
    // Its memory is not free yet, since the blade has not given it up.
    assert_eq!(world.controller.books().domains.vmas_from(Va(0)).count(), 1);
    assert_eq!(world.enter(0, "domain", OnLoss::LastWritten), 2);
    world.run();
    world.check();
}

#[test]
fn protection_follows_and_blades_fetch_anew() {
    let (mut world, va) = World::with_memory(4, OnLoss::LastWritten);
    let protect = |va: Va, length, access| Request::Protect {
        domain: 1,
        va: va.0,
        length,
        access,
    };
    assert_eq!(
        world.call(0, protect(Va(va.0 + 0x1000), 1, Access::Read)),
        Ok(Reply::Done)
    );
    assert_eq!(world.flushed, [host(0), host(1), host(2)]);
    assert_eq!(
        world.request(0, Want::Acquire, Va(va.0 + 0x1000)),
        Verdict::Protected
    );
    assert_eq!(
        world.request(0, Want::Read, Va(va.0 + 0x1000)),
        Verdict::Fetch
    );
    assert_eq!(
        world.call(0, protect(va, 0x4000, Access::Write)),
        Ok(Reply::Done)
    );
    assert_eq!(world.switch.tables().protection.len(), 1);
    assert_eq!(
        world
            .call(0, protect(va, 0x5000, Access::Read))
            .unwrap_err()
            .errno,
        Errno::ENOMEM
    );
    assert_eq!(
        world
            .call(0, protect(Va(va.0 + 1), 1, Access::Read))
            .unwrap_err()
            .errno,
        Errno::EINVAL
    );
    world.check();
}

#[test]
fn what_is_not_mapped_or_another_domains_cannot_be_protected_or_unmapped() {
    let (mut world, va) = World::with_memory(4, OnLoss::LastWritten);
    assert_eq!(world.enter(1, "other", OnLoss::LastWritten), 2);
    let beyond = Va(va.0 + 0x10000);
    for (domain, va, errno) in [
        (1, beyond, Errno::ENOMEM),
        (2, va, Errno::ENOMEM),
        (3, va, Errno::ESRCH),
    ] {
        let protect = Request::Protect {
            domain,
            va: va.0,
            length: 0x1000,
            access: Access::Read,
        };
        let refused = world.call(1, protect).unwrap_err();
        assert_eq!(refused.errno, errno, "{refused}");
        let refused = world.unmap(1, domain, va, 1).unwrap_err();
        assert_ne!(refused.message, "", "{refused:?}");
    }
    assert_eq!(world.request(0, Want::Acquire, va), Verdict::Fetch);
    world.check();
}

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
fn a_region_that_is_well_is_not_reset() {
    let (mut world, va) = World::with_memory(4, OnLoss::LastWritten);
    assert_eq!(world.request(0, Want::Acquire, va), Verdict::Fetch);
    let before = world.word_at(va);
    assert_eq!(
        world.call(1, Request::ReportStuck { va: va.0 }),
        Ok(Reply::Done)
    );
    assert_eq!(world.word_at(va), before);
    assert!(world.flushed.is_empty());
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
fn halves_are_what_the_whole_was_and_join_again() {
    let (mut world, va) = World::with_memory(4, OnLoss::LastWritten);
    assert_eq!(world.request(1, Want::Acquire, va), Verdict::Fetch);
    let upper = Va(va.0 + 0x2000);
    let change = |change| Request::ChangeRegion { va: va.0, change };
    let reply = world.operate(change(RegionChange::Split));
    let region = |length, changed| {
        Ok(Reply::Region {
            va: va.0,
            length,
            changed,
        })
    };
    assert_eq!(reply, region(0x2000, true));
    let owned = (State::Modified, None, 0b10);
    assert_eq!([world.word_at(va), world.word_at(upper)], [owned, owned]);
    world.check();
    assert_eq!(
        world.operate(change(RegionChange::Merge)),
        region(0x4000, true)
    );
    assert_eq!([world.word_at(va), world.word_at(upper)], [owned, owned]);
    world.check();
    // The vma has no other half.
    assert_eq!(
        world
            .operate(change(RegionChange::Merge))
            .unwrap_err()
            .errno,
        Errno::EINVAL
    );
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
fn sync_takes_what_the_caller_owns() {
    let (mut world, va) = World::with_memory(12, OnLoss::LastWritten);
    let at = |region: u64| Va(va.0 + region * 0x4000);
    for (blade, want, region) in [
        (0, Want::Acquire, 0),
        (1, Want::Acquire, 1),
        (0, Want::Read, 2),
    ] {
        assert_eq!(world.request(blade, want, at(region)), Verdict::Fetch);
    }
    let sync = Request::Sync {
        domain: 1,
        va: va.0,
        length: 12 << 12,
    };
    assert_eq!(world.call(0, sync), Ok(Reply::Done));
    let words = [0, 1, 2].map(|region| world.word_at(at(region)));
    assert_eq!(
        words,
        [
            INVALID,
            (State::Modified, None, 0b10),
            (State::Shared, None, 1)
        ]
    );
    assert_eq!(world.flushed, [host(0)]);
    world.check();
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
    assert_eq!(world.call(0, protect).unwrap_err().errno, Errno::EIO);
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
fn a_blade_that_hangs_delays_what_needs_it_and_nothing_else() {
    let (mut world, va) = World::with_memory(4, OnLoss::LastWritten);
    assert_eq!(world.request(2, Want::Acquire, va), Verdict::Fetch);
    world.hang.insert(host(2));
    let stuck = world.ask(
        0,
        Request::Sync {
            domain: 1,
            va: va.0,
            length: 4 << 12,
        },
    );
    let unmap = world.ask(
        0,
        Request::Unmap {
            domain: 1,
            pid: 10,
            va: va.0,
            length: 4 << 12,
        },
    );
    world.run_now();
    // The blade syncs what it owns itself, which is nothing.
    assert_eq!(world.replies[&stuck], Ok(Reply::Done));
    assert!(!world.replies.contains_key(&unmap));
    let before = world.now;
    let enter = world.ask(
        1,
        Request::EnterProcess {
            domain: "other".into(),
            pid: 99,
            on_loss: None,
        },
    );
    world.run_now();
    let Ok(Reply::Entered { domain: other }) = world.replies[&enter] else {
        panic!("{:?}", world.replies[&enter]);
    };
    let ids = [
        world.ask(
            1,
            Request::Map {
                domain: other,
                length: 0x4000,
                access: Access::Write,
            },
        ),
        world.ask(
            0,
            Request::Map {
                domain: 1,
                length: 0x4000,
                access: Access::Write,
            },
        ),
    ];
    world.run_now();
    for id in ids {
        assert!(matches!(world.replies[&id], Ok(Reply::Mapped { .. })));
    }
    assert_eq!(world.now, before);
    world.run();
    assert_eq!(world.replies[&unmap], Ok(Reply::Done));
    assert!(world.now >= before + world.config.flush);
    world.check();
}

#[test]
fn a_request_is_carried_out_once_however_often_it_is_made() {
    let (mut world, _) = World::with_memory(4, OnLoss::LastWritten);
    let map = Request::Map {
        domain: 1,
        length: 0x4000,
        access: Access::Write,
    };
    let id = world.ask(0, map);
    world.run();
    let first = world.replies.remove(&id).unwrap();
    world.ask_again(0, id);
    world.run();
    assert_eq!(world.replies[&id], first);
    assert_eq!(world.controller.books().domains.vmas_from(Va(0)).count(), 2);
    assert!(
        world
            .records
            .keys()
            .any(|key| matches!(key, Key::Answer(..)))
    );
}

#[test]
fn a_request_that_is_made_again_while_it_is_carried_out_is_answered_when_it_is_done() {
    let (mut world, va) = World::with_memory(4, OnLoss::LastWritten);
    assert_eq!(world.request(1, Want::Acquire, va), Verdict::Fetch);
    world.hang.insert(host(1));
    let unmap = Request::Unmap {
        domain: 1,
        pid: 10,
        va: va.0,
        length: 4 << 12,
    };
    let id = world.ask(0, unmap);
    world.run_now();
    // The answer is on record, and the regions are not free.
    let is_answer = |key: &Key| matches!(key, Key::Answer(_, of) if *of == id);
    assert!(world.records.keys().any(is_answer));
    world.ask_again(0, id);
    world.run_now();
    assert!(!world.replies.contains_key(&id), "{:?}", world.replies[&id]);
    world.wake(host(1));
    world.run_now();
    assert_eq!(world.replies[&id], Ok(Reply::Done));
    world.run();
    world.check();
}

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

#[test]
fn a_page_of_another_vma_is_left_alone() {
    let (mut world, va) = World::with_memory(4, OnLoss::LastWritten);
    let other = world.map(0, 1, 4);
    assert_eq!(world.request(0, Want::Acquire, other), Verdict::Fetch);
    assert_eq!(world.unmap(0, 1, va, 4), Ok(Reply::Done));
    assert_eq!(world.word_at(other), (State::Modified, None, 1));
    let _ = page(0);
    world.check();
}

#[test]
fn a_region_has_a_slot_from_its_first_touch_on() {
    let (mut world, va) = World::with_memory(256, OnLoss::LastWritten);
    assert_eq!(world.switch.free_slots(), SLOTS);
    // What is denied gets none, nor does what needs none.
    let denied = Va(va.0 + (256 << 12));
    assert_eq!(world.request(0, Want::Read, denied), Verdict::Protected);
    assert_eq!(world.request(0, Want::Upgrade, va), Verdict::NoCopy);
    assert_eq!(world.switch.free_slots(), SLOTS);
    assert_eq!(world.request(0, Want::Read, va), Verdict::Fetch);
    assert_eq!(
        world.request(1, Want::Read, Va(va.0 + 0x3000)),
        Verdict::Fetch
    );
    assert_eq!(world.word_at(va), (State::Shared, None, 0b11));
    assert_eq!(world.switch.free_slots(), SLOTS - 1);
    world.check();
    assert_eq!(world.unmap(0, 1, va, 256), Ok(Reply::Done));
    assert_eq!(world.switch.free_slots(), SLOTS);
    world.check();
}

#[test]
fn slots_are_taken_back_when_few_are_left() {
    for want in [Want::Read, Want::Acquire] {
        let (mut world, va) = World::with_memory_of(40, 256, OnLoss::LastWritten);
        let other = world.map(0, 1, 256);
        for turn in 0..2 {
            for region in 0..128u64 {
                let base = if region < 64 { va } else { other };
                let page = Va(base.0 + (region % 64) * 0x4000);
                let blade = (region % 3) as u8;
                if world.request(blade, want, page) == Verdict::NoSlot {
                    world.run();
                    let verdict = world.request(blade, want, page);
                    assert_eq!(verdict, Verdict::Fetch, "{page} in turn {turn}");
                }
            }
        }
        world.run();
        assert!(world.switch.free_slots() > 0);
        world.check();
    }
}

#[test]
fn what_a_packet_opens_of_memory_that_is_unmapped_is_freed_before_it_is_used_again() {
    let (mut world, va) = World::with_memory(8, OnLoss::LastWritten);
    let unmap = Request::Unmap {
        domain: 1,
        pid: 10,
        va: va.0,
        length: 8 << 12,
    };
    let id = world.ask(0, unmap);
    while !world.replies.contains_key(&id) {
        assert!(world.step());
    }
    // A packet that was admitted before opens a region that had no slot.
    world.open_in_switch(va);
    world.run();
    assert_eq!(world.switch.free_slots(), SLOTS);
    world.check();
}
