//! Sizes of regions: what epochs make of them.

use mind_api::message::{OnLoss, RegionChange, Request};
use mind_common::{
    addr::{Region, Va},
    directory::{State, Want},
    verdict::Verdict,
};
use mind_machines::controller::Input;

use crate::world::{QUIET, World};

impl World {
    /// An epoch is over in which so many pages were falsely invalidated, each by the first address of its region.
    fn epoch(&mut self, counts: &[(Va, u32)]) {
        let counts = counts
            .iter()
            .map(|(va, count)| (self.region_at(*va), *count));
        let counts = counts.collect();
        let used = (self.switch.slots().len() - self.switch.free_slots()) as u32;
        self.controller
            .handle(self.now, Input::Epoch { counts, used });
        self.run();
        self.check();
    }

    /// Epochs are over in which pages of the region of an address were falsely invalidated, and of no other, until it
    /// is split: with no other the mean is what it has itself, so c has to grow first.
    fn split_by_epochs(&mut self, va: Va) {
        let order = self.order_at(va);
        for _ in 0..4 {
            if self.order_at(va) == order {
                self.epoch(&[(va, 9)]);
            }
        }
        assert_eq!(self.order_at(va), order - 1);
    }

    fn region_at(&self, va: Va) -> Region {
        let slot = self.switch.tables().slot(va).expect("it has a slot");
        let region = self.switch.slots()[slot].region;
        region.expect("the slot has a region")
    }

    fn order_at(&self, va: Va) -> u8 {
        self.region_at(va).order()
    }
}

/// Memory of which blade 1 has the first region.
fn world() -> (World, Va) {
    let (mut world, va) = World::with_memory(8, OnLoss::LastWritten);
    assert_eq!(world.request(1, Want::Acquire, va), Verdict::Fetch);
    (world, va)
}

#[test]
fn what_is_falsely_invalidated_is_split_to_pages_and_merged_when_it_is_quiet() {
    let (mut world, va) = world();
    let (second, third) = (Va(va.0 + 0x1000), Va(va.0 + 0x2000));
    world.split_by_epochs(va);
    world.split_by_epochs(va);
    for _ in 0..4 {
        world.epoch(&[(va, 9)]);
    }
    assert_eq!(world.order_at(va), 0);
    assert_eq!((world.order_at(second), world.order_at(third)), (0, 1));
    for page in [va, second, third] {
        assert_eq!(world.word_at(page), (State::Modified, None, 0b10));
    }
    for _ in 0..4 * QUIET {
        world.epoch(&[]);
    }
    assert_eq!(world.order_at(third), 2);
    assert_eq!(world.word_at(third), (State::Modified, None, 0b10));
}

#[test]
fn what_is_costlier_than_the_mean_is_split() {
    let (mut world, va) = world();
    let other = Va(va.0 + 0x4000);
    assert_eq!(world.request(1, Want::Acquire, other), Verdict::Fetch);
    world.epoch(&[(va, 5), (other, 6)]);
    assert_eq!((world.order_at(va), world.order_at(other)), (2, 1));
}

#[test]
fn a_controller_that_takes_over_merges_what_the_one_before_has_split() {
    let (mut world, va) = world();
    world.split_by_epochs(va);
    world.die();
    world.run();
    assert_eq!(world.order_at(va), 1);
    for _ in 0..=QUIET {
        world.epoch(&[]);
    }
    assert_eq!(world.order_at(va), 2);
}

/// Two blades have the halves of a region to themselves: its merge would take them from one of them.
#[test]
fn halves_that_different_blades_write_are_not_merged_by_an_epoch() {
    let (mut world, va) = world();
    world.split_by_epochs(va);
    let upper = Va(va.0 + 0x2000);
    let reset = Request::ChangeRegion {
        va: upper.0,
        change: RegionChange::Reset,
    };
    assert!(world.operate(reset).is_ok());
    assert_eq!(world.request(2, Want::Acquire, upper), Verdict::Fetch);
    for _ in 0..4 * QUIET {
        world.epoch(&[]);
    }
    assert_eq!(world.word_at(va), (State::Modified, None, 0b10));
    assert_eq!(world.word_at(upper), (State::Modified, None, 0b100));
}

#[test]
fn what_an_operator_splits_stays_split() {
    let (mut world, va) = world();
    let change = RegionChange::Split;
    let split = Request::ChangeRegion { va: va.0, change };
    assert!(world.operate(split).is_ok());
    for _ in 0..4 * QUIET {
        world.epoch(&[]);
    }
    assert_eq!(world.order_at(va), 1);
}

/// What was counted may have gone by the time that the controller gets to know it.
#[test]
fn a_region_that_has_gone_is_not_split() {
    let (mut world, va) = world();
    let region = world.region_at(va);
    assert!(world.unmap(0, 1, va, 8).is_ok());
    let counts = vec![(region, 9)];
    world
        .controller
        .handle(world.now, Input::Epoch { counts, used: 1 });
    world.run();
    world.check();
    assert_eq!(world.switch.tables().slot(va), None);
}
