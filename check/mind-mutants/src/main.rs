//! Puts one bug after the other into the protocol, and shows whether the model and the simulator
//! find it. Fails if a bug survives, or if the reason given for only one of the two finding it does
//! not hold.

#[cfg(test)]
mod at_once;
mod detection;
mod reasons;

use std::{process::ExitCode, time::Instant};

use clap::Parser;
use comfy_table::{ContentArrangement, Table, presets};
use mind_machines::mutant::Mutant;

use detection::{Detection, Settings, by_model, by_simulator};
use reasons::{Finder, Reason};

/// Runs the model and the simulator on a protocol with a bug in it, for each bug there is.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// Only bugs with this in their name.
    #[arg(long, default_value = "", value_name = "TEXT")]
    only: String,
    /// Only settings of the model with this in their name, quick or full.
    #[arg(long, default_value = "", value_name = "TEXT")]
    setting: String,
    /// Only the model or the simulator looks for them; that each bug is found by the right one is not checked then.
    #[arg(long, value_name = "FINDER")]
    by: Option<Finder>,
    /// Looks in the full settings as well, and for each bug with both, to check that the one of the
    /// two that is said not to find it does not. Takes several times as long.
    #[arg(long)]
    everything: bool,
    /// States after which a setting is left, however many there are.
    #[arg(long, default_value_t = 2_000_000, value_name = "N")]
    states: usize,
    /// Seeds after which the simulator gives up.
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    seeds: u64,
}

/// Width of the table in characters; longer texts go on in the next line.
const WIDTH: u16 = 120;

/// The result for one bug.
struct Tried {
    /// What the model and the simulator found, where they were run.
    model: Option<Option<Detection>>,
    simulator: Option<Option<Detection>>,
    reason: Option<Reason>,
    /// Whether only one of the two was to look for it.
    is_by_one: bool,
}

impl Tried {
    fn of(mutant: Mutant, options: &Options) -> Self {
        let reason = reasons::of(mutant);
        let asks = |finder| match options.by {
            Some(only) => only == finder,
            None => options.everything || reason.is_none_or(|why| why.finder == finder),
        };
        let settings = if options.everything || !options.setting.is_empty() {
            Settings::All
        } else {
            Settings::Quick
        };
        Mutant::activate(Some(mutant));
        let simulator = asks(Finder::Simulator).then(|| by_simulator(options.seeds));
        let model =
            asks(Finder::Model).then(|| by_model(settings, &options.setting, options.states));
        Mutant::activate(None);
        Self {
            model,
            simulator,
            reason: reason.filter(|_| options.by.is_none()),
            is_by_one: options.by.is_some(),
        }
    }

    /// Which of the two found it.
    fn finders(&self) -> Vec<Finder> {
        let model = matches!(self.model, Some(Some(_))).then_some(Finder::Model);
        let simulator = matches!(self.simulator, Some(Some(_))).then_some(Finder::Simulator);
        model.into_iter().chain(simulator).collect()
    }

    /// Whether it is found, and by only one of the two only if a reason is given.
    fn is_well(&self) -> bool {
        match (self.finders().as_slice(), self.reason) {
            ([finder], Some(reason)) => *finder == reason.finder,
            (finders, None) => finders.len() == 2 || self.is_by_one && finders.len() == 1,
            _ => false,
        }
    }

    fn remark(&self) -> &'static str {
        match (self.finders().as_slice(), self.reason) {
            ([], _) => "SURVIVES",
            (_, Some(reason)) if self.is_well() => reason.sentence,
            (_, Some(_)) => "the reason for only one to find it DOES NOT HOLD",
            (_, None) if self.is_well() => "",
            (_, None) => "only one finds it, and NO REASON IS GIVEN",
        }
    }
}

fn cell(asked: Option<&Option<Detection>>) -> String {
    match asked {
        None => "not asked".to_owned(),
        Some(None) => "-".to_owned(),
        Some(Some(detected)) => detected.to_string(),
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut table = Table::new();
    table
        .load_preset(presets::UTF8_HORIZONTAL_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(WIDTH);
    table.set_header(["bug", "model", "simulator", ""]);
    let (mut tried, mut survivors, mut unexplained) = (0, 0, 0);
    for &mutant in Mutant::ALL {
        let name = format!("{mutant:?}");
        if !name.contains(&options.only) {
            continue;
        }
        tried += 1;
        eprint!("{name} ... ");
        let began = Instant::now();
        let tried = Tried::of(mutant, &options);
        if tried.finders().is_empty() {
            survivors += 1;
        } else if !tried.is_well() {
            unexplained += 1;
        }
        let (model, simulator) = (cell(tried.model.as_ref()), cell(tried.simulator.as_ref()));
        let remark = tried.remark();
        let took = began.elapsed();
        eprintln!("{model} | {simulator} {remark} [{took:.1?}]");
        let bug = format!("{name}: {}", mutant.sentence());
        table.add_row([bug, model, simulator, remark.to_owned()]);
    }
    println!(
        "{table}\n{tried} bugs, {survivors} survive, {unexplained} are found otherwise than is said"
    );
    let is_well = tried > 0 && survivors == 0 && unexplained == 0;
    ExitCode::from(u8::from(!is_well))
}
