//! Tests, their outcomes and reports as text tables.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets};

use crate::{
    machine::Model,
    oracle::{Allowed, Judgement},
    report::{Judged, NotRun, Report},
    test::Test,
};

fn table<T: Into<String>>(header: impl IntoIterator<Item = T>) -> Table {
    let mut table = Table::new();
    let header: Vec<String> = header.into_iter().map(Into::into).collect();
    table.load_preset(presets::NOTHING).set_header(header);
    table
}

fn right(table: &mut Table, columns: impl IntoIterator<Item = usize>) {
    for column in columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

fn lines(table: &Table) -> String {
    let mut text = String::new();
    for line in table.lines() {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// A line for each test: how large it is, how many outcomes the models allow, and in how many of
/// them its condition's proposition holds.
pub fn list<'a>(tests: impl IntoIterator<Item = (&'a Test, &'a Allowed)>) -> String {
    let mut table = table([
        "NAME",
        "THREADS",
        "TSO",
        "SC",
        "CONDITION TSO",
        "CONDITION SC",
    ]);
    right(&mut table, 1..4);
    for (test, allowed) in tests {
        table.add_row([
            test.name().to_owned(),
            test.threads().len().to_string(),
            allowed.outcomes(Model::Tso).len().to_string(),
            allowed.outcomes(Model::Sc).len().to_string(),
            allowed.reach(test, Model::Tso).name().to_owned(),
            allowed.reach(test, Model::Sc).name().to_owned(),
        ]);
    }
    lines(&table)
}

/// The outcomes of a test that TSO allows, which of them sequential consistency allows as well, and
/// in which the condition's proposition holds.
pub fn outcomes(test: &Test, allowed: &Allowed) -> String {
    let observed = test.observed().iter().map(ToString::to_string);
    let mut table = table(observed.chain(["TSO", "SC", "CONDITION"].map(str::to_owned)));
    right(&mut table, 0..test.observed().len());
    for outcome in allowed.outcomes(Model::Tso) {
        let values = outcome.values().iter().map(ToString::to_string);
        let sc = match allowed.judge(outcome) {
            Judgement::Sequential => "allowed",
            Judgement::TsoOnly | Judgement::Forbidden => "-",
        };
        let holds = if test.holds_in(outcome) { "holds" } else { "-" };
        table.add_row(values.chain(["allowed", sc, holds].map(str::to_owned)));
    }
    lines(&table)
}

/// A test that was run: its outcomes with their counts.
pub fn judged(judged: &Judged) -> String {
    let mut text = format!(
        "{} ({}): {} copies",
        judged.name, judged.setting, judged.copies
    );
    let forbidden = judged.forbidden();
    if forbidden > 0 {
        let _ = write!(text, ", {forbidden} FORBIDDEN");
    }
    let never = judged.never_seen();
    if never > 0 {
        let _ = write!(text, ", {never} of the allowed outcomes never seen");
    }
    text.push('\n');
    let header = ["COUNT".to_owned()]
        .into_iter()
        .chain(judged.observed.iter().cloned())
        .chain(["JUDGEMENT", "CONDITION"].map(str::to_owned));
    let mut table = table(header);
    right(&mut table, 0..=judged.observed.len());
    for row in &judged.outcomes {
        let value = |of: &String| row.values.get(of).map_or_else(String::new, u64::to_string);
        let holds = if row.condition { "holds" } else { "-" };
        let cells = [row.count.to_string()]
            .into_iter()
            .chain(judged.observed.iter().map(value))
            .chain([row.judgement.name(), holds].map(str::to_owned));
        table.add_row(cells);
    }
    text.push_str(&lines(&table));
    text
}

/// A test that could not be run, and why.
pub fn not_run(not_run: &NotRun) -> String {
    let NotRun {
        name,
        setting,
        reason,
    } = not_run;
    match setting {
        Some(setting) => format!("{name} ({setting}): NOT RUN: {reason}\n"),
        None => format!("{name}: NOT RUN: {reason}\n"),
    }
}

/// A whole report, with a last line that says how it ended.
pub fn report(report: &Report) -> String {
    let mut text = String::new();
    for test in &report.tests {
        text.push_str(&judged(test));
        text.push('\n');
    }
    for test in &report.not_run {
        text.push_str(&not_run(test));
        text.push('\n');
    }
    let copies: u64 = report.tests.iter().map(|test| test.copies).sum();
    let forbidden: u64 = report.tests.iter().map(Judged::forbidden).sum();
    let wrong = report.tests.iter().filter_map(Judged::fault).count();
    let _ = write!(
        text,
        "{} tests, {copies} copies: {wrong} wrong, {forbidden} forbidden outcomes",
        report.tests.len()
    );
    if !report.not_run.is_empty() {
        let _ = write!(text, ", {} not run", report.not_run.len());
    }
    text.push('\n');
    text
}
