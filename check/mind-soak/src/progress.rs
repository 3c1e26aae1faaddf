//! The soak's progress, on stderr: a bar on a terminal, plain lines elsewhere.

use std::{
    fmt,
    io::{IsTerminal as _, stderr},
    time::Duration,
};

use indicatif::{HumanCount, ProgressBar, ProgressStyle};

use crate::machine::{Memory, mebibytes};

/// Prints a step of the run.
pub fn step(text: impl fmt::Display) {
    eprintln!("soak: {text}");
}

/// Rates, and the machine's memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Operations on shared memory a second.
    pub operations: f64,
    /// Faults a second.
    pub faults: f64,
    /// Packets at the switch and at memory blades a second.
    pub packets: f64,
    /// The machine's memory.
    pub memory: Memory,
    /// Errors so far.
    pub errors: usize,
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = |value: f64| HumanCount(value as u64);
        write!(
            f,
            "{} operations/s, {} faults/s, {} packets/s; free {}, slab {}; {} errors",
            rate(self.operations),
            rate(self.faults),
            rate(self.packets),
            mebibytes(self.memory.free),
            mebibytes(self.memory.slab),
            self.errors
        )
    }
}

/// The bar.
#[derive(Debug)]
pub struct Progress {
    total: Duration,
    /// On a terminal.
    bar: Option<ProgressBar>,
}

impl Progress {
    /// For so long.
    pub fn new(total: Duration) -> Self {
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(total.as_secs());
            let template = "soak: {elapsed_precise} {bar:20} {wide_msg}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar
        });
        Self { total, bar }
    }

    /// So much has passed.
    pub fn at(&self, time: Duration, pace: &Pace) {
        match &self.bar {
            Some(bar) => {
                bar.set_position(time.as_secs());
                bar.set_message(pace.to_string());
            }
            None => step(format_args!(
                "{} of {}: {pace}",
                clock(time),
                clock(self.total)
            )),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.abandon();
        }
    }
}

/// Minutes and seconds.
pub fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_fast_things_go() {
        let pace = Pace {
            operations: 1234.6,
            faults: 100.0,
            packets: 2_000_000.0,
            memory: Memory {
                free: 3 << 20,
                slab: 1 << 19,
                ..Memory::default()
            },
            errors: 0,
        };
        assert_eq!(
            pace.to_string(),
            "1,234 operations/s, 100 faults/s, 2,000,000 packets/s; free 3.0 MiB, slab 0.5 MiB; 0 errors"
        );
        assert_eq!(clock(Duration::from_secs(605)), "10:05");
    }
}
