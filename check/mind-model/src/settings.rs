//! The settings that are searched: quick ones with every change, full ones every night.

use crate::setting::{Budget, Setting};

/// A setting with a name.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// The name.
    pub name: &'static str,
    /// The setting.
    pub setting: Setting,
    /// The search is cut after so many visits of states; `None` where it goes to the end.
    pub cut: Option<usize>,
}

const NOTHING: Budget = Setting::SMALLEST.budget;
const TWO: Setting = Setting::SMALLEST;
/// Its two pages can be regions of their own.
const HALVES: Setting = Setting {
    pages: 2,
    slots: 2,
    ..TWO
};
/// No blade has touched its region.
const UNTOUCHED: Setting = Setting {
    order: 2,
    slots: 2,
    is_untouched: true,
    ..TWO
};
const THREE: Setting = Setting {
    blades: 3,
    pages: 2,
    capacity: 1,
    ..Setting::SMALLEST
};

const fn complete(name: &'static str, setting: Setting, budget: Budget) -> Named {
    Named {
        name,
        setting: Setting { budget, ..setting },
        cut: None,
    }
}

/// A limit that needs minutes, and less than a gigabyte.
const CUT: usize = 12_000_000;

const fn cut(name: &'static str, setting: Setting, budget: Budget) -> Named {
    Named {
        cut: Some(CUT),
        ..complete(name, setting, budget)
    }
}

const fn faults(count: u8) -> Budget {
    Budget {
        faults: Some(count),
        ..NOTHING
    }
}

/// All together take less than a minute on two cores.
pub const QUICK: &[Named] = &[
    complete("two blades share a page without end", TWO, NOTHING),
    complete(
        "a packet is lost",
        TWO,
        Budget {
            losses: 1,
            ..NOTHING
        },
    ),
    complete(
        "a packet is repeated",
        TWO,
        Budget {
            repeats: 1,
            ..faults(3)
        },
    ),
    complete(
        "an answer is given up early",
        TWO,
        Budget {
            early: 1,
            ..faults(3)
        },
    ),
    complete(
        "a blade crashes and comes back",
        TWO,
        Budget {
            crashes: 1,
            rejoins: 1,
            ..faults(3)
        },
    ),
    complete(
        "the region is reset",
        TWO,
        Budget {
            resets: 1,
            ..faults(3)
        },
    ),
    complete(
        "the region is split and merged",
        HALVES,
        Budget {
            splits: 1,
            merges: 1,
            ..faults(2)
        },
    ),
    complete(
        "an owner evicts while halves are merged",
        Setting {
            capacity: 1,
            ..HALVES
        },
        Budget {
            splits: 1,
            merges: 1,
            ..faults(2)
        },
    ),
    complete("three blades evict and fetch again", THREE, faults(3)),
    complete(
        "an atomic operation in memory, a loss and a repeat",
        TWO,
        Budget {
            operations: 1,
            losses: 1,
            repeats: 1,
            ..faults(2)
        },
    ),
    complete(
        "an atomic operation in memory, a crash and a return",
        TWO,
        Budget {
            operations: 1,
            crashes: 1,
            rejoins: 1,
            ..faults(2)
        },
    ),
    complete(
        "another domain faults at the same address",
        TWO,
        Budget {
            strangers: 2,
            ..faults(4)
        },
    ),
    complete(
        "memory is unmapped, and other memory mapped there",
        TWO,
        Budget {
            unmaps: 1,
            maps: 1,
            ..faults(3)
        },
    ),
    complete(
        "memory may be read only, and written again",
        TWO,
        Budget {
            protects: 2,
            ..faults(3)
        },
    ),
    complete(
        "memory is unmapped while its region is split",
        HALVES,
        Budget {
            splits: 1,
            unmaps: 1,
            ..faults(2)
        },
    ),
    complete(
        "a blade crashes while halves are merged",
        Setting {
            is_split: true,
            ..HALVES
        },
        Budget {
            crashes: 1,
            merges: 1,
            resets: 1,
            ..faults(1)
        },
    ),
    complete(
        "the region is reset while it is split",
        HALVES,
        Budget {
            resets: 1,
            splits: 1,
            ..faults(2)
        },
    ),
    complete(
        "the region is to be split twice while protection changes",
        Setting { slots: 3, ..HALVES },
        Budget {
            splits: 2,
            protects: 1,
            ..faults(1)
        },
    ),
    complete(
        "memory is unmapped while a blade crashes",
        TWO,
        Budget {
            crashes: 1,
            unmaps: 1,
            maps: 1,
            ..faults(2)
        },
    ),
    complete(
        "the region is touched first, by both blades",
        UNTOUCHED,
        Budget {
            losses: 1,
            ..faults(3)
        },
    ),
    complete(
        "the region does without its slot, and is touched again",
        UNTOUCHED,
        Budget {
            reclaims: 1,
            ..faults(3)
        },
    ),
    complete(
        "a blade crashes while its region is to do without a slot",
        UNTOUCHED,
        Budget {
            reclaims: 1,
            crashes: 1,
            ..faults(2)
        },
    ),
    complete(
        "memory is unmapped while its region is touched first",
        UNTOUCHED,
        Budget {
            unmaps: 1,
            maps: 1,
            ..faults(3)
        },
    ),
    complete(
        "a blade is late with a flush",
        TWO,
        Budget {
            overdue: 1,
            rejoins: 1,
            resets: 1,
            ..faults(2)
        },
    ),
    complete(
        "a blade is late when protection changes",
        TWO,
        Budget {
            overdue: 1,
            protects: 1,
            ..faults(2)
        },
    ),
];

/// All together take less than ten minutes on two cores.
pub const FULL: &[Named] = &[
    complete(
        "a blade crashes while halves are merged, two faults",
        Setting {
            is_split: true,
            ..HALVES
        },
        Budget {
            crashes: 1,
            merges: 1,
            resets: 1,
            ..faults(2)
        },
    ),
    cut(
        "two blades without end: a crash",
        TWO,
        Budget {
            crashes: 1,
            ..NOTHING
        },
    ),
    cut(
        "three blades: a loss and a repeat",
        THREE,
        Budget {
            losses: 1,
            repeats: 1,
            ..faults(2)
        },
    ),
    cut("three blades evict and fetch again", THREE, faults(4)),
    cut(
        "three blades: a crash and a return",
        THREE,
        Budget {
            crashes: 1,
            rejoins: 1,
            ..faults(3)
        },
    ),
    cut(
        "three blades: a reset, a loss",
        THREE,
        Budget {
            losses: 1,
            resets: 1,
            ..faults(2)
        },
    ),
    cut(
        "three blades: a split and a merge",
        Setting { slots: 2, ..THREE },
        Budget {
            splits: 1,
            merges: 1,
            ..faults(3)
        },
    ),
    cut(
        "three blades: memory is unmapped and mapped, a loss, a crash and a return",
        THREE,
        Budget {
            losses: 1,
            crashes: 1,
            rejoins: 1,
            unmaps: 1,
            maps: 1,
            ..faults(3)
        },
    ),
    cut(
        "three blades: protection changes, a reset, a blade is late and returns",
        THREE,
        Budget {
            rejoins: 1,
            overdue: 1,
            resets: 1,
            protects: 2,
            ..faults(3)
        },
    ),
    cut(
        "three blades: all of it",
        Setting { slots: 2, ..THREE },
        Budget {
            losses: 1,
            repeats: 1,
            early: 1,
            crashes: 1,
            rejoins: 1,
            overdue: 1,
            strangers: 1,
            resets: 1,
            splits: 1,
            merges: 1,
            unmaps: 1,
            maps: 1,
            protects: 1,
            ..faults(3)
        },
    ),
    cut(
        "three blades: an atomic operation, a loss, a crash",
        THREE,
        Budget {
            losses: 1,
            crashes: 1,
            operations: 1,
            ..faults(3)
        },
    ),
];
