//! Measured figures as a table for the README, beside those that MIND's paper has.

use std::{collections::BTreeMap, fmt::Write as _};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, de::DeserializeOwned};

use crate::machine::Machine;

/// What stands before the figures in the README.
pub const BEGIN: &str = "<!-- figures:begin -->";
/// What stands after them.
pub const END: &str = "<!-- figures:end -->";

/// What `mind-bench fault --json` prints, as far as the README says it.
#[derive(Debug, Deserialize)]
pub struct Fault {
    /// Who shares a processor.
    placement: String,
    limits: Limits,
    sum_us: f64,
    transitions: BTreeMap<String, Transition>,
    evicting_faults_per_s: Evicting,
}

#[derive(Debug, Deserialize)]
struct Limits {
    userfault_us: f64,
    network_us: f64,
}

#[derive(Debug, Deserialize)]
struct Transition {
    p50_us: f64,
}

#[derive(Debug, Deserialize)]
struct Evicting {
    t1: f64,
    t8: f64,
}

/// What `mind-bench pipeline --json` prints, as far as the README says it.
#[derive(Debug, Deserialize)]
pub struct Pipeline {
    floor_ns: f64,
    paths: BTreeMap<String, f64>,
}

/// A row of the table: a transition, what it is, and how long MIND takes for it (SOSP 2021, section 7.2, figure 6).
struct Row {
    key: &'static str,
    name: &'static str,
    meaning: &'static str,
    mind: &'static str,
}

const ROWS: [Row; 7] = [
    Row {
        key: "i_s",
        name: "I->S",
        meaning: "read, cached nowhere",
        mind: "9",
    },
    Row {
        key: "s_s",
        name: "S->S",
        meaning: "read, other blades have copies",
        mind: "9",
    },
    Row {
        key: "i_m",
        name: "I->M",
        meaning: "write, cached nowhere",
        mind: "",
    },
    Row {
        key: "s_m",
        name: "S->M",
        meaning: "write, one other blade has a copy",
        mind: "9",
    },
    Row {
        key: "s_m_several",
        name: "S->M",
        meaning: "write, two other blades have copies",
        mind: "9",
    },
    Row {
        key: "m_s",
        name: "M->S",
        meaning: "read what another blade has written",
        mind: "18",
    },
    Row {
        key: "m_m",
        name: "M->M",
        meaning: "write what another blade has written",
        mind: "18",
    },
];

/// Paths of the switch's program that need no invalidation.
const FAST: [&str; 3] = ["i_s_ns", "i_m_ns", "s_s_ns"];

/// Reads what a bench printed.
///
/// # Errors
///
/// When a figure is missing.
pub fn parse<T: DeserializeOwned>(json: &str) -> Result<T> {
    serde_json::from_str(json).context("expected the JSON of `cargo xtask bench NAME --json`")
}

/// The table and what it was measured on, in Markdown.
pub fn render(fault: &Fault, pipeline: &Pipeline, machine: &Machine) -> String {
    let mut text = String::from(
        "| Remote page fault, median in microseconds | Here | MIND |\n|---|---:|---:|\n",
    );
    for row in &ROWS {
        let Some(measured) = fault.transitions.get(row.key) else {
            continue;
        };
        line(
            &mut text,
            &format!("`{}`: {}", row.name, row.meaning),
            &format!("{:.1}", measured.p50_us),
            row.mind,
        );
    }
    let limits = &fault.limits;
    line(
        &mut text,
        "what none of them can be faster than: a fault resolved locally, and a bare exchange of 4 KiB",
        &format!(
            "{:.1} = {:.1} + {:.1}",
            fault.sum_us, limits.userfault_us, limits.network_us
        ),
        "",
    );
    let rates = &fault.evicting_faults_per_s;
    line(
        &mut text,
        "faults per second of 1 thread and of 8, each of which evicts a page",
        &format!("{} and {}", grouped(rates.t1), grouped(rates.t8)),
        "",
    );
    let above = FAST
        .iter()
        .filter_map(|path| pipeline.paths.get(*path))
        .map(|ns| ns - pipeline.floor_ns)
        .reduce(f64::max);
    if let Some(above) = above {
        line(
            &mut text,
            "nanoseconds of a processor in the switch for each request, invalidations aside",
            &format!("{above:.0}"),
            "line rate",
        );
    }
    let Machine {
        processor,
        processors,
        kernel,
        date,
    } = machine;
    let placement = &fault.placement;
    let _ = writeln!(
        text,
        "\nMeasured on {date} by `cargo xtask bench fault` (placement `{placement}`) and `cargo xtask bench pipeline` on one\n\
         machine: {processor}, {processors} processors, Linux {kernel}.\n\
         Blades and switch are network namespaces joined by veth pairs, so there is no cable in it, and all of them share\n\
         these processors."
    );
    text
}

fn line(text: &mut String, what: &str, here: &str, mind: &str) {
    let _ = writeln!(text, "| {what} | {here} | {mind} |");
}

/// A whole number with commas between groups of three digits.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `readme` with `table` between the markers instead of what is there.
///
/// # Errors
///
/// When the markers are not there, each once and in order.
pub fn replace(readme: &str, table: &str) -> Result<String> {
    let only = |marker: &str| {
        ensure!(
            readme.matches(marker).count() == 1,
            "README.md must have the line {marker} exactly once: the figures go between {BEGIN} and {END}"
        );
        readme.find(marker).context("it is there")
    };
    let (begin, end) = (only(BEGIN)? + BEGIN.len(), only(END)?);
    ensure!(begin <= end, "README.md has {END} before {BEGIN}");
    Ok(format!(
        "{}\n{}\n{}",
        &readme[..begin],
        table.trim_end(),
        &readme[end..]
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAULT: &str = r#"{
        "placement": "across", "fan_out": "switch", "kept_awake": true,
        "limits": {"userfault_us": 6.6, "userfault_p99_us": 9.0, "userfault_by_process_us": 7.0,
                   "network_us": 1.94, "network_p99_us": 3.0},
        "sum_us": 8.54,
        "transitions": {
            "i_s": {"p50_us": 10.55, "p99_us": 20.0, "count": 5000, "agent_p50_us": 5.0},
            "m_s": {"p50_us": 22.5, "p99_us": 40.0, "count": 5000, "agent_p50_us": 5.0}
        },
        "ratios": {}, "evicting_faults_per_s": {"t1": 44039.4, "t8": 1047202.0}, "strays": 0
    }"#;
    const PIPELINE: &str = r#"{
        "floor_ns": 10.0, "redirect_ns": 15.0, "restore_ns": 13.0,
        "paths": {"i_s_ns": 48.2, "i_m_ns": 47.0, "s_s_ns": 47.9, "denied_ns": 90.0}
    }"#;

    fn rendered() -> String {
        let machine = Machine {
            processor: "Some CPU".to_owned(),
            processors: 2,
            kernel: "6.18.1".to_owned(),
            date: "2026-01-02".to_owned(),
        };
        render(&parse(FAULT).unwrap(), &parse(PIPELINE).unwrap(), &machine)
    }

    #[test]
    fn a_figure_stands_beside_that_of_the_paper() {
        let text = rendered();
        let lines: Vec<_> = text.lines().collect();
        for expected in [
            "| `I->S`: read, cached nowhere | 10.6 | 9 |",
            "| `M->S`: read what another blade has written | 22.5 | 18 |",
            "| faults per second of 1 thread and of 8, each of which evicts a page | 44,039 and 1,047,202 |  |",
            "| nanoseconds of a processor in the switch for each request, invalidations aside | 38 | line rate |",
        ] {
            assert!(lines.contains(&expected), "{expected} is not in\n{text}");
        }
        assert!(!text.contains("S->S"), "what was not measured has no line");
        assert!(text.contains("8.5 = 6.6 + 1.9"), "{text}");
    }

    #[test]
    fn the_machine_is_named() {
        let text = rendered();
        assert!(text.contains("Measured on 2026-01-02"), "{text}");
        assert!(
            text.contains("Some CPU, 2 processors, Linux 6.18.1"),
            "{text}"
        );
        assert!(text.lines().all(|line| line.len() <= 120), "{text}");
    }

    #[test]
    fn a_figure_that_is_missing_is_named() {
        let error = parse::<Fault>(&FAULT.replace("sum_us", "sum")).unwrap_err();
        assert!(format!("{error:#}").contains("sum_us"), "{error:#}");
    }

    #[test]
    fn what_is_between_the_markers_is_replaced_and_nothing_else() {
        let readme = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let expected = format!("before\n{BEGIN}\nnew\n{END}\nafter\n");
        let once = replace(&readme, "new\n").unwrap();
        assert_eq!(once, expected);
        assert_eq!(replace(&once, "new\n").unwrap(), expected);
    }

    #[test]
    fn a_readme_without_markers_is_left_alone() {
        for wrong in [
            "no markers".to_owned(),
            format!("{BEGIN}\n"),
            format!("{END}\n{BEGIN}\n"),
            format!("{BEGIN}{BEGIN}{END}"),
        ] {
            assert!(replace(&wrong, "new").is_err(), "{wrong}");
        }
    }
}
