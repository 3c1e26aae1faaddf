//! What Prometheus is told of the controller and of the switch.

use std::time::Duration;

use mind_api::{
    message::BladeKind,
    operator::{PortStatus, Status},
};
use mind_common::{addr::PAGE_SIZE, verdict::Verdict};
use mind_machines::controller::procedure::{Change, Outcome};
use mind_metrics::Families;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

/// How long requests may take, in seconds: those that flush blades take longest.
const REQUEST_SECONDS: [f64; 12] = [
    1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 10.0,
];

/// What can come of a change of a region.
const OUTCOMES: [&str; 3] = ["changed", "left_alone", "nothing"];

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
        let counters = |name: &str, help: &str, labels: &[&str]| {
            let counters = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(counters.clone()))?;
            prometheus::Result::Ok(counters)
        };
        let requests = counters(
            "mind_control_requests_total",
            "Requests of agents, programs and operators, by what came of them.",
            &["request", "result"],
        )?;
        let region_changes = counters(
            "mind_region_changes_total",
            "Changes of regions by the controller, by what came of them.",
            &["change", "outcome"],
        )?;
        let blades_lost = counters(
            "mind_blades_lost_total",
            "Blades that went, or were sent away.",
            &["kind"],
        )?;
        let request_seconds = HistogramVec::new(
            HistogramOpts::new(
                "mind_control_request_seconds",
                "From a request to its answer, the wait for its turn included.",
            )
            .buckets(REQUEST_SECONDS.to_vec()),
            &["request"],
        )?;
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
        let [changed, left_alone, nothing] = OUTCOMES;
        let outcome = match outcome {
            Outcome::Changed(_) => changed,
            Outcome::LeftAlone => left_alone,
            Outcome::Nothing => nothing,
        };
        self.region_changes
            .with_label_values(&[change.name(), outcome])
            .inc();
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
        .gauge("mind_build_info", "The controller's version; always 1.")
        .add(&[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    add_blades(&mut families, status);
    add_domains(&mut families, status);
    add_ports(&mut families, &status.ports);
    for (name, help, value) in [
        (
            "mind_directory_slots",
            "Slots of the directory: regions there can be.",
            status.slots,
        ),
        (
            "mind_directory_slots_used",
            "Slots of the directory that have a region.",
            status.slots_used,
        ),
    ] {
        families.gauge(name, help).add(&[], value.into());
    }
    let copied = &status.copied;
    for (name, help, value) in [
        (
            "mind_handed_over_packets_total",
            "Packets for several blades that the switch handed over to the controller.",
            copied.packets,
        ),
        (
            "mind_copies_total",
            "Copies that the controller made of them.",
            copied.copies,
        ),
        (
            "mind_missing_copies_total",
            "Blades that should have got a copy and were not there.",
            copied.missing,
        ),
        (
            "mind_unsent_copies_total",
            "Copies that the kernel did not take.",
            copied.unsent,
        ),
    ] {
        families.counter(name, help).add(&[], value as f64);
    }
    families
}

fn add_blades(families: &mut Families, status: &Status) {
    for blade in &status.blades {
        let labels = [
            ("blade", blade.name.as_str()),
            ("kind", kind_name(blade.kind)),
        ];
        families
            .gauge("mind_blade_up", "Whether a blade's agent is connected.")
            .add(&labels, f64::from(u8::from(blade.connected)));
        let bytes = |pages: u64| (pages * PAGE_SIZE as u64) as f64;
        if blade.kind == BladeKind::Memory {
            let labels = &labels[..1];
            families
                .gauge("mind_memory_bytes", "Memory that a memory blade offers.")
                .add(labels, bytes(blade.pages));
            families
                .gauge(
                    "mind_memory_allocated_bytes",
                    "Memory of a memory blade that vmas have.",
                )
                .add(labels, bytes(blade.allocated));
        }
    }
}

fn add_domains(families: &mut Families, status: &Status) {
    for domain in &status.domains {
        let labels = [("domain", domain.name.as_str())];
        let lost: u64 = domain.losses.iter().map(|loss| loss.regions).sum();
        for (name, help, value) in [
            (
                "mind_domain_processes",
                "Processes of a protection domain, on all blades.",
                f64::from(domain.processes),
            ),
            (
                "mind_domain_vmas",
                "Vmas of a protection domain.",
                f64::from(domain.vmas),
            ),
            (
                "mind_domain_mapped_bytes",
                "Bytes of a protection domain's vmas.",
                domain.bytes as f64,
            ),
            (
                "mind_domain_lost_regions",
                "Regions of a protection domain's vmas that lost writes with a blade.",
                lost as f64,
            ),
        ] {
            families.gauge(name, help).add(&labels, value);
        }
    }
}

fn add_ports(families: &mut Families, ports: &[PortStatus]) {
    for port in ports {
        let (interface, blade) = (port.interface.as_str(), port.blade.as_deref());
        let labels = [
            ("port", interface),
            ("blade", blade.unwrap_or_default()),
            ("fan_out", port.fan_out.name()),
        ];
        families
            .gauge(
                "mind_port_info",
                "Whose port it is, and who copies what comes in there for several blades; always 1.",
            )
            .add(&labels, 1.0);
        let mut packets = families.counter(
            "mind_switch_packets_total",
            "Packets that came in at a port of the switch, by what became of them.",
        );
        // Those that were not met, too: a rate begins with the first.
        for verdict in Verdict::ALL {
            let (name, kind) = (verdict.name(), verdict.kind().name());
            let count = port.packets.get(name).copied().unwrap_or(0);
            let labels = [("port", interface), ("verdict", name), ("kind", kind)];
            packets.add(&labels, count as f64);
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
