//! One part of a list: as many entries as an answer may have, so that it fits in a frame and is made in bounded time.

use std::io;

use serde::Serialize;

/// Entries of a part.
pub(super) const ENTRIES: usize = 1_000;
/// Bytes of its entries as JSON beyond which a part is full. An entry is shorter than what a frame holds beyond that.
const BYTES: usize = 256 << 10;

/// A part that grows.
pub(super) struct Part<T> {
    entries: Vec<T>,
    bytes: usize,
    most: usize,
}

impl<T: Serialize> Part<T> {
    /// An empty part that is to have so many entries at most; at least one, so that a list comes to its end.
    pub(super) fn new(limit: u32) -> Self {
        let limit = usize::try_from(limit).unwrap_or(ENTRIES);
        Self {
            entries: Vec::new(),
            bytes: 0,
            most: limit.clamp(1, ENTRIES),
        }
    }

    /// How many entries it may still have.
    pub(super) fn room(&self) -> usize {
        self.most - self.entries.len()
    }

    /// Whether it may have no more entries.
    pub(super) fn is_full(&self) -> bool {
        self.room() == 0 || self.bytes >= BYTES
    }

    /// Adds an entry to a part that is not full.
    pub(super) fn push(&mut self, entry: T) {
        let mut counter = Counter(0);
        // A counter takes everything; what is no JSON is no part of an answer either, and the session says so.
        let _ = serde_json::to_writer(&mut counter, &entry);
        self.bytes += counter.0;
        self.entries.push(entry);
    }

    /// Its entries.
    pub(super) fn entries(self) -> Vec<T> {
        self.entries
    }
}

/// Counts bytes.
struct Counter(usize);

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(limit: u32, entry: &str) -> usize {
        let mut part = Part::new(limit);
        while !part.is_full() {
            part.push(entry.to_owned());
        }
        part.entries().len()
    }

    #[test]
    fn a_part_is_full_with_so_many_entries_or_so_many_bytes_and_has_one_at_least() {
        assert_eq!(filled(3, "x"), 3);
        assert_eq!(filled(u32::MAX, "x"), ENTRIES);
        assert_eq!(filled(0, "x"), 1);
        // With its quotes, and its control character in six bytes.
        assert_eq!(filled(u32::MAX, &"x".repeat(1022)), BYTES / 1024);
        assert_eq!(
            filled(u32::MAX, &"\u{1}".repeat(10_000)),
            BYTES / 60_002 + 1
        );
    }
}
