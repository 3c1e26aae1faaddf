//! Memory that memory blades offer, and addresses for it: which of both is given out, and which memory must be zeroed
//! before it is given out again.
//!
//! Each memory blade has the slice of the window that its number names (512 GiB), and an address's place in the slice is
//! its place in the blade's memory: the address is *at home* there. So the translation of a whole slice is one LPM
//! prefix (MIND, SOSP 2021, section 4.1). A vma that has room at home, in one piece, is put there. One that has not is
//! put together of pieces of memory wherever some is free, of any blades, at addresses that are at home nowhere, as far
//! as there are such. Pieces are powers of two, the largest that there is and that is wanted first, each from the smallest
//! free range that has it: so addresses are as aligned as lengths, and a piece costs one entry of the translation table
//! that is longer than a slice's.
//!
//! A length is rounded up to [`GRANULE`], the initial region, so that no region spans two vmas, or two pieces of one. Its
//! *alignment* is the largest power of two that the length has in it, so that a vma of 2^n pages is one prefix of the
//! protection table, and any vma is as few prefixes as its length allows, one for each bit of its number of pages (section
//! 4.2); only the length itself is taken. Where no place is so aligned, any place will do: more prefixes are better than
//! no memory. The smallest free range that is large enough is taken.
//!
//! The blade is one of the least loaded ones: of which the smallest part is in use (section 4.1), or at most a 32nd more
//! than that. Of these, the one with the smallest such range is taken, so that ranges of several blades are as good as
//! those of one: less room is lost to fragments, and loads are as good as even.

use std::{cmp::Ordering, collections::BTreeMap};

use mind_common::{
    addr::{
        INITIAL_REGION_ORDER, PAGE_SHIFT, PAGE_SIZE, SLICE_SHIFT, Va, WINDOW_BASE, WINDOW_SIZE,
    },
    id::MAX_BLADES,
};
use serde::{Deserialize, Serialize};

use super::ranges::{Ranges, fit};

/// Bytes in which memory is given out.
pub const GRANULE: u64 = (PAGE_SIZE as u64) << INITIAL_REGION_ORDER;

/// Bytes of a slice: most that one blade can have.
pub const SLICE_SIZE: u64 = 1 << SLICE_SHIFT;

const _: () = assert!(SLICE_SIZE.is_multiple_of(GRANULE));

/// Most pieces of one vma.
pub const MOST_PIECES: usize = 256;

/// A blade is loaded as another one is if it is by less than one of so many parts more than that.
const LIKENESS: u128 = 32;

/// Why there is no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoMemory {
    /// Nothing was asked for.
    #[error("the length is 0")]
    Empty,
    /// More than there are addresses for.
    #[error("{length} bytes are more than there are addresses for, {WINDOW_SIZE}")]
    TooLong {
        /// What was asked for, in bytes.
        length: u64,
    },
    /// All blades together do not have it.
    #[error("the memory blades do not have {length} bytes: {free} are free")]
    Full {
        /// What was asked for, in bytes.
        length: u64,
        /// What is free, in bytes.
        free: u64,
    },
    /// It is free in too many pieces.
    #[error(
        "{length} bytes are free in more than {MOST_PIECES} pieces, or no range of addresses is that long"
    )]
    Scattered {
        /// What was asked for, in bytes.
        length: u64,
    },
    /// The blades do not have it before memory that was freed is zeroed.
    #[error("the memory blades do not have {length} bytes until memory that was freed is zeroed")]
    Zeroing {
        /// What was asked for, in bytes.
        length: u64,
    },
}

/// A range of one memory blade's memory: whole granules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Extent {
    /// The memory blade.
    pub blade: u8,
    /// Bytes from the start of the blade's memory.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

impl Extent {
    /// The address that is at home where it begins.
    pub const fn home(self) -> u64 {
        WINDOW_BASE + ((self.blade as u64) << SLICE_SHIFT) + self.offset
    }

    /// The first of its pages, counted from the start of the blade's memory.
    pub const fn first_page(self) -> u64 {
        self.offset >> PAGE_SHIFT
    }

    /// Its pages.
    pub const fn pages(self) -> u64 {
        self.length >> PAGE_SHIFT
    }
}

/// A range of addresses, and the memory of one blade that keeps their pages, in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Piece {
    /// The first address.
    pub va: u64,
    /// The memory.
    pub extent: Extent,
}

impl Piece {
    /// The address after the last.
    pub const fn end(self) -> u64 {
        self.va + self.extent.length
    }

    /// Whether the addresses are at home in the memory.
    pub const fn is_home(self) -> bool {
        self.va == self.extent.home()
    }

    /// Whether it has the address.
    pub const fn contains(self, va: Va) -> bool {
        self.va <= va.0 && va.0 < self.end()
    }

    /// What of it is at `from..to`, if anything is.
    pub fn part(self, from: u64, to: u64) -> Option<Self> {
        let (from, to) = (from.max(self.va), to.min(self.end()));
        let extent = Extent {
            offset: self.extent.offset + from.checked_sub(self.va)?,
            length: to.checked_sub(from).filter(|length| *length > 0)?,
            ..self.extent
        };
        Some(Self { va: from, extent })
    }
}

/// The memory of one blade. Offsets and lengths are bytes, multiples of [`GRANULE`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slice {
    capacity: u64,
    used: u64,
    unclean: u64,
    /// Free, and so are the addresses that are at home there.
    free: Ranges,
    /// Free, while a piece has the addresses that are at home there.
    stray: Ranges,
}

impl Slice {
    /// Bytes in use; not those that are being zeroed.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Bytes in all.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes that were freed and are not zeroed yet.
    pub fn unclean(&self) -> u64 {
        self.unclean
    }

    /// Bytes that can be given out.
    pub fn free(&self) -> u64 {
        self.free.total() + self.stray.total()
    }

    /// Compares by which part of each is in use.
    fn compare_load(&self, other: &Self) -> Ordering {
        let (load, other) = self.loads(other);
        load.cmp(&other)
    }

    /// Whether no more is in use than of another one, or as good as no more.
    fn is_loaded_like(&self, other: &Self) -> bool {
        let (load, other) = self.loads(other);
        load <= other + other / LIKENESS
    }

    /// The parts of this one and of another one that are in use, by one scale.
    fn loads(&self, other: &Self) -> (u128, u128) {
        // A part is a fraction: used / capacity. Products of two lengths of up to 2^39 bytes are exact.
        let scaled = |used: u64, capacity: u64| u128::from(used) * u128::from(capacity);
        (
            scaled(self.used, other.capacity),
            scaled(other.used, self.capacity),
        )
    }
}

/// The memory of all blades, and the addresses of the window.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Memory {
    slices: BTreeMap<u8, Slice>,
    /// Addresses that no piece has, and at home in no memory that is free.
    bare: Ranges,
}

impl Default for Memory {
    /// No blade has joined.
    fn default() -> Self {
        let mut bare = Ranges::default();
        bare.join(WINDOW_BASE, WINDOW_SIZE);
        Self {
            slices: BTreeMap::new(),
            bare,
        }
    }
}

impl Memory {
    /// A memory blade joins with so many bytes; what exceeds a slice or is no whole granule is left out. One that has
    /// been here keeps what is given out of it.
    pub fn add(&mut self, blade: u8, capacity: u64) {
        debug_assert!(usize::from(blade) < MAX_BLADES);
        if self.slices.contains_key(&blade) {
            return;
        }
        let capacity = capacity.min(SLICE_SIZE) / GRANULE * GRANULE;
        let slice = Slice {
            capacity,
            ..Slice::default()
        };
        self.slices.insert(blade, slice);
        self.give_memory(Extent {
            blade,
            offset: 0,
            length: capacity,
        });
    }

    /// A blade's memory, if it has joined.
    pub fn slice(&self, blade: u8) -> Option<&Slice> {
        self.slices.get(&blade)
    }

    /// Finds `length` bytes at addresses one after the other, on blades of which `is_here` is true: in one piece if
    /// some blade has that, on the least loaded of them; otherwise in several. The pieces are in the order of their
    /// addresses.
    ///
    /// # Errors
    ///
    /// See [`NoMemory`].
    pub fn allocate(
        &mut self,
        length: u64,
        is_here: impl Fn(u8) -> bool,
    ) -> Result<Vec<Piece>, NoMemory> {
        if length == 0 {
            return Err(NoMemory::Empty);
        }
        if length > WINDOW_SIZE {
            return Err(NoMemory::TooLong { length });
        }
        let taken = length.next_multiple_of(GRANULE);
        // A blade without a whole granule has no part that could be in use.
        let here = self
            .slices
            .iter()
            .filter(|(blade, slice)| slice.capacity > 0 && is_here(**blade));
        let mut order: Vec<(u8, &Slice)> = here.map(|(blade, slice)| (*blade, slice)).collect();
        order.sort_by(|(_, slice), (_, other)| slice.compare_load(other));
        let found = [1 << taken.ilog2(), GRANULE]
            .into_iter()
            .find_map(|align| find(&order, |slice| slice.free.find(taken, align)));
        if let Some((blade, offset)) = found {
            let extent = Extent {
                blade,
                offset,
                length: taken,
            };
            let piece = Piece {
                va: extent.home(),
                extent,
            };
            self.take(piece);
            return Ok(vec![piece]);
        }
        let sum = |of: fn(&Slice) -> u64| order.iter().map(|(_, slice)| of(slice)).sum::<u64>();
        let (free, unclean) = (sum(Slice::free), sum(Slice::unclean));
        let pieces = match free >= taken {
            true => self.put_together(taken, &is_here),
            false => None,
        };
        match pieces {
            Some(pieces) => Ok(pieces),
            // What is zeroed makes pieces longer, and addresses free.
            None if unclean > 0 && free + unclean >= taken => Err(NoMemory::Zeroing { length }),
            None if free >= taken => Err(NoMemory::Scattered { length }),
            None => Err(NoMemory::Full { length, free }),
        }
    }

    /// Pieces of so many bytes in all, at addresses one after the other; the blades that are here have as much.
    fn put_together(&mut self, length: u64, is_here: &impl Fn(u8) -> bool) -> Option<Vec<Piece>> {
        let start = self.find_addresses(length)?;
        let mut pieces = Vec::new();
        // What is at home in free memory stays there.
        for (blade, slice) in self.slices.iter().filter(|(blade, _)| is_here(**blade)) {
            let slice_start = WINDOW_BASE + (u64::from(*blade) << SLICE_SHIFT);
            let from = start.max(slice_start);
            let to = (start + length).min(slice_start + SLICE_SIZE);
            if from < to {
                let parts = slice.free.within(from - slice_start, to - from);
                pieces.extend(parts.into_iter().map(|(offset, length)| Piece {
                    va: slice_start + offset,
                    extent: Extent {
                        blade: *blade,
                        offset,
                        length,
                    },
                }));
            }
        }
        for piece in &pieces {
            self.take_memory(piece.extent);
        }
        let mut homes = pieces.clone().into_iter().peekable();
        let mut va = start;
        while va < start + length {
            if let Some(home) = homes.next_if(|home| home.va == va) {
                va = home.end();
                continue;
            }
            let gap = homes.peek().map_or(start + length, |home| home.va) - va;
            let extent = self
                .part(gap, is_here)
                .filter(|_| pieces.len() < MOST_PIECES);
            let Some(extent) = extent else {
                for piece in &pieces {
                    self.give_memory(piece.extent);
                }
                return None;
            };
            self.take_memory(extent);
            pieces.push(Piece { va, extent });
            va += extent.length;
        }
        self.take_addresses(start, length);
        for piece in &pieces {
            self.count(piece.extent);
        }
        pieces.sort_unstable();
        Some(pieces)
    }

    /// Free memory of blades that are here, of the largest power of two that there is in one range and is not more than
    /// `most` bytes.
    fn part(&self, most: u64, is_here: &impl Fn(u8) -> bool) -> Option<Extent> {
        let here = self.slices.iter().filter(|(blade, _)| is_here(**blade));
        let mut order: Vec<(u8, &Slice)> = here.map(|(blade, slice)| (*blade, slice)).collect();
        let longest = order.iter().filter_map(|(_, slice)| {
            let longest = slice.free.longest().max(slice.stray.longest())?;
            Some(longest.0)
        });
        let length = 1 << longest.max()?.min(most).ilog2();
        order.sort_by(|(_, slice), (_, other)| slice.compare_load(other));
        let (blade, offset) = [length, GRANULE].into_iter().find_map(|align| {
            find(&order, |slice| {
                let free = slice.free.find(length, align);
                free.into_iter()
                    .chain(slice.stray.find(length, align))
                    .min()
            })
        })?;
        Some(Extent {
            blade,
            offset,
            length,
        })
    }

    /// Where so many addresses one after the other are free: at home nowhere if there are such, and aligned if possible.
    fn find_addresses(&self, length: u64) -> Option<u64> {
        let aligns = [1 << length.ilog2(), GRANULE];
        let bare = aligns
            .iter()
            .find_map(|align| self.bare.find(length, *align))
            .map(|(_, at)| at);
        if bare.is_some() {
            return bare;
        }
        let mut free = self.bare.clone();
        for (blade, slice) in &self.slices {
            for (offset, length) in slice.free.iter() {
                free.join(
                    WINDOW_BASE + (u64::from(*blade) << SLICE_SHIFT) + offset,
                    length,
                );
            }
        }
        let of = |align| free.iter().find_map(|range| fit(range, length, align));
        aligns.into_iter().find_map(of)
    }

    /// Takes a piece that an earlier controller gave out; whether its memory and its addresses were free.
    pub fn claim(&mut self, piece: Piece) -> bool {
        let Extent {
            blade,
            offset,
            length,
        } = piece.extent;
        let Some(slice) = self.slices.get(&blade) else {
            return false;
        };
        let sum = |parts: Vec<(u64, u64)>| parts.iter().map(|(_, length)| length).sum::<u64>();
        let has_memory =
            sum(slice.free.within(offset, length)) + sum(slice.stray.within(offset, length));
        let at_home = self.slices.iter().map(|(blade, slice)| {
            let free = home_parts(*blade, piece.va, length);
            free.map_or(0, |(offset, length)| sum(slice.free.within(offset, length)))
        });
        let has_addresses = at_home.sum::<u64>() + sum(self.bare.within(piece.va, length));
        let was_free = has_memory == length && has_addresses == length;
        if was_free {
            self.take(piece);
        }
        was_free
    }

    /// What was given out is not used any more, and has to be zeroed. Its addresses are not free before that.
    pub fn free(&mut self, piece: Piece) {
        if let Some(slice) = self.slices.get_mut(&piece.extent.blade) {
            slice.used -= piece.extent.length;
            slice.unclean += piece.extent.length;
        }
    }

    /// What was given out was never used: nothing has been written there.
    pub fn give_back(&mut self, piece: Piece) {
        if let Some(slice) = self.slices.get_mut(&piece.extent.blade) {
            slice.used -= piece.extent.length;
            self.give(piece);
        }
    }

    /// What was freed is zeroed.
    pub fn zeroed(&mut self, piece: Piece) {
        if let Some(slice) = self.slices.get_mut(&piece.extent.blade) {
            slice.unclean -= piece.extent.length;
            self.give(piece);
        }
    }

    fn take(&mut self, piece: Piece) {
        self.take_memory(piece.extent);
        self.take_addresses(piece.va, piece.extent.length);
        self.count(piece.extent);
    }

    fn count(&mut self, extent: Extent) {
        if let Some(slice) = self.slices.get_mut(&extent.blade) {
            slice.used += extent.length;
        }
    }

    fn give(&mut self, piece: Piece) {
        self.give_addresses(piece.va, piece.extent.length);
        self.give_memory(piece.extent);
    }

    /// Memory is not free any more. The addresses that are at home there are bare, unless a piece has them.
    fn take_memory(&mut self, extent: Extent) {
        let Some(slice) = self.slices.get_mut(&extent.blade) else {
            return;
        };
        let base = extent.home() - extent.offset;
        for (offset, length) in slice.free.take(extent.offset, extent.length) {
            self.bare.join(base + offset, length);
        }
        slice.stray.take(extent.offset, extent.length);
    }

    /// Memory is free. The addresses that are at home there are not bare any more.
    fn give_memory(&mut self, extent: Extent) {
        let Some(slice) = self.slices.get_mut(&extent.blade) else {
            return;
        };
        let base = extent.home() - extent.offset;
        let mut next = extent.offset;
        for (va, length) in self.bare.take(extent.home(), extent.length) {
            let offset = va - base;
            slice.stray.join(next, offset - next);
            slice.free.join(offset, length);
            next = offset + length;
        }
        slice.stray.join(next, extent.offset + extent.length - next);
    }

    /// A piece has addresses. Free memory in which they are at home is stray.
    fn take_addresses(&mut self, va: u64, length: u64) {
        self.bare.take(va, length);
        for (blade, slice) in &mut self.slices {
            if let Some((offset, length)) = home_parts(*blade, va, length) {
                for (offset, length) in slice.free.take(offset, length) {
                    slice.stray.join(offset, length);
                }
            }
        }
    }

    /// No piece has these addresses any more. They are bare, unless memory is free in which they are at home.
    fn give_addresses(&mut self, va: u64, length: u64) {
        let mut bare = Ranges::default();
        bare.join(va, length);
        for (blade, slice) in &mut self.slices {
            if let Some((offset, length)) = home_parts(*blade, va, length) {
                for (offset, length) in slice.stray.take(offset, length) {
                    slice.free.join(offset, length);
                    bare.take(
                        WINDOW_BASE + (u64::from(*blade) << SLICE_SHIFT) + offset,
                        length,
                    );
                }
            }
        }
        for (va, length) in bare.iter() {
            self.bare.join(va, length);
        }
    }
}

/// Where to take `length` bytes that begin at a multiple of `align`, from blades in the order of their loads.
fn find(order: &[(u8, &Slice)], fit: impl Fn(&Slice) -> Option<(u64, u64)>) -> Option<(u8, u64)> {
    let (_, least) = order.first()?;
    let alike = order.partition_point(|(_, slice)| slice.is_loaded_like(least));
    let (alike, others) = order.split_at(alike);
    let place = |(blade, slice): &(u8, &Slice)| {
        let (size, at) = fit(slice)?;
        Some((size, *blade, at))
    };
    let smallest = alike.iter().filter_map(place).min();
    let found = smallest.or_else(|| others.iter().find_map(place));
    found.map(|(_, blade, at)| (blade, at))
}

/// Which of the addresses are in the blade's slice: where they are at home in its memory, and how many bytes these are.
fn home_parts(blade: u8, va: u64, length: u64) -> Option<(u64, u64)> {
    let start = WINDOW_BASE + (u64::from(blade) << SLICE_SHIFT);
    let (from, to) = (va.max(start), (va + length).min(start + SLICE_SIZE));
    (from < to).then(|| (from - start, to - from))
}

#[cfg(test)]
mod tests;
