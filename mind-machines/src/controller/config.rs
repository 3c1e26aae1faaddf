//! How patient the controller is, and how much it does at once.

use crate::splitting;

/// How long the controller waits, and how much it does at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// The address of the switch, which blades are told.
    pub address: std::net::Ipv4Addr,
    /// Slots of the directory; the first is never used.
    pub slots: u32,
    /// How long to wait for a region that stays busy, for a change that must be made, in nanoseconds; as all times here.
    pub full: u64,
    /// The same for a split or a merge, which can be left.
    pub optional: u64,
    /// The same for a region of which a blade says that it is stuck.
    pub stuck: u64,
    /// How often to look at a word that is busy: blades' answers change it, of which the controller is not told.
    pub pause: u64,
    /// How long a blade may take to flush something.
    pub flush: u64,
    /// How much longer for each page.
    pub flush_page: u64,
    /// How long an agent may take to say what it counts.
    pub report: u64,
    /// How long compute blades have to come back to a controller that takes over: they try at least once a second, and
    /// accesses of others to what they have fail after 5.
    pub grace: u64,
    /// The same for memory blades, of which more is lost, and which answer packets all the while.
    pub memory_grace: u64,
    /// Slots that are looked at in one act.
    pub sweep: u32,
    /// Regions that are changed at once.
    pub batch: usize,
    /// Bytes that a memory blade is told to zero at once, at most; it does as many of them as it can in a short time.
    pub zero: u64,
    /// How long to wait before a memory blade that could not zero is told again.
    pub again: u64,
    /// Requests that may be under way, or wait until a controller has taken over; more are refused.
    pub operations: usize,
    /// Answers that are kept for one blade; beyond that its next request is refused.
    pub answers: usize,
    /// Outputs that may wait: while there are so many, whoever drives the controller asks for them before it hands in
    /// anything else.
    pub outputs: usize,
    /// The policy by which regions are split and merged; none for only those that operators want changed.
    pub splitting: Option<splitting::Config>,
    /// Whether it notes what operations meet ([`Controller::take_incidents`]).
    pub is_watched: bool,
}

impl Config {
    /// The usual ones, for a switch at that address with so many slots.
    pub const fn new(address: std::net::Ipv4Addr, slots: u32) -> Self {
        Self {
            address,
            slots,
            full: 2_000_000_000,
            optional: 100_000_000,
            stuck: 200_000_000,
            pause: 200_000,
            flush: 2_000_000_000,
            flush_page: 40_000,
            report: 2_000_000_000,
            grace: 3_000_000_000,
            memory_grace: 10_000_000_000,
            sweep: 4096,
            batch: 64,
            zero: 1 << 39,
            again: 1_000_000_000,
            operations: 4096,
            answers: 256,
            outputs: 4096,
            splitting: None,
            is_watched: false,
        }
    }
}
