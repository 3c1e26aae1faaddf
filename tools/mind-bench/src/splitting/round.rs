//! One round: blades write pages of shared regions while another one loads memory of its own, and the controller is asked
//! all the time how regions are split.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use mind_common::addr::{INITIAL_REGION_ORDER, PAGE_SIZE};

use crate::system::{
    blades::{Blades, CACHE},
    operator::Operator,
    task::{Answer, Task},
};

/// Blades that write: as many as a region has pages.
pub(super) const WRITERS: usize = 1 << INITIAL_REGION_ORDER;
/// Bytes of a region.
const REGION: u64 = (PAGE_SIZE as u64) << INITIAL_REGION_ORDER;
/// Regions whose pages all stay in the caches.
pub(super) const MOST_REGIONS: u64 = CACHE / PAGE_SIZE as u64 / 2;
/// Loads of the other blade in a millisecond, at most: it pauses for that long after each.
const LOADS_PER_MS: u64 = 1;
/// How often the controller is asked.
const LOOK: Duration = Duration::from_millis(20);
const SECOND: Duration = Duration::from_secs(1);

/// What the controller said, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Look {
    /// Since the round began.
    pub(super) at: Duration,
    /// Pages that were falsely invalidated.
    pub(super) falsely: u64,
    pub(super) splits: u64,
    pub(super) merges: u64,
    /// Slots in use.
    pub(super) slots: u32,
}

/// What a round was like.
#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    /// Before it, and then all the time.
    pub(super) looks: Vec<Look>,
    /// When each writer was through with its pages, since the round began.
    pub(super) passes: Vec<Vec<Duration>>,
    /// When each of the other blade's loads began, since the round began, and its nanoseconds.
    pub(super) loads: Vec<(Duration, u64)>,
    /// How long it was.
    pub(super) length: Duration,
}

impl Look {
    /// Asks the controller.
    fn take(operator: &Operator, begin: Instant) -> Result<Self> {
        let status = operator.status()?;
        let splitting = status.splitting.unwrap_or_default();
        Ok(Self {
            at: begin.elapsed(),
            falsely: splitting.false_invalidations,
            splits: splitting.splits,
            merges: splitting.merges,
            slots: status.slots_used,
        })
    }
}

/// Bytes of memory that a round takes.
pub(super) const fn length(regions: u64, millis: u64) -> u64 {
    (regions + millis * LOADS_PER_MS) * REGION
}

/// Carries a round out, on memory of its own.
pub(super) fn run(
    blades: &mut Blades,
    operator: &Operator,
    regions: u64,
    millis: u64,
) -> Result<Round> {
    let first = blades.map(length(regions, millis))?;
    let mut round = Round {
        length: Duration::from_millis(millis),
        ..Round::default()
    };
    let begin = Instant::now();
    round.looks.push(Look::take(operator, begin)?);
    for writer in 0..WRITERS {
        blades.worker(writer).begin(&Task::WriteEach {
            first: first + writer as u64 * PAGE_SIZE as u64,
            stride: REGION,
            count: regions,
            millis,
        })?;
    }
    blades.worker(WRITERS).begin(&Task::Probe {
        first: first + regions * REGION,
        stride: REGION,
        count: millis * LOADS_PER_MS,
        millis,
    })?;
    while begin.elapsed() < round.length {
        round.looks.push(Look::take(operator, begin)?);
        operator.pause(LOOK);
    }
    for writer in 0..WRITERS {
        let worker = blades.worker(writer);
        match worker.answer()? {
            Answer::Wrote { at } => {
                round
                    .passes
                    .push(at.into_iter().map(Duration::from_nanos).collect());
            }
            other => return Err(worker.unexpected(&other)),
        }
    }
    let worker = blades.worker(WRITERS);
    match worker.answer()? {
        Answer::Probed { at, nanos } => {
            let at = at.into_iter().map(Duration::from_nanos);
            round.loads = at.zip(nanos).collect();
        }
        other => return Err(worker.unexpected(&other)),
    }
    blades.unmap()?;
    ensure!(
        round.passes.iter().all(|passes| !passes.is_empty()),
        "a blade was not through with its pages once in {millis} ms: take fewer --regions"
    );
    Ok(round)
}

impl Round {
    /// Pages falsely invalidated each second, in the first one and in the last one.
    pub(super) fn falsely_per_s(&self) -> Result<(f64, f64)> {
        let first = self.rate(Duration::ZERO, SECOND)?;
        let last = self.rate(self.length.saturating_sub(SECOND), self.length)?;
        Ok((first, last))
    }

    fn rate(&self, from: Duration, to: Duration) -> Result<f64> {
        let mut within = self
            .looks
            .iter()
            .filter(|look| (from..=to).contains(&look.at));
        let (first, last) = (within.clone().next(), within.next_back());
        let (first, last) = first
            .zip(last)
            .filter(|(first, last)| first.at < last.at)
            .context("the controller answered too rarely")?;
        let falsely = last.falsely - first.falsely;
        Ok(falsely as f64 / (last.at - first.at).as_secs_f64())
    }

    /// When the last region was split.
    pub(super) fn settled(&self) -> Duration {
        let pairs = self.looks.iter().zip(self.looks.iter().skip(1));
        let mut splits = pairs.filter(|(before, after)| after.splits > before.splits);
        splits
            .next_back()
            .map_or(Duration::ZERO, |(_, after)| after.at)
    }

    /// Times that all blades were through with their pages, each second, in the first one and in the last one.
    pub(super) fn passes_per_s(&self) -> (f64, f64) {
        let within = |from: Duration, to: Duration| {
            let passes = self.passes.iter().flatten();
            passes.filter(|at| (from..to).contains(at)).count() as f64 / self.passes.len() as f64
        };
        let last = self.length.saturating_sub(SECOND);
        (within(Duration::ZERO, SECOND), within(last, self.length))
    }

    /// Nanoseconds of the other blade's loads that began before.
    pub(super) fn loads_before(&self, end: Duration) -> impl Iterator<Item = u64> {
        let loads = self.loads.iter().filter(move |(at, _)| *at < end);
        loads.map(|(_, nanos)| *nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn look(at: u64, falsely: u64, splits: u64) -> Look {
        Look {
            at: millis(at),
            falsely,
            splits,
            ..Look::default()
        }
    }

    #[test]
    fn rates_are_of_the_first_and_of_the_last_second() {
        let round = Round {
            looks: vec![
                look(0, 10, 0),
                look(500, 110, 1),
                look(1000, 310, 1),
                look(1500, 400, 3),
                look(2000, 400, 3),
                look(2500, 402, 3),
                look(3000, 403, 3),
            ],
            passes: vec![vec![millis(10), millis(2010), millis(2500)]],
            loads: vec![(millis(5), 100), (millis(1499), 200), (millis(1500), 300)],
            length: millis(3000),
        };
        assert_eq!(
            round.falsely_per_s().expect("there are looks"),
            (300.0, 3.0)
        );
        assert_eq!(round.settled(), millis(1500));
        assert_eq!(round.passes_per_s(), (1.0, 2.0));
        let loads: Vec<_> = round.loads_before(round.settled()).collect();
        assert_eq!(loads, [100, 200]);
    }

    #[test]
    fn a_controller_that_does_not_answer_gives_no_rate() {
        let round = Round {
            looks: vec![look(0, 0, 0)],
            length: millis(2000),
            ..Round::default()
        };
        assert!(round.falsely_per_s().is_err());
        assert_eq!(round.settled(), Duration::ZERO);
    }
}
