//! What `run` prints: a table with a column for each mode, or JSON.

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::{
    system::{Latencies, Outcome, Setup},
    trace::Shape,
};

/// The command's answer. The keys are part of its interface.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The trace file, or the kind of generator.
    pub input: String,
    /// Compute blades.
    pub blades: u8,
    /// Threads on all of them.
    pub threads: usize,
    /// Pages that are accessed, or among which a generator chooses.
    pub pages: u64,
    /// Pages that the cache of each blade holds.
    pub cache_pages: usize,
    /// Slots of the directory, where they are limited.
    pub slots: u32,
    /// Milliseconds of an epoch.
    pub epoch_ms: u32,
    /// What accesses cost.
    pub latencies: Latencies,
    /// What came of it, by mode, in the order in which they were asked for.
    pub modes: Vec<Outcome>,
}

impl Report {
    /// Of a trace of that shape, replayed with these settings.
    pub fn new(input: &str, shape: &Shape, setup: &Setup, modes: Vec<Outcome>) -> Self {
        Self {
            input: input.to_owned(),
            blades: shape.blades,
            threads: shape.threads.len(),
            pages: shape.footprint.unwrap_or(shape.pages),
            cache_pages: setup.cache,
            slots: setup.slots,
            epoch_ms: setup.epoch_ms,
            latencies: setup.latencies,
            modes,
        }
    }

    /// As text.
    pub fn text(&self) -> String {
        let Self {
            input,
            blades,
            threads,
            pages,
            cache_pages,
            slots,
            epoch_ms,
            ..
        } = self;
        format!(
            "{input}: {threads} threads on {blades} blades, {pages} pages; caches of {cache_pages} pages, {slots} slots, \
             epochs of {epoch_ms} ms\n{}",
            self.table()
        )
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        let names = self.modes.iter().map(|outcome| outcome.mode.clone());
        table.set_header([String::new()].into_iter().chain(names));
        let mut row = |name: &str, of: &dyn Fn(&Outcome) -> String| {
            let cells = self.modes.iter().map(of);
            table.add_row([name.to_owned()].into_iter().chain(cells));
        };
        row("run time, modelled ms", &|it| {
            format!("{:.1}", it.run_time_ms)
        });
        row("accesses per modelled s", &|it| {
            format!("{:.0}", it.accesses_per_s)
        });
        row("hit rate", &|it| format!("{:.4}", it.hit_rate));
        row("us of a request, mean", &|it| {
            format!("{:.1}", it.mean_fault_us)
        });
        let names: Vec<_> = self
            .modes
            .iter()
            .flat_map(|it| it.transitions.keys().copied())
            .collect();
        for name in mind_common::directory::Transition::ALL.map(|transition| transition.name()) {
            if names.contains(&name) {
                row(name, &|it| {
                    it.transitions
                        .get(name)
                        .copied()
                        .unwrap_or_default()
                        .to_string()
                });
            }
        }
        row("told \"busy\"", &|it| it.busy.to_string());
        row("invalidations", &|it| it.invalidations.to_string());
        row("false invalidations", &|it| {
            it.false_invalidations.to_string()
        });
        row("flushed pages", &|it| it.flushed.to_string());
        row("evicted pages", &|it| it.evicted.to_string());
        row("evicted and flushed", &|it| it.evicted_flushed.to_string());
        row("slots, most", &|it| it.directory.most.to_string());
        row("slots, end", &|it| it.directory.end.to_string());
        row("splits", &|it| it.directory.splits.to_string());
        row("merges", &|it| it.directory.merges.to_string());
        row("slots taken back", &|it| it.directory.reclaimed.to_string());
        row("real s", &|it| format!("{:.2}", it.real_s));
        row("accesses per real s", &|it| {
            format!("{:.0}", it.accesses as f64 / it.real_s)
        });
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}
