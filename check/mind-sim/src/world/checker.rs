//! What shared memory must be: of each page, what is in it now, and what was in it since it was
//! last acknowledged. Knows nothing of the directory and of memory blades.

use std::collections::BTreeMap;

use mind_common::addr::Va;

use crate::plan::{Image, Place, text::words};

/// What a page must be.
#[derive(Clone, Debug, Default)]
struct Truth {
    /// What was in it, from what was acknowledged last to what was written last; empty for zeros.
    images: Vec<Image>,
    /// How many were before the first of them.
    before: u64,
    /// Its writer is gone: it is any of the images, and it is not known yet which.
    is_open: bool,
}

impl Truth {
    fn now(&self) -> Image {
        self.images.last().copied().unwrap_or_default()
    }

    /// Only the latest counts any more.
    fn settle(&mut self, image: Image) {
        self.before += self.images.len().saturating_sub(1) as u64;
        self.images = vec![image];
        self.is_open = false;
    }
}

/// What went wrong with what a page has in it.
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
        /// What it must be: the last of these, or any of them if its writer is gone.
        expected: Vec<Image>,
    },
}

/// What all pages must be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checker {
    pages: BTreeMap<Va, Truth>,
    /// Pages that turned out to be older than what was written last.
    lost: Vec<Va>,
}

impl Checker {
    fn truth(&mut self, page: Va) -> &mut Truth {
        self.pages.entry(page).or_default()
    }

    /// A thread loads a word.
    pub(crate) fn load(&mut self, place: Place, found: u64) -> Result<(), Wrong> {
        let Place { page, word } = place;
        let stored = self.truth(page).now()[word];
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

    /// A thread stored something, and this is the page now.
    pub(crate) fn stored(&mut self, page: Va, image: Image) {
        let truth = self.truth(page);
        if truth.images.is_empty() {
            truth.images.push(Image::default());
        }
        truth.images.push(image);
    }

    /// A blade gets a page. Whether it is older than what was written last, whose writer is gone.
    pub(crate) fn installed(&mut self, page: Va, found: Image) -> Result<bool, Wrong> {
        let truth = self.truth(page);
        let is_right = if truth.is_open {
            truth.images.contains(&found)
        } else {
            truth.now() == found
        };
        if !is_right {
            return Err(Wrong::Page {
                page,
                found,
                expected: truth.images.clone(),
            });
        }
        let is_older = truth.now() != found;
        truth.settle(found);
        if is_older {
            self.lost.push(page);
        }
        Ok(is_older)
    }

    /// How often the page was written.
    pub(crate) fn count(&mut self, page: Va) -> u64 {
        let truth = self.truth(page);
        truth.before + truth.images.len() as u64
    }

    /// What was written until the page had been written so often is in memory now.
    pub(crate) fn acknowledged(&mut self, page: Va, count: u64) {
        let truth = self.truth(page);
        if truth.is_open {
            return;
        }
        let old = count.saturating_sub(truth.before + 1) as usize;
        let old = old.min(truth.images.len().saturating_sub(1));
        truth.images.drain(..old);
        truth.before += old as u64;
    }

    /// Memory made zeros of the page, which nobody has.
    pub(crate) fn zeroed(&mut self, page: Va) {
        let truth = self.truth(page);
        truth.settle(Image::default());
    }

    /// Who had the page to write is gone.
    pub(crate) fn orphaned(&mut self, page: Va) {
        let truth = self.truth(page);
        truth.is_open = truth.images.len() > 1;
    }

    /// What is there of the page, if that is known.
    pub(crate) fn now(&self, page: Va) -> Option<Image> {
        let truth = self.pages.get(&page)?;
        (!truth.is_open).then(|| truth.now())
    }

    /// Pages that somebody wrote.
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
        let place = Place {
            page: PAGE,
            word: 0,
        };
        assert_eq!(checker.load(place, 0), Ok(()));
        written(&mut checker, 1);
        assert!(checker.load(place, 0).is_err());
        assert_eq!(checker.load(place, 1), Ok(()));
    }

    #[test]
    fn what_a_gone_writer_left_is_at_least_what_was_acknowledged() {
        let mut checker = Checker::default();
        let first = written(&mut checker, 1);
        let second = written(&mut checker, 2);
        let count = checker.count(PAGE);
        checker.acknowledged(PAGE, count);
        let third = written(&mut checker, 3);
        let mut other = checker.clone();
        checker.orphaned(PAGE);
        assert!(checker.installed(PAGE, first).is_err());
        assert_eq!(checker.installed(PAGE, second), Ok(true));
        assert_eq!(checker.lost(), [PAGE]);
        assert!(checker.installed(PAGE, third).is_err(), "it is settled");
        other.orphaned(PAGE);
        assert_eq!(other.installed(PAGE, third), Ok(false));
        assert!(other.lost().is_empty());
    }
}
