//! Packets by verdict, summed over processors.

use mind_common::verdict::{Counters, Verdict};

use crate::{Result, maps::Maps};

/// The name of its map.
pub(crate) const MAP: &str = "COUNTERS";

/// How many packets of a port (or of several) got each verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketCounters([u64; Verdict::ALL.len()]);

impl Default for PacketCounters {
    fn default() -> Self {
        Self([0; Verdict::ALL.len()])
    }
}

impl PacketCounters {
    /// The counters of the interface `ifindex`; interfaces beyond the limit are counted as
    /// interface 0.
    pub(crate) fn of(maps: &Maps, ifindex: u32) -> Result<Self> {
        let mut sums = Self::default();
        for counters in maps.per_cpu::<Counters>(MAP, ifindex)? {
            for verdict in Verdict::ALL {
                sums.0[verdict.number()] += counters[verdict.number()];
            }
        }
        Ok(sums)
    }

    /// Packets that got `verdict`.
    pub fn of_verdict(&self, verdict: Verdict) -> u64 {
        self.0[verdict.number()]
    }

    /// The verdicts that packets got, with how many did.
    pub fn iter(&self) -> impl Iterator<Item = (Verdict, u64)> {
        Verdict::ALL
            .into_iter()
            .zip(self.0)
            .filter(|&(_, packets)| packets > 0)
    }

    /// The packets since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut sums = self.clone();
        for (now, then) in sums.0.iter_mut().zip(earlier.0) {
            *now = now.wrapping_sub(then);
        }
        sums
    }

    /// The sums of both.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut sums = self.clone();
        for (ours, theirs) in sums.0.iter_mut().zip(other.0) {
            *ours += theirs;
        }
        sums
    }
}
