//! The page of all families that daemons show to Prometheus.

use std::fmt::Write as _;

use mind_metrics::catalogue::{self, Daemon};

use super::cell;

/// The page.
pub(super) fn render() -> String {
    let mut text = String::from(
        "# Metrics\n\nWhat daemons show at `http://ADDRESS:PORT/metrics` if they are started with `--metrics \
         ADDRESS:PORT`. This page is generated from the list that the exporters use.\n\nThe controller also shows \
         the families of its own process (`process_*`: processor time, memory, open files), as Prometheus's clients do.\n",
    );
    for daemon in Daemon::ALL {
        let title = match daemon {
            Daemon::Controller => "The controller",
            Daemon::ComputeBlade => "A compute blade",
            Daemon::MemoryBlade => "A memory blade",
        };
        let _ = writeln!(
            text,
            "\n## {title}\n\n| Name | Type | Labels | Meaning |\n|---|---|---|---|"
        );
        for metric in catalogue::all().filter(|metric| metric.daemon == daemon) {
            let labels = daemon.common_labels().iter().chain(metric.labels);
            let labels: Vec<_> = labels.map(|label| format!("`{label}`")).collect();
            let _ = writeln!(
                text,
                "| `{}` | {} | {} | {} |",
                metric.name,
                metric.kind.name(),
                labels.join(", "),
                cell(metric.help)
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_has_a_row() {
        let text = render();
        for metric in catalogue::all() {
            let row = format!("| `{}` | {} |", metric.name, metric.kind.name());
            assert!(text.contains(&row), "{row}");
        }
    }

    #[test]
    fn labels_of_the_daemon_come_first() {
        let row = "| `mind_fault_seconds` | histogram | `blade`, `transition` |";
        assert!(render().contains(row));
    }
}
