//! Eight blades that read the same pages at the same time, in the same order: first of regions that have no slot, then of
//! the same regions, which have one and no blade. In a testbed of its own.
//!
//! Of each page's reads one is I->S and the others are S->S, whichever blade comes first. A blade that is ahead waits for
//! what the others then find done, so that all come to the same page at about the same time.

use anyhow::{Context as _, Result, bail};
use mind_api::program::TransitionReport;
use mind_cli::Interrupt;
use mind_common::directory::Transition;
use serde::Serialize;

use super::transitions::{ACCESSES_PER_STRAY, BATCH, STRIDE, taken};
use crate::{
    samples::{Quantiles, Samples},
    system::{
        blades::{Blades, Setup},
        operator::Operator,
        placement::Placement,
        task::{Access, Answer, Task},
    },
};

/// Compute blades.
pub(super) const BLADES: u8 = 8;
/// Bytes that the memory blade offers.
const MEMORY: u64 = 64 << 20;

/// Times of all blades' reads.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Together {
    /// Of regions that have no slot.
    pub(super) first_touch: Quantiles,
    /// Of regions that have one, which no blade has.
    pub(super) i_s: Quantiles,
}

impl Together {
    /// The medians' ratio.
    pub(super) fn first_touch_to_i_s(&self) -> f64 {
        self.first_touch.p50_us / self.i_s.p50_us
    }
}

/// Brings its testbed up, measures about `samples` reads of each, and takes it down.
pub(super) fn measure(
    placement: &Placement,
    samples: usize,
    interrupt: &Interrupt,
) -> Result<Together> {
    let setup = Setup {
        placement,
        compute: BLADES,
        memory: MEMORY,
        controller_copies: false,
        epoch: None,
    };
    let mut blades = Blades::up(&setup, interrupt)?;
    let measured =
        Operator::connect().and_then(|operator| on(&mut blades, &operator, samples, interrupt));
    measured.map_err(|error| blades.explained(error))
}

fn on(
    blades: &mut Blades,
    operator: &Operator,
    samples: usize,
    interrupt: &Interrupt,
) -> Result<Together> {
    let (mut first_touch, mut i_s) = (Samples::default(), Samples::default());
    let mut left = samples.div_ceil(usize::from(BLADES));
    while left > 0 {
        interrupt.check()?;
        let count = left.min(BATCH);
        left -= count;
        let first = blades.map(count as u64 * STRIDE)?;
        first_touch.add(read(blades, first, count)?);
        let mut pages = (0..count as u64).map(|number| first + number * STRIDE);
        pages.try_for_each(|page| operator.reset_region(page))?;
        i_s.add(read(blades, first, count)?);
        blades.unmap()?;
    }
    let quantiles = |samples: Samples| samples.quantiles().context("nothing was measured");
    Ok(Together {
        first_touch: quantiles(first_touch)?,
        i_s: quantiles(i_s)?,
    })
}

/// All blades read all pages; how long each read took.
fn read(blades: &mut Blades, first: u64, count: usize) -> Result<Vec<u64>> {
    let numbers = 0..usize::from(BLADES);
    let task = Task::Touch {
        first,
        stride: STRIDE,
        count,
        access: Access::Read,
    };
    let before = reports(blades)?;
    for number in numbers.clone() {
        blades.worker(number).begin(&task)?;
    }
    let mut times = Vec::new();
    for number in numbers {
        let worker = blades.worker(number);
        match worker.answer()? {
            Answer::Times { nanos } => times.extend(nanos),
            other => return Err(worker.unexpected(&other)),
        }
    }
    let after = reports(blades)?;
    let of = |transition: Transition| -> usize {
        let pairs = before.iter().zip(&after);
        pairs
            .filter_map(|(before, after)| taken(before, after).get(transition.name()).copied())
            .sum()
    };
    let (i_s, s_s) = (
        of(Transition::InvalidToShared),
        of(Transition::SharedToShared),
    );
    let strays = i_s.abs_diff(count).max((i_s + s_s).abs_diff(times.len()));
    if strays * ACCESSES_PER_STRAY > times.len() {
        bail!(
            "{} reads of {count} pages by {BLADES} blades must be {count} I->S and otherwise S->S, and were {i_s} \
             and {s_s}",
            times.len()
        );
    }
    Ok(times)
}

fn reports(blades: &Blades) -> Result<Vec<Vec<TransitionReport>>> {
    (0..usize::from(BLADES))
        .map(|number| Ok(blades.report(number)?.transitions))
        .collect()
}
