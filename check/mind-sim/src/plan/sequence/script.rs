//! The steps of each sequence: threads' operations and disturbances, with times.

use std::ops::Range;

use mind_machines::Node;

use super::{AREA, HALVES, LEAVERS, MICROSECOND};
use crate::plan::{
    Change, DRAWN_WORDS, Disturbance, MILLISECOND, Mapping, Op, Place, Program, blade,
};

/// A sequence under construction: operations of threads, and disturbances.
pub(super) struct Script {
    pub(super) random: fastrand::Rng,
    pub(super) programs: Vec<Program>,
    pub(super) disturbances: Vec<(u64, Disturbance)>,
}

impl Script {
    fn place(&mut self, page: u64) -> Place {
        Place {
            area: AREA,
            page,
            word: self.random.usize(0..DRAWN_WORDS),
        }
    }

    /// The thread reads that page at that time, or as soon as it can.
    fn load(&mut self, thread: usize, page: u64, at: u64) {
        let place = self.place(page);
        self.programs[thread]
            .ops
            .extend([Op::Until(at), Op::Load(place)]);
    }

    /// The thread writes that page at that time, or as soon as it can.
    fn store(&mut self, thread: usize, page: u64, at: u64) {
        let place = self.place(page);
        self.programs[thread]
            .ops
            .extend([Op::Until(at), Op::Store(place)]);
    }

    /// The pages that halves begin with, either first.
    fn halves_in_some_order(&mut self) -> [u64; 2] {
        let [lower, upper] = HALVES;
        if self.random.bool() {
            [lower, upper]
        } else {
            [upper, lower]
        }
    }

    /// The disturbance happens between these two times.
    fn disturb(&mut self, times: Range<u64>, what: Disturbance) {
        self.disturbances.push((self.random.u64(times), what));
    }

    /// The area is mapped anew, so that losses do not count any more.
    fn begin_anew(&mut self, at: u64) {
        for (after, mapping) in [(0, Mapping::Unmap), (400 * MICROSECOND, Mapping::Map)] {
            let mapping = Disturbance::Mapping(mapping, AREA);
            self.disturbances.push((at + after, mapping));
        }
    }

    /// The first blade's link is down.
    fn link_down(&mut self, at: u64, lasts: u64) {
        let node = Node::Compute(blade(0));
        let link_down = Disturbance::LinkDown { node, lasts };
        self.disturbances.push((at, link_down));
    }

    fn crash(&mut self, number: u8, times: Range<u64>, noticed: u64) {
        let crash = Disturbance::Crash {
            blade: blade(number),
            noticed,
            back: MILLISECOND + noticed,
        };
        self.disturb(times, crash);
    }

    pub(super) fn denied(&mut self, at: u64) {
        let us = |after: u64| at + after * MICROSECOND;
        self.store(0, 0, us(0));
        self.load(1, 0, us(500));
        self.store(0, 0, us(1_000));
        self.store(1, 0, us(1_600));
        for (after, mapping) in [
            (2_400, Mapping::MakeReadOnly),
            (5_000, Mapping::MakeWritable),
        ] {
            let mapping = Disturbance::Mapping(mapping, AREA);
            self.disturbances.push((us(after), mapping));
        }
        // The other page keeps the invalidation from being answered when this one is given up.
        self.load(0, 1, us(3_200));
        self.load(0, 0, us(3_400));
        self.store(0, 0, us(3_400));
        if self.random.bool() {
            self.load(0, 0, us(3_400));
        } else {
            self.store(0, 0, us(3_400));
        }
    }

    pub(super) fn timers(&mut self, at: u64) {
        let us = |after: u64| at + after * MICROSECOND;
        self.store(1, 0, us(0));
        self.store(0, 0, us(200));
        self.store(1, 0, us(600));
        self.load(0, 0, us(1_000));
        self.store(1, 0, us(1_100));
        self.link_down(us(1_380), MILLISECOND);
        if self.random.bool() {
            self.store(0, 0, us(1_300));
            // There is room for one.
            self.store(0, 1, us(1_400));
        } else {
            self.load(0, 0, us(1_300));
            self.store(0, 0, us(1_400));
        }
    }

    /// The first thread of the first blade writes, the others read; without room for two pages, the
    /// first is evicted for the second.
    pub(super) fn leaving(&mut self, at: u64, has_room: bool) {
        let us = |after: u64| at + after * MICROSECOND;
        for reader in 1..LEAVERS {
            self.load(reader, 0, us(0));
        }
        self.store(0, 0, us(0));
        if has_room {
            self.store(0, 1, us(300));
            self.store(LEAVERS, 0, us(450));
        } else {
            self.link_down(us(430), MILLISECOND);
            self.store(0, 1, us(450));
        }
        self.store(LEAVERS, 0, us(7_000));
        self.store(LEAVERS, 1, us(7_000));
    }

    pub(super) fn moves(&mut self, at: u64, round: u64) {
        let us = |after: u64| at + after * MICROSECOND;
        let [written, other] = self.halves_in_some_order();
        self.store(0, written, us(0));
        let change = [Change::Split, Change::Merge][(round % 2) as usize];
        let change = Disturbance::Change(change, AREA, 0);
        self.disturbances.push((us(200), change));
        let then = us(self.random.u64(250..800));
        if self.random.bool() {
            self.store(0, other, then);
        } else {
            let sync = Op::Sync(AREA);
            self.programs[0].ops.extend([Op::Until(then), sync]);
        }
    }

    pub(super) fn isolation(&mut self, at: u64) {
        self.load(0, 0, at);
        self.link_down(at + MILLISECOND, 7_000 * MILLISECOND);
        self.store(0, 0, at + 2 * MILLISECOND);
    }

    /// Episodes of a slot that is used for the first time begin as low as those of the first one.
    pub(super) fn numbers(&mut self, at: u64) {
        let us = |after: u64| at + after * MICROSECOND;
        let split = Disturbance::Change(Change::Split, AREA, 0);
        self.disturbances.push((us(900), split));
        let first = self.random.usize(0..2);
        let before = [0, 300, 600].into_iter();
        let after = (0..6).map(|turn| 3_000 + 300 * turn);
        for (turn, after) in before.chain(after).enumerate() {
            self.store((first + turn) % 2, HALVES[1], us(after));
        }
    }

    pub(super) fn repeats(&mut self, at: u64) {
        let us = |after: u64| at + after * MICROSECOND;
        let want = self.random.u8(0..4);
        if want < 2 {
            self.load(0, 0, us(0));
        }
        self.load(1, 0, us(0));
        self.link_down(us(500), MILLISECOND);
        if want < 3 {
            self.store(0, 0, us(600));
        } else {
            self.load(0, 0, us(600));
        }
        // It repeats the request 4 ms later.
        let reset = Disturbance::Change(Change::Reset, AREA, 0);
        match self.random.u8(0..8) {
            0 | 1 => {
                for after in [5_000, 5_700] {
                    self.disturb(us(after)..us(after + 200), reset);
                }
            }
            2 | 3 => {
                self.load(1, 0, us(5_000));
                self.disturb(us(5_400)..us(5_800), reset);
            }
            4 => self.disturb(us(4_700)..us(5_400), reset),
            _ => {
                if self.random.bool() {
                    self.load(1, 0, us(4_750));
                    self.store(1, 0, us(4_900));
                }
                self.store(2, 0, us(5_100));
                self.crash(2, us(5_400)..us(6_000), 0);
            }
        }
        self.begin_anew(us(10_000));
    }

    pub(super) fn halves(&mut self, at: u64) {
        let us = |after: u64| at + after * MICROSECOND;
        let [split, merge] =
            [Change::Split, Change::Merge].map(|change| Disturbance::Change(change, AREA, 0));
        // A region that no page was touched of has nothing to split.
        self.load(2, 0, us(0));
        self.disturbances.push((us(500), split));
        let [written, read] = self.halves_in_some_order();
        self.store(0, written, us(1_500));
        self.load(1, read, us(1_500));
        self.load(2, read, us(1_500));
        // The controller waits for the blade until it notices the crash.
        self.disturbances.push((us(2_500), merge));
        let noticed = self.random.u64(50 * MICROSECOND..1_000 * MICROSECOND);
        self.crash(0, us(2_300)..us(2_500), noticed);
        self.store(1, read, us(3_500));
        self.store(2, read, us(3_500));
        self.crash(1, us(4_500)..us(6_000), 0);
        self.begin_anew(us(8_000));
    }
}
