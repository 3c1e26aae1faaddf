//! Ranges of numbers that do not touch each other, found by where they begin and by their size.

use std::collections::{BTreeMap, BTreeSet};

/// Ranges that are looked at for an aligned place before any place is taken.
const CANDIDATES: usize = 64;

/// The ranges. What they are of, bytes of a memory blade or addresses, is for their user to say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ranges {
    /// Length by start.
    by_start: BTreeMap<u64, u64>,
    /// Length and start.
    by_size: BTreeSet<(u64, u64)>,
    /// Lengths of all, added up.
    total: u64,
}

impl Ranges {
    fn insert(&mut self, start: u64, length: u64) {
        if length > 0 {
            self.by_start.insert(start, length);
            self.by_size.insert((length, start));
            self.total += length;
        }
    }

    fn remove(&mut self, start: u64) -> Option<u64> {
        let length = self.by_start.remove(&start)?;
        self.by_size.remove(&(length, start));
        self.total -= length;
        Some(length)
    }

    /// Lengths of all, added up.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Length of the longest, and its start.
    pub fn longest(&self) -> Option<(u64, u64)> {
        self.by_size.last().copied()
    }

    /// All of them, start and length, by start.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.by_start
            .iter()
            .map(|(start, length)| (*start, *length))
    }

    /// Adds a range of which nothing is there yet, and joins it with those that it touches.
    pub fn join(&mut self, mut start: u64, mut length: u64) {
        if length == 0 {
            return;
        }
        if let Some((&before, &size)) = self.by_start.range(..start).next_back() {
            debug_assert!(before + size <= start, "a range is added twice");
            if before + size == start {
                self.remove(before);
                start = before;
                length += size;
            }
        }
        length += self.remove(start + length).unwrap_or(0);
        self.insert(start, length);
    }

    /// What of a range is there, start and length, by start.
    pub fn within(&self, start: u64, length: u64) -> Vec<(u64, u64)> {
        let end = start + length;
        let first = self.by_start.range(..start).next_back();
        let ranges = first.into_iter().chain(self.by_start.range(start..end));
        let parts = ranges.map(|(from, size)| ((*from).max(start), (from + size).min(end)));
        let parts = parts.filter(|(from, to)| from < to);
        parts.map(|(from, to)| (from, to - from)).collect()
    }

    /// Takes out what of a range is there; start and length of each part, by start.
    pub fn take(&mut self, start: u64, length: u64) -> Vec<(u64, u64)> {
        let parts = self.within(start, length);
        for (from, size) in &parts {
            self.cut(*from, *size);
        }
        parts
    }

    /// Takes out a range that is within one of them.
    fn cut(&mut self, start: u64, length: u64) {
        if let Some((&from, &size)) = self.by_start.range(..=start).next_back() {
            self.remove(from);
            self.insert(from, start - from);
            self.insert(start + length, from + size - (start + length));
        }
    }

    /// The smallest of those that have `length` numbers from a multiple of `align` on, a power of two: its size, and
    /// the first of these numbers. Looks at a bounded number of ranges.
    pub fn find(&self, length: u64, align: u64) -> Option<(u64, u64)> {
        let mut enough = self.by_size.range((length, 0)..).take(CANDIDATES);
        enough.find_map(|(size, start)| Some((*size, fit((*start, *size), length, align)?)))
    }
}

/// Where a range of start and length has `length` numbers from a multiple of `align` on, a power of two.
pub fn fit((start, size): (u64, u64), length: u64, align: u64) -> Option<u64> {
    let at = start.checked_next_multiple_of(align)?;
    (at.checked_add(length)? <= start + size).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against one flag a number.
        #[test]
        fn ranges_are_what_was_joined_and_not_taken(
            steps in prop::collection::vec((any::<bool>(), 0..64u64, 1..20u64), 0..60),
        ) {
            let mut ranges = Ranges::default();
            let mut flags = [false; 96];
            for (joins, start, length) in steps {
                let of = start as usize..(start + length) as usize;
                let there = ranges.within(start, length);
                let count = there.iter().map(|(_, length)| length).sum::<u64>() as usize;
                prop_assert_eq!(count, flags[of.clone()].iter().filter(|flag| **flag).count());
                match joins {
                    true if count == 0 => ranges.join(start, length),
                    true => continue,
                    false => prop_assert_eq!(ranges.take(start, length), there),
                }
                flags[of].fill(joins);
                let mut expected = Vec::new();
                for (at, _) in flags.iter().enumerate().filter(|(_, flag)| **flag) {
                    let at = at as u64;
                    match expected.last_mut() {
                        Some((from, length)) if *from + *length == at => *length += 1,
                        _ => expected.push((at, 1)),
                    }
                }
                prop_assert_eq!(ranges.iter().collect::<Vec<_>>(), expected.clone());
                prop_assert_eq!(ranges.total(), expected.iter().map(|(_, length)| length).sum::<u64>());
                let longest = expected.iter().map(|(_, length)| *length).max();
                prop_assert_eq!(ranges.longest().map(|(length, _)| length), longest);
            }
        }
    }

    #[test]
    fn the_smallest_that_is_large_enough_is_found() {
        let mut ranges = Ranges::default();
        ranges.join(1, 7);
        ranges.join(16, 4);
        assert_eq!(ranges.find(3, 4), Some((4, 16)));
        assert_eq!(ranges.find(4, 4), Some((4, 16)));
        assert_eq!(ranges.find(5, 1), Some((7, 1)));
        assert_eq!(ranges.find(5, 4), None);
        assert_eq!(ranges.find(8, 1), None);
    }
}
