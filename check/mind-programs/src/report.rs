//! What comes of the programs, for people and for machines.

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::measure::Counted;

/// What one program took. The keys are part of the command's interface.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// `$SCALE`.
    pub scale: u32,
    /// The most memory that it had in a local run.
    pub memory_bytes: u64,
    /// The blade's cache.
    pub cache_bytes: u64,
    /// Seconds of a run in local memory.
    pub local_s: f64,
    /// Seconds of a run on the blade.
    pub blade_s: f64,
    /// What the blade has counted in a run.
    #[serde(flatten)]
    pub counted: Counted,
}

impl Row {
    /// That it has passed, in a line.
    pub fn line(&self) -> String {
        format!(
            "{} answers the same after {:.2} s in local memory and {:.2} s on the blade",
            self.name, self.local_s, self.blade_s
        )
    }

    /// How many times as long it takes on the blade.
    fn ratio(&self) -> f64 {
        self.blade_s / self.local_s
    }
}

/// One that failed.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// The program's name.
    pub name: &'static str,
    /// How it failed.
    pub error: String,
}

/// All of them.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Runs each way, of which the times are the medians.
    pub rounds: usize,
    /// The cache in hundredths of the program's memory.
    pub cache_percent: u64,
    /// Those that answered as in local memory.
    pub passed: Vec<Row>,
    /// The others.
    pub failed: Vec<Failure>,
}

impl Report {
    /// As text.
    pub fn text(&self) -> String {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        table.set_header([
            "program",
            "memory MiB",
            "cache MiB",
            "faults",
            "hits",
            "evictions",
            "local s",
            "blade s",
            "times",
        ]);
        for row in &self.passed {
            let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
            table.add_row([
                row.name.to_owned(),
                mib(row.memory_bytes),
                mib(row.cache_bytes),
                row.counted.faults.to_string(),
                row.counted.hits.to_string(),
                row.counted.evictions.to_string(),
                format!("{:.2}", row.local_s),
                format!("{:.2}", row.blade_s),
                format!("{:.1}", row.ratio()),
            ]);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let Self {
            rounds,
            cache_percent,
            ..
        } = self;
        format!(
            "{} of {} programs answer as in local memory; the cache has {cache_percent} % of their memory; medians of {rounds}\n{table}",
            self.passed.len(),
            self.passed.len() + self.failed.len(),
        )
    }

    /// What failed; a sentence each.
    pub fn complaints(&self) -> Vec<String> {
        let failures = self.failed.iter();
        failures
            .map(|failure| format!("{}: {}", failure.name, failure.error))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_a_row_for_each_that_passed_and_a_complaint_for_each_other() {
        let counted = Counted {
            faults: 12_345,
            hits: 0,
            requests: 1,
            evictions: 0,
        };
        let report = Report {
            rounds: 1,
            cache_percent: 25,
            passed: vec![Row {
                name: "sort",
                scale: 1,
                memory_bytes: 100 << 20,
                cache_bytes: 25 << 20,
                local_s: 2.0,
                blade_s: 5.0,
                counted,
            }],
            failed: vec![Failure {
                name: "xz",
                error: "ends".to_owned(),
            }],
        };
        let text = report.text();
        assert!(text.starts_with("1 of 2 programs answer"), "{text}");
        assert!(text.contains("12345"), "{text}");
        assert!(text.trim_end().ends_with("2.5"), "{text}");
        assert_eq!(report.complaints(), ["xz: ends"]);
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["passed"][0]["faults"], 12_345);
    }
}
