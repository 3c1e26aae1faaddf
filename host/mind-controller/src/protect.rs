//! Who may touch what: the entries of the protection table for a domain, and how to change them while packets pass.
//!
//! The table is an LPM trie over (domain, address): the longest prefix that covers a page says its class, none says
//! "nothing". Neighbouring ranges of one class are joined and cut into the fewest prefixes, so an entry may well cover
//! several vmas; those of one domain never overlap at rest.
//!
//! Between two states [`diff`] puts new entries in before it takes old ones out. Then at every moment each page has
//! either the class that it had or the one it will have: where both an old and a new entry cover it, the longer one
//! counts and is one of the two. Neither is a page that keeps its class ever without it (its program would die of a
//! SIGSEGV), nor has any page more than before or after.

use std::collections::BTreeMap;

use mind_api::message::Access;
use mind_common::addr::{PAGE_SIZE, Prefix, Va, prefixes};
use serde::{Deserialize, Serialize};

/// What a domain may do with a page for which there is an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Class {
    /// Read.
    Read,
    /// Read and write.
    Write,
}

impl Class {
    /// The access of a class, or of none.
    pub const fn access(class: Option<Self>) -> Access {
        match class {
            None => Access::None,
            Some(Self::Read) => Access::Read,
            Some(Self::Write) => Access::Write,
        }
    }

    /// The class of an access; none for none.
    pub const fn of(access: Access) -> Option<Self> {
        match access {
            Access::None => None,
            Access::Read => Some(Self::Read),
            Access::Write => Some(Self::Write),
        }
    }
}

/// A change of a domain's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The entry is there from now on, with this class, whether it was there before or not.
    Set(Prefix, Class),
    /// The entry goes.
    Remove(Prefix),
}

/// The entries of a domain.
pub type Entries = BTreeMap<Prefix, Class>;

/// What a domain may do, range by range. Addresses are pages' first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protection {
    /// End and class by start. Ranges do not overlap, and two that touch differ.
    ranges: BTreeMap<u64, (u64, Class)>,
}

impl Protection {
    /// From now on the domain may do `class` (or nothing) with `length` bytes from `start` on, whole pages.
    pub fn set(&mut self, start: Va, length: u64, class: Option<Class>) {
        debug_assert!(start.is_page_aligned() && length.is_multiple_of(PAGE_SIZE as u64));
        let (mut start, mut end) = (start.0, start.0 + length);
        if start == end {
            return;
        }
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
        let Some(class) = class else { return };
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

    /// What of `start..end` the domain may do what with, by address: ranges and classes, none for nothing.
    pub fn over(&self, start: u64, end: u64) -> Vec<(u64, u64, Option<Class>)> {
        let mut ranges = Vec::new();
        let mut next = start;
        for (from, (to, class)) in self.ranges.range(..end) {
            let (from, to) = ((*from).max(start), (*to).min(end));
            if from >= to {
                continue;
            }
            if next < from {
                ranges.push((next, from, None));
            }
            ranges.push((from, to, Some(*class)));
            next = to;
        }
        if next < end {
            ranges.push((next, end, None));
        }
        ranges
    }

    /// The entries that say so: as few as disjoint ones can be.
    pub fn entries(&self) -> Entries {
        self.ranges
            .iter()
            .flat_map(|(start, (end, class))| {
                prefixes(Va(*start), end - start).map(|prefix| (prefix, *class))
            })
            .collect()
    }
}

/// The changes that lead from `old` to `new`, in the order in which they are to be made (see the module's text).
pub fn diff(old: &Entries, new: &Entries) -> Vec<Change> {
    let set = new
        .iter()
        .filter(|(prefix, class)| old.get(prefix) != Some(class))
        .map(|(prefix, class)| Change::Set(*prefix, *class));
    let remove = old
        .keys()
        .filter(|prefix| !new.contains_key(prefix))
        .map(|prefix| Change::Remove(*prefix));
    set.chain(remove).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: u64 = PAGE_SIZE as u64;
    const BASE: u64 = mind_common::addr::WINDOW_BASE;
    const PAGES: u64 = 64;

    fn at(page: u64) -> Va {
        Va(BASE + page * PAGE)
    }

    /// What the trie says of a page: its longest entry.
    fn look_up(entries: &Entries, page: u64) -> Option<Class> {
        let va = at(page).0;
        entries
            .iter()
            .filter(|(prefix, _)| va & !(prefix.size() - 1) == prefix.base.0)
            .min_by_key(|(prefix, _)| prefix.shift)
            .map(|(_, class)| *class)
    }

    #[test]
    fn neighbours_of_one_class_share_an_entry() {
        let mut protection = Protection::default();
        protection.set(at(0), 4 * PAGE, Some(Class::Write));
        protection.set(at(4), 4 * PAGE, Some(Class::Write));
        let entries = protection.entries();
        assert_eq!(entries.len(), 1);
        assert_eq!(entries.first_key_value().unwrap().0.size(), 8 * PAGE);
    }

    #[test]
    fn a_page_in_the_middle_that_becomes_read_only_takes_no_entry_from_the_rest_before_theirs_are_in()
     {
        let mut protection = Protection::default();
        protection.set(at(0), 4 * PAGE, Some(Class::Write));
        let old = protection.entries();
        protection.set(at(1), PAGE, Some(Class::Read));
        let changes = diff(&old, &protection.entries());
        assert_eq!(changes.len(), 4);
        let whole = *old.first_key_value().unwrap().0;
        assert_eq!(changes[3], Change::Remove(whole));
    }

    #[test]
    fn what_stays_is_not_touched() {
        let mut protection = Protection::default();
        protection.set(at(0), 4 * PAGE, Some(Class::Write));
        protection.set(at(8), 4 * PAGE, Some(Class::Read));
        let old = protection.entries();
        protection.set(at(8), 4 * PAGE, None);
        let changes = diff(&old, &protection.entries());
        assert!(
            matches!(changes[..], [Change::Remove(prefix)] if prefix.base == at(8)),
            "{changes:?}"
        );
        assert_eq!(diff(&old, &old), []);
    }

    fn class() -> impl Strategy<Value = Option<Class>> {
        prop::sample::select(vec![None, Some(Class::Read), Some(Class::Write)])
    }

    proptest! {
        #[test]
        fn every_page_has_its_old_or_its_new_class_at_every_moment(
            steps in prop::collection::vec((0..PAGES, 1..=PAGES, class()), 1..20),
        ) {
            let mut oracle = vec![None; PAGES as usize];
            let mut protection = Protection::default();
            let mut table = Entries::new();
            for (first, count, class) in steps {
                let count = count.min(PAGES - first);
                let before = oracle.clone();
                oracle[first as usize..(first + count) as usize].fill(class);
                protection.set(at(first), count * PAGE, class);

                let entries = protection.entries();
                for change in diff(&table, &entries) {
                    match change {
                        Change::Set(prefix, class) => {
                            table.insert(prefix, class);
                        }
                        Change::Remove(prefix) => {
                            prop_assert!(table.remove(&prefix).is_some());
                        }
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
        fn ranges_of_one_class_that_touch_are_one(
            steps in prop::collection::vec((0..PAGES, 1..=PAGES, class()), 1..20),
        ) {
            let mut protection = Protection::default();
            for (first, count, class) in steps {
                protection.set(at(first), count.min(PAGES - first) * PAGE, class);
            }
            let ranges: Vec<_> = protection.ranges.into_iter().collect();
            for pair in ranges.windows(2) {
                let (_, (end, class)) = pair[0];
                let (start, (_, other)) = pair[1];
                prop_assert!(end < start || end == start && class != other, "{:?}", pair);
            }
        }
    }
}
