//! All families that MIND's daemons show, each declared once: the exporters take name, help, type and labels from here,
//! and so does the reference in the book.

/// What a family counts or measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What only grows; its name ends with `_total`.
    Counter,
    /// What goes up and down.
    Gauge,
    /// How often something was of which size.
    Histogram,
}

impl Kind {
    /// Its name in the text format.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Which daemon shows a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Daemon {
    /// The controller, on the switch.
    Controller,
    /// The agent of a compute blade.
    ComputeBlade,
    /// The agent of a memory blade.
    MemoryBlade,
}

impl Daemon {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Controller, Self::ComputeBlade, Self::MemoryBlade];

    /// Labels that every family of the daemon has, besides its own.
    pub const fn common_labels(self) -> &'static [&'static str] {
        match self {
            Self::Controller => &[],
            Self::ComputeBlade | Self::MemoryBlade => &["blade"],
        }
    }
}

/// A family: what its samples have in common.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name, by Prometheus's conventions.
    pub name: &'static str,
    /// One sentence that says what it is.
    pub help: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Its labels, in the order in which the exporter gives their values.
    pub labels: &'static [&'static str],
    /// Which daemon shows it.
    pub daemon: Daemon,
}

/// Declares families, and the list of all of them.
macro_rules! catalogue {
    ($($daemon:ident { $($constant:ident: $kind:ident $name:literal [$($label:literal),*] $help:literal;)+ })+) => {
        $($(
            #[doc = $help]
            pub static $constant: Metric = Metric {
                name: $name,
                help: $help,
                kind: Kind::$kind,
                labels: &[$($label),*],
                daemon: Daemon::$daemon,
            };
        )+)+

        /// Those of the table, by daemon.
        static TABLE: &[&Metric] = &[$($(&$constant,)+)+];
    };
}

catalogue! {
    Controller {
        BUILD_INFO: Gauge "mind_build_info" ["version"] "The controller's version; always 1.";
        BLADE_UP: Gauge "mind_blade_up" ["blade", "kind"] "Whether a blade's agent is connected.";
        BLADES_LOST: Counter "mind_blades_lost_total" ["kind"] "Blades that went, or were sent away.";
        MEMORY: Gauge "mind_memory_bytes" ["blade"] "Memory that a memory blade offers.";
        MEMORY_ALLOCATED: Gauge "mind_memory_allocated_bytes" ["blade"] "Memory of a memory blade that vmas have.";
        DOMAIN_PROCESSES: Gauge "mind_domain_processes" ["domain"] "Processes of a protection domain, on all blades.";
        DOMAIN_VMAS: Gauge "mind_domain_vmas" ["domain"] "Vmas of a protection domain.";
        DOMAIN_MAPPED: Gauge "mind_domain_mapped_bytes" ["domain"] "Bytes of a protection domain's vmas.";
        DOMAIN_LOST_REGIONS: Gauge "mind_domain_lost_regions" ["domain"]
            "Regions of a protection domain's vmas that lost writes with a blade.";
        DIRECTORY_SLOTS: Gauge "mind_directory_slots" [] "Slots of the directory: regions there can be.";
        DIRECTORY_SLOTS_USED: Gauge "mind_directory_slots_used" [] "Slots of the directory that have a region.";
        SPLIT_REGIONS: Gauge "mind_split_regions" [] "Regions that are split, of those that the controller splits and merges.";
        SPLIT_THRESHOLD: Gauge "mind_split_threshold" []
            "Pages that may be falsely invalidated in a region in an epoch before it is split: the paper's t.";
        SPLIT_FACTOR: Gauge "mind_split_factor" [] "The paper's c, by which the mean over all regions is divided.";
        FALSE_INVALIDATIONS: Counter "mind_directory_false_invalidations_total" []
            "Pages that blades gave up though the requester did not ask for them, as the switch counts.";
        REGION_CHANGES: Counter "mind_region_changes_total" ["change", "outcome"]
            "Changes of regions by the controller, by what came of them.";
        CONTROL_REQUESTS: Counter "mind_control_requests_total" ["request", "result"]
            "Requests of agents, programs and operators, by what came of them.";
        CONTROL_REQUEST_TIME: Histogram "mind_control_request_seconds" ["request"]
            "From a request to its answer, the wait for its turn included.";
        PORT_INFO: Gauge "mind_port_info" ["port", "blade", "fan_out"]
            "Whose port it is, and who copies what comes in there for several blades; always 1.";
        SWITCH_PACKETS: Counter "mind_switch_packets_total" ["port", "verdict", "kind"]
            "Packets that came in at a port of the switch, by what became of them.";
        HANDED_OVER: Counter "mind_handed_over_packets_total" []
            "Packets for several blades that the switch handed over to the controller.";
        COPIES: Counter "mind_copies_total" [] "Copies that the controller made of them.";
        MISSING_COPIES: Counter "mind_missing_copies_total" []
            "Blades that should have got a copy and were not there.";
        UNSENT_COPIES: Counter "mind_unsent_copies_total" [] "Copies that the kernel did not take.";
    }
    ComputeBlade {
        CACHE: Gauge "mind_cache_bytes" [] "Pages that the blade holds.";
        CACHE_CAPACITY: Gauge "mind_cache_capacity_bytes" [] "Pages that it may hold at most.";
        PROGRAMS: Gauge "mind_programs" [] "Programs that are attached.";
        ROUND_TRIP: Gauge "mind_round_trip_seconds" [] "Smoothed time from a request to its answer.";
        FAULT_TIME: Histogram "mind_fault_seconds" ["transition"]
            "From a fault to its page, by the transition that it was in the directory.";
        MALFORMED_DATAGRAMS: Counter "mind_malformed_datagrams_total" [] "Datagrams that could not be parsed.";
        UNSENT_DATAGRAMS: Counter "mind_unsent_datagrams_total" [] "Datagrams that the kernel refused to send.";
    }
    MemoryBlade {
        OFFERED: Gauge "mind_offered_bytes" [] "Memory that the blade offers.";
        RESPONDER_PACKETS: Counter "mind_responder_packets_total" ["verdict", "kind"]
            "Packets that came in at a memory blade, by what became of them.";
    }
}

/// Declares the families of a compute blade's counters, from the list of them.
macro_rules! blade_counters {
    ($($(#[doc = $help:literal])+ $name:ident: $metric:literal;)+) => {
        /// The families of a compute blade's counters, by the counter's name in the blade's report.
        #[derive(Debug)]
        pub struct BladeCounters {
            $($(#[doc = $help])+ pub $name: Metric,)+
        }

        /// The families of a compute blade's counters.
        pub static BLADE_COUNTERS: BladeCounters = BladeCounters {
            $($name: Metric {
                name: $metric,
                help: concat!($($help),+).trim_ascii_start(),
                kind: Kind::Counter,
                labels: &[],
                daemon: Daemon::ComputeBlade,
            },)+
        };

        impl BladeCounters {
            /// All of them.
            fn all(&self) -> impl Iterator<Item = &Metric> {
                [$(&self.$name),+].into_iter()
            }
        }
    };
}

mind_common::blade_counters!(blade_counters);

/// All families.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    TABLE.iter().copied().chain(BLADE_COUNTERS.all())
}

/// What is wrong with a family's name, by Prometheus's conventions.
#[cfg(test)]
fn breach(name: &str, kind: Kind) -> Option<&'static str> {
    let is_total = name.ends_with("_total");
    let is_of_base = ["_ns", "_us", "_ms", "_kib", "_mib", "_pages"];
    if !name.starts_with("mind_") {
        Some("it does not begin with mind_")
    } else if is_total != (kind == Kind::Counter) {
        Some("_total is for counters, and for all of them")
    } else if is_of_base.iter().any(|unit| name.ends_with(unit)) {
        Some("it is not in seconds or bytes")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_that_break_the_conventions_are_told() {
        for (name, kind, is_fine) in [
            ("mind_faults_total", Kind::Counter, true),
            ("mind_faults", Kind::Counter, false),
            ("mind_cache_bytes", Kind::Gauge, true),
            ("mind_cache_total", Kind::Gauge, false),
            ("mind_fault_seconds", Kind::Histogram, true),
            ("mind_fault_ns", Kind::Histogram, false),
            ("faults_total", Kind::Counter, false),
        ] {
            assert_eq!(breach(name, kind).is_none(), is_fine, "{name}");
        }
    }

    #[test]
    fn all_families_keep_the_conventions() {
        for metric in all() {
            assert_eq!(breach(metric.name, metric.kind), None, "{}", metric.name);
            assert!(metric.help.ends_with('.'), "{}: a sentence", metric.name);
        }
    }

    #[test]
    fn no_two_families_have_one_name() {
        let names: BTreeSet<_> = all().map(|metric| metric.name).collect();
        assert_eq!(names.len(), all().count());
    }
}
