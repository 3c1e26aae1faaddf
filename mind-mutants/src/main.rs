//! Puts one bug after the other into the protocol, and shows whether the model and the simulator find
//! it. Fails if one survives both.

#[cfg(test)]
mod at_once;
mod hunt;
mod reasons;

use std::process::ExitCode;

use clap::Parser;
use comfy_table::{Table, presets};
use mind_common::mutant::Mutant;

use hunt::{Catch, by_model, by_simulator};

/// Runs the model and the simulator on a protocol with a bug in it, for each bug there is.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// Only bugs with this in their name.
    #[arg(long, default_value = "", value_name = "TEXT")]
    only: String,
    /// Only settings of the model with this in their name.
    #[arg(long, default_value = "", value_name = "TEXT")]
    setting: String,
    /// States after which a setting is left, however many there are.
    #[arg(long, default_value_t = 600_000, value_name = "N")]
    states: usize,
    /// Seeds after which the simulator gives up.
    #[arg(long, default_value_t = 1_500, value_name = "N")]
    seeds: u64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["bug", "model", "simulator", ""]);
    let (mut tried, mut survivors, mut unexplained) = (0, Vec::new(), Vec::new());
    for &mutant in Mutant::ALL {
        let name = format!("{mutant:?}");
        if !name.contains(&options.only) {
            continue;
        }
        tried += 1;
        eprint!("{name} ... ");
        Mutant::activate(Some(mutant));
        let model = by_model(&options.setting, options.states);
        let simulator = by_simulator(options.seeds);
        Mutant::activate(None);
        let reason = reasons::of(mutant);
        let remark = match (model.is_some(), simulator.is_some()) {
            (true, true) => "",
            (false, false) => {
                survivors.push(mutant);
                "SURVIVES"
            }
            _ => {
                if reason.is_none() {
                    unexplained.push(mutant);
                }
                reason.unwrap_or("nobody has said why")
            }
        };
        let cell = |catch: &Option<Catch>| catch.as_ref().map_or("-".to_owned(), Catch::to_string);
        eprintln!("{} | {} {remark}", cell(&model), cell(&simulator));
        table.add_row([
            format!("{name}: {}", mutant.sentence()),
            cell(&model),
            cell(&simulator),
            remark.to_owned(),
        ]);
    }
    println!("{table}\n{tried} bugs, {} survive", survivors.len());
    let is_well = tried > 0 && survivors.is_empty() && unexplained.is_empty();
    ExitCode::from(u8::from(!is_well))
}
