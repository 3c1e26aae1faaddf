//! Searches settings and prints states, depth, time and memory of each.

use std::process::ExitCode;

use clap::Parser;
use comfy_table::{CellAlignment, Table, presets};
use mind_model::{
    search::{Failure, search},
    settings::{FULL, Named, QUICK},
    trace,
};

/// Searches the protocol's states: every order of packets, with faults of the network and of
/// blades.
#[derive(Debug, Parser)]
struct Options {
    /// The large settings instead of the quick ones: minutes, and 700 MiB.
    #[arg(long)]
    full: bool,
    /// Only settings with this in their name.
    #[arg(long, default_value = "", value_name = "TEXT")]
    only: String,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let settings = if options.full { FULL } else { QUICK };
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["setting", "states", "depth", "seconds", "MiB", ""]);
    let mut sum = 0;
    let mut failures = Vec::new();
    for named in settings.iter().filter(|it| it.name.contains(&options.only)) {
        eprint!("{} ... ", named.name);
        let found = search(named);
        eprintln!("{} states, {:.1?}", found.states, found.took);
        sum += found.states;
        let end = match (found.failures.is_empty(), found.is_complete) {
            (false, _) => "FAILS",
            (true, true) => "all",
            (true, false) => "cut",
        };
        table.add_row([
            named.name.to_owned(),
            found.states.to_string(),
            found.depth.to_string(),
            format!("{:.1}", found.took.as_secs_f64()),
            (found.memory >> 20).to_string(),
            end.to_owned(),
        ]);
        failures.extend(found.failures.into_iter().map(|failure| (named, failure)));
    }
    for column in 1..5 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    println!("{table}\n{sum} distinct states");
    for (named, failure) in &failures {
        show(named, failure);
    }
    ExitCode::from(u8::from(!failures.is_empty()))
}

fn show(named: &Named, failure: &Failure) {
    println!("{}: does not hold: {}", named.name, failure.property);
    println!("{}", trace::table(&failure.path));
    if let Some((state, _)) = failure.path.last()
        && let Some(violation) = state.world().violation
    {
        println!("{violation:?}");
    }
}
