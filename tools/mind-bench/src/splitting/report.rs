//! The bench's report: false invalidations, slots, and what splitting costs others; and whether bounds are kept.

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::samples::Quantiles;

/// The most false invalidations once regions are split, in those of the first second.
const STABLE_BOUND: f64 = 0.1;
/// The most that loads of others may take while regions are split, in what they take otherwise, at p99.
const PROBE_BOUND: f64 = 1.3;

/// The bench's answer: medians over rounds. The keys are part of its interface.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Blades that write, each its own page of every region.
    pub(super) writers: usize,
    pub(super) regions: u64,
    pub(super) epoch_ms: u32,
    pub(super) rounds: usize,
    pub(super) round_ms: u64,
    pub(super) false_invalidations_per_s: FalseInvalidations,
    /// When the last region of a round was split, in seconds since it began.
    pub(super) settled_s: f64,
    /// In all rounds.
    pub(super) splits: u64,
    /// In all rounds.
    pub(super) merges: u64,
    pub(super) slots: Slots,
    pub(super) passes_per_s: Passes,
    pub(super) probe: Probe,
}

/// Pages falsely invalidated each second.
#[derive(Debug, Serialize)]
pub(super) struct FalseInvalidations {
    first_second: f64,
    /// In the last second.
    stable: f64,
    /// The second in parts of the first.
    ratio: f64,
}

impl FalseInvalidations {
    pub(super) fn new(first_second: f64, stable: f64) -> Self {
        Self {
            first_second,
            stable,
            ratio: stable / first_second,
        }
    }
}

/// Slots of the directory in use.
#[derive(Debug, Serialize)]
pub(super) struct Slots {
    /// Before a round.
    pub(super) before: f64,
    /// The most in a round; those of the memory that is loaded are among them.
    pub(super) most: f64,
    /// At a round's end.
    pub(super) stable: f64,
}

/// Times each second that a blade was through with its pages, with a pause of 1 ms after each.
#[derive(Debug, Serialize)]
pub(super) struct Passes {
    /// In the first second.
    pub(super) first_second: f64,
    /// In the last second.
    pub(super) stable: f64,
    /// In the last second of rounds without epochs.
    pub(super) without: f64,
}

/// What loads of another blade take that come while regions are split, and at the same time of rounds without epochs.
#[derive(Debug, Serialize)]
pub(super) struct Probe {
    with: Quantiles,
    without: Quantiles,
    p99_ratio: f64,
}

impl Probe {
    pub(super) fn new(with: Quantiles, without: Quantiles) -> Self {
        Self {
            with,
            without,
            p99_ratio: with.p99_us / without.p99_us,
        }
    }
}

impl Report {
    /// Bounds that are exceeded; one sentence each.
    pub(super) fn complaints(&self) -> Vec<String> {
        let (stable, probe) = (self.false_invalidations_per_s.ratio, self.probe.p99_ratio);
        // What is no number is not within a bound.
        let is_within = |ratio: f64, bound: f64| ratio <= bound;
        let mut complaints = Vec::new();
        if !is_within(stable, STABLE_BOUND) {
            complaints.push(format!(
                "false invalidations of the last second are {stable:.3} of those of the first, more than {STABLE_BOUND}"
            ));
        }
        if !is_within(probe, PROBE_BOUND) {
            complaints.push(format!(
                "loads of another blade take {probe:.2} times as long at p99 while regions are split, more than {PROBE_BOUND}"
            ));
        }
        complaints
    }

    /// As text.
    pub(super) fn text(&self) -> String {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        table.set_header(["", "first second", "last second", "without epochs"]);
        let falsely = &self.false_invalidations_per_s;
        let passes = &self.passes_per_s;
        table.add_row([
            "false invalidations per s".to_owned(),
            format!("{:.0}", falsely.first_second),
            format!("{:.0}", falsely.stable),
            String::new(),
        ]);
        table.add_row([
            "passes per s and blade".to_owned(),
            format!("{:.0}", passes.first_second),
            format!("{:.0}", passes.stable),
            format!("{:.0}", passes.without),
        ]);
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let Self {
            writers,
            regions,
            epoch_ms,
            rounds,
            slots,
            probe,
            ..
        } = self;
        format!(
            "{writers} blades, each its own page of {regions} regions; epochs of {epoch_ms} ms; medians of {rounds} rounds\n\
             {table}\n\
             settled after {:.2} s; {} splits and {} merges in all rounds\n\
             slots: {:.0} before a round, {:.0} at most, {:.0} at its end\n\
             loads of another blade while regions are split: {:.1} us at p50, {:.1} at p99 ({} loads); \
             without epochs {:.1} and {:.1} ({}); p99 {:.2} times",
            self.settled_s,
            self.splits,
            self.merges,
            slots.before,
            slots.most,
            slots.stable,
            probe.with.p50_us,
            probe.with.p99_us,
            probe.with.count,
            probe.without.p50_us,
            probe.without.p99_us,
            probe.without.count,
            probe.p99_ratio,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantiles(p99_us: f64) -> Quantiles {
        Quantiles {
            p50_us: 1.0,
            p99_us,
            count: 100,
        }
    }

    fn report(stable: f64, with: f64) -> Report {
        Report {
            writers: 4,
            regions: 10,
            epoch_ms: 100,
            rounds: 1,
            round_ms: 2000,
            false_invalidations_per_s: FalseInvalidations::new(100.0, stable),
            settled_s: 0.5,
            splits: 30,
            merges: 0,
            slots: Slots {
                before: 0.0,
                most: 40.0,
                stable: 40.0,
            },
            passes_per_s: Passes {
                first_second: 1.0,
                stable: 9.0,
                without: 1.0,
            },
            probe: Probe::new(quantiles(with), quantiles(10.0)),
        }
    }

    #[test]
    fn what_exceeds_a_bound_is_said() {
        assert!(report(10.0, 13.0).complaints().is_empty());
        assert_eq!(report(11.0, 13.0).complaints().len(), 1);
        assert_eq!(report(f64::NAN, 13.1).complaints().len(), 2);
        assert!(report(10.0, 13.0).text().contains("p99 1.30 times"));
    }
}
