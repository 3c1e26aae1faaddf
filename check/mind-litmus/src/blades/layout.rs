//! Where the variables of a test's copies lie in shared memory.
//!
//! Memory is an arena of regions: the 16 KiB, four pages, that change hands together. A copy has
//! regions of its own while it runs. Within them, pages and places in a page are drawn at random;
//! each variable has a cache line of its own, and each page that holds a variable has a line beside
//! them that no variable lies on, by which the page can be acquired without accessing the test's
//! variables.

use std::fmt;

use fastrand::Rng;
use mind_common::addr::{INITIAL_REGION_ORDER, PAGE_SIZE};
use serde::{Deserialize, Serialize};

/// Pages of a region.
pub const REGION_PAGES: usize = 1 << INITIAL_REGION_ORDER;
/// Bytes of a region.
pub const REGION: usize = PAGE_SIZE * REGION_PAGES;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Lines of a page.
const LINES: usize = PAGE_SIZE / LINE;
/// Bytes of the largest variable, to which all are aligned.
const WORD: usize = 8;

/// Regions of the arena.
pub const ARENA: usize = 1024;
/// Bytes of the arena.
pub const ARENA_BYTES: usize = ARENA * REGION;
/// The most copies that are in the arena at once.
pub const MOST_COPIES: usize = 256;

const _: () = assert!(REGION_PAGES >= 2, "two variables on two pages of a region");

/// How the variables of a copy lie to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// Each on a page in a region of its own: no variable goes with another.
    OwnPage,
    /// On two pages of one region, by turns: they are cached one by one and invalidated together.
    OneRegion,
    /// On one page: they go together always.
    OnePage,
}

/// A test that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the test `{test}` has {variables} variables; with the layout {layout} there is room for {most}"
)]
pub struct TooManyVariables {
    /// Its name.
    pub test: String,
    /// How many it has.
    pub variables: usize,
    /// Where they should lie.
    pub layout: Layout,
    /// How many there may be.
    pub most: usize,
}

/// Where the variables of a copy lie. All places are bytes from the arena's beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Each variable's, in the order of the test's memory.
    pub variables: Vec<usize>,
    /// A word on each page that holds a variable, beside the variables.
    pub neighbours: Vec<usize>,
}

impl Layout {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::OwnPage, Self::OneRegion, Self::OnePage];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OwnPage => "own-page",
            Self::OneRegion => "one-region",
            Self::OnePage => "one-page",
        }
    }

    /// Regions that a copy of so many variables takes.
    const fn regions(self, variables: usize) -> usize {
        match self {
            Self::OwnPage if variables > 1 => variables,
            Self::OwnPage | Self::OneRegion | Self::OnePage => 1,
        }
    }

    /// The most variables that a copy may have.
    const fn most_variables(self) -> usize {
        // One line of each page is for the neighbour.
        match self {
            Self::OwnPage => ARENA,
            Self::OneRegion => 2 * (LINES - 1),
            Self::OnePage => LINES - 1,
        }
    }

    /// How many copies of a test of so many variables are in the arena at once.
    ///
    /// # Errors
    ///
    /// If there is no room for one.
    pub fn copies(self, test: &str, variables: usize) -> Result<usize, TooManyVariables> {
        if variables > self.most_variables() {
            return Err(TooManyVariables {
                test: test.to_owned(),
                variables,
                layout: self,
                most: self.most_variables(),
            });
        }
        Ok((ARENA / self.regions(variables)).min(MOST_COPIES))
    }

    /// Draws the places of so many copies of so many variables each, which share no region.
    ///
    /// # Panics
    ///
    /// If there is no room: see [`copies`](Self::copies).
    pub fn places(self, copies: usize, variables: usize, random: &mut Rng) -> Vec<Place> {
        let each = self.regions(variables);
        assert!(
            copies * each <= ARENA && variables <= self.most_variables(),
            "{copies} copies of {variables} variables do not fit"
        );
        let mut regions: Vec<usize> = (0..ARENA).collect();
        random.shuffle(&mut regions);
        regions
            .chunks(each)
            .take(copies)
            .map(|regions| self.place(regions, variables, random))
            .collect()
    }

    fn place(self, regions: &[usize], variables: usize, random: &mut Rng) -> Place {
        // The pages that variables take by turns.
        let mut pages: Vec<usize> = Vec::new();
        for region in regions {
            let mut of_region: Vec<usize> = (0..REGION_PAGES).collect();
            random.shuffle(&mut of_region);
            let taken = match self {
                Self::OneRegion if variables > 1 => 2,
                Self::OwnPage | Self::OneRegion | Self::OnePage => 1,
            };
            let first = region * REGION;
            pages.extend(
                of_region[..taken]
                    .iter()
                    .map(|page| first + page * PAGE_SIZE),
            );
        }
        let mut place = Place {
            variables: vec![0; variables],
            neighbours: Vec::new(),
        };
        for (turn, page) in pages.iter().enumerate() {
            let mut lines: Vec<usize> = (0..LINES).collect();
            random.shuffle(&mut lines);
            let mut words = lines
                .into_iter()
                .map(|line| page + line * LINE + random.usize(..LINE / WORD) * WORD);
            let of_page = place.variables.iter_mut().skip(turn).step_by(pages.len());
            // In this order: the zip takes no word more than there are variables.
            for (variable, word) in of_page.zip(words.by_ref()) {
                *variable = word;
            }
            place.neighbours.extend(words.next());
        }
        place
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn pages_of(of: &[usize]) -> BTreeSet<usize> {
        of.iter().map(|place| place / PAGE_SIZE).collect()
    }

    fn regions_of(of: &[usize]) -> BTreeSet<usize> {
        of.iter().map(|place| place / REGION).collect()
    }

    #[test]
    fn variables_lie_as_their_layout_says() {
        let mut random = Rng::with_seed(1);
        for layout in Layout::ALL {
            for variables in 1..=6 {
                let copies = layout.copies("any", variables).unwrap();
                for place in layout.places(copies, variables, &mut random) {
                    let Place {
                        variables: of,
                        neighbours,
                    } = &place;
                    let (pages, regions) = (pages_of(of), regions_of(of));
                    let expected = match layout {
                        Layout::OwnPage => (variables, variables),
                        Layout::OneRegion => (variables.min(2), 1),
                        Layout::OnePage => (1, 1),
                    };
                    assert_eq!((pages.len(), regions.len()), expected, "{layout} {of:?}");
                    assert_eq!(pages_of(neighbours), pages, "{layout}");
                    let all = of.iter().chain(neighbours);
                    let lines: BTreeSet<_> = all.clone().map(|place| place / LINE).collect();
                    assert_eq!(lines.len(), of.len() + neighbours.len(), "a line each");
                    for place in all {
                        assert!(place.is_multiple_of(WORD) && place + WORD <= ARENA_BYTES);
                    }
                }
            }
        }
    }

    #[test]
    fn copies_share_no_region_and_lie_in_any_order() {
        for layout in Layout::ALL {
            let places = layout.places(100, 3, &mut Rng::with_seed(2));
            let mut taken = BTreeSet::new();
            let mut firsts = Vec::new();
            for place in &places {
                firsts.push(place.variables[0]);
                for region in regions_of(&place.variables) {
                    assert!(taken.insert(region), "{layout}: {region} is taken");
                }
            }
            assert!(!firsts.is_sorted(), "{layout}");
        }
    }

    #[test]
    fn what_fits_is_told_before() {
        assert_eq!(Layout::OwnPage.copies("any", 0), Ok(MOST_COPIES));
        assert_eq!(Layout::OwnPage.copies("any", 4), Ok(256));
        assert_eq!(Layout::OwnPage.copies("any", 5), Ok(204));
        assert_eq!(Layout::OwnPage.copies("any", ARENA), Ok(1));
        for layout in Layout::ALL {
            let most = layout.most_variables();
            let copies = layout.copies("any", most).unwrap();
            let places = layout.places(copies, most, &mut Rng::with_seed(3));
            let distinct: BTreeSet<_> = places[0].variables.iter().collect();
            assert_eq!(distinct.len(), most);
            let error = layout.copies("much", most + 1).unwrap_err();
            let text = error.to_string();
            assert!(
                text.starts_with("the test `much` has") && text.ends_with(&most.to_string()),
                "{text}"
            );
        }
    }
}
