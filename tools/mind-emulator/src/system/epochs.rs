//! Time in epochs: at the end of each, the live policy ([`Splitting`]) says which regions are split and merged, and how
//! the system stands is noted.

use mind_machines::splitting::{Config, Epoch, Splitting};

use super::{
    Setup, System,
    changes::{PATIENCE, Wanted},
    outcome::Sample,
};

/// Samples that are kept; of longer runs every second one goes, again and again.
const MOST_SAMPLES: usize = 2000;
/// Milliseconds between samples where there are no epochs.
const NO_EPOCHS_MS: u32 = 100;
/// Epochs in a row in which nothing happens, after which none is looked at any more: the policy has then nothing left to
/// merge or to forget.
const MOST_IDLE: u64 = 16_384;

/// Epochs, and what is noted of them.
#[derive(Debug)]
pub(super) struct Epochs {
    pub(super) policy: Option<Splitting>,
    /// When this one ends, in nanoseconds.
    pub(super) end: u64,
    length: u64,
    pub(super) samples: Vec<Sample>,
    /// How many ends of epochs there are to a sample.
    stride: u64,
    /// Ends of epochs so far.
    ended: u64,
}

impl Epochs {
    pub(super) fn new(setup: &Setup) -> Self {
        let has_policy = setup.mode.has_splitting() && setup.epoch_ms > 0;
        let millis = if setup.epoch_ms > 0 {
            setup.epoch_ms
        } else {
            NO_EPOCHS_MS
        };
        let length = u64::from(millis) * 1_000_000;
        Self {
            policy: has_policy.then(|| Splitting::new(Config::default())),
            end: length,
            length,
            samples: Vec::new(),
            stride: 1,
            ended: 0,
        }
    }
}

impl System {
    /// Ends all epochs that end by `now`.
    pub(super) fn end_epochs(&mut self, now: u64) {
        let mut left = MOST_IDLE;
        while self.epochs.end <= now && left > 0 {
            left -= 1;
            let end = self.epochs.end;
            self.end_epoch(end);
            self.epochs.ended += 1;
            if self.epochs.ended.is_multiple_of(self.epochs.stride) {
                self.sample(end);
            }
            self.epochs.end = end.saturating_add(self.epochs.length);
        }
        if self.epochs.end <= now {
            self.epochs.end = now.saturating_add(self.epochs.length);
        }
    }

    fn end_epoch(&mut self, now: u64) {
        let counts = self.directory.counts();
        if self.epochs.policy.is_none() {
            return;
        }
        self.leave_deferred(now);
        let (used, _) = self.directory.used();
        let slots = self.directory.usable().unwrap_or(u32::MAX);
        let is_busy = !self.deferred.is_empty();
        let Some(policy) = &mut self.epochs.policy else {
            return;
        };
        // While changes of an earlier epoch are under way, no others are begun, as live.
        let changes = if is_busy { 0 } else { policy.config().changes };
        let plan = policy.plan(Epoch {
            counts: &counts,
            slots,
            used,
            changes,
        });
        let until = now.saturating_add(PATIENCE);
        // Merges give slots that splits need.
        let merges = plan.merges.into_iter().map(Wanted::Merge);
        for wanted in merges.chain(plan.splits.into_iter().map(Wanted::Split)) {
            self.carry_out(now, wanted, until);
        }
    }

    /// Notes how the system stands.
    pub(super) fn sample(&mut self, now: u64) {
        let samples = &mut self.epochs.samples;
        samples.push(Sample {
            ms: now as f64 / 1e6,
            slots: self.directory.used().0,
            false_invalidations: self.counters.falsely,
            invalidations: self.counters.invalidations,
            flushed: self.counters.flushed,
        });
        if samples.len() > MOST_SAMPLES {
            let mut number = 0;
            samples.retain(|_| {
                number += 1;
                number % 2 == 0
            });
            self.epochs.stride *= 2;
        }
    }
}
