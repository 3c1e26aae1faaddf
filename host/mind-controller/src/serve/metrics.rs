//! What Prometheus is told of the controller and of the switch.

use std::time::Duration;

use mind_api::{
    message::BladeKind,
    operator::{PortStatus, Status},
};
use mind_common::{addr::PAGE_SIZE, verdict::Verdict};
use mind_machines::controller::procedure::{Change, Outcome};
use mind_metrics::{
    Families,
    catalogue::{self, Metric},
};
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

/// How long requests may take, in seconds: those that flush blades take longest.
const REQUEST_SECONDS: [f64; 12] = [
    1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 10.0,
];

/// What can come of a change of a region.
const OUTCOMES: [&str; 4] = ["changed", "left_alone", "nothing", "lost"];

/// What the controller counts itself, since it began.
pub(super) struct Events {
    registry: Registry,
    requests: IntCounterVec,
    request_seconds: HistogramVec,
    region_changes: IntCounterVec,
    blades_lost: IntCounterVec,
}

impl Events {
    pub(super) fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let counters = |metric: &Metric| {
            let options = Opts::new(metric.name, metric.help);
            let counters = IntCounterVec::new(options, metric.labels)?;
            registry.register(Box::new(counters.clone()))?;
            prometheus::Result::Ok(counters)
        };
        let requests = counters(&catalogue::CONTROL_REQUESTS)?;
        let region_changes = counters(&catalogue::REGION_CHANGES)?;
        let blades_lost = counters(&catalogue::BLADES_LOST)?;
        let times = &catalogue::CONTROL_REQUEST_TIME;
        let options = HistogramOpts::new(times.name, times.help).buckets(REQUEST_SECONDS.to_vec());
        let request_seconds = HistogramVec::new(options, times.labels)?;
        registry.register(Box::new(request_seconds.clone()))?;
        let process = prometheus::process_collector::ProcessCollector::for_self();
        registry.register(Box::new(process))?;
        // Those that were not met, too: a rate begins with the first.
        for kind in [BladeKind::Compute, BladeKind::Memory] {
            blades_lost.with_label_values(&[kind_name(kind)]);
        }
        for change in Change::ALL {
            for outcome in OUTCOMES {
                region_changes.with_label_values(&[change.name(), outcome]);
            }
        }
        Ok(Self {
            registry,
            requests,
            request_seconds,
            region_changes,
            blades_lost,
        })
    }

    /// A request was answered.
    pub(super) fn answered(&self, request: &str, is_done: bool, after: Duration) {
        let result = if is_done { "done" } else { "refused" };
        self.requests.with_label_values(&[request, result]).inc();
        self.request_seconds
            .with_label_values(&[request])
            .observe(after.as_secs_f64());
    }

    /// The controller changed a region, or left it alone.
    pub(super) fn changed(&self, change: Change, outcome: Outcome) {
        let [changed, left_alone, nothing, lost] = OUTCOMES;
        let outcome = match outcome {
            Outcome::Changed(_) => changed,
            Outcome::LeftAlone => left_alone,
            Outcome::Nothing => nothing,
            Outcome::Lost => lost,
        };
        self.region_changes
            .with_label_values(&[change.name(), outcome])
            .inc();
    }

    /// How many changes of that kind were made.
    pub(super) fn changes(&self, change: Change) -> u64 {
        let [changed, ..] = OUTCOMES;
        let labels = [change.name(), changed];
        self.region_changes.with_label_values(&labels).get()
    }

    /// A blade is gone.
    pub(super) fn lost(&self, kind: BladeKind) {
        self.blades_lost.with_label_values(&[kind_name(kind)]).inc();
    }
}

const fn kind_name(kind: BladeKind) -> &'static str {
    match kind {
        BladeKind::Compute => "compute",
        BladeKind::Memory => "memory",
    }
}

/// All that Prometheus is told.
pub(super) fn families(status: &Status, events: &Events) -> Families {
    let mut families = Families::default();
    families.extend(events.registry.gather());
    families
        .of(&catalogue::BUILD_INFO)
        .add(&[env!("CARGO_PKG_VERSION")], 1.0);
    add_blades(&mut families, status);
    add_domains(&mut families, status);
    add_ports(&mut families, &status.ports);
    let copied = &status.copied;
    for (metric, value) in [
        (&catalogue::DIRECTORY_SLOTS, status.slots.into()),
        (&catalogue::DIRECTORY_SLOTS_USED, status.slots_used.into()),
        (&catalogue::HANDED_OVER, copied.packets as f64),
        (&catalogue::COPIES, copied.copies as f64),
        (&catalogue::MISSING_COPIES, copied.missing as f64),
        (&catalogue::UNSENT_COPIES, copied.unsent as f64),
    ] {
        families.of(metric).add(&[], value);
    }
    if let Some(splitting) = &status.splitting {
        for (metric, value) in [
            (&catalogue::SPLIT_REGIONS, splitting.split.into()),
            (&catalogue::SPLIT_THRESHOLD, splitting.threshold as f64),
            (
                &catalogue::SPLIT_FACTOR,
                splitting.c_thousandths as f64 / 1000.0,
            ),
            (
                &catalogue::FALSE_INVALIDATIONS,
                splitting.false_invalidations as f64,
            ),
        ] {
            families.of(metric).add(&[], value);
        }
    }
    families
}

fn add_blades(families: &mut Families, status: &Status) {
    for blade in &status.blades {
        let name = blade.name.as_str();
        families.of(&catalogue::BLADE_UP).add(
            &[name, kind_name(blade.kind)],
            f64::from(u8::from(blade.connected)),
        );
        let bytes = |pages: u64| (pages * PAGE_SIZE as u64) as f64;
        if blade.kind == BladeKind::Memory {
            families
                .of(&catalogue::MEMORY)
                .add(&[name], bytes(blade.pages));
            families
                .of(&catalogue::MEMORY_ALLOCATED)
                .add(&[name], bytes(blade.allocated));
        }
    }
}

fn add_domains(families: &mut Families, status: &Status) {
    for domain in &status.domains {
        let lost: u64 = domain.losses.iter().map(|loss| loss.regions).sum();
        for (metric, value) in [
            (&catalogue::DOMAIN_PROCESSES, f64::from(domain.processes)),
            (&catalogue::DOMAIN_VMAS, f64::from(domain.vmas)),
            (&catalogue::DOMAIN_MAPPED, domain.bytes as f64),
            (&catalogue::DOMAIN_LOST_REGIONS, lost as f64),
        ] {
            families.of(metric).add(&[&domain.name], value);
        }
    }
}

fn add_ports(families: &mut Families, ports: &[PortStatus]) {
    for port in ports {
        let (interface, blade) = (port.interface.as_str(), port.blade.as_deref());
        families.of(&catalogue::PORT_INFO).add(
            &[interface, blade.unwrap_or_default(), port.fan_out.name()],
            1.0,
        );
        let mut packets = families.of(&catalogue::SWITCH_PACKETS);
        // Those that were not met, too: a rate begins with the first.
        for verdict in Verdict::ALL {
            let (name, kind) = (verdict.name(), verdict.kind().name());
            let count = port.packets.get(name).copied().unwrap_or(0);
            packets.add(&[interface, name, kind], count as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use mind_api::operator::{BladeStatus, FanOut};

    use super::*;

    #[test]
    fn what_there_is_has_its_series() {
        let events = Events::new().expect("no two have one name");
        events.answered("map", true, Duration::from_millis(1));
        events.changed(Change::Split, Outcome::LeftAlone);
        events.lost(BladeKind::Compute);
        let status = Status {
            blades: vec![BladeStatus {
                kind: BladeKind::Memory,
                number: 0,
                name: "m0".to_owned(),
                address: [198, 18, 0, 9].into(),
                port: None,
                incarnation: 1,
                connected: true,
                here: true,
                pages: 16,
                allocated: 4,
            }],
            ports: vec![PortStatus {
                interface: "m0".to_owned(),
                fan_out: FanOut::Switch,
                packets: [("fetch".to_owned(), 7)].into(),
                ..PortStatus::default()
            }],
            ..Status::default()
        };
        let families = families(&status, &events).into_families();
        let text = prometheus::TextEncoder::new()
            .encode_to_string(&families)
            .expect("text");
        for line in [
            "mind_blade_up{blade=\"m0\",kind=\"memory\"} 1",
            "mind_memory_allocated_bytes{blade=\"m0\"} 16384",
            "mind_switch_packets_total{port=\"m0\",verdict=\"fetch\",kind=\"forwarded\"} 7",
            "mind_control_requests_total{request=\"map\",result=\"done\"} 1",
            "mind_region_changes_total{change=\"split\",outcome=\"left_alone\"} 1",
            "mind_blades_lost_total{kind=\"compute\"} 1",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}: {text}");
        }
        assert!(!text.contains("198.18"), "no label is an address");
    }
}
