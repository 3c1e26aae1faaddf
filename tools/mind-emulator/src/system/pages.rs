//! What a blade has of each page: a table in blocks of 2 MiB, with a bit for each page of which it has something, so that
//! those of a region are found without looking at all others.

use mind_common::addr::PAGES_PER_BLOCK;
use mind_machines::compute::page::Phase;

const WORDS: usize = PAGES_PER_BLOCK / u64::BITS as usize;

/// What a blade has of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// Nothing.
    Absent,
    /// A READ is under way.
    Reading,
    /// An ACQUIRE is under way.
    Acquiring,
    /// A copy to read.
    Shared,
    /// A copy to read, and an UPGRADE is under way.
    Upgrading,
    /// A copy to write.
    Modified,
}

const KIND_SHIFT: u32 = 61;
const DIRTY: u64 = 1 << 60;
const MOST: u64 = DIRTY - 1;

/// A page's kind; whether memory lacks what was written though the copy is one to read (MOESI's "owned"); and until when
/// it stays at least, or for what is under way which request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct State(u64);

impl State {
    pub(super) const ABSENT: Self = Self(0);

    pub(super) fn new(kind: Kind, is_dirty: bool, value: u64) -> Self {
        let dirty = if is_dirty { DIRTY } else { 0 };
        Self((kind as u64) << KIND_SHIFT | dirty | value.min(MOST))
    }

    #[inline]
    pub(super) const fn kind(self) -> Kind {
        match self.0 >> KIND_SHIFT {
            0 => Kind::Absent,
            1 => Kind::Reading,
            2 => Kind::Acquiring,
            3 => Kind::Shared,
            4 => Kind::Upgrading,
            _ => Kind::Modified,
        }
    }

    /// Whether memory lacks something that was written here.
    pub(super) const fn is_dirty(self) -> bool {
        self.0 & DIRTY != 0 || matches!(self.kind(), Kind::Modified)
    }

    /// Until when it stays at least, in nanoseconds; of what is under way, the request's number.
    pub(super) const fn value(self) -> u64 {
        self.0 & MOST
    }

    /// How the blade's machine calls it.
    pub(super) const fn phase(self) -> Phase {
        match self.kind() {
            Kind::Absent => Phase::Absent,
            Kind::Reading => Phase::Reading,
            Kind::Acquiring => Phase::Acquiring,
            Kind::Shared => Phase::Shared,
            Kind::Upgrading => Phase::Upgrading,
            Kind::Modified => Phase::Modified,
        }
    }
}

#[derive(Clone, Debug)]
struct Block {
    present: [u64; WORDS],
    states: [State; PAGES_PER_BLOCK],
}

/// All pages of a blade.
#[derive(Clone, Debug, Default)]
pub(super) struct Pages {
    blocks: Vec<Option<Box<Block>>>,
}

const fn place(page: u32) -> (usize, usize) {
    (
        page as usize / PAGES_PER_BLOCK,
        page as usize % PAGES_PER_BLOCK,
    )
}

impl Pages {
    #[inline]
    pub(super) fn get(&self, page: u32) -> State {
        let (block, at) = place(page);
        match self.blocks.get(block) {
            Some(Some(block)) => block.states[at],
            _ => State::ABSENT,
        }
    }

    pub(super) fn set(&mut self, page: u32, state: State) {
        let (block, at) = place(page);
        if block >= self.blocks.len() {
            self.blocks.resize_with(block + 1, || None);
        }
        let block = self.blocks[block].get_or_insert_with(|| {
            Box::new(Block {
                present: [0; WORDS],
                states: [State::ABSENT; PAGES_PER_BLOCK],
            })
        });
        block.states[at] = state;
        let (word, bit) = (at / 64, 1 << (at % 64));
        if state == State::ABSENT {
            block.present[word] &= !bit;
        } else {
            block.present[word] |= bit;
        }
    }

    /// Appends those of 2^`order` pages from `first` on, a region's, of which the blade has something.
    pub(super) fn of_region(&self, first: u32, order: u8, out: &mut Vec<u32>) {
        let (number, at) = place(first);
        let Some(Some(block)) = self.blocks.get(number) else {
            return;
        };
        let pages = 1usize << order;
        for word in at / 64..(at + pages).div_ceil(64) {
            let mut bits = block.present[word];
            if pages < 64 {
                bits &= ((1u64 << pages) - 1) << (at % 64);
            }
            while bits != 0 {
                let place = word * 64 + bits.trailing_zeros() as usize;
                out.push((number * PAGES_PER_BLOCK + place) as u32);
                bits &= bits - 1;
            }
        }
    }

    /// All of which the blade has something, with what it has.
    #[cfg(test)]
    pub(super) fn all(&self) -> Vec<(u32, State)> {
        let mut pages = Vec::new();
        for number in 0..self.blocks.len() {
            self.of_region((number * PAGES_PER_BLOCK) as u32, 9, &mut pages);
        }
        pages
            .into_iter()
            .map(|page| (page, self.get(page)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_pages_of_a_region_are_found(
            set in prop::collection::vec((0..2000u32, any::<bool>()), 0..300), page in 0..2000u32, order in 0..=9u8,
        ) {
            let mut pages = Pages::default();
            let mut expected = BTreeSet::new();
            for (page, is_there) in set {
                if is_there {
                    pages.set(page, State::new(Kind::Shared, false, 7));
                    expected.insert(page);
                } else {
                    pages.set(page, State::ABSENT);
                    expected.remove(&page);
                }
            }
            let first = page >> order << order;
            let mut found = Vec::new();
            pages.of_region(first, order, &mut found);
            let expected: Vec<_> = expected.range(first..first + (1 << order)).copied().collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_state_has_what_it_was_made_of() {
        for kind in [
            Kind::Reading,
            Kind::Acquiring,
            Kind::Shared,
            Kind::Upgrading,
            Kind::Modified,
        ] {
            let state = State::new(kind, true, 12_345);
            assert_eq!(
                (state.kind(), state.value(), state.is_dirty()),
                (kind, 12_345, true)
            );
            assert_eq!(State::new(kind, false, u64::MAX).kind(), kind);
        }
        assert!(State::new(Kind::Modified, false, 0).is_dirty());
        assert!(!State::new(Kind::Shared, false, 0).is_dirty());
    }
}
