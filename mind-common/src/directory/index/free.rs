//! The lists of slots, heads, tables and groups that are in no use: packets and the controller take from them, and give
//! back, at the same time.
//!
//! Each is a stack: its top names the topmost thing, and each thing the next one.

use super::CLOSED;
use crate::table::FreeKind;

/// The top of a list of things that are not in use, each of which has the number of the next.
///
/// ```text
/// bit  63..32               31..0
///      changes, wrapping    the topmost one, 0 for none, all ones for a closed list
/// ```
///
/// To take one: read the top, then the next number at the topmost, then swap; to give one back: write the top's number
/// at it, then swap. Each swap counts up, so that one fails where others have taken and given back the same meanwhile.
///
/// A list can be [closed](Self::closed): then nothing is taken from it, and nothing that is given back gets into it. What
/// was in it, and what is given back meanwhile, is for the controller to find.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct FreeTop(u64);

impl FreeTop {
    /// The top that is stored as `raw`.
    #[inline(always)]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// As it is stored.
    #[inline(always)]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The topmost one; 0 for none, and while the list is closed.
    #[inline(always)]
    pub const fn number(self) -> u32 {
        if self.is_closed() { 0 } else { self.0 as u32 }
    }

    /// Whether the list is closed.
    #[inline(always)]
    pub const fn is_closed(self) -> bool {
        self.0 as u32 == CLOSED
    }

    /// The next top, where the list is closed.
    #[inline(always)]
    #[must_use]
    pub const fn closed(self) -> Self {
        self.with(CLOSED)
    }

    /// The next top, where `number` is the topmost.
    #[inline(always)]
    #[must_use]
    pub const fn with(self, number: u32) -> Self {
        let changes = ((self.0 >> 32) as u32).wrapping_add(1);
        Self((changes as u64) << 32 | number as u64)
    }
}

/// Where lists are. Loads and swaps are atomic.
pub trait Lists {
    /// Where the top of a list is.
    type TopAt: Copy;

    /// What is there.
    fn top(&self, at: Self::TopAt) -> FreeTop;
    /// Stores `new` if `old` is there; whether it was.
    fn swap_top(&self, at: Self::TopAt, old: FreeTop, new: FreeTop) -> bool;
    /// The number of the next one, as it stands in one that is in the list. Anything if it has just been taken.
    fn next(&self, kind: FreeKind, number: u32) -> u32;
    /// Writes it to one that nothing leads to, and that is empty otherwise.
    fn set_next(&self, kind: FreeKind, number: u32, next: u32);
}

/// What came of an attempt to take one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// This one is the taker's own.
    One(u32),
    /// None is left, or the list is closed.
    Nothing,
    /// Another has changed the list meanwhile.
    Changed,
}

/// Tries to take one from a list of that kind.
#[inline(always)]
pub fn try_take<L: Lists>(lists: &L, at: L::TopAt, kind: FreeKind) -> Taken {
    let top = lists.top(at);
    let number = top.number();
    if number == 0 {
        return Taken::Nothing;
    }
    if lists.swap_top(at, top, top.with(lists.next(kind, number))) {
        Taken::One(number)
    } else {
        Taken::Changed
    }
}

/// What came of an attempt to give one back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// It is in the list.
    Done,
    /// It is in no list: that one is closed.
    Closed,
    /// Another has changed the list meanwhile.
    Changed,
}

/// Tries to give one to a list of that kind, which nothing leads to.
#[inline(always)]
pub fn try_give<L: Lists>(lists: &L, at: L::TopAt, kind: FreeKind, number: u32) -> Given {
    let top = lists.top(at);
    if top.is_closed() {
        return Given::Closed;
    }
    lists.set_next(kind, number, top.number());
    if lists.swap_top(at, top, top.with(number)) {
        Given::Done
    } else {
        Given::Changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_top_is_never_the_same_again() {
        let first = FreeTop::default().with(4);
        let again = first.with(9).with(4);
        assert_eq!(first.number(), again.number());
        assert_ne!(first, again);
        let last = FreeTop::from_raw(u64::MAX);
        assert_eq!(last.with(1).raw(), 1);
    }

    #[test]
    fn a_closed_list_has_no_topmost() {
        let closed = FreeTop::default().with(4).closed();
        assert!(closed.is_closed() && !closed.with(4).is_closed());
        assert_eq!(closed.number(), 0);
        assert_eq!(closed.with(4).number(), 4);
    }
}
