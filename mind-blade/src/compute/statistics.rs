//! How long faults took, by the way they took through the directory.

use hdrhistogram::Histogram;
use mind_api::program::PathReport;
use mind_common::directory::Path;

/// Longest time told apart from longer ones: a minute, in nanoseconds.
const LONGEST: u64 = 60_000_000_000;
/// Decimal digits kept.
const DIGITS: u8 = 2;

/// What the engine measured since it began.
#[derive(Clone, Debug)]
pub(crate) struct Statistics {
    /// Times in nanoseconds, in the order of [`Path::ALL`].
    paths: [Histogram<u64>; Path::ALL.len()],
    /// Datagrams that were no messages.
    pub(crate) malformed: u64,
    /// Datagrams with a page that nobody waited for.
    pub(crate) unwanted: u64,
}

impl Statistics {
    pub(super) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST, DIGITS)
            .expect("the bounds are ordered and the digits few");
        Self {
            paths: std::array::from_fn(|_| histogram.clone()),
            malformed: 0,
            unwanted: 0,
        }
    }

    pub(super) fn served(&mut self, path: Option<Path>, nanos: u64) {
        if let Some(path) = path {
            self.paths[path as usize].saturating_record(nanos.max(1));
        }
    }

    /// Figures of each path.
    pub(super) fn paths(&self) -> Vec<PathReport> {
        let of = |path: Path| {
            let histogram = &self.paths[path as usize];
            PathReport {
                path: path.name().to_owned(),
                count: histogram.len(),
                p50_ns: histogram.value_at_quantile(0.5),
                p99_ns: histogram.value_at_quantile(0.99),
            }
        };
        Path::ALL.into_iter().map(of).collect()
    }
}
