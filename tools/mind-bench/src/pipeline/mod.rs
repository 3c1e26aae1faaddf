//! What the XDP programs of the switch and of a memory blade cost per packet: every path, timed by the kernel
//! (`BPF_PROG_TEST_RUN`) over many runs on one frame, with tables as full as a rack's.
//!
//! A test run restores nothing between runs. So what is timed is a small program that writes the
//! frame's headers and the region's word from a template, and then calls the program under test: each path's
//! figure contains that, and is an upper bound. What the template alone costs is shown beside. All
//! runs hit the same entries, which are in the processor's cache; but for `i_s_spread`, each run of which is for one of
//! a million regions.
//!
//! On the fast path the slot has a valid memo (`mind_common::memo`), as for all packets but the
//! first since an entry was changed. What the first one costs is `i_s_cold`.
//!
//! Here are the arguments and the order of a run;
//!
//! * [`paths`]: which packet comes in where, and what is to become of it,
//! * [`beds`]: the programs, and how full their tables are,
//! * [`reader`]: records of traced packets,
//! * [`report`]: the results.

mod beds;
mod paths;
mod reader;
mod report;

use anyhow::{Context as _, Result, ensure};
use mind_dataplane::harness::XdpAction;

use beds::{Beds, INTERFACE};
use paths::{Path, Place, paths};
use reader::Reader;
use report::{FLOOR, REDIRECT, RESTORE, Records, Report, Samples};

use crate::output;

/// What `cargo xtask bench pipeline` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print JSON: `floor_ns`, `redirect_ns`, `restore_ns` and `paths.<name>_ns`.
    #[arg(long)]
    json: bool,
    /// Rounds, of which the median counts.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Packets per round and path.
    #[arg(long, default_value_t = 200_000)]
    packets: u32,
    /// Trace every packet of the switch and read the records beside it, as `mind-ctl trace` does.
    #[arg(long)]
    traced: bool,
}

/// Runs `cargo xtask bench pipeline`.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(args.rounds > 0, "--rounds must be 1 or more");
    ensure!(args.packets > 0, "--packets must be 1 or more");
    output::progress("loading the programs and filling their tables");
    let mut beds = Beds::load().context("cannot load the programs and fill their tables")?;
    let paths = paths()?;
    for path in paths.iter().filter(|path| path.place == Place::Spread) {
        beds.warm(path)?;
    }
    let readers = args
        .traced
        .then(|| {
            let switches = beds.switches().into_iter();
            switches.map(Reader::start).collect::<Result<Vec<_>>>()
        })
        .transpose()?;
    let mut timer = Timer {
        beds: &mut beds,
        packets: args.packets,
        samples: Samples::new(),
    };
    // Round by round, not path by path, so that other load of the machine affects all of them
    // alike.
    for round in 0..args.rounds {
        output::progress(&format!("round {} of {}", round + 1, args.rounds));
        timer.round(&paths)?;
    }
    output::progress("");
    let samples = timer.samples;
    let records = readers.map(|readers| -> Result<_> {
        let records = readers.into_iter().map(Reader::end);
        records.sum::<Result<Records>>()
    });
    let report = Report::new(&samples, &paths, records.transpose()?)?;
    output::print(
        &report,
        args.json,
        || report.text(&paths),
        report.complaints(&paths),
    )
}

/// Times rows of the report.
struct Timer<'a> {
    beds: &'a mut Beds,
    packets: u32,
    samples: Samples,
}

impl Timer<'_> {
    /// Times every row once.
    fn round(&mut self, paths: &[Path]) -> Result<()> {
        // The rows beside the paths are on the frame and the template of the first path.
        let first = paths.first().context("there are no paths")?;
        let beside = [
            (FLOOR, "mind_floor", XdpAction::Pass),
            (REDIRECT, "mind_bare_redirect", XdpAction::Redirect),
            (RESTORE, "mind_bench_restored", XdpAction::Pass),
        ];
        self.beds.prepare(first)?;
        for (row, program, action) in beside {
            self.time(row, program, first, action)?;
        }
        for path in paths {
            self.beds.prepare(path)?;
            let before = self.beds.counters(path)?;
            self.time(path.name, path.program(), path, path.action)?;
            let counted = self.beds.counters(path)?.since(&before);
            ensure!(
                counted.of_verdict(path.verdict) == u64::from(self.packets),
                "{} must end in {}, but ended in {:?}",
                path.name,
                path.verdict,
                counted.iter().collect::<Vec<_>>()
            );
            self.beds.check(path)?;
        }
        Ok(())
    }

    /// Times one row: `program` on the frame of `path`.
    fn time(
        &mut self,
        row: &'static str,
        program: &'static str,
        path: &Path,
        expected: XdpAction,
    ) -> Result<()> {
        let bed = self.beds.of(path);
        let (ns, action) = bed.time(program, INTERFACE, path.packet.bytes(), self.packets)?;
        ensure!(
            action == expected,
            "{program} for {row} must end in {expected:?}, not {action:?}"
        );
        self.samples.entry(row).or_default().push(ns);
        Ok(())
    }
}
