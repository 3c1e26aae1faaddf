//! A run's progress, on stderr: a bar on a terminal, plain lines elsewhere.

use std::fmt;
use std::io::{IsTerminal as _, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::runner::Done;

/// Between two plain lines.
const PAUSE: Duration = Duration::from_secs(5);

/// Prints a step of the run.
pub fn step(text: impl fmt::Display) {
    eprintln!("mind-litmus: {text}");
}

/// Tests in their settings.
#[derive(Debug)]
pub struct Progress {
    settings: usize,
    total: usize,
    done: usize,
    said: Instant,
    /// On a terminal.
    bar: Option<ProgressBar>,
}

impl Progress {
    /// So many tests in so many settings each.
    pub fn new(tests: usize, settings: usize) -> Self {
        let total = tests * settings;
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(total as u64);
            let template =
                "mind-litmus: {pos}/{len} {wide_bar} {elapsed_precise} of {duration_precise} {msg}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.tick();
            bar
        });
        Self {
            settings,
            total,
            done: 0,
            said: Instant::now(),
            bar,
        }
    }

    /// One is done, or could not be run. Its fault is printed at once: the report comes at the end.
    pub fn done(&mut self, done: Done<'_>) {
        let (name, fault) = match done {
            Done::Judged(judged) => (&judged.name, judged.fault()),
            Done::NotRun(test) => (&test.name, Some(test.fault())),
        };
        let (setting, count) = match done {
            Done::Judged(judged) => (Some(&judged.setting), 1),
            Done::NotRun(test) if test.setting.is_some() => (test.setting.as_ref(), 1),
            Done::NotRun(_) => (None, self.settings),
        };
        self.done += count;
        if let Some(fault) = fault {
            let text = format_args!("ERROR: {fault}");
            match &self.bar {
                Some(bar) => bar.suspend(|| step(text)),
                None => step(text),
            }
        }
        match &self.bar {
            Some(bar) => {
                bar.set_message(name.clone());
                bar.inc(count as u64);
            }
            None if self.done == self.total || self.said.elapsed() >= PAUSE => {
                self.said = Instant::now();
                step(line(self.done, self.total, name, setting));
            }
            None => {}
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            // The report follows.
            bar.finish_and_clear();
        }
    }
}

fn line(done: usize, total: usize, name: &str, setting: Option<&String>) -> String {
    match setting {
        Some(setting) => format!("{done} of {total}: {name} ({setting})"),
        None => format!("{done} of {total}: {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::NotRun;

    #[test]
    fn a_plain_line_says_where_the_run_is() {
        let setting = "blades, own-page".to_owned();
        let text = line(3, 30, "SB", Some(&setting));
        assert_eq!(text, "3 of 30: SB (blades, own-page)");
        assert_eq!(line(6, 30, "SB", None), "6 of 30: SB");
    }

    #[test]
    fn a_test_that_could_not_be_run_anywhere_counts_for_all_its_settings() {
        let mut progress = Progress::new(2, 3);
        let mut test = NotRun {
            name: "SB".to_owned(),
            setting: Some("blades, own-page".to_owned()),
            reason: "it is said so".to_owned(),
        };
        progress.done(Done::NotRun(&test));
        assert_eq!(progress.done, 1);
        test.setting = None;
        progress.done(Done::NotRun(&test));
        assert_eq!(progress.done, 4);
    }
}
