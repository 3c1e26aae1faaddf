//! How much of each eBPF program the kernel's verifier may walk: the budget kept in the repository, and the comparison
//! of a kernel's figures with it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::workspace;

/// Instructions per program.
type Table = BTreeMap<String, u64>;

/// The budget: a table for each series of kernels, such as `6.12`.
#[derive(Debug)]
pub(crate) struct Budget(BTreeMap<String, Table>);

/// Where the budget lies.
pub(crate) fn path() -> PathBuf {
    workspace::root().join("xtask/verifier-budget.toml")
}

impl Budget {
    /// Reads the budget of this checkout.
    pub(crate) fn read() -> Result<Self> {
        let path = path();
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{} is no budget", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        toml::from_str(text)
            .map(Self)
            .context("expected a table for each series of kernels, with instructions per program")
    }

    /// The table for a series; a series without one is held to that of the newest series there is.
    fn table(&self, series: &str) -> Option<&Table> {
        self.0.get(series).or_else(|| {
            let number = |series: &str| -> Vec<u32> {
                series.split('.').map_while(|n| n.parse().ok()).collect()
            };
            self.0
                .iter()
                .max_by_key(|(series, _)| number(series))
                .map(|(_, table)| table)
        })
    }

    /// Compares what the verifier of `series` walked with the budget.
    pub(crate) fn compare(&self, series: &str, walked: &Table) -> Comparison {
        let table = self.table(series);
        let rows = walked
            .iter()
            .map(|(program, instructions)| Row {
                program: program.clone(),
                instructions: *instructions,
                budget: table.and_then(|table| table.get(program)).copied(),
            })
            .collect();
        Comparison { rows }
    }
}

/// A program's figures.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    program: String,
    instructions: u64,
    budget: Option<u64>,
}

impl Row {
    fn is_within(&self) -> bool {
        self.budget
            .is_some_and(|budget| self.instructions <= budget)
    }
}

/// What a kernel's verifier walked, beside the budget.
#[derive(Debug)]
pub(crate) struct Comparison {
    rows: Vec<Row>,
}

impl Comparison {
    /// Whether every program has a budget and keeps it.
    pub(crate) fn is_within(&self) -> bool {
        self.rows.iter().all(Row::is_within)
    }

    /// The table for people, and how to raise the budget where that is meant.
    pub(crate) fn text(&self, series: &str) -> String {
        let mut text = format!(
            "{:<32} {:>8} {:>13} {:>10}\n",
            "program", "kernel", "instructions", "budget"
        );
        for row in &self.rows {
            let budget = row
                .budget
                .map_or("none".to_owned(), |budget| budget.to_string());
            let mark = if row.is_within() { "" } else { "  over" };
            writeln!(
                text,
                "{:<32} {series:>8} {:>13} {budget:>10}{mark}",
                row.program, row.instructions
            )
            .expect("writing to a string does not fail");
        }
        if !self.is_within() {
            writeln!(
                text,
                "If that growth is meant, write into {}:\n[\"{series}\"]",
                path().display()
            )
            .expect("writing to a string does not fail");
            for row in &self.rows {
                writeln!(text, "{} = {}", row.program, row.instructions)
                    .expect("writing to a string does not fail");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[\"6.9\"]\nswitch = 50\n[\"6.12\"]\nswitch = 100\nresponder = 20\n";

    fn walked(figures: &[(&str, u64)]) -> Table {
        figures
            .iter()
            .map(|(name, n)| ((*name).to_owned(), *n))
            .collect()
    }

    #[test]
    fn growth_beyond_the_budget_fails_and_says_how_to_allow_it() {
        let budget = Budget::parse(TEXT).unwrap();
        assert!(
            budget
                .compare("6.12", &walked(&[("switch", 100)]))
                .is_within()
        );
        let over = budget.compare("6.12", &walked(&[("switch", 101), ("responder", 20)]));
        assert!(!over.is_within());
        let text = over.text("6.12");
        assert!(text.contains("over"), "{text}");
        assert!(
            text.ends_with("[\"6.12\"]\nresponder = 20\nswitch = 101\n"),
            "{text}"
        );
    }

    #[test]
    fn a_program_without_a_budget_fails() {
        let budget = Budget::parse(TEXT).unwrap();
        assert!(!budget.compare("6.12", &walked(&[("new", 1)])).is_within());
    }

    #[test]
    fn a_series_without_a_table_is_held_to_the_newest_one() {
        let budget = Budget::parse(TEXT).unwrap();
        assert!(
            budget
                .compare("7.3", &walked(&[("switch", 100)]))
                .is_within()
        );
        assert!(
            !budget
                .compare("7.3", &walked(&[("switch", 101)]))
                .is_within()
        );
    }

    #[test]
    fn the_budget_of_this_checkout_is_readable() {
        Budget::read().unwrap();
    }
}
