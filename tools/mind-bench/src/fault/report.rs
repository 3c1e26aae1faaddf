//! The bench's report: limits, transitions, faults while pages are evicted; and whether bounds are
//! kept.

use std::collections::BTreeMap;

use comfy_table::{CellAlignment, Table, presets};
use mind_common::directory::Transition;
use serde::Serialize;

use super::{
    eviction::Evicting,
    fan_out::FanOut,
    together::{BLADES, Together},
    transitions::{Kind, MEASURED},
};
use crate::{samples::Quantiles, system::placement::Sharing};

/// The most that I->S may take, in sums of the limits.
const I_S_BOUND: f64 = 1.5;
/// The most that a first touch may take, in times of I->S.
const FIRST_TOUCH_BOUND: f64 = 1.5;
/// The most that M->S and M->M may take, in times of I->S.
const M_BOUND: f64 = 2.5;

/// The bench's answer. The keys are part of its interface.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Which threads share a processor.
    pub(super) placement: Sharing,
    /// What copies an invalidation for several blades.
    pub(super) fan_out: FanOut,
    /// Whether the processors were kept from sleeping.
    pub(super) kept_awake: bool,
    pub(super) limits: Limits,
    /// Both limits, one after the other.
    pub(super) sum_us: f64,
    /// By name, such as `i_s`.
    pub(super) transitions: BTreeMap<String, MeasuredTransition>,
    pub(super) ratios: Ratios,
    pub(super) evicting_faults_per_s: Evicting,
    /// What blades read at the same time.
    pub(super) together: Together,
    /// Accesses that caused another transition of the directory than they should have.
    pub(super) strays: usize,
}

/// A transition's times.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct MeasuredTransition {
    #[serde(flatten)]
    pub(super) times: Quantiles,
    /// The agent's part of the median: from reading the fault to resolving it. The rest is the
    /// kernel's wake-ups of the agent and of the thread that faulted.
    pub(super) agent_p50_us: f64,
}

/// The lower limits of a fault's time.
#[derive(Debug, Serialize)]
pub(super) struct Limits {
    /// A fault that is resolved locally; the median.
    pub(super) userfault_us: f64,
    pub(super) userfault_p99_us: f64,
    /// The same resolved by another process, as the system does; not part of the sum.
    pub(super) userfault_by_process_us: f64,
    /// A request and its answer through a switch that decides nothing; the median.
    pub(super) network_us: f64,
    pub(super) network_p99_us: f64,
}

/// Medians against each other.
#[derive(Debug, Serialize)]
pub(super) struct Ratios {
    i_s_to_sum: f64,
    first_touch_to_i_s: f64,
    /// Of blades that read the same pages at the same time.
    together_first_touch_to_i_s: f64,
    m_s_to_i_s: f64,
    m_m_to_i_s: f64,
}

/// What was measured.
pub(super) struct Measured {
    pub(super) placement: Sharing,
    pub(super) fan_out: FanOut,
    pub(super) kept_awake: bool,
    pub(super) userfault: Quantiles,
    pub(super) by_process: Quantiles,
    pub(super) network: Quantiles,
    pub(super) transitions: BTreeMap<String, MeasuredTransition>,
    pub(super) evicting: Evicting,
    pub(super) together: Together,
    pub(super) strays: usize,
}

impl Report {
    /// The report of what was measured: all transitions.
    pub(super) fn new(measured: Measured) -> Self {
        let Measured {
            userfault,
            by_process,
            network,
            transitions,
            ..
        } = measured;
        let of = |kind: Kind| transitions[&kind.key()].times.p50_us;
        let p50 = |transition| of(Kind::of(transition));
        let sum_us = userfault.p50_us + network.p50_us;
        let i_s = p50(Transition::InvalidToShared);
        Self {
            placement: measured.placement,
            fan_out: measured.fan_out,
            kept_awake: measured.kept_awake,
            limits: Limits {
                userfault_us: userfault.p50_us,
                userfault_p99_us: userfault.p99_us,
                userfault_by_process_us: by_process.p50_us,
                network_us: network.p50_us,
                network_p99_us: network.p99_us,
            },
            sum_us,
            ratios: Ratios {
                i_s_to_sum: i_s / sum_us,
                first_touch_to_i_s: of(Kind::FIRST_TOUCH) / i_s,
                together_first_touch_to_i_s: measured.together.first_touch_to_i_s(),
                m_s_to_i_s: p50(Transition::ModifiedToShared) / i_s,
                m_m_to_i_s: p50(Transition::ModifiedToModified) / i_s,
            },
            evicting_faults_per_s: measured.evicting,
            together: measured.together,
            strays: measured.strays,
            transitions,
        }
    }

    /// What is not as it should be: strays, and bounds that are exceeded; one sentence each.
    pub(super) fn complaints(&self) -> Vec<String> {
        let Ratios {
            i_s_to_sum,
            first_touch_to_i_s,
            together_first_touch_to_i_s,
            m_s_to_i_s,
            m_m_to_i_s,
        } = self.ratios;
        let bounds = [
            ("I->S", i_s_to_sum, I_S_BOUND, "the sum of the limits"),
            ("first touch", first_touch_to_i_s, FIRST_TOUCH_BOUND, "I->S"),
            (
                "a first touch by blades at the same time",
                together_first_touch_to_i_s,
                FIRST_TOUCH_BOUND,
                "their I->S",
            ),
            ("M->S", m_s_to_i_s, M_BOUND, "I->S"),
            ("M->M", m_m_to_i_s, M_BOUND, "I->S"),
        ];
        let strays = (self.strays > 0).then(|| {
            format!(
                "{} accesses caused another transition of the directory than they should have",
                self.strays
            )
        });
        let exceeded = bounds
            .into_iter()
            .filter(|(_, ratio, bound, _)| ratio > bound)
            .map(|(name, ratio, bound, of)| {
                format!("{name} takes {ratio:.2} times as long as {of}, more than {bound}")
            });
        strays.into_iter().chain(exceeded).collect()
    }

    /// As text.
    pub(super) fn text(&self) -> String {
        let Evicting { t1, t8 } = self.evicting_faults_per_s;
        format!(
            "{}\n\nfaults per second while pages are evicted: {t1:.0} by 1 thread, {t8:.0} by 8",
            self.table()
        )
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        table.set_header([
            "fault", "p50 us", "p99 us", "agent's", "count", "to sum", "to I->S", "bound",
        ]);
        let limits = &self.limits;
        let sum = self.sum_us;
        let mut limit = |name: &str, p50: f64, p99: Option<f64>| {
            let p99 = p99.map_or(String::new(), micros);
            table.add_row([name.to_owned(), micros(p50), p99]);
        };
        limit(
            "limit: resolved locally",
            limits.userfault_us,
            Some(limits.userfault_p99_us),
        );
        limit(
            "limit: bare exchange",
            limits.network_us,
            Some(limits.network_p99_us),
        );
        limit("sum of both", sum, None);
        limit(
            "resolved by a process",
            limits.userfault_by_process_us,
            None,
        );
        let i_s = Kind::of(Transition::InvalidToShared).key();
        let i_s = self.transitions[&i_s].times.p50_us;
        for kind in MEASURED {
            let transition = self.transitions[&kind.key()];
            let quantiles = transition.times;
            table.add_row([
                kind.name(),
                micros(quantiles.p50_us),
                micros(quantiles.p99_us),
                micros(transition.agent_p50_us),
                quantiles.count.to_string(),
                format!("{:.2}", quantiles.p50_us / sum),
                format!("{:.2}", quantiles.p50_us / i_s),
                bound(kind),
            ]);
        }
        let Together { first_touch, i_s } = self.together;
        let ratio = self.ratios.together_first_touch_to_i_s;
        let together = [
            ("first touch", first_touch, ratio, bound(Kind::FIRST_TOUCH)),
            ("I->S", i_s, 1.0, String::new()),
        ];
        for (name, quantiles, ratio, bound) in together {
            table.add_row([
                format!("{name}, {BLADES} blades"),
                micros(quantiles.p50_us),
                micros(quantiles.p99_us),
                String::new(),
                quantiles.count.to_string(),
                format!("{:.2}", quantiles.p50_us / sum),
                format!("{ratio:.2}"),
                bound,
            ]);
        }
        for column in 1..=6 {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table
    }
}

fn micros(micros: f64) -> String {
    format!("{micros:.1}")
}

fn bound(kind: Kind) -> String {
    const I_S: Kind = Kind::of(Transition::InvalidToShared);
    const M_S: Kind = Kind::of(Transition::ModifiedToShared);
    const M_M: Kind = Kind::of(Transition::ModifiedToModified);
    match kind {
        Kind::FIRST_TOUCH => format!("{FIRST_TOUCH_BOUND} I->S"),
        I_S => format!("{I_S_BOUND} sums"),
        M_S | M_M => format!("{M_BOUND} I->S"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantiles(p50_us: f64) -> Quantiles {
        Quantiles {
            p50_us,
            p99_us: 2.0 * p50_us,
            count: 5000,
        }
    }

    fn report(i_s: f64, m_s: f64) -> Report {
        report_with(15.0, i_s, m_s)
    }

    fn report_with(first_touch: f64, i_s: f64, m_s: f64) -> Report {
        let p50 = |kind: Kind| match kind.key().as_str() {
            "first_touch" => first_touch,
            "i_s" => i_s,
            "m_s" => m_s,
            _ => 20.0,
        };
        Report::new(Measured {
            placement: Sharing::Same,
            fan_out: FanOut::Switch,
            kept_awake: true,
            userfault: quantiles(6.0),
            by_process: quantiles(7.0),
            network: quantiles(5.0),
            transitions: MEASURED
                .into_iter()
                .map(|kind| {
                    let transition = MeasuredTransition {
                        times: quantiles(p50(kind)),
                        agent_p50_us: 7.0,
                    };
                    (kind.key(), transition)
                })
                .collect(),
            evicting: Evicting {
                t1: 20_000.4,
                t8: 30_000.0,
            },
            together: Together {
                first_touch: quantiles(44.0),
                i_s: quantiles(40.0),
            },
            strays: 0,
        })
    }

    #[test]
    fn keys_are_those_that_the_bench_promises() {
        let json = serde_json::to_value(report(12.0, 24.0)).expect("it is plain data");
        for key in ["/limits/userfault_us", "/limits/network_us", "/sum_us"] {
            assert!(
                json.pointer(key).is_some_and(|value| value.is_f64()),
                "{key}"
            );
        }
        for name in [
            "first_touch",
            "i_s",
            "s_s",
            "i_m",
            "s_m",
            "s_m_several",
            "m_s",
            "m_m",
        ] {
            let of = |key| json.pointer(&format!("/transitions/{name}/{key}"));
            assert!(of("p50_us").is_some_and(|value| value.is_f64()), "{name}");
            assert!(of("p99_us").is_some_and(|value| value.is_f64()), "{name}");
            assert!(of("count").is_some_and(|value| value.is_u64()), "{name}");
        }
        for name in ["first_touch", "i_s"] {
            let p50 = json.pointer(&format!("/together/{name}/p50_us"));
            assert!(p50.is_some_and(|value| value.is_f64()), "{name}");
        }
        for threads in ["t1", "t8"] {
            let rate = json.pointer(&format!("/evicting_faults_per_s/{threads}"));
            assert!(rate.is_some_and(|value| value.is_f64()), "{threads}");
        }
    }

    #[test]
    fn bounds_that_are_kept_are_not_mentioned() {
        let report = report(12.0, 24.0);
        assert_eq!(report.sum_us, 11.0);
        assert_eq!(report.complaints(), Vec::<String>::new());
    }

    #[test]
    fn bounds_that_are_exceeded_are_named() {
        let expected = [
            "I->S takes 1.82 times as long as the sum of the limits, more than 1.5",
            "M->S takes 3.00 times as long as I->S, more than 2.5",
        ];
        assert_eq!(report(20.0, 60.0).complaints(), expected);
        let slow = report_with(19.2, 12.0, 24.0);
        let expected = ["first touch takes 1.60 times as long as I->S, more than 1.5"];
        assert_eq!(slow.complaints(), expected);
    }

    #[test]
    fn the_table_has_a_line_for_each_limit_and_transition() {
        let text = report(12.0, 24.0).text();
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        assert_eq!(lines.len(), 1 + 4 + MEASURED.len() + 2 + 2, "{text}");
        assert!(lines[1].starts_with("limit: resolved locally"));
        let words: Vec<_> = lines[5].split_whitespace().collect();
        let first_touch = ["first", "touch", "15.0", "30.0", "7.0", "5000"];
        assert_eq!(words[..6], first_touch);
        assert_eq!(words[6..], ["1.36", "1.25", "1.5", "I->S"]);
        let words: Vec<_> = lines[6].split_whitespace().collect();
        assert_eq!(
            words,
            [
                "I->S", "12.0", "24.0", "7.0", "5000", "1.09", "1.00", "1.5", "sums"
            ]
        );
        let words: Vec<_> = lines[13].split_whitespace().collect();
        let first_touch = "first touch, 8 blades 44.0 88.0 5000 4.00 1.10 1.5 I->S";
        assert_eq!(words.join(" "), first_touch);
        assert!(
            lines[16].contains("20000 by 1 thread, 30000 by 8"),
            "{text}"
        );
    }
}
