//! Excerpts of the daemons' logs for the demo's errors: the logs go with the testbed.

use std::collections::HashSet;
use std::fs;

use anyhow::Error;
use netns_setup::condition::Condition;
use netns_setup::{Testbed, paths, testbed};

/// Lines of a log that are shown at most.
const TAIL: usize = 10;

/// The error, with what explains it from the daemons' logs. An interruption needs no explanation.
pub fn added_to(error: Error, testbed: &Testbed) -> Error {
    if error.is::<mind_cli::Interrupted>() {
        return error;
    }
    let dead: HashSet<String> = match testbed::look() {
        Ok(Condition::Running { dead, .. }) => dead.into_iter().collect(),
        Ok(_) | Err(_) => HashSet::new(),
    };
    let mut text = format!("{error:#}");
    for service in &testbed.state().services {
        let name = &service.name;
        let log = fs::read(paths::log(name)).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let (how, lines) = if dead.contains(name) {
            ("has died; its log ends", tail(&log, |_| true))
        } else {
            ("has warned", tail(&log, is_warning))
        };
        if !lines.is_empty() {
            text.push_str(&format!(
                "\nthe daemon of {name} {how}:\n  {}",
                lines.join("\n  ")
            ));
        }
    }
    Error::msg(text)
}

/// The last lines that are `wanted`.
fn tail(log: &str, wanted: impl Fn(&str) -> bool) -> Vec<&str> {
    let lines: Vec<_> = log.lines().filter(|line| wanted(line)).collect();
    lines[lines.len().saturating_sub(TAIL)..].to_vec()
}

fn is_warning(line: &str) -> bool {
    line.contains("WARN") || line.contains("ERROR") || line.contains("panicked")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_picked_out_and_the_last_lines_kept() {
        let log = "1 INFO ready\n2  WARN late\n3 \u{1b}[31mERROR\u{1b}[0m lost\n4 INFO done\n";
        assert_eq!(tail(log, is_warning).len(), 2);
        let long: String = (0..30).map(|number| format!("{number}\n")).collect();
        assert_eq!(tail(&long, |_| true)[0], "20");
    }
}
