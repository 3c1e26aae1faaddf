//! Sizes of regions follow what epochs were like: after each, regions are split and merged as the policy says
//! ([`Splitting`](crate::splitting::Splitting)), each by an operation of its own.

use std::collections::BTreeSet;

use mind_common::addr::Region;

use super::{
    Controller, Entry, FoundSlot,
    change::Changing,
    index::Errand,
    operation::{Claim, Finding, Operation, Purpose, Task, Waits},
    procedure::Change,
};
use crate::splitting::{Epoch, Splitting};

impl Controller {
    /// Which regions are split and merged; `None` without a policy for that.
    pub const fn splitting(&self) -> Option<&Splitting> {
        self.splitting.as_ref()
    }

    /// An epoch is over. While regions are being changed because of an earlier one, no others are.
    pub(super) fn epoch(&mut self, counts: &[(Region, u32)], used: u32) {
        let is_busy = self.index.of_errand(Errand::Adapt).is_some();
        let Some(policy) = &mut self.splitting else {
            return;
        };
        let changes = match is_busy {
            true => 0,
            false => policy.config().changes,
        };
        let plan = policy.plan(Epoch {
            counts,
            // The first is never used.
            slots: self.config.slots.saturating_sub(1),
            used,
            changes,
        });
        // Merges give slots that splits need.
        let merges = plan.merges.into_iter().map(Purpose::Merge);
        let purposes: Vec<_> = merges
            .chain(plan.splits.into_iter().map(Purpose::Split))
            .collect();
        if !purposes.is_empty() {
            self.begin(Claim::default(), None, vec![Task::Adapt(purposes)]);
        }
    }

    /// Has regions split and merged, and waits for that.
    pub(super) fn adapt(&mut self, operation: &mut Operation, purposes: Vec<Purpose>) {
        let mut others = BTreeSet::new();
        for purpose in purposes {
            let (Purpose::Merge(region) | Purpose::Split(region)) = purpose else {
                continue;
            };
            let finding = Finding {
                va: region.base(),
                purpose,
                entry: None,
            };
            let claim = Claim::block(region.base());
            others.insert(self.begin(claim, None, vec![Task::FindRegion(finding)]));
        }
        if !others.is_empty() {
            operation.waits = Waits::Operations(others);
            operation.tasks.push(Task::Adapt(Vec::new()));
        }
    }

    /// How the halves of a region are merged that were found, if both have slots.
    pub(super) fn merging(&mut self, now: u64, whole: Region, found: &[Entry]) -> Option<Changing> {
        let find = |half| found.iter().copied().find(|entry| entry.region == half);
        let halves = whole
            .halves()
            .and_then(|(lower, upper)| find(lower).zip(find(upper)));
        if let Some((lower, upper)) = halves {
            return Some(self.joining(now, lower, upper));
        }
        let is_split = found.iter().any(|entry| entry.region != whole);
        if let Some(policy) = &mut self.splitting {
            policy.not_merged(whole, is_split);
        }
        None
    }

    /// Regions that another controller, or packets, have made.
    pub(super) fn note_sizes(&mut self, slots: &[FoundSlot]) {
        if let Some(policy) = &mut self.splitting {
            let regions = slots.iter().filter_map(|found| found.region);
            regions.for_each(|region| policy.found(region));
        }
    }

    /// A change of a region is over; of a merge, `whole` is what it was to become.
    pub(super) fn note_size(&mut self, change: Change, whole: Region, is_changed: bool) {
        let Some(policy) = &mut self.splitting else {
            return;
        };
        match (change, is_changed) {
            (Change::Split, true) => policy.split(whole),
            (Change::Merge, true) => policy.merged(whole),
            (Change::Merge, false) => policy.not_merged(whole, true),
            _ => {}
        }
    }
}
