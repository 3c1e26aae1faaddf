//! What a protection domain may do with its memory, and the entries of the protection table that say so.
//!
//! The table is an LPM trie over (domain, address): the longest prefix that covers a page says its permission class,
//! none says "nothing". Neighbouring ranges of one class are joined and cut into the fewest prefixes, so an entry may
//! well cover several vmas; those of one domain never overlap at rest.
//!
//! Between two states new entries go in before old ones come out. Then at every moment each page has either the class
//! that it had or the one that it will have: where both an old and a new entry cover it, the longer one counts and is
//! one of the two. So a page that keeps its class is never without it (its program would die of a SIGSEGV), and no page
//! has more than before or after.

use std::collections::BTreeMap;

use mind_common::{
    addr::{PAGE_SIZE, Prefix, Va, prefixes},
    permission::PermissionClass,
};

/// A range with its class: first address, the address after its last, what may be done.
pub type Range = (u64, u64, PermissionClass);

/// What a domain may do, range by range. Addresses are pages' first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Protection {
    /// End and class by start. Ranges do not overlap, and two that touch differ.
    ranges: BTreeMap<u64, (u64, PermissionClass)>,
}

impl Protection {
    /// From now on the domain may do `class` with `length` bytes from `start` on, whole pages. The entries
    /// that may be otherwise than before: first those that there are now, then those that there were.
    pub fn set(&mut self, start: Va, length: u64, class: PermissionClass) -> Vec<Prefix> {
        debug_assert!(start.is_page_aligned() && length.is_multiple_of(PAGE_SIZE as u64));
        let (from, to) = (start.0, start.0 + length);
        if from == to {
            return Vec::new();
        }
        let before: Vec<_> = self.around(from, to).collect();
        self.change(from, to, class);
        let mut entries: Vec<_> = self.around(from, to).collect();
        entries.extend(before);
        entries
    }

    /// The entries of the ranges that have something of `from..to`, or touch it.
    fn around(&self, from: u64, to: u64) -> impl Iterator<Item = Prefix> {
        let before = self.ranges.range(..from).next_back();
        let before = before.filter(|(_, (end, _))| *end >= from);
        let ranges = before.into_iter().chain(self.ranges.range(from..=to));
        ranges.flat_map(|(start, (end, _))| prefixes(Va(*start), end - start))
    }

    fn change(&mut self, mut start: u64, mut end: u64, class: PermissionClass) {
        self.cut(start);
        self.cut(end);
        let covered: Vec<_> = self
            .ranges
            .range(start..end)
            .map(|(from, _)| *from)
            .collect();
        for from in covered {
            self.ranges.remove(&from);
        }
        if class == PermissionClass::None {
            return;
        }
        if let Some((&from, &(to, other))) = self.ranges.range(..start).next_back()
            && to == start
            && other == class
        {
            self.ranges.remove(&from);
            start = from;
        }
        if let Some(&(to, other)) = self.ranges.get(&end)
            && other == class
        {
            self.ranges.remove(&end);
            end = to;
        }
        self.ranges.insert(start, (end, class));
    }

    /// Makes `at` a boundary.
    fn cut(&mut self, at: u64) {
        if let Some((_, (end, class))) = self.ranges.range_mut(..at).next_back()
            && *end > at
        {
            let (old_end, class) = (*end, *class);
            *end = at;
            self.ranges.insert(at, (old_end, class));
        }
    }

    /// Whether the domain may do nothing.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// What of `start..end` the domain may do what with, by address.
    pub fn over(&self, start: u64, end: u64) -> Vec<Range> {
        self.over_at_most(start, end, usize::MAX).0
    }

    /// The same, of about `most` ranges; and where to go on, if that is not all.
    pub fn over_at_most(&self, start: u64, end: u64, most: usize) -> (Vec<Range>, Option<u64>) {
        let first = self.ranges.range(..=start).next_back();
        let first = first.map_or(start, |(from, _)| *from);
        let mut ranges = Vec::new();
        let mut next = start;
        for (from, (to, class)) in self.ranges.range(first..end) {
            let (from, to) = ((*from).max(start), (*to).min(end));
            if from >= to {
                continue;
            }
            if ranges.len() >= most {
                return (ranges, Some(next));
            }
            if next < from {
                ranges.push((next, from, PermissionClass::None));
            }
            ranges.push((from, to, *class));
            next = to;
        }
        if next < end {
            ranges.push((next, end, PermissionClass::None));
        }
        (ranges, None)
    }

    /// The class of this entry; `None` if there is no such one.
    pub fn entry(&self, prefix: Prefix) -> Option<PermissionClass> {
        let (start, (end, class)) = self.ranges.range(..=prefix.base.0).next_back()?;
        prefixes(Va(*start), end - start)
            .any(|entry| entry == prefix)
            .then_some(*class)
    }

    /// All entries, by address: as few as disjoint ones can be.
    pub fn entries(&self) -> impl Iterator<Item = (Prefix, PermissionClass)> {
        self.ranges.iter().flat_map(|(start, (end, class))| {
            prefixes(Va(*start), end - start).map(|prefix| (prefix, *class))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: u64 = PAGE_SIZE as u64;
    const BASE: u64 = mind_common::addr::WINDOW_BASE;
    const PAGES: u64 = 64;

    type Table = BTreeMap<Prefix, PermissionClass>;

    fn at(page: u64) -> Va {
        Va(BASE + page * PAGE)
    }

    /// What the trie says of a page: its longest entry.
    fn look_up(table: &Table, page: u64) -> PermissionClass {
        let va = at(page).0;
        let covers = |prefix: &Prefix| va & !(prefix.size() - 1) == prefix.base.0;
        let entries = table.iter().filter(|(prefix, _)| covers(prefix));
        entries
            .min_by_key(|(prefix, _)| prefix.shift)
            .map_or(PermissionClass::None, |(_, class)| *class)
    }

    #[test]
    fn neighbours_of_one_class_share_an_entry() {
        let mut protection = Protection::default();
        protection.set(at(0), 4 * PAGE, PermissionClass::Write);
        protection.set(at(4), 4 * PAGE, PermissionClass::Write);
        let entries: Vec<_> = protection.entries().collect();
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].0.size(), 8 * PAGE);
        assert_eq!(protection.entry(entries[0].0), Some(PermissionClass::Write));
        let half = Prefix {
            base: at(0),
            shift: entries[0].0.shift - 1,
        };
        assert_eq!(protection.entry(half), None);
    }

    #[test]
    fn a_change_concerns_the_entries_around_it_and_no_others() {
        let mut protection = Protection::default();
        for vma in 0..1000 {
            protection.set(at(8 * vma), 4 * PAGE, PermissionClass::Write);
        }
        let concerned = protection.set(at(8 * 500), 4 * PAGE, PermissionClass::None);
        assert_eq!(concerned.len(), 1, "{concerned:?}");
        let concerned = protection.set(at(8 * 500), 8 * PAGE, PermissionClass::Write);
        assert!(concerned.len() < 8, "{concerned:?}");
    }

    fn class() -> impl Strategy<Value = PermissionClass> {
        prop::sample::select(vec![
            PermissionClass::None,
            PermissionClass::Read,
            PermissionClass::Write,
        ])
    }

    proptest! {
        #[test]
        fn every_page_has_its_old_or_its_new_class_at_every_moment(
            steps in prop::collection::vec((0..PAGES, 1..=PAGES, class()), 1..20),
        ) {
            let mut oracle = vec![PermissionClass::None; PAGES as usize];
            let mut protection = Protection::default();
            let mut table = Table::new();
            for (first, count, class) in steps {
                let count = count.min(PAGES - first);
                let before = oracle.clone();
                oracle[first as usize..(first + count) as usize].fill(class);
                // As the controller installs them: each becomes what it should be, in this order.
                for prefix in protection.set(at(first), count * PAGE, class) {
                    match protection.entry(prefix) {
                        Some(class) => { table.insert(prefix, class); }
                        None => { table.remove(&prefix); }
                    }
                    for page in 0..PAGES {
                        let now = look_up(&table, page);
                        let index = page as usize;
                        prop_assert!(
                            now == before[index] || now == oracle[index],
                            "page {} was {:?}, becomes {:?}, and is {:?}",
                            page, before[index], oracle[index], now
                        );
                    }
                }
                let entries: Table = protection.entries().collect();
                prop_assert_eq!(&table, &entries);
                // What directory slots remember relies on it.
                let mut end = 0;
                for prefix in entries.keys() {
                    prop_assert!(prefix.base.0 >= end, "{} overlaps", prefix.base);
                    end = prefix.base.0 + prefix.size();
                }
                for page in 0..PAGES {
                    prop_assert_eq!(look_up(&table, page), oracle[page as usize]);
                }
            }
        }

        #[test]
        fn ranges_of_one_class_that_touch_are_one_and_say_what_was_set(
            steps in prop::collection::vec((0..PAGES, 1..=PAGES, class()), 1..20),
            (from, count) in (0..PAGES, 0..=PAGES),
        ) {
            let mut oracle = vec![PermissionClass::None; PAGES as usize];
            let mut protection = Protection::default();
            for (first, count, class) in steps {
                let count = count.min(PAGES - first);
                oracle[first as usize..(first + count) as usize].fill(class);
                protection.set(at(first), count * PAGE, class);
            }
            let to = from + count.min(PAGES - from);
            let mut said = Vec::new();
            for (start, end, class) in protection.over(at(from).0, at(to).0) {
                said.extend(vec![class; ((end - start) / PAGE) as usize]);
            }
            prop_assert_eq!(&said[..], &oracle[from as usize..to as usize]);
            let ranges: Vec<_> = protection.ranges.into_iter().collect();
            for pair in ranges.windows(2) {
                let (_, (end, class)) = pair[0];
                let (start, (_, other)) = pair[1];
                prop_assert!(end < start || end == start && class != other, "{:?}", pair);
            }
        }
    }
}
