//! Samples by family, in the types of the crate `prometheus`: a daemon's existing counters are shown as they are, not
//! counted a second time.

use std::collections::BTreeMap;

use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType,
};

/// What a daemon shows at one moment. Each family has a name, help and type, and any number of samples.
///
/// ```
/// use mind_metrics::Families;
///
/// let mut families = Families::with_label("blade", "c0");
/// families.counter("mind_faults_total", "Faults taken.").add(&[], 3.0);
/// assert_eq!(families.into_families()[0].name(), "mind_faults_total");
/// ```
#[derive(Debug, Default)]
pub struct Families {
    /// Labels of every sample.
    common: Vec<(&'static str, String)>,
    families: BTreeMap<String, MetricFamily>,
}

/// A family that gets samples.
#[derive(Debug)]
pub struct Family<'a> {
    common: &'a [(&'static str, String)],
    family: &'a mut MetricFamily,
}

/// What a histogram has observed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observations {
    /// How many there are.
    pub count: u64,
    /// Their sum, in the family's unit.
    pub sum: f64,
    /// Upper bounds in the family's unit, ascending, each with how many were not above it.
    pub buckets: Vec<(f64, u64)>,
}

impl Families {
    /// Without samples; each sample that is added gets the label `name`=`value`.
    pub fn with_label(name: &'static str, value: &str) -> Self {
        Self {
            common: vec![(name, value.to_owned())],
            families: BTreeMap::new(),
        }
    }

    /// A value that only grows; its name ends with `_total`.
    pub fn counter(&mut self, name: &'static str, help: &'static str) -> Family<'_> {
        self.family(name, help, MetricType::COUNTER)
    }

    /// A value that goes up and down.
    pub fn gauge(&mut self, name: &'static str, help: &'static str) -> Family<'_> {
        self.family(name, help, MetricType::GAUGE)
    }

    /// A distribution; in seconds or bytes.
    pub fn histogram(&mut self, name: &'static str, help: &'static str) -> Family<'_> {
        self.family(name, help, MetricType::HISTOGRAM)
    }

    fn family(&mut self, name: &'static str, help: &'static str, kind: MetricType) -> Family<'_> {
        debug_assert_eq!(breach(name, kind), None, "{name}");
        let family = self.families.entry(name.to_owned()).or_insert_with(|| {
            let mut family = MetricFamily::default();
            family.set_name(name.to_owned());
            family.set_help(help.to_owned());
            family.set_field_type(kind);
            family
        });
        Family {
            common: &self.common,
            family,
        }
    }

    /// Adds what a registry has.
    pub fn extend(&mut self, families: impl IntoIterator<Item = MetricFamily>) {
        for mut family in families {
            for metric in family.mut_metric() {
                let mut labels = pairs(&self.common, &[]);
                labels.append(&mut metric.take_label());
                metric.set_label(labels);
            }
            self.families.insert(family.name().to_owned(), family);
        }
    }

    /// All that have samples, by name.
    pub fn into_families(self) -> Vec<MetricFamily> {
        let families = self.families.into_values();
        families
            .filter(|family| !family.get_metric().is_empty())
            .collect()
    }
}

impl Family<'_> {
    /// Adds a sample of a counter or gauge. 2^53 and more are rounded.
    pub fn add(&mut self, labels: &[(&str, &str)], value: f64) -> &mut Self {
        let mut metric = Metric::from_label(pairs(self.common, labels));
        match self.family.get_field_type() {
            MetricType::COUNTER => {
                let mut counter = Counter::default();
                counter.set_value(value);
                metric.set_counter(counter);
            }
            _ => {
                let mut gauge = Gauge::default();
                gauge.set_value(value);
                metric.set_gauge(gauge);
            }
        }
        self.family.mut_metric().push(metric);
        self
    }

    /// Adds a sample of a histogram.
    pub fn observe(&mut self, labels: &[(&str, &str)], observed: &Observations) -> &mut Self {
        let bucket = |(bound, count): &(f64, u64)| {
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(*bound);
            bucket.set_cumulative_count(*count);
            bucket
        };
        let mut histogram = Histogram::default();
        histogram.set_sample_count(observed.count);
        histogram.set_sample_sum(observed.sum);
        histogram.set_bucket(observed.buckets.iter().map(bucket).collect());
        let mut metric = Metric::from_label(pairs(self.common, labels));
        metric.set_histogram(histogram);
        self.family.mut_metric().push(metric);
        self
    }
}

fn pairs(common: &[(&'static str, String)], labels: &[(&str, &str)]) -> Vec<LabelPair> {
    let common = common.iter().map(|(name, value)| (*name, value.as_str()));
    let pair = |(name, value): (&str, &str)| {
        let mut pair = LabelPair::default();
        pair.set_name(name.to_owned());
        pair.set_value(value.to_owned());
        pair
    };
    common.chain(labels.iter().copied()).map(pair).collect()
}

/// What is wrong with a name, by Prometheus's conventions.
fn breach(name: &str, kind: MetricType) -> Option<&'static str> {
    let is_total = name.ends_with("_total");
    let is_of_base = ["_ns", "_us", "_ms", "_kib", "_mib", "_pages"];
    if !name.starts_with("mind_") {
        Some("it does not begin with mind_")
    } else if is_total != (kind == MetricType::COUNTER) {
        Some("_total is for counters, and for all of them")
    } else if is_of_base.iter().any(|unit| name.ends_with(unit)) {
        Some("it is not in seconds or bytes")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_break_the_conventions_are_found() {
        for (name, kind, is_fine) in [
            ("mind_faults_total", MetricType::COUNTER, true),
            ("mind_faults", MetricType::COUNTER, false),
            ("mind_cache_bytes", MetricType::GAUGE, true),
            ("mind_cache_total", MetricType::GAUGE, false),
            ("mind_fault_seconds", MetricType::HISTOGRAM, true),
            ("mind_fault_ns", MetricType::HISTOGRAM, false),
            ("faults_total", MetricType::COUNTER, false),
        ] {
            assert_eq!(breach(name, kind).is_none(), is_fine, "{name}");
        }
    }

    #[test]
    fn a_family_without_samples_is_not_shown() {
        let mut families = Families::default();
        families.gauge("mind_ports", "Ports.");
        assert!(families.into_families().is_empty());
    }
}
