//! The table of what this process has mapped in the window: areas, each a list of pieces that differ in what may be done
//! with them. Pure: nothing here maps anything.

use std::{collections::BTreeMap, ops::Range};

/// What may be done with a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Read and write.
    Write,
    /// Read.
    Read,
    /// Nothing.
    None,
    /// It is unmapped, though the area that it is part of still has others.
    Gone,
}

/// Where the memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// In the domain's memory.
    Domain,
    /// In this process's own, put there at a fork: a copy of what the parent has in its domain at this address.
    Process,
}

/// What an area was mapped for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The program called `mmap`.
    Program,
    /// A segment of the heap.
    Heap,
    /// One large block of the program, at this address.
    Block(u64),
}

/// A part of an area, up to where the next begins.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    start: u64,
    state: State,
}

/// An area.
#[derive(Clone, Debug)]
pub(crate) struct Area {
    end: u64,
    /// In order, at least one, neighbours of different states; the first begins where the area does.
    pieces: Vec<Piece>,
    /// Where its memory is.
    pub(crate) home: Home,
    /// What it is for.
    pub(crate) purpose: Purpose,
}

impl Area {
    /// Its pieces that overlap a range, cut to it.
    fn within(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, State)> {
        let ends = self.pieces.iter().skip(1).map(|piece| piece.start);
        let ends = ends.chain([self.end]);
        self.pieces
            .iter()
            .zip(ends)
            .filter_map(move |(piece, piece_end)| {
                let part = piece.start.max(range.start)..piece_end.min(range.end);
                (!part.is_empty()).then_some((part, piece.state))
            })
    }

    fn start(&self) -> u64 {
        self.pieces[0].start
    }

    /// Its addresses.
    pub(crate) fn range(&self) -> Range<u64> {
        self.start()..self.end
    }

    /// Its pieces.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (Range<u64>, State)> {
        self.within(self.range())
    }

    /// Sets the state of a range within it, of what is not gone.
    fn set(&mut self, range: &Range<u64>, state: State) {
        let all: Vec<_> = self.pieces().collect();
        let mut pieces: Vec<Piece> = Vec::with_capacity(all.len() + 2);
        let mut push = |start, state| {
            if pieces.last().is_none_or(|last| last.state != state) {
                pieces.push(Piece { start, state });
            }
        };
        for (part, before) in all {
            let changed = part.start.max(range.start)..part.end.min(range.end);
            if changed.is_empty() || before == State::Gone {
                push(part.start, before);
                continue;
            }
            if part.start < changed.start {
                push(part.start, before);
            }
            push(changed.start, state);
            if changed.end < part.end {
                push(changed.end, before);
            }
        }
        self.pieces = pieces;
    }

    fn is_gone(&self) -> bool {
        self.pieces.iter().all(|piece| piece.state == State::Gone)
    }
}

/// A part of an area, as a search finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) state: State,
    pub(crate) home: Home,
}

impl Part {
    /// Bytes.
    pub(crate) fn length(self) -> u64 {
        self.end - self.start
    }
}

/// The areas of a process, by their first address.
#[derive(Debug)]
pub(crate) struct Table(BTreeMap<u64, Area>);

impl Table {
    /// Without areas.
    pub(crate) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Adds one, readable and writable, that overlaps none.
    pub(crate) fn add(&mut self, range: Range<u64>, home: Home, purpose: Purpose) {
        let area = Area {
            end: range.end,
            pieces: vec![Piece {
                start: range.start,
                state: State::Write,
            }],
            home,
            purpose,
        };
        self.0.insert(range.start, area);
    }

    /// All of them.
    #[cfg(test)]
    fn areas(&self) -> impl Iterator<Item = &Area> {
        self.0.values()
    }

    /// Says of all of them where their memory is.
    pub(crate) fn set_home(&mut self, home: Home) {
        self.0.values_mut().for_each(|area| area.home = home);
    }

    /// The area that has this address.
    pub(crate) fn at(&self, address: u64) -> Option<&Area> {
        let (_, area) = self.0.range(..=address).next_back()?;
        (address < area.end).then_some(area)
    }

    /// The first addresses of the areas that overlap a range.
    fn overlapping(&self, range: &Range<u64>) -> Vec<u64> {
        let first = self.at(range.start).map_or(range.start, Area::start);
        let overlapping = self.0.range(first..range.end.max(first));
        overlapping.map(|(start, _)| *start).collect()
    }

    /// What of a range is mapped, in order.
    pub(crate) fn parts(&self, range: &Range<u64>) -> Vec<Part> {
        let areas = self
            .overlapping(range)
            .into_iter()
            .map(|start| &self.0[&start]);
        areas
            .flat_map(|area| {
                let mapped = area
                    .within(range.clone())
                    .filter(|(_, state)| *state != State::Gone);
                mapped.map(|(part, state)| Part {
                    start: part.start,
                    end: part.end,
                    state,
                    home: area.home,
                })
            })
            .collect()
    }

    /// What of a range is mapped, if that is all of it.
    pub(crate) fn whole(&self, range: &Range<u64>) -> Option<Vec<Part>> {
        let parts = self.parts(range);
        let bytes: u64 = parts.iter().map(|part| part.length()).sum();
        (bytes == range.end - range.start && bytes > 0).then_some(parts)
    }

    /// Sets the state of what is mapped in a range.
    pub(crate) fn set(&mut self, range: &Range<u64>, state: State) {
        for start in self.overlapping(range) {
            if let Some(area) = self.0.get_mut(&start) {
                area.set(range, state);
            }
        }
    }

    /// Takes a range away. Returns the areas of which nothing is left, and which are in the table no more.
    pub(crate) fn remove(&mut self, range: &Range<u64>) -> Vec<Area> {
        let mut gone = Vec::new();
        for start in self.overlapping(range) {
            let Some(area) = self.0.get_mut(&start) else {
                continue;
            };
            area.set(range, State::Gone);
            if area.is_gone() {
                gone.extend(self.0.remove(&start));
            }
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new();
        table.add(0x1000..0x9000, Home::Domain, Purpose::Program);
        table.add(0x9000..0xb000, Home::Domain, Purpose::Heap);
        table.add(0xd000..0xe000, Home::Process, Purpose::Block(0xd000));
        table
    }

    fn part(start: u64, end: u64, state: State) -> Part {
        let home = match start {
            0xd000.. => Home::Process,
            _ => Home::Domain,
        };
        Part {
            start,
            end,
            state,
            home,
        }
    }

    #[test]
    fn an_address_is_in_one_area_or_in_none() {
        let table = table();
        assert!(table.at(0xfff).is_none());
        assert_eq!(table.at(0x8fff).map(Area::range), Some(0x1000..0x9000));
        assert_eq!(table.at(0x9000).map(Area::range), Some(0x9000..0xb000));
        assert!(table.at(0xb000).is_none());
        assert_eq!(
            table.at(0xd123).map(|area| area.purpose),
            Some(Purpose::Block(0xd000))
        );
    }

    #[test]
    fn pieces_are_split_and_joined() {
        let mut table = table();
        table.set(&(0x3000..0xa000), State::Read);
        assert_eq!(
            table.parts(&(0..0x1_0000)),
            [
                part(0x1000, 0x3000, State::Write),
                part(0x3000, 0x9000, State::Read),
                part(0x9000, 0xa000, State::Read),
                part(0xa000, 0xb000, State::Write),
                part(0xd000, 0xe000, State::Write),
            ]
        );
        table.set(&(0x3000..0xa000), State::Write);
        let pieces = table.areas().map(|area| area.pieces().count());
        assert_eq!(pieces.collect::<Vec<_>>(), [1, 1, 1]);
    }

    #[test]
    fn a_range_is_whole_or_not() {
        let mut table = table();
        assert!(table.whole(&(0x2000..0xb000)).is_some());
        assert!(table.whole(&(0x2000..0xb001)).is_none());
        assert!(table.whole(&(0xc000..0xc000)).is_none());
        table.remove(&(0x4000..0x5000));
        assert!(table.whole(&(0x2000..0x4000)).is_some());
        assert!(table.whole(&(0x2000..0x6000)).is_none());
    }

    #[test]
    fn an_area_goes_with_its_last_piece() {
        let mut table = table();
        assert!(table.remove(&(0x0..0x2000)).is_empty());
        assert!(table.remove(&(0x3000..0x9000)).is_empty());
        // What is gone gets no state.
        table.set(&(0x1000..0x9000), State::None);
        assert_eq!(
            table.parts(&(0..0x9000)),
            [part(0x2000, 0x3000, State::None)]
        );
        let gone = table.remove(&(0x2000..0x3000));
        assert_eq!(gone.len(), 1);
        assert_eq!(gone[0].range(), 0x1000..0x9000);
        assert!(table.at(0x2000).is_none());
        let gone = table.remove(&(0x0..0x1_0000));
        assert_eq!(gone.len(), 2);
        assert_eq!(table.areas().count(), 0);
    }

    #[test]
    fn every_address_is_as_a_list_of_pages_says() {
        let mut table = Table::new();
        table.add(0..0x40, Home::Domain, Purpose::Program);
        table.add(0x40..0x60, Home::Domain, Purpose::Program);
        let mut pages = [State::Write; 0x60];
        let mut random = 1_u64;
        let mut next = move |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % below
        };
        for _ in 0..2000 {
            let start = next(0x60);
            let range = start..start + 1 + next(0x60 - start);
            let state = match next(40) {
                0 => State::Gone,
                1..13 => State::Write,
                13..27 => State::Read,
                _ => State::None,
            };
            match state {
                State::Gone => drop(table.remove(&range)),
                state => table.set(&range, state),
            }
            for page in &mut pages[range.start as usize..range.end as usize] {
                if *page != State::Gone {
                    *page = state;
                }
            }
            let mut found = [State::Gone; 0x60];
            for part in table.parts(&(0..0x60)) {
                found[part.start as usize..part.end as usize].fill(part.state);
            }
            assert_eq!(found, pages);
            if pages.iter().all(|page| *page == State::Gone) {
                table.add(0..0x40, Home::Domain, Purpose::Program);
                table.add(0x40..0x60, Home::Domain, Purpose::Program);
                pages = [State::Write; 0x60];
            }
        }
    }
}
