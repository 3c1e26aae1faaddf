//! The size of a model, and its budget of faults.

/// How often each may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Threads fault; any number of times if there is none.
    pub faults: Option<u8>,
    /// A packet is lost.
    pub losses: u8,
    /// A packet is delivered twice.
    pub repeats: u8,
    /// A timer fires though the answer may still come.
    pub early: u8,
    /// A compute blade crashes.
    pub crashes: u8,
    /// A blade that is gone registers again, as a new incarnation.
    pub rejoins: u8,
    /// A compute blade does not carry out an order in time, and is fenced.
    pub overdue: u8,
    /// A program of another domain faults on the region.
    pub strangers: u8,
    /// A blade has an atomic operation carried out in memory; not where regions change.
    pub operations: u8,
    /// A region is reset.
    pub resets: u8,
    /// A region is split.
    pub splits: u8,
    /// Two regions are merged.
    pub merges: u8,
    /// Slots are taken back.
    pub reclaims: u8,
    /// A program unmaps the memory.
    pub unmaps: u8,
    /// A program maps memory again.
    pub maps: u8,
    /// A program changes what its domain may do with the memory: read only, and write again.
    pub protects: u8,
}

impl Budget {
    /// Requests for rights that programs may still make.
    pub const fn rights(&self) -> u8 {
        self.unmaps + self.maps + self.protects
    }
}

/// A model's size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Setting {
    /// Compute blades.
    pub blades: u8,
    /// Pages that they fault on, from the first of the region on.
    pub pages: u8,
    /// The region's order.
    pub order: u8,
    /// Slots of the directory.
    pub slots: usize,
    /// Pages that a blade has room for.
    pub capacity: usize,
    /// Whether the region has no slot at first, and gets one of a unit.
    pub is_untouched: bool,
    /// Whether the region is split at first.
    pub is_split: bool,
    /// Whether a page's residency lasts until its timer fires.
    pub is_locked: bool,
    /// The budget of faults.
    pub budget: Budget,
}

impl Setting {
    /// Two blades and a page; nothing goes wrong.
    pub const SMALLEST: Self = Self {
        blades: 2,
        pages: 1,
        order: 1,
        slots: 1,
        capacity: 2,
        is_untouched: false,
        is_split: false,
        is_locked: false,
        budget: Budget {
            faults: None,
            losses: 0,
            repeats: 0,
            early: 0,
            crashes: 0,
            rejoins: 0,
            overdue: 0,
            strangers: 0,
            operations: 0,
            resets: 0,
            splits: 0,
            merges: 0,
            reclaims: 0,
            unmaps: 0,
            maps: 0,
            protects: 0,
        },
    };
}
