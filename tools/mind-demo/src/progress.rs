//! The demo's progress, on stderr: a bar on a terminal, plain lines elsewhere.

use std::fmt;
use std::io::{IsTerminal as _, stderr};

use indicatif::{ProgressBar, ProgressStyle};

/// Prints a step of the demo.
pub fn step(text: impl fmt::Display) {
    eprintln!("demo: {text}");
}

/// The iterations.
#[derive(Debug)]
pub struct Progress {
    total: u64,
    /// On a terminal.
    bar: Option<ProgressBar>,
}

impl Progress {
    /// At most `total` iterations.
    pub fn new(total: u64) -> Self {
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(total);
            let template = "demo: iteration {pos}/{len} {wide_bar} {elapsed_precise} {msg}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.tick();
            bar
        });
        Self { total, bar }
    }

    /// One is done.
    pub fn iteration(&self, number: u64, delta: f64) {
        match &self.bar {
            Some(bar) => {
                bar.set_message(format!("change {delta:.2e}"));
                bar.set_position(number);
            }
            None => step(line(number, self.total, delta)),
        }
    }

    /// Ends the bar.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            // As it is: the tolerance may have been met before the last iteration.
            bar.abandon();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

fn line(number: u64, total: u64, delta: f64) -> String {
    format!("iteration {number} of at most {total}, change {delta:.2e}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_line_says_where_the_job_is() {
        assert_eq!(
            line(3, 30, 0.00125),
            "iteration 3 of at most 30, change 1.25e-3"
        );
    }
}
