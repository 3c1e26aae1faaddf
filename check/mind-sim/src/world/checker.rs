//! The expected content of shared memory: of each page, the present content, and the contents since
//! the last acknowledged one. Independent of the directory and of memory blades.

use std::collections::BTreeMap;

use mind_common::addr::Va;

use crate::{
    plan::{Image, text::words},
    trace::Cell,
};

/// The expected content of a page.
#[derive(Clone, Debug, Default)]
struct Expected {
    /// Its contents, from the last acknowledged to the last written; empty for zeros.
    images: Vec<Image>,
    /// How many contents were before the first of them.
    before: u64,
    /// Its writer is gone: its content is any of the images.
    is_open: bool,
}

impl Expected {
    fn now(&self) -> Image {
        self.images.last().copied().unwrap_or_default()
    }

    /// Its content is `image` from now on.
    fn settle(&mut self, image: Image) {
        self.before += self.images.len().saturating_sub(1) as u64;
        self.images = vec![image];
        self.is_open = false;
    }
}

/// A wrong content of a page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// A load found something else than was stored last.
    #[error("a load of word {word} of {page} finds {found}; stored last was {stored}")]
    Load {
        /// Of which page.
        page: Va,
        /// Of which word.
        word: usize,
        /// What it found.
        found: u64,
        /// What was stored last.
        stored: u64,
    },
    /// A page that came is not the latest.
    #[error(
        "{page} comes as {:?}; it must be {:?}",
        words(found),
        expected.iter().map(words).collect::<Vec<_>>()
    )]
    Page {
        /// Which page.
        page: Va,
        /// What came.
        found: Image,
        /// The expected content: the last of these, or any of them if its writer is gone.
        expected: Vec<Image>,
    },
}

/// The expected contents of all pages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checker {
    pages: BTreeMap<Va, Expected>,
    /// Pages that turned out to be older than what was written last.
    lost: Vec<Va>,
}

impl Checker {
    fn expected(&mut self, page: Va) -> &mut Expected {
        self.pages.entry(page).or_default()
    }

    /// A thread loads a word.
    pub(crate) fn load(&mut self, cell: Cell, found: u64) -> Result<(), Wrong> {
        let Cell { page, word } = cell;
        let stored = self.expected(page).now()[word];
        if stored == found {
            Ok(())
        } else {
            Err(Wrong::Load {
                page,
                word,
                found,
                stored,
            })
        }
    }

    /// A thread stored a word; `image` is the page now.
    pub(crate) fn stored(&mut self, page: Va, image: Image) {
        let expected = self.expected(page);
        if expected.images.is_empty() {
            expected.images.push(Image::default());
        }
        expected.images.push(image);
    }

    /// A blade gets a page. Returns whether it is older than the last write, whose writer is gone.
    pub(crate) fn installed(&mut self, page: Va, found: Image) -> Result<bool, Wrong> {
        let expected = self.expected(page);
        let is_right = if expected.is_open {
            expected.images.contains(&found)
        } else {
            expected.now() == found
        };
        if !is_right {
            return Err(Wrong::Page {
                page,
                found,
                expected: expected.images.clone(),
            });
        }
        let is_older = expected.now() != found;
        expected.settle(found);
        if is_older {
            self.lost.push(page);
        }
        Ok(is_older)
    }

    /// How often the page was written.
    pub(crate) fn count(&mut self, page: Va) -> u64 {
        let expected = self.expected(page);
        expected.before + expected.images.len() as u64
    }

    /// The writes up to the page's `count`-th are in memory now.
    pub(crate) fn acknowledged(&mut self, page: Va, count: u64) {
        let expected = self.expected(page);
        if expected.is_open {
            return;
        }
        let old = count.saturating_sub(expected.before + 1) as usize;
        let old = old.min(expected.images.len().saturating_sub(1));
        expected.images.drain(..old);
        expected.before += old as u64;
    }

    /// Memory zeroed the page, of which no blade has a copy.
    pub(crate) fn zeroed(&mut self, page: Va) {
        let expected = self.expected(page);
        expected.settle(Image::default());
    }

    /// The blade that had the page to write is gone.
    pub(crate) fn owner_lost(&mut self, page: Va) {
        let expected = self.expected(page);
        expected.is_open = expected.images.len() > 1;
    }

    /// The content of the page, if it is known.
    pub(crate) fn now(&self, page: Va) -> Option<Image> {
        let expected = self.pages.get(&page)?;
        (!expected.is_open).then(|| expected.now())
    }

    /// Pages that were written.
    pub(crate) fn pages(&self) -> Vec<Va> {
        self.pages.keys().copied().collect()
    }

    /// Pages that turned out to have lost writes.
    pub(crate) fn lost(&self) -> &[Va] {
        &self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: Va = Va(0x1000);

    fn written(checker: &mut Checker, value: u64) -> Image {
        let mut image = Image::default();
        image[0] = value;
        checker.stored(PAGE, image);
        image
    }

    #[test]
    fn a_load_finds_what_was_stored_last() {
        let mut checker = Checker::default();
        let cell = Cell {
            page: PAGE,
            word: 0,
        };
        assert_eq!(checker.load(cell, 0), Ok(()));
        written(&mut checker, 1);
        assert!(checker.load(cell, 0).is_err());
        assert_eq!(checker.load(cell, 1), Ok(()));
    }

    #[test]
    fn after_a_writers_loss_a_page_is_at_least_what_was_acknowledged() {
        let mut checker = Checker::default();
        let first = written(&mut checker, 1);
        let second = written(&mut checker, 2);
        let count = checker.count(PAGE);
        checker.acknowledged(PAGE, count);
        let third = written(&mut checker, 3);
        let mut other = checker.clone();
        checker.owner_lost(PAGE);
        assert!(checker.installed(PAGE, first).is_err());
        assert_eq!(checker.installed(PAGE, second), Ok(true));
        assert_eq!(checker.lost(), [PAGE]);
        assert!(checker.installed(PAGE, third).is_err(), "it is settled");
        other.owner_lost(PAGE);
        assert_eq!(other.installed(PAGE, third), Ok(false));
        assert!(other.lost().is_empty());
    }
}
