//! Searches a setting and prints states, depth and time.

use std::time::{Duration, Instant};

use clap::Parser;
use mind_model::{model::Protocol, setting::Setting};
use stateright::{Checker, HasDiscoveries, Model, UniformChooser};

/// Searches the protocol's states.
#[derive(Debug, Parser)]
struct Options {
    /// Compute blades.
    #[arg(long, default_value_t = 2)]
    blades: u8,
    /// Pages that they use.
    #[arg(long, default_value_t = 1)]
    pages: u8,
    /// Slots of the directory.
    #[arg(long, default_value_t = 1)]
    slots: usize,
    /// Pages that a blade has room for.
    #[arg(long, default_value_t = 2)]
    capacity: usize,
    /// Packets lost.
    #[arg(long, default_value_t = 0)]
    losses: u8,
    /// Packets delivered twice.
    #[arg(long, default_value_t = 0)]
    repeats: u8,
    /// Timers that fire early.
    #[arg(long, default_value_t = 0)]
    early: u8,
    /// Blades that crash.
    #[arg(long, default_value_t = 0)]
    crashes: u8,
    /// Resets of the region.
    #[arg(long, default_value_t = 0)]
    resets: u8,
    /// Splits of it.
    #[arg(long, default_value_t = 0)]
    splits: u8,
    /// Merges of its halves.
    #[arg(long, default_value_t = 0)]
    merges: u8,
    /// States after which the search ends.
    #[arg(long, default_value_t = usize::MAX)]
    states: usize,
    /// Seconds after which it ends.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Walks at random, from this seed, instead of searching.
    #[arg(long)]
    walk: Option<u64>,
}

fn main() {
    let options = Options::parse();
    let mut setting = Setting {
        blades: options.blades,
        pages: options.pages,
        slots: options.slots,
        capacity: options.capacity,
        ..Setting::SMALLEST
    };
    let budget = &mut setting.budget;
    budget.losses = options.losses;
    budget.repeats = options.repeats;
    budget.early = options.early;
    budget.crashes = options.crashes;
    budget.resets = options.resets;
    budget.splits = options.splits;
    budget.merges = options.merges;
    let began = Instant::now();
    let builder = Protocol::new(setting)
        .checker()
        .threads(2)
        .target_state_count(options.states)
        .finish_when(HasDiscoveries::AnyFailures)
        .timeout(Duration::from_secs(options.seconds));
    match options.walk {
        Some(seed) => report(
            &builder.spawn_simulation(seed, UniformChooser).join(),
            began,
        ),
        None => report(&builder.spawn_bfs().join(), began),
    }
}

fn report(checker: &impl Checker<Protocol>, began: Instant) {
    println!(
        "{} distinct states ({} generated), depth {}, {:.1} s",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        began.elapsed().as_secs_f64()
    );
    for (name, path) in checker.discoveries() {
        let steps = path.into_vec();
        let always = name != "something is written back";
        println!("{name}: {}", if always { "FAILS" } else { "seen" });
        if always {
            for (state, action) in steps {
                println!("  {:?}", state.world().switch.slots());
                println!("  {action:?}");
                if action.is_none() {
                    println!("{:#?}", state.world());
                }
            }
        }
    }
}
