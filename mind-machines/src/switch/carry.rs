//! How the slots of a switch go over into another one, with more slots or fewer, that takes its place.
//!
//! No packet is in either of them meanwhile: the old one takes none any more, and those that it had taken have left it.
//! What comes is lost as on the way, and blades ask again. A slot that is in use keeps its number where there is such a
//! number, and gets that of a free slot otherwise; word, origin and queue stay. An answer to an invalidation that names a
//! slot's old number is refused as late, and the blade that waits for it has the invalidation sent again, with the new
//! one.
//!
//! Slots that are in no use begin with the latest episode of all, so that no packet on its way names an episode that a
//! slot is still to come to.

use std::collections::BTreeSet;

use mind_common::{
    directory::{State, Word},
    serial::Episode,
};

use super::{
    Switch,
    slot::{Slot, index, number},
};

/// More slots are in use than the other switch has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{used} directory slots are in use, and there are to be {wanted}")]
pub struct TooFew {
    /// How many are in use.
    pub used: u32,
    /// How many the other one has.
    pub wanted: u32,
}

/// Which slot becomes which.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carry {
    /// The numbers that slots in use have, and those that they get; by the former.
    slots: Vec<(u32, u32)>,
    /// The episode that slots in no use begin with.
    first: Episode,
}

impl Carry {
    /// Of all slots of the old switch, by number; the other one has the numbers 1 to `wanted`.
    ///
    /// # Errors
    ///
    /// When more are in use.
    pub fn new(found: impl IntoIterator<Item = (u32, Word)>, wanted: u32) -> Result<Self, TooFew> {
        let mut first: Option<Episode> = None;
        let mut used = BTreeSet::new();
        for (number, word) in found {
            let episode = word.episode();
            if first.is_none_or(|first| episode.is_after(first)) {
                first = Some(episode);
            }
            if word.state() != State::Free {
                used.insert(number);
            }
        }
        let count = u32::try_from(used.len()).unwrap_or(u32::MAX);
        if count > wanted {
            return Err(TooFew {
                used: count,
                wanted,
            });
        }
        let mut others = (1..=wanted).filter(|number| !used.contains(number));
        let slots = used.iter().filter_map(|&number| match number <= wanted {
            true => Some((number, number)),
            // There are as many as are wanted.
            false => others.next().map(|other| (number, other)),
        });
        Ok(Self {
            slots: slots.collect(),
            first: first.unwrap_or_default(),
        })
    }

    /// The numbers of slots in use, and what they become; by the former.
    pub fn slots(&self) -> &[(u32, u32)] {
        &self.slots
    }

    /// The number that the slot `number` gets; `None` for one that is in no use.
    pub fn of(&self, number: u32) -> Option<u32> {
        let at = self.slots.binary_search_by_key(&number, |(old, _)| *old);
        at.ok().map(|at| self.slots[at].1)
    }

    /// The word that a slot in no use begins with.
    pub fn free_word(&self) -> Word {
        Word::default().with_episode(self.first)
    }
}

impl Switch {
    /// Makes it one with `slots` slots, which has what it had. No packet is in it.
    ///
    /// # Errors
    ///
    /// When more slots are in use; then nothing has changed.
    pub fn carry_over(&mut self, slots: usize) -> Result<(), TooFew> {
        let words = self.slots.iter().enumerate();
        let words = words.map(|(index, slot)| (number(index), slot.word));
        let carry = Carry::new(words, u32::try_from(slots).unwrap_or(u32::MAX))?;
        let free = Slot {
            word: carry.free_word(),
            ..Slot::default()
        };
        let mut other = vec![free; slots];
        self.free = (0..slots).collect();
        for (old, new) in carry.slots() {
            other[index(*new)] = self.slots[index(*old)];
            self.free.remove(&index(*new));
        }
        self.slots = other;
        self.retired.clear();
        self.is_opening = true;
        self.is_told = false;
        // A page of a slot in no use finds none.
        self.tables_mut()
            .pages
            .retain(|_, slot| match carry.of(number(*slot)) {
                Some(new) => {
                    *slot = index(new);
                    true
                }
                None => false,
            });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use mind_common::{
        addr::{Region, Va, WINDOW_BASE},
        id::{BladeId, BladeSet},
    };

    use super::*;

    fn word(state: State, episode: u32) -> Word {
        Word::new(
            state,
            BladeId::from_low_bits(0),
            Episode::new(episode),
            BladeSet::EMPTY,
        )
    }

    #[test]
    fn slots_keep_their_numbers_or_get_the_lowest_that_are_free() {
        let found = [
            (1, word(State::Shared, 3)),
            (2, word(State::Free, 9)),
            (3, word(State::Modified, 4)),
            (4, word(State::Free, 0)),
            (5, word(State::Locked, 8)),
        ];
        let carry = Carry::new(found, 3).unwrap();
        assert_eq!(carry.slots(), [(1, 1), (3, 3), (5, 2)]);
        assert_eq!(carry.of(5), Some(2));
        assert_eq!(carry.of(2), None);
        assert_eq!(carry.free_word(), word(State::Free, 9));
        let more = Carry::new(found, 100).unwrap();
        assert_eq!(more.slots(), [(1, 1), (3, 3), (5, 5)]);
        let too_few = Carry::new(found, 2).unwrap_err();
        assert_eq!(too_few, TooFew { used: 3, wanted: 2 });
    }

    #[test]
    fn a_switch_has_what_it_had() {
        let mut switch = Switch::new(4);
        let region = Region::containing(Va(WINDOW_BASE), 2).unwrap();
        switch.open(3, region, word(State::Shared, 0));
        switch.assign(region, Some(3));
        let before = switch.slots()[3];
        switch.carry_over(2).unwrap();
        assert_eq!(
            switch.slots(),
            [
                before,
                Slot {
                    word: word(State::Free, 1),
                    ..Slot::default()
                }
            ]
        );
        assert_eq!(switch.tables().slot(region.base()), Some(0));
        assert_eq!(switch.free, BTreeSet::from([1]));
        let unchanged = switch.clone();
        assert_eq!(switch.carry_over(0), Err(TooFew { used: 1, wanted: 0 }));
        assert_eq!(switch, unchanged);
        switch.carry_over(8).unwrap();
        assert_eq!(switch.free, (1..8).collect());
    }
}
