//! Epochs, after each of which the machine splits and merges regions: what was falsely invalidated in one.

use std::time::{Duration, Instant};

use mind_api::operator::SplittingStatus;
use mind_common::addr::Region;
use mind_machines::controller::{Input, procedure::Change};

use super::{Driver, tables::Tables};

/// The epochs.
pub(super) struct Epochs {
    length: Duration,
    /// When the one at hand is over.
    end: Instant,
    /// What each slot had counted when it was last looked at.
    counted: Vec<u32>,
    /// Pages falsely invalidated since the driver began.
    invalidated: u64,
}

impl Epochs {
    /// The first epoch begins now, of a data plane that may have counted something before.
    pub(super) fn begin(length: Duration, tables: &Tables) -> Self {
        let counted = (0..tables.slots()).map(|slot| tables.falsely_invalidated(slot));
        Self {
            length,
            end: Instant::now() + length,
            counted: counted.collect(),
            invalidated: 0,
        }
    }

    /// When the epoch at hand is over.
    pub(super) const fn end(&self) -> Instant {
        self.end
    }

    /// What was falsely invalidated since this was last asked, by region.
    fn counts(&mut self, tables: &Tables) -> Vec<(Region, u32)> {
        let mut counts = Vec::new();
        for slot in tables.switch().directory().take_invalidated() {
            let Some(before) = self.counted.get_mut(slot as usize) else {
                continue;
            };
            let now = tables.falsely_invalidated(slot);
            // A slot that was given another region begins at zero again.
            let count = now.checked_sub(*before).unwrap_or(now);
            *before = now;
            self.invalidated += u64::from(count);
            if let Some(region) = tables.region_of(slot).filter(|_| count > 0) {
                counts.push((region, count));
            }
        }
        counts
    }
}

impl Driver {
    /// Ends the epoch at hand, if it is over.
    pub(super) fn end_epoch(&mut self) {
        let Some(epochs) = &mut self.epochs else {
            return;
        };
        let now = Instant::now();
        if now < epochs.end {
            return;
        }
        epochs.end = now + epochs.length;
        let counts = epochs.counts(&self.tables);
        let used = self.slots_used();
        self.give(Input::Epoch { counts, used });
    }

    /// How regions are split and merged, if they are.
    pub(super) fn splitting(&self) -> Option<SplittingStatus> {
        let (policy, epochs) = self.controller.splitting().zip(self.epochs.as_ref())?;
        let threshold = policy.threshold();
        Some(SplittingStatus {
            epoch: u32::try_from(epochs.length.as_millis()).unwrap_or(u32::MAX),
            threshold: threshold.t(),
            c_thousandths: threshold.c_thousandths(),
            split: policy.pairs(),
            splits: self.events.changes(Change::Split),
            merges: self.events.changes(Change::Merge),
            false_invalidations: epochs.invalidated,
        })
    }

    /// Slots of the directory that are in use.
    pub(super) fn slots_used(&self) -> u32 {
        let slots = self.tables.slots().saturating_sub(1);
        let directory = self.tables.switch().directory();
        let free = self.packets.waiting().free_slots(directory) + self.growth.withdrawn();
        slots.saturating_sub(u32::try_from(free).unwrap_or(u32::MAX))
    }
}
