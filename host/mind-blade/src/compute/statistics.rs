//! How long faults took, by the transition of the directory that they caused.

use hdrhistogram::Histogram;
use mind_api::program::{BUCKETS_NS, TransitionReport};
use mind_common::directory::Transition;

/// The longest time that is recorded exactly: a minute, in nanoseconds.
const LONGEST: u64 = 60_000_000_000;
/// Decimal digits kept.
const DIGITS: u8 = 2;

/// What the engine measured since it began.
#[derive(Clone, Debug)]
pub(crate) struct Statistics {
    /// Times in nanoseconds, in the order of [`Transition::ALL`].
    transitions: [Histogram<u64>; Transition::ALL.len()],
    /// Their sums.
    sums: [u64; Transition::ALL.len()],
    /// Datagrams that could not be parsed.
    pub(crate) malformed: u64,
    /// Datagrams with a page that no request waited for.
    pub(crate) unwanted: u64,
}

impl Statistics {
    pub(super) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST, DIGITS)
            .expect("the bounds are ordered and the digits few");
        Self {
            transitions: std::array::from_fn(|_| histogram.clone()),
            sums: [0; Transition::ALL.len()],
            malformed: 0,
            unwanted: 0,
        }
    }

    pub(super) fn served(&mut self, transition: Option<Transition>, nanos: u64) {
        if let Some(transition) = transition {
            self.transitions[transition as usize].saturating_record(nanos.max(1));
            self.sums[transition as usize] += nanos;
        }
    }

    /// Figures of each transition.
    pub(super) fn transitions(&self) -> Vec<TransitionReport> {
        let of = |transition: Transition| {
            let histogram = &self.transitions[transition as usize];
            TransitionReport {
                transition: transition.name().to_owned(),
                count: histogram.len(),
                p50_ns: histogram.value_at_quantile(0.5),
                p99_ns: histogram.value_at_quantile(0.99),
                sum_ns: self.sums[transition as usize],
                buckets: buckets(histogram),
            }
        };
        Transition::ALL.into_iter().map(of).collect()
    }
}

/// How many faults are in each of [`BUCKETS_NS`], within the histogram's precision.
fn buckets(histogram: &Histogram<u64>) -> Vec<u64> {
    let mut counts = vec![0; BUCKETS_NS.len()];
    for step in histogram.iter_recorded() {
        let bucket = BUCKETS_NS.partition_point(|bound| *bound < step.value_iterated_to());
        if let Some(count) = counts.get_mut(bucket) {
            *count += step.count_since_last_iteration();
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_is_in_the_bucket_of_its_time() {
        let mut statistics = Statistics::new();
        let transition = Transition::ALL[0];
        for nanos in [900, 1_200, 1_400, 40_000, 20_000_000_000] {
            statistics.served(Some(transition), nanos);
        }
        let report = statistics.transitions().remove(0);
        assert_eq!(report.count, 5);
        assert_eq!(report.sum_ns, 20_000_043_500);
        let of = |bound| BUCKETS_NS.iter().position(|other| *other == bound).unwrap();
        let mut expected = vec![0; BUCKETS_NS.len()];
        expected[of(1_000)] = 1;
        expected[of(1_500)] = 2;
        expected[of(50_000)] = 1;
        assert_eq!(report.buckets, expected, "the slowest is above all bounds");
        assert!(BUCKETS_NS.is_sorted());
        assert_eq!(BUCKETS_NS.last(), Some(&10_000_000_000));
    }
}
