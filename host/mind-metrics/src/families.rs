//! Samples by family, in the types of the crate `prometheus`: a daemon's existing counters are shown as they are, not
//! counted a second time.

use std::collections::BTreeMap;

use prometheus::proto::{
    self, Bucket, Counter, Gauge, Histogram, LabelPair, MetricFamily, MetricType,
};

use crate::catalogue::{Kind, Metric};

/// What a daemon shows at one moment. Each family's name, help and type are said once, its samples one by one.
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
    metric: &'static Metric,
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

    /// The family of a metric, to which samples can be added.
    pub fn of(&mut self, metric: &'static Metric) -> Family<'_> {
        let family = self
            .families
            .entry(metric.name.to_owned())
            .or_insert_with(|| {
                let mut family = MetricFamily::default();
                family.set_name(metric.name.to_owned());
                family.set_help(metric.help.to_owned());
                family.set_field_type(match metric.kind {
                    Kind::Counter => MetricType::COUNTER,
                    Kind::Gauge => MetricType::GAUGE,
                    Kind::Histogram => MetricType::HISTOGRAM,
                });
                family
            });
        Family {
            common: &self.common,
            metric,
            family,
        }
    }

    /// Adds what a registry has.
    pub fn extend(&mut self, families: impl IntoIterator<Item = MetricFamily>) {
        for mut family in families {
            for metric in family.mut_metric() {
                let mut labels: Vec<_> = common_pairs(&self.common).collect();
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
    /// Adds a sample of a counter or gauge, with a value for each of the metric's labels. 2^53 and more are rounded.
    pub fn add(&mut self, labels: &[&str], value: f64) -> &mut Self {
        let mut sample = self.sample(labels);
        match self.metric.kind {
            Kind::Counter => {
                let mut counter = Counter::default();
                counter.set_value(value);
                sample.set_counter(counter);
            }
            Kind::Gauge | Kind::Histogram => {
                debug_assert_eq!(self.metric.kind, Kind::Gauge, "{}", self.metric.name);
                let mut gauge = Gauge::default();
                gauge.set_value(value);
                sample.set_gauge(gauge);
            }
        }
        self.family.mut_metric().push(sample);
        self
    }

    /// Adds a sample of a histogram, with a value for each of the metric's labels.
    pub fn observe(&mut self, labels: &[&str], observed: &Observations) -> &mut Self {
        debug_assert_eq!(self.metric.kind, Kind::Histogram, "{}", self.metric.name);
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
        let mut sample = self.sample(labels);
        sample.set_histogram(histogram);
        self.family.mut_metric().push(sample);
        self
    }

    /// A sample without its value.
    fn sample(&self, labels: &[&str]) -> proto::Metric {
        let names = self.metric.labels;
        debug_assert_eq!(names.len(), labels.len(), "{}: labels", self.metric.name);
        let own = names.iter().copied().zip(labels.iter().copied());
        proto::Metric::from_label(common_pairs(self.common).chain(own.map(pair)).collect())
    }
}

fn common_pairs<'a>(
    common: &'a [(&'static str, String)],
) -> impl Iterator<Item = LabelPair> + use<'a> {
    common.iter().map(|(name, value)| pair((name, value)))
}

fn pair((name, value): (&str, &str)) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value.to_owned());
    pair
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;

    #[test]
    fn a_family_without_samples_is_not_shown() {
        let mut families = Families::default();
        families.of(&catalogue::DIRECTORY_SLOTS);
        assert!(families.into_families().is_empty());
    }

    #[test]
    fn a_sample_has_the_labels_that_its_metric_declares() {
        let mut families = Families::default();
        families
            .of(&catalogue::BLADE_UP)
            .add(&["c0", "compute"], 1.0);
        let families = families.into_families();
        let labels = families[0].get_metric()[0].get_label();
        let labels: Vec<_> = labels
            .iter()
            .map(|pair| (pair.name(), pair.value()))
            .collect();
        assert_eq!(labels, [("blade", "c0"), ("kind", "compute")]);
    }
}
