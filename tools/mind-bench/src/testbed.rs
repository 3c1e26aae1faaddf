//! How long a testbed of one machine takes to come up, until all its blades are ready, and to go down.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use comfy_table::{CellAlignment, Table, presets};
use mind_cli::Interrupt;
use netns_setup::{Options, Testbed};
use serde::Serialize;

use crate::{daemons, output};

/// The longest that it may take to come up: "8 + 8 blades on one machine".
const UP_BOUND: Duration = Duration::from_secs(20);
/// The longest that it may take to go down.
const DOWN_BOUND: Duration = Duration::from_secs(5);

/// What `cargo xtask bench testbed` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print JSON: `compute`, `memory`, and `median_s`, `slowest_s`, `bound_s` of `up` and `down`.
    #[arg(long)]
    json: bool,
    /// Compute blades.
    #[arg(long, default_value_t = 8)]
    compute: u8,
    /// Memory blades.
    #[arg(long, default_value_t = 8)]
    memory: u8,
    /// Times up and down.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

/// The bench's answer. The keys are part of its interface.
#[derive(Serialize)]
struct Report {
    compute: u8,
    memory: u8,
    up: Step,
    down: Step,
}

/// What one of the two takes, in seconds.
#[derive(Serialize)]
struct Step {
    median_s: f64,
    slowest_s: f64,
    bound_s: f64,
}

impl Step {
    /// Of at least one time.
    fn new(mut times: Vec<Duration>, bound: Duration) -> Self {
        times.sort_unstable();
        Self {
            median_s: times[times.len() / 2].as_secs_f64(),
            slowest_s: times[times.len() - 1].as_secs_f64(),
            bound_s: bound.as_secs_f64(),
        }
    }

    fn complaint(&self, name: &str) -> Option<String> {
        (self.slowest_s > self.bound_s).then(|| {
            format!(
                "{name} took {:.2} s, more than {:.0}",
                self.slowest_s, self.bound_s
            )
        })
    }
}

impl Report {
    fn steps(&self) -> [(&'static str, &Step); 2] {
        [("up", &self.up), ("down", &self.down)]
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        table.set_header(["step", "median s", "slowest s", "bound s"]);
        for (name, step) in self.steps() {
            table.add_row([
                name.to_owned(),
                format!("{:.2}", step.median_s),
                format!("{:.2}", step.slowest_s),
                format!("{:.0}", step.bound_s),
            ]);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

/// Runs `cargo xtask bench testbed`. When it returns, however it does, no testbed is left.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(args.rounds > 0, "--rounds must be 1 or more");
    let interrupt = Interrupt::with_signals().context("cannot take Ctrl-C")?;
    let options = Options {
        compute: args.compute,
        memory: args.memory,
        services: Some(daemons::folder()?),
        ..Options::default()
    };
    let (mut up, mut down) = (Vec::new(), Vec::new());
    for round in 0..args.rounds {
        interrupt.check()?;
        output::progress(&format!("round {} of {}", round + 1, args.rounds));
        let start = Instant::now();
        let testbed = Testbed::guarded(&options).context("cannot bring the testbed up")?;
        up.push(start.elapsed());
        let start = Instant::now();
        drop(testbed);
        down.push(start.elapsed());
    }
    output::progress("");
    let report = Report {
        compute: args.compute,
        memory: args.memory,
        up: Step::new(up, UP_BOUND),
        down: Step::new(down, DOWN_BOUND),
    };
    let complaints = report
        .steps()
        .into_iter()
        .filter_map(|(name, step)| step.complaint(name));
    output::print(
        &report,
        args.json,
        || report.table().to_string(),
        complaints,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_time_is_held_to_the_bound() {
        let times = [3, 1, 6].map(Duration::from_secs).to_vec();
        let step = Step::new(times, DOWN_BOUND);
        assert_eq!((step.median_s, step.slowest_s), (3.0, 6.0));
        assert_eq!(
            step.complaint("down").as_deref(),
            Some("down took 6.00 s, more than 5")
        );
        let step = Step::new(vec![DOWN_BOUND], DOWN_BOUND);
        assert_eq!(step.complaint("down"), None);
    }
}
