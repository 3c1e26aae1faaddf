//! A report as text.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets};
use mind_api::program::TransitionReport;
use mind_common::directory::Transition;

use crate::report::{Blade, Report, ratio};

/// The whole report.
pub fn render(report: &Report) -> String {
    let mut text = String::new();
    let sections = [
        ("", summary(report)),
        ("Highest ranks", top(report)),
        (
            "Remote faults by transition, with the time from fault to page",
            transitions(report),
        ),
        ("Page caches, loading of the graph included", caches(report)),
        ("Pages moved over the network", pages(report)),
        (
            "Packets by verdict, all ports of the switch",
            packets(report),
        ),
    ];
    for (title, table) in sections {
        if !title.is_empty() {
            // Writing to a string does not fail.
            let _ = writeln!(text, "\n{title}\n");
        }
        for line in table.lines() {
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    text
}

fn table<T: Into<String>>(header: impl IntoIterator<Item = T>) -> Table {
    let mut table = Table::new();
    let header: Vec<String> = header.into_iter().map(Into::into).collect();
    table.load_preset(presets::NOTHING).set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn summary(report: &Report) -> Table {
    let job = &report.job;
    let comparison = &report.comparison;
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    let percent = 100.0 * job.cache_bytes as f64 / job.footprint_bytes as f64;
    let agree = if comparison.blades_agree { "yes" } else { "NO" };
    table.add_rows([
        ["graph", &job.graph],
        ["vertices", &grouped(job.vertices as u64)],
        ["edges", &grouped(job.edges as u64)],
        [
            "blades",
            &format!(
                "{} compute, {} memory",
                job.compute_blades, job.memory_blades
            ),
        ],
        ["footprint", &bytes(job.footprint_bytes)],
        [
            "page cache per blade",
            &format!(
                "{} ({percent:.1} % of the footprint)",
                bytes(job.cache_bytes)
            ),
        ],
        [
            "iterations",
            &format!(
                "{}, the last changed {:.2e}",
                job.iterations, job.last_change
            ),
        ],
        [
            "time in shared memory",
            &format!("{:.3} s", job.shared_seconds),
        ],
        [
            "time in private memory",
            &format!("{:.3} s", job.private_seconds),
        ],
        [
            "largest difference of a rank",
            &format!("{:e}", comparison.largest_difference),
        ],
        ["all blades see the same", agree],
    ]);
    table
}

fn top(report: &Report) -> Table {
    let mut table = table(["NAME", "SHARED", "PRIVATE"]);
    for top in &report.top {
        table.add_row([
            top.name.clone(),
            format!("{:.12}", top.shared),
            format!("{:.12}", top.private),
        ]);
    }
    table
}

/// The transitions of the paper, and all others that happened. Percentiles are each blade's own:
/// those of several blades can't be made into one.
fn transitions(report: &Report) -> Table {
    let of_blades = report.blades.iter();
    let header = of_blades.flat_map(|blade| {
        let name = &blade.name;
        [name.clone(), format!("{name} p50"), format!("{name} p99")]
    });
    let mut table = table(
        ["TRANSITION".to_owned(), "ALL".to_owned()]
            .into_iter()
            .chain(header),
    );
    let mut sums = vec![0; report.blades.len()];
    for transition in Transition::ALL {
        let of = |blade: &Blade| {
            let transitions = &blade.counted.transitions;
            transitions
                .iter()
                .find(|of| of.transition == transition.name())
                .cloned()
        };
        let of_blades: Vec<Option<TransitionReport>> = report.blades.iter().map(of).collect();
        let counts = of_blades
            .iter()
            .map(|of| of.as_ref().map_or(0, |of| of.count));
        let all: u64 = counts.clone().sum();
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum += count;
        }
        if transition == Transition::Owned && all == 0 {
            // A repeated request; not one of the paper's.
            continue;
        }
        let cells = of_blades.into_iter().flat_map(|of| match of {
            Some(of) if of.count > 0 => [grouped(of.count), time(of.p50_ns), time(of.p99_ns)],
            _ => ["0".to_owned(), "-".to_owned(), "-".to_owned()],
        });
        let first = [transition.name().to_owned(), grouped(all)];
        table.add_row(first.into_iter().chain(cells));
    }
    let cells = sums
        .iter()
        .flat_map(|sum| [grouped(*sum), String::new(), String::new()]);
    let first = ["all".to_owned(), grouped(sums.iter().sum())];
    table.add_row(first.into_iter().chain(cells));
    table
}

fn caches(report: &Report) -> Table {
    let names = report.blades.iter().map(|blade| blade.name.clone());
    let mut table = table(["".to_owned(), "ALL".to_owned()].into_iter().chain(names));
    let mut counts = |name: &str, of: &dyn Fn(&Blade) -> u64| {
        let values: Vec<_> = report.blades.iter().map(of).collect();
        let first = [name.to_owned(), grouped(values.iter().sum())];
        table.add_row(first.into_iter().chain(values.into_iter().map(grouped)));
    };
    counts("accesses of the job", &|blade| blade.accesses);
    counts("page faults", &|blade| blade.counted.faults);
    counts("faults that found the page on the blade", &|blade| {
        blade.counted.hits
    });
    counts("requests to the switch", &|blade| blade.counted.requests);
    counts("invalidations", &|blade| blade.counted.invalidations);
    counts("false invalidations (pages not asked for)", &|blade| {
        blade.counted.false_invalidations
    });
    counts("pages evicted", &|blade| blade.counted.evictions);
    counts("pages written back", &|blade| blade.counted.write_backs);
    counts("requests refused as busy", &|blade| blade.counted.busy);
    counts("requests repeated without an answer", &|blade| {
        blade.counted.timeouts
    });
    let sum = |of: &dyn Fn(&Blade) -> u64| report.blades.iter().map(of).sum::<u64>();
    let accesses = sum(&|blade| blade.accesses);
    let requests = sum(&|blade| blade.counted.requests).min(accesses);
    let first = [
        "cache hit rate (accesses without a request)".to_owned(),
        percent(ratio(accesses - requests, accesses)),
    ];
    let rates = report.blades.iter().map(|blade| percent(blade.hit_rate));
    table.add_row(first.into_iter().chain(rates));
    table
}

fn pages(report: &Report) -> Table {
    let pages = report.pages;
    let mut table = table(["FROM, TO", "PAGES"]);
    table.add_rows([
        [
            "memory to compute blade".to_owned(),
            grouped(pages.from_memory),
        ],
        [
            "compute to compute blade".to_owned(),
            grouped(pages.from_blades),
        ],
        [
            "compute to memory blade".to_owned(),
            grouped(pages.written_back),
        ],
        ["all".to_owned(), grouped(pages.moved())],
    ]);
    table
}

fn packets(report: &Report) -> Table {
    let mut packets: Vec<_> = report.packets.iter().collect();
    packets.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let mut table = table(["VERDICT", "PACKETS"]);
    for (verdict, count) in packets {
        table.add_row([verdict.clone(), grouped(*count)]);
    }
    table
}

fn percent(ratio: f64) -> String {
    format!("{:.3} %", 100.0 * ratio)
}

/// A count, with its digits in groups of three.
pub(crate) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes, in the unit that leaves few digits.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64 / 1024.0;
    let mut units = UNITS.into_iter();
    let mut unit = units.next().unwrap_or("KiB");
    for next in units {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    format!("{value:.2} {unit}")
}

/// A time, in the unit that leaves few digits.
fn time(nanos: u64) -> String {
    let nanos = nanos as f64;
    if nanos < 1e6 {
        format!("{:.1} us", nanos / 1e3)
    } else if nanos < 1e9 {
        format!("{:.1} ms", nanos / 1e6)
    } else {
        format!("{:.1} s", nanos / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    /// The cells after `label` in the line that begins with it.
    fn line<'a>(text: &'a str, label: &str) -> Vec<&'a str> {
        for line in text.lines() {
            let cells = line.split("  ").map(str::trim);
            let mut cells = cells.filter(|cell| !cell.is_empty());
            if cells.next() == Some(label) {
                return cells.collect();
            }
        }
        panic!("no line `{label}` in\n{text}");
    }

    #[test]
    fn every_transition_of_the_paper_has_a_line() {
        let text = render(&report(|_, _| ()));
        assert_eq!(
            line(&text, "I->S"),
            ["80", "40", "52.4 us", "1.2 ms", "40", "52.4 us", "1.2 ms"]
        );
        for transition in ["S->S", "I->M", "S->M", "M->S", "M->M"] {
            assert_eq!(line(&text, transition), ["0", "0", "-", "-", "0", "-", "-"]);
        }
        assert!(!text.contains("owned"), "{text}");
        assert_eq!(line(&text, "all"), ["80", "40", "40"]);
    }

    #[test]
    fn counts_are_added_and_rates_are_taken_of_the_sums() {
        let text = render(&report(|_, parts| {
            parts[1].counted.requests = 150;
            parts[1].done.accesses = 3000;
        }));
        assert_eq!(line(&text, "page faults"), ["120", "60", "60"]);
        assert_eq!(
            line(&text, "accesses of the job"),
            ["4,000", "1,000", "3,000"]
        );
        let rates = line(&text, "cache hit rate (accesses without a request)");
        assert_eq!(rates, ["95.000 %", "95.000 %", "95.000 %"]);
        assert_eq!(
            line(&text, "false invalidations (pages not asked for)"),
            ["4", "2", "2"]
        );
    }

    #[test]
    fn verdicts_are_sorted_by_their_packets() {
        let text = render(&report(|_, _| ()));
        let (_, packets) = text.split_once("Packets by verdict").unwrap();
        let verdicts = packets
            .lines()
            .skip(3)
            .filter_map(|line| line.split_whitespace().next());
        assert_eq!(
            verdicts.collect::<Vec<_>>(),
            ["write-back", "fetch", "page-forwarded", "fetched"]
        );
    }

    #[test]
    fn the_result_comes_first() {
        let text = render(&report(|_, _| ()));
        assert_eq!(line(&text, "largest difference of a rank"), ["0e0"]);
        assert_eq!(line(&text, "all blades see the same"), ["yes"]);
        assert_eq!(line(&text, "blades"), ["2 compute, 2 memory"]);
        assert_eq!(line(&text, "libc6").len(), 2);
        assert!(text.lines().all(|line| line == line.trim_end()), "{text}");
    }

    #[test]
    fn numbers_are_in_units_for_people() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(bytes(4096), "4.00 KiB");
        assert_eq!(bytes(3 << 20), "3.00 MiB");
        assert_eq!(time(1_500), "1.5 us");
        assert_eq!(time(2_000_000_000), "2.0 s");
    }
}
