//! Bounded Splitting (MIND, SOSP 2021, section 5): which regions are split, and which are merged again, so that few pages
//! are falsely invalidated and the directory's slots suffice.
//!
//! Time goes in epochs. At the end of each, [`Splitting::plan`] gets how many pages were falsely invalidated in each
//! region that had any, and how many slots are in use; it returns which regions to split and which halves to merge.
//! Whoever carries that out says what came of it ([`Splitting::split`], [`Splitting::merged`],
//! [`Splitting::not_merged`]). Nothing else is looked at: an epoch costs what happened in it.
//!
//! * A region with more than t false invalidations splits in its two halves; t is the mean over all top-level regions,
//!   divided by c (the paper's equation 1). The paper's N top-level regions are those in use: here a region has a slot
//!   from its first touch, and not from its allocation.
//! * Two halves that stayed under t together are merged after some quiet epochs, if no blade has to give up anything for
//!   it. Their joint count says nothing of what each would cost the other, so a pair that has to split again soon, or that
//!   was not merged, waits twice as long the next time.
//! * c grows while slots are plenty and it alone keeps a region from being split. It halves when more slots are in use
//!   than the limit ([`limit`]), and halves are merged then until that is over, the quietest first. In between
//!   it stays, so that it settles. Splits alone do not exceed the limit.

use std::collections::{BTreeMap, BTreeSet};

use mind_common::{addr::Region, directory::index::UNIT_ORDER};

/// What c is counted in: this is 1.
const ONE: u32 = 1 << 10;
/// Percent of the slots that are in use when enough is merged after use was above the limit.
const RELIEF: u64 = 93;
/// The least c.
const LEAST_C: u32 = 1;
/// The greatest.
const GREATEST_C: u32 = 1 << 24;

/// What the policy may do, and how patient it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// False invalidations of an epoch for which no region is split: what splitting costs by itself.
    pub least: u32,
    /// Epochs for which two halves stay under the threshold before they are merged.
    pub quiet: u32,
    /// The same where they had to be split again, again and again.
    pub most_quiet: u32,
    /// Changes of one epoch.
    pub changes: usize,
    /// The order of a top-level region.
    pub top: u8,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            least: 1,
            quiet: 16,
            most_quiet: 4096,
            changes: 256,
            top: UNIT_ORDER,
        }
    }
}

/// Slots that may be in use, of so many, before none is used for a split: 95 %.
pub const fn limit(slots: u32) -> u32 {
    part(slots, 95)
}

const fn part(slots: u32, percent: u64) -> u32 {
    (slots as u64 * percent / 100) as u32
}

/// What an epoch was like.
#[derive(Clone, Copy, Debug)]
pub struct Epoch<'a> {
    /// Pages falsely invalidated, by region; of regions that had none nothing is said.
    pub counts: &'a [(Region, u32)],
    /// Slots of the directory that can be used.
    pub slots: u32,
    /// Those that are.
    pub used: u32,
    /// Changes that can be made.
    pub changes: usize,
}

/// From which count on a region is split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Threshold {
    /// False invalidations in all regions.
    total: u64,
    /// Top-level regions.
    regions: u32,
    /// The paper's c, in parts of [`ONE`].
    c: u32,
    least: u32,
}

impl Threshold {
    /// Whether so many false invalidations are more than the threshold.
    pub const fn is_exceeded_by(&self, count: u32) -> bool {
        count > self.least && self.is_beyond_t(count)
    }

    /// Whether the count is more than t: total / (c x regions).
    const fn is_beyond_t(&self, count: u32) -> bool {
        count as u128 * self.c as u128 * self.regions as u128 > self.total as u128 * ONE as u128
    }

    /// The greatest count that does not exceed it.
    pub fn t(&self) -> u64 {
        let divisor = u128::from(self.c) * u128::from(self.regions);
        let t = (u128::from(self.total) * u128::from(ONE))
            .checked_div(divisor)
            .unwrap_or_default();
        // It is at most 2^64 * 2^10, of which counts of 32 bits are compared.
        u64::try_from(t)
            .unwrap_or(u64::MAX)
            .max(u64::from(self.least))
    }

    /// The paper's c, in thousandths.
    pub fn c_thousandths(&self) -> u64 {
        u64::from(self.c) * 1000 / u64::from(ONE)
    }
}

/// What is to be changed after an epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Regions to split, the worst first.
    pub splits: Vec<Region>,
    /// What halves are to be merged to, those first that have been quiet for longest.
    pub merges: Vec<Region>,
    /// What counts were held against.
    pub threshold: Threshold,
}

/// A region that was split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Pair {
    /// Whether it is merged again; then only its patience is kept, for a while.
    is_merged: bool,
    /// Epochs for which it has to be quiet.
    patience: u32,
    /// The epoch in which it is looked at.
    due: u64,
}

/// The policy's state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Splitting {
    config: Config,
    /// How many epochs there were.
    epoch: u64,
    /// The paper's c, in parts of [`ONE`].
    c: u32,
    /// What was split, by the region that the halves make.
    pairs: BTreeMap<Region, Pair>,
    /// All pairs, by when they are looked at.
    schedule: BTreeSet<(u64, Region)>,
    /// Pairs that are split.
    split: u32,
    /// What the last epoch's counts were held against.
    threshold: Threshold,
}

impl Splitting {
    /// Nothing is split yet.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            epoch: 0,
            c: ONE,
            pairs: BTreeMap::new(),
            schedule: BTreeSet::new(),
            split: 0,
            threshold: Threshold {
                regions: 1,
                c: ONE,
                total: 0,
                least: config.least,
            },
        }
    }

    /// Ends an epoch: what is to be changed because of it.
    pub fn plan(&mut self, epoch: Epoch<'_>) -> Plan {
        self.epoch += 1;
        let Epoch {
            counts,
            slots,
            used,
            changes,
        } = epoch;
        for (region, _) in counts {
            self.found(*region);
        }
        let threshold = Threshold {
            total: counts.iter().map(|(_, count)| u64::from(*count)).sum(),
            // Each split takes one slot more.
            regions: used.saturating_sub(self.split).max(1),
            c: self.c,
            least: self.config.least,
        };
        self.threshold = threshold;
        let busy = self.note_busy(counts, &threshold);

        let divisible = counts.iter().filter(|(region, _)| region.order() > 0);
        let mut candidates: Vec<_> = divisible
            .clone()
            .filter(|(_, count)| threshold.is_exceeded_by(*count))
            .map(|(region, count)| (std::cmp::Reverse(*count), *region))
            .collect();
        candidates.sort_unstable();
        let room = limit(slots).saturating_sub(used) as usize;
        let splits: Vec<_> = candidates
            .iter()
            .take(room.min(changes))
            .map(|(_, region)| *region)
            .collect();

        // Splits alone do not get there.
        let is_short = used > limit(slots);
        let is_held_back = divisible
            .clone()
            .any(|(_, count)| *count > self.config.least);
        if is_short {
            self.c = (self.c / 2).max(LEAST_C);
        } else if candidates.is_empty() && is_held_back && used < part(slots, 80) {
            // By less than what is between the two bounds: it does not swing from one to the other.
            self.c = (self.c + self.c / 8 + 1).min(GREATEST_C);
        }

        let wanted = match is_short {
            true => used - part(slots, RELIEF),
            false => 0,
        };
        let merges = self.merges(wanted as usize, changes, &busy);
        Plan {
            splits,
            merges,
            threshold,
        }
    }

    /// Pairs that exceed the threshold together are not quiet; returns them.
    fn note_busy(&mut self, counts: &[(Region, u32)], threshold: &Threshold) -> BTreeSet<Region> {
        let mut joint = BTreeMap::<_, u32>::new();
        for (region, count) in counts {
            if let Some(whole) = region.whole()
                && self.pairs.contains_key(&whole)
            {
                let sum = joint.entry(whole).or_default();
                *sum = sum.saturating_add(*count);
            }
        }
        joint.retain(|_, sum| threshold.is_exceeded_by(*sum));
        let busy: BTreeSet<_> = joint.into_keys().collect();
        for whole in &busy {
            self.look_later(*whole);
        }
        busy
    }

    /// What to merge: pairs that are due, and those that will be next until as many are merged as are wanted.
    fn merges(&mut self, wanted: usize, most: usize, busy: &BTreeSet<Region>) -> Vec<Region> {
        let mut merges = Vec::new();
        let mut later = Vec::new();
        let mut forgotten = Vec::new();
        for &(due, whole) in &self.schedule {
            let is_due = due <= self.epoch;
            if merges.len() >= most || !is_due && merges.len() >= wanted {
                break;
            }
            let Some(pair) = self.pairs.get(&whole) else {
                continue;
            };
            if pair.is_merged {
                if is_due {
                    forgotten.push(whole);
                }
            } else if busy.contains(&whole) {
                continue;
            } else if self.has_split_half(whole) {
                // Not before its halves are whole.
                if is_due {
                    later.push(whole);
                }
            } else {
                merges.push(whole);
            }
        }
        for whole in forgotten {
            self.forget(whole);
        }
        // What is merged is looked at again if nothing comes of it.
        for whole in later.iter().chain(&merges) {
            self.look_later(*whole);
        }
        merges
    }

    /// There is a region, which may be a part of others that were split before this policy was there, or of which only
    /// some parts were ever touched.
    pub fn found(&mut self, region: Region) {
        let mut part = region;
        while part.order() < self.config.top
            && let Some(whole) = part.whole()
        {
            if self.pairs.get(&whole).is_none_or(|pair| pair.is_merged) {
                self.split(whole);
            }
            part = whole;
        }
    }

    /// A region was split.
    pub fn split(&mut self, whole: Region) {
        let before = self.remove(whole);
        let patience = match before {
            // It was merged too soon.
            Some(pair) if pair.is_merged => {
                (pair.patience.saturating_mul(2)).min(self.config.most_quiet)
            }
            Some(pair) => pair.patience,
            None => self.config.quiet,
        };
        self.insert(
            whole,
            Pair {
                is_merged: false,
                patience,
                due: self.epoch + u64::from(patience),
            },
        );
    }

    /// Two halves were merged to `whole`.
    pub fn merged(&mut self, whole: Region) {
        let Some(pair) = self.remove(whole) else {
            return;
        };
        self.insert(
            whole,
            Pair {
                is_merged: true,
                // As long as it waited to be merged, it remembers.
                due: self.epoch + u64::from(pair.patience),
                ..pair
            },
        );
        if let Some(above) = whole.whole() {
            // It has been quiet as a whole only from now on.
            self.look_later(above);
        }
    }

    /// Two halves were not merged, since blades use them that would have to give up something, or since they are busy.
    /// `is_split`: whether any of them has a slot still; otherwise there is nothing to merge.
    pub fn not_merged(&mut self, whole: Region, is_split: bool) {
        match is_split {
            true => {
                let most = self.config.most_quiet;
                if let Some(pair) = self.pairs.get_mut(&whole) {
                    pair.patience = pair.patience.saturating_mul(2).min(most);
                }
                self.look_later(whole);
            }
            false => self.forget(whole),
        }
    }

    /// What may be done, and how patiently.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// What the last epoch's counts were held against.
    pub const fn threshold(&self) -> &Threshold {
        &self.threshold
    }

    /// Regions that are split now.
    pub const fn pairs(&self) -> u32 {
        self.split
    }

    fn has_split_half(&self, whole: Region) -> bool {
        let is_split = |half| self.pairs.get(&half).is_some_and(|pair| !pair.is_merged);
        whole
            .halves()
            .is_some_and(|(lower, upper)| is_split(lower) || is_split(upper))
    }

    /// It is looked at when it has been quiet from now on.
    fn look_later(&mut self, whole: Region) {
        if let Some(pair) = self.pairs.get_mut(&whole)
            && !pair.is_merged
        {
            self.schedule.remove(&(pair.due, whole));
            pair.due = self.epoch + u64::from(pair.patience);
            self.schedule.insert((pair.due, whole));
        }
    }

    fn forget(&mut self, whole: Region) {
        self.remove(whole);
    }

    fn insert(&mut self, whole: Region, pair: Pair) {
        self.schedule.insert((pair.due, whole));
        self.split += u32::from(!pair.is_merged);
        self.pairs.insert(whole, pair);
    }

    fn remove(&mut self, whole: Region) -> Option<Pair> {
        let pair = self.pairs.remove(&whole)?;
        self.schedule.remove(&(pair.due, whole));
        self.split -= u32::from(!pair.is_merged);
        Some(pair)
    }
}

#[cfg(test)]
mod tests {
    use mind_common::addr::{Va, WINDOW_BASE};
    use proptest::prelude::*;

    use super::*;

    /// Order of top-level regions in these tests: 64 pages.
    const TOP: u8 = 6;

    /// Regions, and which of their pages are invalidated how often in an epoch while all are cached.
    struct Memory {
        /// False invalidations that each page's accesses cause for each other page of its region.
        rates: Vec<u32>,
        leaves: BTreeSet<Region>,
        policy: Splitting,
        slots: u32,
        /// Slots that others use.
        others: u32,
    }

    impl Memory {
        fn new(config: Config, slots: u32, rates: Vec<u32>) -> Self {
            let tops = rates.len() >> TOP;
            Self {
                rates,
                leaves: (0..tops as u64).map(top).collect(),
                policy: Splitting::new(config),
                slots,
                others: 0,
            }
        }

        fn used(&self) -> u32 {
            self.leaves.len() as u32 + self.others
        }

        /// An access to one page takes all others of the region with it.
        fn count(&self, region: Region) -> u32 {
            let first = (region.base().0 - WINDOW_BASE) >> 12;
            let pages = first as usize..(first + (1 << region.order())) as usize;
            let others = (1 << region.order()) - 1;
            self.rates[pages].iter().map(|rate| rate * others).sum()
        }

        /// One epoch; what was changed.
        fn step(&mut self) -> Plan {
            let counts: Vec<_> = self
                .leaves
                .iter()
                .map(|region| (*region, self.count(*region)))
                .filter(|(_, count)| *count > 0)
                .collect();
            let used = self.used();
            let changes = self.policy.config.changes;
            let plan = self.policy.plan(Epoch {
                counts: &counts,
                slots: self.slots,
                used,
                changes,
            });
            for region in &plan.splits {
                let (lower, upper) = region.halves().expect("a page is not split");
                assert!(self.leaves.remove(region), "{region} is no region");
                self.leaves.extend([lower, upper]);
                self.policy.split(*region);
            }
            for whole in &plan.merges {
                let (lower, upper) = whole.halves().expect("it has halves");
                let halves = [lower, upper].map(|half| self.leaves.remove(&half));
                assert_eq!(halves, [true; 2], "{whole} has no such halves");
                self.leaves.insert(*whole);
                self.policy.merged(*whole);
            }
            assert!(
                plan.splits.is_empty() || self.used() <= limit(self.slots),
                "a split took what is kept"
            );
            assert_eq!(
                self.policy.pairs() as usize,
                self.leaves.len() - (self.rates.len() >> TOP)
            );
            plan
        }

        fn leaves_of(&self, top: Region) -> usize {
            let its = self.leaves.iter();
            its.filter(|leaf| top.contains(leaf.base())).count()
        }
    }

    fn config() -> Config {
        Config {
            top: TOP,
            ..Config::default()
        }
    }

    fn top(number: u64) -> Region {
        let base = Va(WINDOW_BASE + (number << (12 + TOP)));
        Region::containing(base, TOP).expect("it is not too large")
    }

    /// Few pages of few regions are busy.
    fn rates(tops: usize) -> impl Strategy<Value = Vec<u32>> {
        let rate = prop_oneof![20 => Just(0), 1 => 1..50u32, 1 => Just(1)];
        prop::collection::vec(rate, tops << TOP)
    }

    proptest! {
        /// The paper's theorem 5.1, with the lowest threshold that there was.
        #[test]
        fn no_region_has_more_parts_than_the_bound(rates in rates(8)) {
            let config = Config { quiet: u32::MAX, most_quiet: u32::MAX, ..config() };
            let mut memory = Memory::new(config, 1 << 20, rates);
            let before: Vec<_> = (0..8).map(|n| (top(n), u64::from(memory.count(top(n))))).collect();
            let mut least = u64::MAX;
            for _ in 0..200 {
                let plan = memory.step();
                least = least.min(plan.threshold.t().max(1));
                for (top, count) in &before {
                    let bound = (count.div_ceil(least).max(1) - 1) * (1 + u64::from(TOP));
                    prop_assert!(memory.leaves_of(*top) as u64 <= bound.max(1));
                }
            }
        }

        /// Whatever is counted and however many slots others take, splits leave the last 5 % alone, and what is short
        /// comes back by merging.
        #[test]
        fn use_stays_below_the_limit(
            history in prop::collection::vec((rates(16), 0..200u32), 1..8),
        ) {
            let config = Config { quiet: 4, ..config() };
            let mut memory = Memory::new(config, 256, vec![0; 16 << TOP]);
            for (rates, others) in history {
                memory.rates = rates;
                memory.others = others;
                for _ in 0..50 {
                    memory.step();
                }
                prop_assert!(memory.used() <= limit(256));
            }
        }
    }

    #[test]
    fn only_what_is_falsely_shared_is_split() {
        let mut rates = vec![0; 4 << TOP];
        (rates[3], rates[40]) = (10, 10);
        let mut memory = Memory::new(config(), 1 << 16, rates);
        for _ in 0..usize::from(TOP) {
            assert!(!memory.step().splits.is_empty());
        }
        for page in [3, 40] {
            let va = Va(WINDOW_BASE + (page << 12));
            let page = Region::containing(va, 0).expect("a page");
            assert!(memory.leaves.contains(&page), "{page} is not by itself");
        }
        assert!((1..4).all(|n| memory.leaves.contains(&top(n))));
        assert_eq!(memory.leaves_of(top(0)), 2 * usize::from(TOP));
    }

    #[test]
    fn what_is_quiet_is_merged_again() {
        let mut rates = vec![0; 4 << TOP];
        rates[3] = 10;
        let mut memory = Memory::new(config(), 1 << 16, rates);
        for _ in 0..10 {
            memory.step();
        }
        assert!(memory.leaves_of(top(0)) > 1);
        memory.rates[3] = 0;
        for _ in 0..200 {
            memory.step();
        }
        assert_eq!(memory.leaves.len(), 4);
        // What is remembered of them is forgotten.
        for _ in 0..200 {
            memory.step();
        }
        assert!(memory.policy.pairs.is_empty() && memory.policy.schedule.is_empty());
    }

    /// A pair that each merge makes busy again is merged ever more rarely.
    #[test]
    fn what_must_be_split_again_is_left_split_for_longer() {
        let mut rates = vec![0; 4 << TOP];
        rates[3] = 10;
        let mut memory = Memory::new(config(), 1 << 16, rates);
        let mut changes = |epochs: usize| {
            let plans = (0..epochs).map(|_| memory.step());
            plans
                .map(|plan| plan.splits.len() + plan.merges.len())
                .sum::<usize>()
        };
        let (first, last) = (changes(1000), (changes(8000), changes(1000)).1);
        assert!(last * 4 < first, "{first} changes, then {last}");
    }

    /// More regions are falsely shared than there are slots for: c comes to rest, and so do the regions.
    #[test]
    fn c_settles() {
        let tops = 128;
        let rates = (0..tops << TOP).map(|page| 1 + page as u32 * 7 % 13);
        let config = Config {
            quiet: u32::MAX,
            ..config()
        };
        let mut memory = Memory::new(config, 1024, rates.collect());
        let plans: Vec<_> = (0..2000).map(|_| memory.step()).collect();
        let (before, settled) = plans.split_at(1000);
        assert!(before.iter().any(|plan| !plan.splits.is_empty()));
        for plan in settled {
            assert_eq!(plan.threshold.c, settled[0].threshold.c);
            assert!(plan.splits.is_empty() && plan.merges.is_empty());
        }
        assert!(memory.used() <= limit(1024) && memory.used() > part(1024, 80));
    }

    #[test]
    fn when_slots_are_short_the_quietest_are_merged_first() {
        let mut rates = vec![0; 16 << TOP];
        rates[3] = 10;
        rates[3 + (5 << TOP)] = 10;
        let config = Config {
            quiet: 1000,
            ..config()
        };
        let mut memory = Memory::new(config, 100, rates);
        for _ in 0..10 {
            memory.step();
        }
        // The pages of one go on to be busy as soon as they are with others; those of the other are not any more.
        memory.rates[3] = 0;
        memory.others = 100 - 16;
        for _ in 0..20 {
            memory.step();
        }
        assert_eq!(memory.leaves_of(top(0)), 1);
        assert!(memory.used() <= 100);
    }

    #[test]
    fn halves_without_slots_are_forgotten() {
        let mut policy = Splitting::new(config());
        policy.split(top(0));
        assert_eq!(policy.pairs(), 1);
        policy.not_merged(top(0), true);
        assert_eq!(policy.pairs(), 1);
        policy.not_merged(top(0), false);
        assert_eq!((policy.pairs(), policy.schedule.len()), (0, 0));
    }
}
