//! The metrics of a compute blade.

use mind_api::program::{BUCKETS_NS, BladeReport, TransitionReport};
use mind_common::addr::PAGE_SIZE;
use mind_metrics::{
    Families, Observations,
    catalogue::{self, Metric},
};

/// The metrics of the blade named `blade`, from its engine's report; `None` while the engine is ending.
pub(super) fn families(blade: &str, report: Option<&BladeReport>) -> Families {
    let mut families = Families::with_label("blade", blade);
    let Some(report) = report else {
        return families;
    };
    let page = PAGE_SIZE as u64;
    if let Some(nanos) = report.round_trip_ns {
        families.of(&catalogue::ROUND_TRIP).add(&[], seconds(nanos));
    }
    for (metric, value) in [
        (&catalogue::CACHE, report.pages * page),
        (&catalogue::CACHE_CAPACITY, report.capacity * page),
        (&catalogue::PROGRAMS, report.programs),
        (&catalogue::MALFORMED_DATAGRAMS, report.malformed),
        (&catalogue::UNSENT_DATAGRAMS, report.unsent),
    ]
    .into_iter()
    .chain(counted(report))
    {
        families.of(metric).add(&[], value as f64);
    }
    let mut times = families.of(&catalogue::FAULT_TIME);
    for transition in &report.transitions {
        times.observe(&[&transition.transition], &observations(transition));
    }
    families
}

macro_rules! counted {
    ($($(#[doc = $help:literal])+ $name:ident: $metric:literal;)+) => {
        /// The counters of a report, with their families.
        fn counted(report: &BladeReport) -> impl Iterator<Item = (&'static Metric, u64)> {
            let families = &catalogue::BLADE_COUNTERS;
            [$((&families.$name, report.$name)),+].into_iter()
        }
    };
}

mind_common::blade_counters!(counted);

fn observations(transition: &TransitionReport) -> Observations {
    let mut sum = 0;
    let cumulative = transition.buckets.iter().map(|count| {
        sum += count;
        sum
    });
    Observations {
        count: transition.count,
        sum: seconds(transition.sum_ns),
        buckets: BUCKETS_NS
            .into_iter()
            .map(seconds)
            .zip(cumulative)
            .collect(),
    }
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_in_seconds() {
        let transition = TransitionReport {
            transition: "I->S".to_owned(),
            count: 7,
            sum_ns: 1_500_000_000,
            buckets: vec![1, 0, 4],
            ..TransitionReport::default()
        };
        let observed = observations(&transition);
        assert_eq!(observed.buckets, [(1e-6, 1), (1.5e-6, 1), (2e-6, 5)]);
        assert_eq!((observed.count, observed.sum), (7, 1.5));
    }

    #[test]
    fn a_blade_without_programs_has_figures() {
        let report = BladeReport {
            capacity: 4,
            ..BladeReport::default()
        };
        let families = families("c0", Some(&report)).into_families();
        let of = |name: &str| families.iter().find(|family| family.name() == name);
        let capacity = of("mind_cache_capacity_bytes").expect("it is shown");
        assert_eq!(capacity.get_metric()[0].get_gauge().get_value(), 16_384.0);
        assert!(of("mind_faults_total").is_some());
    }
}
