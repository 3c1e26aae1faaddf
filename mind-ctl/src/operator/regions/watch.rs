//! `mind-ctl regions --watch`: a line each time of how many regions of each size there are, and how they are split and
//! merged.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use mind_api::operator::{RegionOrder, RegionStatus, SplittingStatus};
use serde::Serialize;
use tokio::time::{MissedTickBehavior, interval};

use crate::operator::{Controller, Format, bytes};

/// Lines between two headers.
const PAGE: usize = 20;

/// The header of [`Sizes::line`].
const HEADER: &str =
    "  SECONDS   USED   IDLE     FREE  SPLIT SPLITS/s MERGES/s  FALSE/s        T        C  SIZES";

/// Regions' sizes at one moment, and what was done to them since the moment before.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Sizes {
    /// Since the first look.
    seconds: f64,
    /// Directory slots in use.
    slots_used: u32,
    /// Of the regions that were listed, those that no blade has any of.
    idle: usize,
    /// Directory slots that are free.
    slots_free: u32,
    /// Regions by their bytes.
    sizes: BTreeMap<u64, usize>,
    /// None if the controller splits and merges no regions by itself.
    splitting: Option<Rates>,
}

/// How regions are split and merged; per second since the look before, where it says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct Rates {
    /// Regions that are split now.
    split: u32,
    splits_per_s: f64,
    merges_per_s: f64,
    false_invalidations_per_s: f64,
    /// The paper's t.
    threshold: u64,
    /// The paper's c.
    c: f64,
}

/// What the controller says at one moment.
struct Look {
    at: Instant,
    splitting: Option<SplittingStatus>,
}

/// Prints lines until it is ended.
pub(super) async fn run(
    controller: &Controller,
    output: Format,
    (from, to): (u64, u64),
    seconds: f64,
) -> Result<()> {
    let begin = Instant::now();
    let mut before = None;
    let mut ticks = interval(Duration::from_secs_f64(seconds));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in 0.. {
        ticks.tick().await;
        let at = Instant::now();
        let status = controller.status().await?;
        let order = RegionOrder::Address;
        let regions = controller.0.regions((from, to), order, usize::MAX).await?;
        let now = Look {
            at,
            splitting: status.splitting,
        };
        let mut sizes = Sizes::of(&regions);
        sizes.seconds = at.duration_since(begin).as_secs_f64();
        sizes.slots_used = status.slots_used;
        sizes.slots_free = status.slots.saturating_sub(status.slots_used);
        sizes.splitting = rates(before.as_ref(), &now);
        before = Some(now);
        let text = match output {
            Format::Json => serde_json::to_string(&sizes)?,
            Format::Text if number % PAGE == 0 => format!("{HEADER}\n{}", sizes.line()),
            Format::Text => sizes.line(),
        };
        mind_cli::print(&text).context("cannot print")?;
    }
    Ok(())
}

/// What happened between two looks; nothing before the first.
fn rates(before: Option<&Look>, now: &Look) -> Option<Rates> {
    let after = now.splitting?;
    let (then, earlier) = match before {
        Some(look) => (look.at, look.splitting.unwrap_or(after)),
        None => (now.at, after),
    };
    let seconds = now.at.duration_since(then).as_secs_f64();
    // A controller that was started again counts from 0.
    let rate = |before: u64, after: u64| match seconds > 0.0 {
        true => after.checked_sub(before).unwrap_or(after) as f64 / seconds,
        false => 0.0,
    };
    Some(Rates {
        split: after.split,
        splits_per_s: rate(earlier.splits, after.splits),
        merges_per_s: rate(earlier.merges, after.merges),
        false_invalidations_per_s: rate(earlier.false_invalidations, after.false_invalidations),
        threshold: after.threshold,
        c: after.c_thousandths as f64 / 1000.0,
    })
}

impl Sizes {
    /// Of these regions; the rest is to be filled in.
    fn of(regions: &[RegionStatus]) -> Self {
        let mut sizes = Self::default();
        for region in regions {
            *sizes.sizes.entry(region.length).or_default() += 1;
            sizes.idle += usize::from(region.blades.is_empty());
        }
        sizes
    }

    /// A line under [`HEADER`].
    fn line(&self) -> String {
        let Self {
            seconds,
            slots_used,
            idle,
            slots_free,
            ..
        } = self;
        let splitting = match &self.splitting {
            None => format!(
                "{:>6} {:>8} {:>8} {:>8} {:>8} {:>8}",
                '-', '-', '-', '-', '-', '-'
            ),
            Some(rates) => format!(
                "{:>6} {:>8.1} {:>8.1} {:>8.0} {:>8} {:>8.3}",
                rates.split,
                rates.splits_per_s,
                rates.merges_per_s,
                rates.false_invalidations_per_s,
                rates.threshold,
                rates.c
            ),
        };
        let sizes = self.sizes.iter();
        let sizes = sizes.map(|(length, count)| format!("{}:{count}", bytes(*length)));
        let sizes: Vec<_> = sizes.collect();
        format!(
            "{seconds:>9.1} {slots_used:>6} {idle:>6} {slots_free:>8} {splitting}  {}",
            sizes.join(" ")
        )
        .trim_end()
        .to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(length: u64, blades: &[&str]) -> RegionStatus {
        RegionStatus {
            va: 0,
            length,
            slot: 1,
            state: String::new(),
            blades: blades.iter().map(|&blade| blade.to_owned()).collect(),
            requester: None,
            episode: 0,
            accesses: 0,
            invalidations: 0,
            dropped: 0,
            flushed: 0,
        }
    }

    #[test]
    fn a_line_has_sizes_and_rates_under_their_names() {
        let regions = [
            region(16 << 10, &["c0"]),
            region(4 << 10, &[]),
            region(4 << 10, &["c0", "c1"]),
        ];
        let mut sizes = Sizes::of(&regions);
        assert_eq!(sizes.idle, 1);
        (sizes.seconds, sizes.slots_used, sizes.slots_free) = (2.0, 3, 997);
        let began = Instant::now();
        let mut look = Look {
            at: began,
            splitting: Some(SplittingStatus {
                splits: 10,
                false_invalidations: 100,
                c_thousandths: 1_125,
                ..SplittingStatus::default()
            }),
        };
        let first = rates(None, &look).expect("it splits");
        assert_eq!((first.splits_per_s, first.c), (0.0, 1.125));
        let earlier = Look {
            at: began,
            splitting: look.splitting,
        };
        look.at += Duration::from_secs(2);
        if let Some(splitting) = &mut look.splitting {
            splitting.splits = 16;
            splitting.false_invalidations = 50;
        }
        let rates = rates(Some(&earlier), &look).expect("it splits");
        assert_eq!(rates.splits_per_s, 3.0);
        assert_eq!(rates.false_invalidations_per_s, 25.0, "it began anew");
        sizes.splitting = Some(rates);
        let line = sizes.line();
        assert!(line.ends_with("1.125  4K:2 16K:1"), "{line}");
        assert_eq!(line.find("4K"), HEADER.find("SIZES"));
        sizes.splitting = None;
        assert_eq!(sizes.line().find("4K"), HEADER.find("SIZES"));
    }
}
