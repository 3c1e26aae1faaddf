//! Where in memory a generator's data lie: areas, each beginning at a block of 2 MiB, as allocations of that size would. So
//! two areas have no region in common, whatever the size of regions.

use mind_common::addr::PAGES_PER_BLOCK;

use super::{Kind, Spec};

/// Pages that follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Area {
    /// The number of the first.
    pub first: u32,
    /// How many.
    pub pages: u64,
}

impl Area {
    /// Whether it has the page.
    pub fn contains(&self, page: u32) -> bool {
        page >= self.first && u64::from(page - self.first) < self.pages
    }

    /// Its page of that number, which is below [`pages`](Self::pages).
    pub const fn page(&self, number: u64) -> u32 {
        self.first + number as u32
    }

    /// Of it, cut in `of` parts of nearly the same size, the part of that number; parts are empty where there are fewer
    /// pages.
    pub fn part(&self, number: usize, of: usize) -> Self {
        let (number, of) = (number as u64, of.max(1) as u64);
        let at = |number| self.pages * number / of;
        Self {
            first: self.page(at(number)),
            pages: at(number + 1) - at(number),
        }
    }
}

/// The areas of a generator's data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// What all threads access. Of a graph, the ranks of the last iteration; of training, the parameters.
    pub shared: Area,
    /// What all threads access beside it. Of a store, its index; of a graph, the ranks of this iteration.
    pub second: Area,
    /// What all threads read, each a part of it. Of a graph, its edges; of training, the examples.
    pub input: Area,
    /// What each thread has of its own. Of training, its gradients, which others read.
    pub own: Vec<Area>,
    /// One more than the greatest page number.
    end: u64,
}

impl Layout {
    /// The layout of that, in `pages` pages together.
    pub fn new(spec: &Spec) -> Self {
        let threads = spec.threads() as u64;
        let pages = spec.pages;
        let mut layout = Self::default();
        match spec.kind {
            Kind::Uniform => {
                let shared = (pages as f64 * spec.sharing).round() as u64;
                // What is accessed at all has a page at least.
                let least = u64::from(spec.sharing > 0.0);
                layout.shared = layout.area(shared.max(least));
                let own =
                    ((pages - shared.min(pages)) / threads).max(u64::from(spec.sharing < 1.0));
                layout.own = (0..threads).map(|_| layout.area(own)).collect();
            }
            Kind::Zipf => layout.shared = layout.area(pages),
            Kind::YcsbA | Kind::YcsbC => {
                let index = (pages / (1 + super::kinds::RECORD_PAGES_PER_INDEX_PAGE)).max(1);
                layout.shared = layout.area((pages - index).max(1));
                layout.second = layout.area(index);
            }
            Kind::Graph => {
                let ranks = (pages / (2 + super::kinds::EDGE_PAGES_PER_RANK_PAGE)).max(threads);
                layout.shared = layout.area(ranks);
                layout.second = layout.area(ranks);
                layout.input = layout.area(ranks * super::kinds::EDGE_PAGES_PER_RANK_PAGE);
            }
            Kind::Training => {
                // Parameters and all gradients are a quarter.
                let parameters = (pages / (4 * (threads + 1))).max(1);
                layout.shared = layout.area(parameters);
                layout.own = (0..threads).map(|_| layout.area(parameters)).collect();
                let rest = pages.saturating_sub(parameters * (threads + 1));
                layout.input = layout.area(rest.max(threads));
            }
        }
        layout
    }

    /// One more than the greatest page number.
    pub const fn pages(&self) -> u64 {
        self.end
    }

    /// Adds an area of so many pages at the end.
    fn area(&mut self, pages: u64) -> Area {
        let first = self.end.next_multiple_of(PAGES_PER_BLOCK as u64);
        if pages > 0 {
            self.end = first + pages;
        }
        Area {
            first: first as u32,
            pages,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_are_the_whole(first in 0..1000u32, pages in 0..1000u64, of in 1..40usize) {
            let area = Area { first, pages };
            let mut next = first;
            for part in (0..of).map(|number| area.part(number, of)) {
                prop_assert_eq!(part.first, next);
                prop_assert!(part.pages.abs_diff(pages / of as u64) <= 1);
                next += part.pages as u32;
            }
            prop_assert_eq!(u64::from(next - first), pages);
        }
    }
}
