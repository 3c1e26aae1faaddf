//! Regions and their slots: from first touch until they are taken back, split, joined and reset.

use mind_api::{
    errno::Errno,
    message::{OnLoss, RegionChange, Reply, Request},
};
use mind_common::{
    addr::Va,
    directory::{State, Want},
    verdict::Verdict,
};

use crate::world::{SLOTS, World, page};

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
fn a_region_whose_other_half_is_in_parts_is_not_merged() {
    let (mut world, va) = World::with_memory(8, OnLoss::LastWritten);
    let upper = Va(va.0 + 0x4000);
    for page in [va, upper] {
        assert_eq!(world.request(0, Want::Acquire, page), Verdict::Fetch);
    }
    let request = |va: Va, change| Request::ChangeRegion { va: va.0, change };
    for page in [va, va, Va(va.0 + 0x2000)] {
        let split = world.operate(request(page, RegionChange::Split));
        assert!(matches!(split, Ok(Reply::Region { changed: true, .. })));
    }
    let merge = world.operate(request(upper, RegionChange::Merge));
    assert_eq!(merge.expect_err("there is no half").errno, Errno::EINVAL);
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
