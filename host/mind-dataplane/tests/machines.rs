//! The real programs against `mind-machines`: random packets and tables, in the kernel and in the
//! machine that the simulator and the model checker use. The verdict, the datagrams sent, and the
//! slots or pages afterwards must be the same.
//!
//! Every run is from one seed, which is printed when something differs.

#[path = "machines/draw.rs"]
mod draw;
#[path = "machines/frames.rs"]
mod frames;
#[path = "machines/memory.rs"]
mod memory;
#[path = "machines/switch.rs"]
mod switch;

use std::collections::BTreeMap;

use mind_common::verdict::Verdict;

/// The seed of the first run.
const SEED: u64 = 0x6d69_6e64;

/// Whether the kernel loads programs for this process; prints the reason if not.
fn may_load() -> bool {
    // SAFETY: a plain system call.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        eprintln!("skipped: this loads eBPF programs, which takes root");
    }
    is_root
}

/// How often each verdict came up.
#[derive(Default)]
struct Met(BTreeMap<&'static str, u64>);

impl Met {
    fn count(&mut self, verdict: Verdict) {
        *self.0.entry(verdict.name()).or_default() += 1;
    }

    /// A verdict that hardly ever comes up is hardly compared.
    fn expect(&self, least: u64, verdicts: &[Verdict]) {
        println!("{:?}", self.0);
        let of = |verdict: &Verdict| self.0.get(verdict.name()).copied().unwrap_or(0);
        let rare: Vec<_> = verdicts.iter().filter(|v| of(v) < least).collect();
        assert!(rare.is_empty(), "met less than {least} times: {rare:?}");
        assert_eq!(self.0.len(), verdicts.len(), "verdicts of no list");
    }
}

#[test]
fn the_switch_of_the_models_is_the_real_one() {
    if may_load() {
        switch::compare(SEED, 2_000, 50);
    }
}

#[test]
fn the_memory_blade_of_the_models_is_the_real_one() {
    if may_load() {
        memory::compare(SEED, 1_000, 50);
    }
}
