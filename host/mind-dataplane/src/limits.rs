//! What is fixed when programs and maps are loaded: how large the maps are, above all.

use mind_common::table::MAX_TRIES;

/// Sizes of a switch's maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchLimits {
    /// Interfaces: one more than the highest index of a port's.
    pub interfaces: u32,
    /// Protection domains: one more than the highest number.
    pub domains: u32,
    /// Protection entries.
    pub protection: u32,
    /// Translation entries: one per memory blade, and outliers.
    pub translation: u32,
    /// Directory slots, of which the first is never used.
    pub slots: u32,
    /// How often a program tries to change a region's word that other processors change
    /// meanwhile, before it refuses: 1 to [`MAX_TRIES`].
    pub tries: u32,
    /// Log every verdict; for debugging, it costs more than all the rest.
    pub log_verdicts: bool,
    /// Let packets be lost on purpose ([`Switch::lose`](crate::Switch::lose)); for tests.
    pub lose_on_purpose: bool,
}

impl Default for SwitchLimits {
    /// For a rack: 30,000 slots as in the paper's switch (section 7), and room for many vmas.
    fn default() -> Self {
        Self {
            interfaces: 1024,
            domains: 4096,
            protection: 65_536,
            translation: 262_144,
            slots: 30_001,
            tries: MAX_TRIES,
            log_verdicts: false,
            lose_on_purpose: false,
        }
    }
}

/// Sizes of a memory blade's maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Interfaces: one more than the highest index of those that serve.
    pub interfaces: u32,
    /// Pages offered. All of them are allocated, and zeroed, when the program is loaded.
    pub pages: u32,
    /// Log every verdict; for debugging.
    pub log_verdicts: bool,
}

impl MemoryLimits {
    /// Limits for `pages` pages.
    pub fn for_pages(pages: u32) -> Self {
        Self {
            interfaces: 1024,
            pages,
            log_verdicts: false,
        }
    }
}
