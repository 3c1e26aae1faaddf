//! The bench's report: what requests take beside the limits, and whether bounds are kept.

use std::collections::BTreeMap;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::{
    measure::{AtVmas, Measured, SIZES},
    program::{Kind, Outcome, Outcomes},
};
use crate::samples::Samples;

/// The most that a map may take at p99, in microseconds.
const MAP_BOUND_US: f64 = 2_000.0;
/// The most that a map of one size, or with one number of vmas, may take at p99, in times of another one.
const SPREAD_BOUND: f64 = 2.0;
/// The most that status, metrics and maps of others may take at p99 while a blade hangs, in milliseconds.
const HUNG_BOUND_MS: f64 = 50.0;

/// A row of figures, in the unit that its key says.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Row {
    /// The median.
    #[serde(skip_serializing_if = "Option::is_none")]
    p50: Option<f64>,
    /// 99 of 100 take no longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    p99: Option<f64>,
    /// Of how many requests.
    count: usize,
    /// Why one was not carried out, or none was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
}

impl Row {
    /// Of times, each divided by so many microseconds.
    fn new(times: Samples, unit_us: f64, refused: Option<String>) -> Self {
        let quantiles = times.quantiles();
        Self {
            p50: quantiles.map(|it| it.p50_us / unit_us),
            p99: quantiles.map(|it| it.p99_us / unit_us),
            count: quantiles.map_or(0, |it| it.count),
            refused,
        }
    }

    fn of(outcome: Outcome, unit_us: f64) -> Self {
        Self::new(outcome.times, unit_us, outcome.refused)
    }

    fn missing(why: String) -> Self {
        Self {
            refused: Some(why),
            ..Self::default()
        }
    }
}

/// Rows, by size or number of vmas.
type Rows = BTreeMap<String, Row>;

/// The bench's answer. The keys are part of its interface; those of one column end in its unit.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// What no request can be faster than.
    limits: Limits,
    /// By size.
    map_us: Rows,
    unmap_us: Rows,
    /// By kind of request and number of vmas: `map_at_vmas_us` and so on.
    #[serde(flatten)]
    at_vmas: BTreeMap<String, Rows>,
    /// Maps and unmaps of 8 clients at once that were carried out, per second.
    ops_per_s: f64,
    /// Why one was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    ops_refused: Option<String>,
    hung: Hung,
}

/// The lower limits of a request's time, in microseconds.
#[derive(Debug, Serialize)]
struct Limits {
    /// A transaction of records.
    commit_us: Row,
    /// A frame to the switch and back.
    round_trip_us: Row,
}

/// What was measured while a blade hung.
#[derive(Debug, Serialize)]
struct Hung {
    /// `status_ms`, `metrics_ms`, and requests of other domains: `map_ms` and so on.
    #[serde(flatten)]
    rows: Rows,
    ops_per_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ops_refused: Option<String>,
    /// For how many seconds a blade hung, in all.
    seconds: f64,
}

impl Report {
    /// The report of what was measured.
    pub(super) fn new(measured: Measured) -> Self {
        let Measured {
            commits,
            round_trips,
            sizes,
            at_vmas,
            rate,
            hung,
        } = measured;
        let (mut map_us, mut unmap_us) = (Rows::new(), Rows::new());
        for (key, (maps, unmaps)) in sizes {
            map_us.insert(key.to_owned(), Row::of(maps, 1.0));
            unmap_us.insert(key.to_owned(), Row::of(unmaps, 1.0));
        }
        let mut rows: BTreeMap<String, Rows> = BTreeMap::new();
        for (vmas, at) in at_vmas {
            for (kind, row) in of_kinds(at) {
                let of_kind = rows.entry(format!("{}_at_vmas_us", kind.name()));
                of_kind.or_default().insert(vmas.to_string(), row);
            }
        }
        let mut hung_rows: Rows = hung
            .outcomes
            .into_iter()
            .map(|(kind, outcome)| (format!("{}_ms", kind.name()), Row::of(outcome, 1_000.0)))
            .collect();
        for (key, times) in [("status_ms", hung.status), ("metrics_ms", hung.metrics)] {
            hung_rows.insert(key.to_owned(), Row::new(times, 1_000.0, None));
        }
        Self {
            limits: Limits {
                commit_us: Row::new(commits, 1.0, None),
                round_trip_us: Row::new(round_trips, 1.0, None),
            },
            map_us,
            unmap_us,
            at_vmas: rows,
            ops_per_s: rate.per_s,
            ops_refused: rate.refused,
            hung: Hung {
                rows: hung_rows,
                ops_per_s: hung.rate.per_s,
                ops_refused: hung.rate.refused,
                seconds: hung.time.as_secs_f64(),
            },
        }
    }

    /// The bounds that are exceeded and what was refused, one sentence each.
    pub(super) fn complaints(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        let sizes = by_size(&self.map_us, |key| format!("a map of {key}"));
        let vmas = self.at_vmas.get("map_at_vmas_us");
        let vmas = vmas.map(|rows| by_vmas(rows, |key| format!("a map with {key} vmas in place")));
        for rows in [sizes, vmas.unwrap_or_default()] {
            for (name, row) in &rows {
                let Some(p99) = row.p99 else {
                    continue;
                };
                if p99 > MAP_BOUND_US {
                    complaints.push(format!(
                        "{name} takes {p99:.0} us at p99, more than {MAP_BOUND_US:.0}"
                    ));
                }
            }
            complaints.extend(spread(&rows));
        }
        for (name, row) in self.rows() {
            if let Some(why) = &row.refused {
                complaints.push(format!("{name}: {why}"));
            }
        }
        for (what, refused) in [
            ("operations of 8 clients", &self.ops_refused),
            ("operations beside a hung blade", &self.hung.ops_refused),
        ] {
            complaints.extend(refused.as_ref().map(|why| format!("{what}: {why}")));
        }
        for key in ["status_ms", "metrics_ms", "map_ms"] {
            let what = key.trim_end_matches("_ms");
            match self.hung.rows.get(key).and_then(|row| row.p99) {
                Some(p99) if p99 <= HUNG_BOUND_MS => {}
                Some(p99) => complaints.push(format!(
                    "while a blade hangs, {what} takes {p99:.1} ms at p99, more than {HUNG_BOUND_MS:.0}"
                )),
                None => complaints.push(format!("while a blade hung, {what} was not measured")),
            }
        }
        complaints
    }

    /// All rows with their names, in the order of the table.
    fn rows(&self) -> Vec<(String, &Row)> {
        let mut rows = vec![
            ("limit: a commit".to_owned(), &self.limits.commit_us),
            ("limit: a round trip".to_owned(), &self.limits.round_trip_us),
        ];
        rows.extend(by_size(&self.map_us, |key| format!("map {key}")));
        rows.extend(by_size(&self.unmap_us, |key| format!("unmap {key}")));
        for kind in Kind::ALL {
            if let Some(of_kind) = self.at_vmas.get(&format!("{}_at_vmas_us", kind.name())) {
                rows.extend(by_vmas(of_kind, |key| {
                    format!("{}, {key} vmas", kind.name())
                }));
            }
        }
        rows
    }

    /// As text.
    pub(super) fn text(&self) -> String {
        let table = figures("us", self.rows());
        let rows = self.hung.rows.iter();
        let hung = rows.map(|(key, row)| (key.trim_end_matches("_ms").to_owned(), row));
        let hung = figures("ms", hung.collect());
        format!(
            "{table}\n\n{:.0} operations per second by 8 clients\n\nwhile a blade hangs ({:.1} s in all)\n{hung}\n\n\
             {:.0} operations per second by 8 clients",
            self.ops_per_s, self.hung.seconds, self.hung.ops_per_s
        )
    }
}

/// What was measured with a number of vmas in place, by kind.
fn of_kinds(at: AtVmas) -> Vec<(Kind, Row)> {
    match at {
        AtVmas::Measured(outcomes) => {
            let mut outcomes: Outcomes = outcomes;
            let mut of = |kind| outcomes.remove(&kind).unwrap_or_default();
            let row = |kind| (kind, Row::of(of(kind), 1.0));
            Kind::ALL.into_iter().map(row).collect()
        }
        AtVmas::Missing(there, why) => {
            let why = format!("only {there} vmas are in place: {why}");
            let row = |kind| (kind, Row::missing(why.clone()));
            Kind::ALL.into_iter().map(row).collect()
        }
    }
}

/// Rows in the order of their sizes.
fn by_size(rows: &Rows, name: impl Fn(&str) -> String) -> Vec<(String, &Row)> {
    let sizes = SIZES.into_iter();
    let named = sizes.filter_map(|(key, _)| Some((name(key), rows.get(key)?)));
    named.collect()
}

/// Rows in the order of their numbers of vmas.
fn by_vmas(rows: &Rows, name: impl Fn(&str) -> String) -> Vec<(String, &Row)> {
    let mut rows: Vec<_> = rows.iter().collect();
    rows.sort_by_key(|(key, _)| key.parse::<usize>().unwrap_or(usize::MAX));
    let named = rows.into_iter().map(|(key, row)| (name(key), row));
    named.collect()
}

/// That one of these takes too many times as long as another, if it does.
fn spread(rows: &[(String, &Row)]) -> Option<String> {
    let measured = || {
        let rows = rows.iter();
        rows.filter_map(|(name, row)| Some((name, row.p99?)))
    };
    let (slow, most) = measured().max_by(|(_, one), (_, other)| one.total_cmp(other))?;
    let (fast, least) = measured().min_by(|(_, one), (_, other)| one.total_cmp(other))?;
    let ratio = most / least;
    (ratio > SPREAD_BOUND).then(|| {
        format!("{slow} takes {ratio:.1} times as long as {fast} at p99, more than {SPREAD_BOUND}")
    })
}

fn figures(unit: &str, rows: Vec<(String, &Row)>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    let [p50, p99] = ["p50", "p99"].map(|rank| format!("{rank} {unit}"));
    table.set_header(["request", p50.as_str(), p99.as_str(), "count", "refused"]);
    for (name, row) in rows {
        let shown = |figure: Option<f64>| figure.map_or("-".to_owned(), |it| format!("{it:.1}"));
        table.add_row([
            name,
            shown(row.p50),
            shown(row.p99),
            row.count.to_string(),
            row.refused.clone().unwrap_or_default(),
        ]);
    }
    for column in 1..=3 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{
        super::{hung, program::Rate},
        *,
    };

    fn samples(micros: u64) -> Samples {
        let mut samples = Samples::default();
        samples.add([micros * 1_000]);
        samples
    }

    fn outcome(micros: u64) -> Outcome {
        Outcome {
            times: samples(micros),
            refused: None,
        }
    }

    fn outcomes(micros: u64) -> Outcomes {
        let of = |kind| (kind, outcome(micros));
        Kind::ALL.into_iter().map(of).collect()
    }

    /// All well, with maps of these sizes in microseconds.
    fn measured(sizes: [u64; 3]) -> Measured {
        let sizes = SIZES.into_iter().zip(sizes);
        Measured {
            commits: samples(100),
            round_trips: samples(20),
            sizes: sizes
                .map(|((key, _), micros)| (key, (outcome(micros), outcome(micros))))
                .collect(),
            at_vmas: [1, 1_000, 100_000]
                .map(|vmas| (vmas, AtVmas::Measured(outcomes(300))))
                .into(),
            rate: Rate {
                per_s: 4_000.0,
                refused: None,
            },
            hung: hung::Hung {
                status: samples(900),
                metrics: samples(2_000),
                outcomes: outcomes(400),
                rate: Rate::default(),
                time: Duration::from_secs(8),
            },
        }
    }

    #[test]
    fn keys_are_those_that_the_bench_promises() {
        let report = Report::new(measured([300; 3]));
        let json = serde_json::to_value(report).expect("it is plain data");
        for key in [
            "map_us/4k/p50",
            "map_us/1g/p99",
            "map_us/256g/p99",
            "unmap_us/256g/p50",
            "map_at_vmas_us/1/p99",
            "map_at_vmas_us/1000/p99",
            "map_at_vmas_us/100000/p99",
            "protect_at_vmas_us/1000/p50",
            "open_at_vmas_us/1/p99",
            "attach_at_vmas_us/100000/p99",
            "ops_per_s",
            "hung/status_ms/p99",
            "hung/metrics_ms/p99",
            "hung/map_ms/p99",
            "hung/ops_per_s",
            "limits/commit_us/p50",
            "limits/round_trip_us/p99",
        ] {
            let figure = json.pointer(&format!("/{key}"));
            assert!(figure.is_some_and(|value| value.is_f64()), "{key}: {json}");
        }
        assert_eq!(json.pointer("/hung/map_ms/p99"), Some(&0.4.into()));
        assert_eq!(json.pointer("/map_us/4k/refused"), None);
    }

    #[test]
    fn bounds_that_are_kept_are_not_mentioned() {
        let complaints = Report::new(measured([300, 400, 600])).complaints();
        assert_eq!(complaints, Vec::<String>::new());
    }

    #[test]
    fn bounds_that_are_exceeded_are_named() {
        let mut measured = measured([500, 900, 2_100]);
        measured.hung.status = samples(51_000);
        measured.hung.metrics = Samples::default();
        assert_eq!(
            Report::new(measured).complaints(),
            [
                "a map of 256g takes 2100 us at p99, more than 2000",
                "a map of 256g takes 4.2 times as long as a map of 4k at p99, more than 2",
                "while a blade hangs, status takes 51.0 ms at p99, more than 50",
                "while a blade hung, metrics was not measured",
            ]
        );
    }

    #[test]
    fn what_is_refused_is_in_the_output_beside_what_is_not() {
        let mut measured = measured([300; 3]);
        let refused = Outcome {
            times: Samples::default(),
            refused: Some("no slots (ENOMEM)".to_owned()),
        };
        measured.sizes.insert("256g", (refused, Outcome::default()));
        let missing = AtVmas::Missing(40_000, "no slots (ENOMEM)".to_owned());
        measured.at_vmas.insert(100_000, missing);
        let report = Report::new(measured);
        let json = serde_json::to_value(&report).expect("it is plain data");
        let at = |pointer: &str| json.pointer(pointer).cloned();
        assert_eq!(at("/map_us/256g/refused"), Some("no slots (ENOMEM)".into()));
        assert_eq!(at("/map_us/256g/p99"), None);
        let why = "only 40000 vmas are in place: no slots (ENOMEM)";
        assert_eq!(at("/open_at_vmas_us/100000/refused"), Some(why.into()));
        let complaints = report.complaints();
        assert!(complaints.contains(&"map 256g: no slots (ENOMEM)".to_owned()));
        assert!(complaints.contains(&format!("map, 100000 vmas: {why}")));
        assert!(report.text().contains(why), "{}", report.text());
    }
}
