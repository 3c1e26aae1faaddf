//! The metrics of a compute blade.

use mind_api::program::{BUCKETS_NS, BladeReport, TransitionReport};
use mind_common::addr::PAGE_SIZE;
use mind_metrics::{Families, Observations};

/// The metrics of the blade named `blade`, from its engine's report; `None` while the engine is ending.
pub(super) fn families(blade: &str, report: Option<&BladeReport>) -> Families {
    let mut families = Families::with_label("blade", blade);
    let Some(report) = report else {
        return families;
    };
    let page = PAGE_SIZE as u64;
    for (name, help, value) in [
        (
            "mind_cache_bytes",
            "Bytes of the pages that are cached.",
            report.pages * page,
        ),
        (
            "mind_cache_capacity_bytes",
            "Bytes that may be cached at most.",
            report.capacity * page,
        ),
        (
            "mind_programs",
            "Programs that are attached.",
            report.programs,
        ),
    ] {
        families.gauge(name, help).add(&[], value as f64);
    }
    if let Some(nanos) = report.round_trip_ns {
        families
            .gauge(
                "mind_round_trip_seconds",
                "Smoothed time from a request to its answer.",
            )
            .add(&[], seconds(nanos));
    }
    for counter in BladeReport::COUNTERS {
        families
            .counter(counter.metric, counter.help)
            .add(&[], (counter.get)(report) as f64);
    }
    let mut times = families.histogram(
        "mind_fault_seconds",
        "From a fault to its page, by the transition that it caused in the directory.",
    );
    for transition in &report.transitions {
        times.observe(
            &[("transition", &transition.transition)],
            &observations(transition),
        );
    }
    families
}

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
