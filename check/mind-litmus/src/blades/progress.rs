//! What a run says while it goes on, on stderr: a bar on a terminal, plain lines elsewhere.

use std::fmt;
use std::io::{IsTerminal as _, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::report::Judged;

/// Between two plain lines.
const PAUSE: Duration = Duration::from_secs(5);

/// Says what is being done.
pub fn step(text: impl fmt::Display) {
    eprintln!("mind-litmus: {text}");
}

/// Tests in their settings.
#[derive(Debug)]
pub struct Progress {
    total: usize,
    done: usize,
    said: Instant,
    /// On a terminal.
    bar: Option<ProgressBar>,
}

impl Progress {
    /// So many of them.
    pub fn new(total: usize) -> Self {
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
            total,
            done: 0,
            said: Instant::now(),
            bar,
        }
    }

    /// One is done. What is wrong with it is said at once: the report may be long in coming.
    pub fn done(&mut self, judged: &Judged) {
        self.done += 1;
        if let Some(fault) = judged.fault() {
            let text = format_args!("ERROR: {fault}");
            match &self.bar {
                Some(bar) => bar.suspend(|| step(text)),
                None => step(text),
            }
        }
        match &self.bar {
            Some(bar) => {
                bar.set_message(judged.name.clone());
                bar.inc(1);
            }
            None if self.done == self.total || self.said.elapsed() >= PAUSE => {
                self.said = Instant::now();
                step(line(self.done, self.total, judged));
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

fn line(done: usize, total: usize, judged: &Judged) -> String {
    let Judged { name, setting, .. } = judged;
    format!("{done} of {total}: {name} ({setting})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_line_says_where_the_run_is() {
        let judged = Judged {
            name: "SB".to_owned(),
            setting: "blades, own-page".to_owned(),
            copies: 1,
            observed: Vec::new(),
            outcomes: Vec::new(),
        };
        assert_eq!(line(3, 30, &judged), "3 of 30: SB (blades, own-page)");
    }
}
