//! Times of single accesses or requests, and their quantiles.

use serde::Serialize;

/// Times in nanoseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<u64>);

/// What is reported of samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Quantiles {
    /// The median, in microseconds.
    pub(crate) p50_us: f64,
    /// 99 of 100 take no longer, in microseconds.
    pub(crate) p99_us: f64,
    /// Of how many.
    pub(crate) count: usize,
}

impl Samples {
    /// Adds times.
    pub(crate) fn add(&mut self, nanos: impl IntoIterator<Item = u64>) {
        self.0.extend(nanos);
    }

    /// The quantiles; `None` without a sample.
    pub(crate) fn quantiles(mut self) -> Option<Quantiles> {
        self.0.sort_unstable();
        Some(Quantiles {
            p50_us: micros(rank(&self.0, 50)?),
            p99_us: micros(rank(&self.0, 99)?),
            count: self.0.len(),
        })
    }
}

/// The least of the sorted `values` that at least `percent` percent of them do not exceed.
fn rank(values: &[u64], percent: usize) -> Option<u64> {
    let rank = (values.len() * percent).div_ceil(100);
    values.get(rank.saturating_sub(1)).copied()
}

fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantiles(nanos: impl IntoIterator<Item = u64>) -> Option<Quantiles> {
        let mut samples = Samples::default();
        samples.add(nanos);
        samples.quantiles()
    }

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let expected = Quantiles {
            p50_us: 50.0,
            p99_us: 99.0,
            count: 100,
        };
        let descending = (1..=100).rev().map(|number| number * 1000);
        assert_eq!(quantiles(descending), Some(expected));
    }

    #[test]
    fn few_samples_have_quantiles_and_none_has_not() {
        let one = quantiles([1500]).expect("one is enough");
        assert_eq!((one.p50_us, one.p99_us, one.count), (1.5, 1.5, 1));
        let two = quantiles([1000, 2000]).expect("two are enough");
        assert_eq!((two.p50_us, two.p99_us), (1.0, 2.0));
        assert_eq!(quantiles([]), None);
    }
}
