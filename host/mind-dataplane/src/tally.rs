//! Packets by verdict, summed over processors.

use mind_common::verdict::{Counters, Verdict};

use crate::{Result, maps::Maps};

/// The name of its map.
pub(crate) const MAP: &str = "COUNTERS";

/// How many packets of a port (or of several) met each verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally([u64; Verdict::ALL.len()]);

impl Default for Tally {
    fn default() -> Self {
        Self([0; Verdict::ALL.len()])
    }
}

impl Tally {
    /// The counters of the interface `ifindex`; those of interfaces beyond the limit are
    /// interface 0's.
    pub(crate) fn of(maps: &Maps, ifindex: u32) -> Result<Self> {
        let mut tally = Self::default();
        for counters in maps.per_cpu::<Counters>(MAP, ifindex)? {
            for verdict in Verdict::ALL {
                tally.0[verdict.number()] += counters[verdict.number()];
            }
        }
        Ok(tally)
    }

    /// Packets that met `verdict`.
    pub fn of_verdict(&self, verdict: Verdict) -> u64 {
        self.0[verdict.number()]
    }

    /// Verdicts that some packet met, and how many did.
    pub fn iter(&self) -> impl Iterator<Item = (Verdict, u64)> {
        Verdict::ALL
            .into_iter()
            .zip(self.0)
            .filter(|&(_, packets)| packets > 0)
    }

    /// The packets since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut tally = self.clone();
        for (now, then) in tally.0.iter_mut().zip(earlier.0) {
            *now = now.wrapping_sub(then);
        }
        tally
    }

    /// These packets and those.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut tally = self.clone();
        for (ours, theirs) in tally.0.iter_mut().zip(other.0) {
            *ours += theirs;
        }
        tally
    }
}
