//! The bench's report: a figure for each path, as a table or as JSON; and whether the bound is kept.

use std::{collections::BTreeMap, iter::Sum};

use anyhow::{Context as _, Result};
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::paths::Path;

/// The most that the fast path may cost above the floor, in nanoseconds.
const BOUND: f64 = 250.0;

/// The rows beside those of the paths.
pub(super) const FLOOR: &str = "floor";
pub(super) const REDIRECT: &str = "redirect";
pub(super) const RESTORE: &str = "restore";

/// Nanoseconds per packet of each round, by the row's name.
pub(super) type Samples = BTreeMap<&'static str, Vec<f64>>;

/// The bench's answer. The keys are part of its interface.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    floor_ns: f64,
    redirect_ns: f64,
    restore_ns: f64,
    paths: BTreeMap<String, f64>,
    /// With `--traced`: the counts of records.
    #[serde(skip_serializing_if = "Option::is_none")]
    records: Option<Records>,
}

/// How many records of traced packets were read and lost.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Records {
    pub(super) read: u64,
    pub(super) lost: u64,
}

impl Sum for Records {
    fn sum<I: Iterator<Item = Self>>(records: I) -> Self {
        records.fold(Self::default(), |sum, records| Self {
            read: sum.read + records.read,
            lost: sum.lost + records.lost,
        })
    }
}

/// A path's key in JSON.
fn key(name: &str) -> String {
    format!("{name}_ns")
}

/// The median of a row's rounds.
fn median(samples: &Samples, name: &str) -> Result<f64> {
    let samples = samples.get(name).filter(|samples| !samples.is_empty());
    let mut samples = samples
        .with_context(|| format!("{name} was not measured"))?
        .clone();
    samples.sort_by(f64::total_cmp);
    Ok(samples[samples.len() / 2])
}

impl Report {
    /// The report of what was measured: all paths and the rows beside them.
    pub(super) fn new(samples: &Samples, paths: &[Path], records: Option<Records>) -> Result<Self> {
        Ok(Self {
            floor_ns: median(samples, FLOOR)?,
            redirect_ns: median(samples, REDIRECT)?,
            restore_ns: median(samples, RESTORE)?,
            paths: paths
                .iter()
                .map(|path| Ok((key(path.name), median(samples, path.name)?)))
                .collect::<Result<_>>()?,
            records,
        })
    }

    fn of(&self, path: &Path) -> f64 {
        self.paths.get(&key(path.name)).copied().unwrap_or(f64::NAN)
    }

    /// A sentence for each path of `paths` that exceeds the bound.
    pub(super) fn complaints(&self, paths: &[Path]) -> Vec<String> {
        let fast = paths.iter().filter(|path| path.is_fast);
        fast.filter_map(|path| {
            let above = self.of(path) - self.floor_ns;
            (above > BOUND).then(|| {
                format!(
                    "{} costs {above} ns above the floor, more than {BOUND}",
                    path.name
                )
            })
        })
        .collect()
    }

    /// As text.
    pub(super) fn text(&self, paths: &[Path]) -> String {
        let table = self.table(paths);
        match self.records {
            Some(Records { read, lost }) => {
                format!("{table}\n{read} records read, {lost} found no room")
            }
            None => table.to_string(),
        }
    }

    fn table(&self, paths: &[Path]) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        table.set_header(["path", "what", "ns per packet", "above the floor"]);
        let mut row = |name: &str, what: &str, ns: f64| {
            table.add_row([
                name.to_owned(),
                what.to_owned(),
                format!("{ns:.0}"),
                format!("{:.0}", ns - self.floor_ns),
            ]);
        };
        row(FLOOR, "a program that returns", self.floor_ns);
        row(REDIRECT, "a bare redirect", self.redirect_ns);
        row(
            RESTORE,
            "part of every path below: headers and word restored",
            self.restore_ns,
        );
        for path in paths {
            row(path.name, path.says, self.of(path));
        }
        for column in [2, 3] {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::paths::paths;

    fn report(i_s: f64) -> (Report, Vec<Path>) {
        let paths = paths().expect("they can be made");
        let names = paths.iter().map(|path| path.name);
        let names = names.chain([FLOOR, REDIRECT, RESTORE]);
        let samples = names.map(|name| match name {
            "i_s" => (name, vec![900.0, i_s, 1.0]),
            "i_s_spread" => (name, vec![700.0]),
            _ => (name, vec![20.0]),
        });
        let report = Report::new(&samples.collect(), &paths, None).expect("all was measured");
        (report, paths)
    }

    #[test]
    fn keys_are_those_that_the_bench_promises() {
        let (report, paths) = report(50.0);
        let json = serde_json::to_value(&report).expect("it is plain data");
        for key in ["/floor_ns", "/redirect_ns", "/restore_ns"] {
            assert!(json.pointer(key).is_some_and(|ns| ns.is_f64()), "{key}");
        }
        for path in &paths {
            let key = format!("/paths/{}_ns", path.name);
            assert!(json.pointer(&key).is_some_and(|ns| ns.is_f64()), "{key}");
        }
        assert_eq!(json["paths"]["i_s_ns"], 50.0, "the median of its rounds");
        assert_eq!(json.get("records"), None);
    }

    #[test]
    fn the_bound_is_that_of_the_fast_path_only() {
        let (report_within, paths) = report(270.0);
        assert_eq!(report_within.complaints(&paths), Vec::<String>::new());
        let expected = "i_s costs 251 ns above the floor, more than 250";
        assert_eq!(report(271.0).0.complaints(&paths), [expected]);
    }

    #[test]
    fn the_table_has_a_row_for_each_path() {
        let (report, paths) = report(50.0);
        let text = report.text(&paths);
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        assert_eq!(lines.len(), 1 + 3 + paths.len(), "{text}");
        for (path, line) in paths.iter().zip(&lines[4..]) {
            let is_its = line.starts_with(path.name) && line.contains(path.says);
            assert!(is_its, "{line}");
        }
    }

    #[test]
    fn a_row_that_was_not_measured_is_named() {
        let paths = paths().expect("they can be made");
        let error = Report::new(&Samples::new(), &paths, None).expect_err("nothing was measured");
        assert_eq!(error.to_string(), "floor was not measured");
    }
}
