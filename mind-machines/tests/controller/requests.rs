//! What is mapped, protected, synced and unmapped, by whom, and how often.

use mind_api::{
    errno::Errno,
    message::{Access, OnLoss, Open, Reply, Request},
};
use mind_common::{
    addr::Va,
    directory::{State, Want},
    verdict::Verdict,
};
use mind_machines::controller::books::records::Key;

use crate::world::{INVALID, World, host};

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
fn each_request_waits_once_for_records_to_be_kept() {
    let mut world = World::new();
    let domain = world.enter(0, "d", OnLoss::LastWritten);
    world.enter(1, "d", OnLoss::LastWritten);
    let kept = |world: &mut World, what: &mut dyn FnMut(&mut World)| {
        let before = world.kept;
        what(world);
        world.kept - before
    };
    let mut va = Va(0);
    assert_eq!(
        kept(&mut world, &mut |world| va = world.map(0, domain, 4)),
        1
    );
    let protect = Request::Protect {
        domain,
        va: va.0,
        length: 0x1000,
        access: Access::Read,
    };
    let protected = kept(&mut world, &mut |world| {
        assert_eq!(world.call(0, protect.clone()), Ok(Reply::Done));
    });
    assert_eq!(protected, 1);
    // Zeroing what was mapped is part of this.
    let unmapped = kept(&mut world, &mut |world| {
        assert_eq!(world.unmap(0, domain, va, 4), Ok(Reply::Done));
    });
    assert_eq!(unmapped, 1);
    assert!(!world.kept_soon.is_empty());
    world.check();
    // Whatever waits for records waits for those as well: some of them may be its own.
    let nothing = Request::Sync {
        domain,
        va: 0,
        length: 0x1000,
    };
    let refused = kept(&mut world, &mut |world| {
        world.call(0, nothing.clone()).unwrap_err();
    });
    assert_eq!((refused, world.kept_soon.len()), (1, 0));
    let va = world.map(0, domain, 4);
    assert_eq!(world.unmap(0, domain, va, 4), Ok(Reply::Done));
    assert!(!world.kept_soon.is_empty());
    // What is mapped anew is recorded with all that came before it.
    world.map(0, domain, 4);
    assert!(world.kept_soon.is_empty());
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
