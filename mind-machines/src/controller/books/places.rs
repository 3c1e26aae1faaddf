//! Addresses that are not at home where they are kept, and the entries of the translation table that say so (MIND, SOSP
//! 2021, section 4.1: outliers).
//!
//! They are those of the pieces of vmas, and of memory that was freed and is not zeroed yet: packets that were admitted
//! before may still be under way to it.

use std::collections::{BTreeMap, BTreeSet};

use mind_common::{
    addr::{Prefix, SLICE_SHIFT, Va, prefixes},
    table::Translation,
};

use super::memory::Piece;

/// Pieces that are not at home, and their entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Places {
    /// By first address. They do not overlap.
    pieces: BTreeMap<u64, Piece>,
}

impl Places {
    /// Pieces take the place of others, in the same memory as far as both have an address. The prefixes of which the
    /// entries change: first those that there are now, then those that there were, so that no address that stays where
    /// it is is ever without the longer of two entries that say the same.
    pub fn replace(&mut self, before: &[Piece], after: &[Piece]) -> Vec<Prefix> {
        let before = before.iter().filter(|piece| !piece.is_home());
        let after = after.iter().filter(|piece| !piece.is_home());
        let mut old = BTreeSet::new();
        for piece in before {
            self.pieces.remove(&piece.va);
            old.extend(entries(piece));
        }
        let mut changed = Vec::new();
        for piece in after {
            self.pieces.insert(piece.va, *piece);
            changed.extend(entries(piece).filter(|prefix| !old.remove(prefix)));
        }
        changed.extend(old);
        changed
    }

    /// What the entry of a prefix says that is shorter than a slice; `None` if there is no such entry.
    pub fn entry(&self, prefix: Prefix) -> Option<Translation> {
        let piece = self.at(prefix.base)?;
        let is_there = entries(&piece).any(|entry| entry == prefix);
        is_there.then(|| translation(&piece))
    }

    /// All entries.
    pub fn entries(&self) -> impl Iterator<Item = (Prefix, Translation)> {
        self.pieces.values().flat_map(|piece| {
            let translation = translation(piece);
            entries(piece).map(move |prefix| (prefix, translation))
        })
    }

    /// All of them, by address.
    pub fn pieces(&self) -> impl Iterator<Item = Piece> {
        self.pieces.values().copied()
    }

    /// The piece that has an address, if it is not at home.
    pub fn at(&self, va: Va) -> Option<Piece> {
        let (_, piece) = self.pieces.range(..=va.0).next_back()?;
        piece.contains(va).then_some(*piece)
    }
}

fn translation(piece: &Piece) -> Translation {
    Translation::new(piece.extent.blade, Va(piece.va), piece.extent.offset)
}

/// The prefixes of a piece. None is as short as a slice's, which says where addresses are at home.
fn entries(piece: &Piece) -> impl Iterator<Item = Prefix> + use<> {
    prefixes(Va(piece.va), piece.extent.length).flat_map(|prefix| {
        let shift = prefix.shift.min(SLICE_SHIFT - 1);
        let count = 1_u64 << (prefix.shift - shift);
        (0..count).map(move |number| Prefix {
            base: Va(prefix.base.0 + (number << shift)),
            shift,
        })
    })
}

#[cfg(test)]
mod tests {
    use mind_common::addr::WINDOW_BASE;

    use super::{
        super::memory::{Extent, GRANULE, SLICE_SIZE},
        *,
    };

    fn piece(va: u64, blade: u8, offset: u64, length: u64) -> Piece {
        Piece {
            va: WINDOW_BASE + va * GRANULE,
            extent: Extent {
                blade,
                offset: offset * GRANULE,
                length: length * GRANULE,
            },
        }
    }

    /// Where the table puts an address: the longest prefix counts.
    fn look_up(table: &BTreeMap<Prefix, Translation>, va: u64) -> Option<(u32, u64)> {
        let covers = |prefix: &Prefix| va & !(prefix.size() - 1) == prefix.base.0;
        let entries = table.iter().filter(|(prefix, _)| covers(prefix));
        let (_, entry) = entries.min_by_key(|(prefix, _)| prefix.shift)?;
        Some((entry.blade, entry.apply(Va(va)).0))
    }

    #[test]
    fn each_address_is_kept_where_its_piece_says() {
        let mut places = Places::default();
        let pieces = [piece(3, 1, 0, 6), piece(9, 0, 40, 5)];
        let changed = places.replace(&[], &pieces);
        let table: BTreeMap<_, _> = places.entries().collect();
        assert_eq!(table.len(), changed.len());
        for piece in pieces {
            for page in 0..piece.extent.pages() {
                let va = piece.va + (page << 12);
                let expected = (
                    piece.extent.blade.into(),
                    piece.extent.offset + (page << 12),
                );
                assert_eq!(look_up(&table, va), Some(expected));
            }
        }
        assert_eq!(look_up(&table, pieces[0].va - 1), None);
        assert_eq!(look_up(&table, pieces[1].end()), None);
        assert!(
            changed
                .iter()
                .all(|prefix| places.entry(*prefix) == table.get(prefix).copied())
        );
    }

    /// At each step between, every address that stays has its place.
    #[test]
    fn what_stays_is_never_without_its_entry() {
        let mut places = Places::default();
        let whole = piece(0, 1, 3, 16);
        places.replace(&[], &[whole]);
        let mut table: BTreeMap<_, _> = places.entries().collect();
        let rest = whole
            .part(whole.va + 5 * GRANULE, u64::MAX)
            .expect("it is longer");
        for prefix in places.replace(&[whole], &[rest]) {
            match places.entry(prefix) {
                Some(translation) => table.insert(prefix, translation),
                None => table.remove(&prefix),
            };
            for at in (rest.va..rest.end()).step_by(1 << 12) {
                let expected = rest.extent.offset + (at - rest.va);
                assert_eq!(look_up(&table, at), Some((1, expected)));
            }
        }
        assert_eq!(table, places.entries().collect());
        assert_eq!(places.replace(&[rest], &[]).len(), table.len());
        assert_eq!(places, Places::default());
    }

    #[test]
    fn what_is_at_home_needs_no_entry_and_none_is_a_whole_slice() {
        let mut places = Places::default();
        assert!(places.replace(&[], &[piece(7, 0, 7, 9)]).is_empty());
        let slice = SLICE_SIZE / GRANULE;
        let large = piece(4 * slice, 1, 0, slice);
        let changed = places.replace(&[], &[large]);
        assert_eq!(changed.len(), 2);
        assert!(changed.iter().all(|prefix| prefix.shift < SLICE_SHIFT));
        assert_eq!(places.at(Va(large.va)), Some(large));
        assert_eq!(places.at(Va(large.end())), None);
    }
}
