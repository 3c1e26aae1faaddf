//! What happened between two samples, per second. Pure.

use std::collections::BTreeMap;

use mind_api::{
    message::BladeKind,
    operator::{PortStatus, RegionStatus, SplittingStatus},
    program::{BUCKETS_NS, BladeReport, TransitionReport},
};
use mind_common::verdict::{Kind, Verdict};
use serde::{Serialize, Serializer};

use super::sample::Sample;

/// All that a screen shows. Rates are per second, and 0 when there is only one sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Rates {
    /// Seconds between the samples.
    pub(super) seconds: f64,
    /// Blades: those that are ready.
    pub(super) ready: Part,
    /// Directory slots.
    pub(super) slots: Part,
    /// How regions are split and merged, if the controller does that.
    pub(super) sizes: Option<Sizes>,
    /// Pages of memory that vmas have.
    pub(super) memory: Part,
    pub(super) domains: usize,
    pub(super) processes: u32,
    /// Compute blades.
    pub(super) blades: Vec<Blade>,
    pub(super) ports: Vec<Port>,
    /// Busiest first.
    pub(super) regions: Vec<Region>,
}

/// How regions are split and merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Sizes {
    /// Regions that are split now.
    pub(super) split: u32,
    pub(super) splits: f64,
    pub(super) merges: f64,
    /// Pages that were falsely invalidated.
    pub(super) false_invalidations: f64,
    /// The paper's t: more false invalidations than that in an epoch, and a region is split.
    pub(super) threshold: u64,
}

impl Sizes {
    fn between(clock: Clock, before: Option<SplittingStatus>, after: SplittingStatus) -> Self {
        let before = before.unwrap_or(after);
        Self {
            split: after.split,
            splits: clock.rate(before.splits, after.splits),
            merges: clock.rate(before.merges, after.merges),
            false_invalidations: clock.rate(before.false_invalidations, after.false_invalidations),
            threshold: after.threshold,
        }
    }
}

/// So many of so many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Part {
    pub(super) used: u64,
    pub(super) of: u64,
}

impl Part {
    /// From 0 to 1.
    pub(super) fn share(self) -> f64 {
        self.used as f64 / self.of.max(1) as f64
    }
}

/// Pairs as an object, in their order.
fn as_object<S: Serializer>(pairs: &[(String, f64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, rate)| (name, rate)))
}

/// A compute blade's cache.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Blade {
    pub(super) name: String,
    /// Pages in its cache; none if it does not answer.
    pub(super) pages: Option<Part>,
    pub(super) faults: f64,
    /// Of all faults, those that needed no request; none if there were no faults.
    pub(super) hit_rate: Option<f64>,
    /// Faults by the transition that they were, in the directory's order.
    #[serde(serialize_with = "as_object")]
    pub(super) transitions: Vec<(String, f64)>,
    /// Half of the faults that took a request took less, in nanoseconds.
    pub(super) p50_ns: Option<u64>,
    /// 99 in 100 took less.
    pub(super) p99_ns: Option<u64>,
    pub(super) evictions: f64,
    pub(super) write_backs: f64,
    pub(super) invalidations: f64,
    pub(super) timeouts: f64,
}

/// A port of the switch.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Port {
    pub(super) name: String,
    pub(super) blade: String,
    /// All packets that came in there.
    pub(super) packets: f64,
    /// Those that went back as refusals.
    pub(super) refused: f64,
    /// Those that ended there though they should not.
    pub(super) dropped: f64,
    /// Why they were refused or dropped, most frequent first.
    #[serde(serialize_with = "as_object")]
    pub(super) reasons: Vec<(String, f64)>,
}

/// A region of the directory.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Region {
    pub(super) va: u64,
    pub(super) length: u64,
    pub(super) state: String,
    pub(super) blades: Vec<String>,
    /// Requests that were granted at once.
    pub(super) accesses: f64,
    pub(super) invalidations: f64,
    /// Pages that were dropped though no blade wanted them.
    pub(super) false_invalidations: f64,
}

/// Which regions come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// Those with most requests and invalidations together.
    #[default]
    Activity,
    /// Those with most invalidations.
    Invalidations,
    /// Those with most false ones.
    False,
}

impl Order {
    pub(super) const fn next(self) -> Self {
        match self {
            Self::Activity => Self::Invalidations,
            Self::Invalidations => Self::False,
            Self::False => Self::Activity,
        }
    }
}

/// From two counts to a rate.
#[derive(Clone, Copy)]
struct Clock {
    seconds: f64,
}

impl Clock {
    /// Of a counter; one that began anew counts from 0.
    fn rate(self, before: u64, after: u64) -> f64 {
        let count = if after < before {
            after
        } else {
            after - before
        };
        self.of(count)
    }

    /// Of a counter of 32 bits, which wraps.
    fn rate_of_wrapping(self, before: u32, after: u32) -> f64 {
        self.of(after.wrapping_sub(before).into())
    }

    fn of(self, count: u64) -> f64 {
        match self.seconds > 0.0 {
            true => count as f64 / self.seconds,
            false => 0.0,
        }
    }
}

impl Rates {
    pub(super) fn between(before: &Sample, after: &Sample, order: Order) -> Self {
        let seconds = after.at.duration_since(before.at).as_secs_f64();
        let clock = Clock { seconds };
        let status = &after.status;
        let compute = status
            .blades
            .iter()
            .filter(|blade| blade.kind == BladeKind::Compute);
        // As their ports are, not as they came.
        let port = |name: &str| {
            let blade = Some(name);
            status
                .ports
                .iter()
                .position(|port| port.blade.as_deref() == blade)
        };
        let mut compute: Vec<_> = compute.collect();
        compute.sort_by_key(|blade| port(&blade.name).unwrap_or(usize::MAX));
        let blades = compute.into_iter().map(|blade| {
            let name = &blade.name;
            match after.caches.get(name) {
                Some(cache) => Blade::between(clock, name, before.caches.get(name), cache),
                None => Blade {
                    name: name.clone(),
                    ..Blade::default()
                },
            }
        });
        let ports = status.ports.iter().map(|port| {
            let earlier = before.status.ports.iter();
            let earlier = earlier.clone().find(|other| other.ifindex == port.ifindex);
            Port::between(clock, earlier.unwrap_or(port), port)
        });
        // One that is new has counted from 0 since it was mapped, whenever that was.
        let regions = after.regions.iter().map(|(va, region)| {
            Region::between(clock, before.regions.get(va).unwrap_or(region), region)
        });
        let memory = status
            .blades
            .iter()
            .filter(|blade| blade.kind == BladeKind::Memory && blade.connected);
        let mut rates = Self {
            seconds,
            ready: Part {
                used: status.blades.iter().filter(|blade| blade.connected).count() as u64,
                of: status.blades.len() as u64,
            },
            slots: Part {
                used: status.slots_used.into(),
                of: status.slots.into(),
            },
            sizes: status
                .splitting
                .map(|after| Sizes::between(clock, before.status.splitting, after)),
            memory: memory.fold(Part::default(), |sum, blade| Part {
                used: sum.used + blade.allocated,
                of: sum.of + blade.pages,
            }),
            domains: status.domains.len(),
            processes: status.domains.iter().map(|domain| domain.processes).sum(),
            blades: blades.collect(),
            ports: ports.collect(),
            regions: regions.collect(),
        };
        rates.sort(order);
        rates
    }

    /// Puts the busiest regions first.
    pub(super) fn sort(&mut self, order: Order) {
        let key = |region: &Region| match order {
            Order::Activity => region.accesses + region.invalidations,
            Order::Invalidations => region.invalidations,
            Order::False => region.false_invalidations,
        };
        self.regions
            .sort_by(|a, b| key(b).total_cmp(&key(a)).then(a.va.cmp(&b.va)));
    }
}

impl Blade {
    fn between(
        clock: Clock,
        name: &str,
        before: Option<&BladeReport>,
        after: &BladeReport,
    ) -> Self {
        let before = before.unwrap_or(after);
        let faults = clock.rate(before.faults, after.faults);
        let hits = clock.rate(before.hits, after.hits);
        let mut buckets = vec![0; BUCKETS_NS.len()];
        let mut transitions = Vec::new();
        for transition in &after.transitions {
            let none = TransitionReport::default();
            let earlier = before
                .transitions
                .iter()
                .find(|other| other.transition == transition.transition);
            let earlier = earlier.unwrap_or(&none);
            transitions.push((
                transition.transition.clone(),
                clock.rate(earlier.count, transition.count),
            ));
            for (number, bucket) in buckets.iter_mut().enumerate() {
                let count =
                    |report: &TransitionReport| report.buckets.get(number).copied().unwrap_or(0);
                *bucket += count(transition).saturating_sub(count(earlier));
            }
        }
        Self {
            name: name.to_owned(),
            pages: Some(Part {
                used: after.pages,
                of: after.capacity,
            }),
            faults,
            hit_rate: (faults > 0.0).then(|| (hits / faults).min(1.0)),
            transitions,
            p50_ns: quantile(&buckets, 0.5),
            p99_ns: quantile(&buckets, 0.99),
            evictions: clock.rate(before.evictions, after.evictions),
            write_backs: clock.rate(before.write_backs, after.write_backs),
            invalidations: clock.rate(before.invalidations, after.invalidations),
            timeouts: clock.rate(before.timeouts, after.timeouts),
        }
    }
}

/// The time that a part of the faults in those buckets took at most, in nanoseconds: as Prometheus's
/// `histogram_quantile` does, evenly spread within a bucket.
fn quantile(buckets: &[u64], part: f64) -> Option<u64> {
    let all: u64 = buckets.iter().sum();
    let wanted = part * all as f64;
    let (mut below, mut lower) = (0, 0);
    for (count, upper) in buckets.iter().zip(BUCKETS_NS) {
        let reached = below + count;
        if *count > 0 && reached as f64 >= wanted {
            let share = (wanted - below as f64) / *count as f64;
            return Some(lower + ((upper - lower) as f64 * share) as u64);
        }
        (below, lower) = (reached, upper);
    }
    None
}

impl Port {
    fn between(clock: Clock, before: &PortStatus, after: &PortStatus) -> Self {
        let mut port = Self {
            name: after.interface.clone(),
            blade: after.blade.clone().unwrap_or_default(),
            ..Self::default()
        };
        let kinds: BTreeMap<_, _> = Verdict::ALL
            .into_iter()
            .map(|verdict| (verdict.name(), verdict.kind()))
            .collect();
        for (verdict, count) in &after.packets {
            let earlier = before.packets.get(verdict).copied().unwrap_or(0);
            let rate = clock.rate(earlier, *count);
            port.packets += rate;
            match kinds.get(verdict.as_str()) {
                Some(Kind::Refused(_)) => port.refused += rate,
                Some(Kind::Dropped) => port.dropped += rate,
                _ => continue,
            }
            if rate > 0.0 {
                port.reasons.push((verdict.clone(), rate));
            }
        }
        port.reasons.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        port
    }
}

impl Region {
    fn between(clock: Clock, before: &RegionStatus, after: &RegionStatus) -> Self {
        Self {
            va: after.va,
            length: after.length,
            state: after.state.clone(),
            blades: after.blades.clone(),
            accesses: clock.rate_of_wrapping(before.accesses, after.accesses),
            invalidations: clock.rate_of_wrapping(before.invalidations, after.invalidations),
            false_invalidations: clock.rate_of_wrapping(before.dropped, after.dropped),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_began_anew_counts_from_nothing() {
        let clock = Clock { seconds: 2.0 };
        assert_eq!(clock.rate(10, 30), 10.0);
        assert_eq!(clock.rate(30, 10), 5.0, "a daemon that was restarted");
        assert_eq!(clock.rate_of_wrapping(u32::MAX, 1), 1.0);
        assert_eq!(Clock { seconds: 0.0 }.rate(0, 5), 0.0, "one sample");
    }

    #[test]
    fn quantiles_lie_in_their_buckets() {
        let mut buckets = vec![0; BUCKETS_NS.len()];
        assert_eq!(quantile(&buckets, 0.5), None);
        let of = |bound: u64| BUCKETS_NS.iter().position(|other| *other == bound).unwrap();
        buckets[of(20_000)] = 90;
        buckets[of(50_000)] = 10;
        let half = quantile(&buckets, 0.5).unwrap();
        assert!((15_000..=20_000).contains(&half), "{half}");
        let most = quantile(&buckets, 0.99).unwrap();
        assert!((30_000..=50_000).contains(&most), "{most}");
    }

    #[test]
    fn the_most_frequent_reason_comes_first() {
        let port = |refused, dropped| PortStatus {
            packets: [
                (Verdict::Busy.name().to_owned(), refused),
                (Verdict::NoFanOut.name().to_owned(), dropped),
                (Verdict::Fetch.name().to_owned(), 100),
            ]
            .into(),
            ..PortStatus::default()
        };
        let rates = Port::between(Clock { seconds: 1.0 }, &port(0, 0), &port(2, 7));
        assert_eq!(
            (rates.packets, rates.refused, rates.dropped),
            (9.0, 2.0, 7.0)
        );
        let reasons: Vec<_> = rates
            .reasons
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(reasons, [Verdict::NoFanOut.name(), Verdict::Busy.name()]);
    }
}
