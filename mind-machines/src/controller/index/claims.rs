//! Which operations claim what: finds those that one conflicts with, and looks at no others.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use super::super::{
    OperationId,
    operation::{Claim, Thing},
};

/// The claims of all operations under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Claims {
    /// Addresses that the same operations claim, by the first of them; each stretch goes up to the next one.
    stretches: BTreeMap<u64, BTreeSet<OperationId>>,
    /// Which operations claim a thing.
    things: BTreeMap<Thing, BTreeSet<OperationId>>,
}

impl Claims {
    pub(super) fn insert(&mut self, id: OperationId, claim: &Claim) {
        if let Some((start, end)) = claim.range {
            self.cut(start);
            self.cut(end);
            for (_, ids) in self.stretches.range_mut(start..end) {
                ids.insert(id);
            }
        }
        if let Some(thing) = &claim.thing {
            self.things.entry(thing.clone()).or_default().insert(id);
        }
    }

    pub(super) fn remove(&mut self, id: OperationId, claim: &Claim) {
        if let Some((start, end)) = claim.range {
            for (_, ids) in self.stretches.range_mut(start..end) {
                ids.remove(&id);
            }
            self.join(start);
            self.join(end);
        }
        if let Some(thing) = &claim.thing
            && let Some(ids) = self.things.get_mut(thing)
        {
            ids.remove(&id);
            if ids.is_empty() {
                self.things.remove(thing);
            }
        }
    }

    /// The latest of the operations before `id` that conflict with a claim.
    pub(super) fn latest_before(&self, id: OperationId, claim: &Claim) -> Option<OperationId> {
        let (start, end) = claim.range.unwrap_or_default();
        let thing = claim
            .thing
            .as_ref()
            .and_then(|thing| self.things.get(thing));
        let sets = self.over(start, end).chain(thing);
        sets.filter_map(|ids| ids.range(..id).next_back())
            .max()
            .copied()
    }

    /// The operations that claim any of these addresses, from the first to the one before `end`.
    pub(super) fn of(&self, start: u64, end: u64) -> BTreeSet<OperationId> {
        self.over(start, end).flatten().copied().collect()
    }

    /// The operations that claim any of these things.
    pub(super) fn of_any(&self, things: RangeInclusive<Thing>) -> BTreeSet<OperationId> {
        let sets = self.things.range(things);
        sets.flat_map(|(_, ids)| ids).copied().collect()
    }

    /// Of each stretch that has addresses from `start` to before `end`, the operations that claim it.
    fn over(&self, start: u64, end: u64) -> impl Iterator<Item = &BTreeSet<OperationId>> {
        let is_empty = start >= end;
        let first = self.stretches.range(..=start).next_back();
        let others = self
            .stretches
            .range(start.saturating_add(1)..end.max(start.saturating_add(1)));
        let both = first.into_iter().chain(others);
        both.filter(move |_| !is_empty).map(|(_, ids)| ids)
    }

    /// Makes a stretch begin at an address.
    fn cut(&mut self, at: u64) {
        if let Some((from, ids)) = self.stretches.range(..=at).next_back() {
            if *from < at {
                let ids = ids.clone();
                self.stretches.insert(at, ids);
            }
        } else {
            self.stretches.insert(at, BTreeSet::new());
        }
    }

    /// Makes one stretch of two that meet at an address, if the same operations claim both.
    fn join(&mut self, at: u64) {
        let before = self.stretches.range(..at).next_back().map(|(_, ids)| ids);
        let Some(ids) = self.stretches.get(&at) else {
            return;
        };
        if before.map_or(ids.is_empty(), |before| before == ids) {
            self.stretches.remove(&at);
        }
    }

    /// Whether nothing is claimed, and nothing remembered of what was.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.stretches.is_empty() && self.things.is_empty()
    }
}
