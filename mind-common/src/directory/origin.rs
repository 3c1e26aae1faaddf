//! Beside a slot's word: which request began the invalidation that is under way, so that another
//! blade's retry can send it again under the number of that request.
//!
//! ```text
//! bit  63..40      39..16     15..9   8..0
//!      episode 24  seq 24     0       page of the block 9
//! ```
//!
//! It is written after the word, by the packet that made the word busy. So it may be late: an
//! origin of another episode than the word's is ignored, and the packet that needs it is dropped
//! and retried.

use crate::{
    addr::{PAGE_SHIFT, Region, Va},
    serial::{Episode, Seq},
};

const EPISODE_SHIFT: u32 = 40;
const SEQ_SHIFT: u32 = 16;
const PAGE_MASK: u64 = (crate::addr::PAGES_PER_BLOCK - 1) as u64;

/// The request that began an episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct Origin(u64);

impl Origin {
    /// The origin of `episode`: the request numbered `seq`, for `page`.
    #[inline(always)]
    pub const fn new(episode: Episode, seq: Seq, page: Va) -> Self {
        Self(
            (episode.get() as u64) << EPISODE_SHIFT
                | (seq.get() as u64) << SEQ_SHIFT
                | page.page_in_block() as u64,
        )
    }

    /// The origin that a slot stores as `raw`.
    #[inline(always)]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// As it stands in the slot.
    #[inline(always)]
    pub const fn raw(self) -> u64 {
        self.0
    }

    #[inline(always)]
    const fn episode(self) -> Episode {
        Episode::new((self.0 >> EPISODE_SHIFT) as u32)
    }

    /// Whether this may replace `other`: only an origin of an earlier episode, for a writer may be
    /// so slow that the next episode's origin is written first.
    #[inline(always)]
    pub const fn replaces(self, other: Self) -> bool {
        self.episode().is_after(other.episode())
    }

    /// The number of the request that began `episode` of `region`, and the page that it wants;
    /// `None` while the origin of that episode has not been written.
    #[inline(always)]
    pub const fn of(self, episode: Episode, region: Region) -> Option<(Seq, Va)> {
        if self.episode().get() != episode.get() {
            return None;
        }
        let block = region.base().block() << crate::addr::BLOCK_SHIFT;
        let page = Va(block | (self.0 & PAGE_MASK) << PAGE_SHIFT);
        if !region.contains(page) {
            return None;
        }
        Some((Seq::new((self.0 >> SEQ_SHIFT) as u32), page))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::WINDOW_BASE;

    fn region(page: Va) -> Region {
        Region::containing(page, 2).expect("order 2 is a region's")
    }

    #[test]
    fn it_says_the_request_of_its_episode_only() {
        let page = Va(WINDOW_BASE + 0x0fed_c000);
        let origin = Origin::new(Episode::new(0x00ff_ffff), Seq::new(0x0012_3456), page);
        let known = Some((Seq::new(0x0012_3456), page));
        assert_eq!(origin.of(Episode::new(0x00ff_ffff), region(page)), known);
        assert_eq!(origin.of(Episode::new(0), region(page)), None);
        assert_eq!(Origin::from_raw(origin.raw()), origin);
    }

    #[test]
    fn it_says_nothing_of_a_page_outside_of_the_region() {
        let page = Va(WINDOW_BASE + 0xc000);
        let origin = Origin::new(Episode::new(1), Seq::new(1), page);
        assert_eq!(origin.of(Episode::new(1), region(Va(WINDOW_BASE))), None);
    }

    #[test]
    fn a_slow_writer_does_not_undo_the_next_episode() {
        let of = |episode| Origin::new(Episode::new(episode), Seq::new(1), Va(WINDOW_BASE));
        assert!(of(0).replaces(of(0x00ff_ffff)));
        assert!(!of(0x00ff_ffff).replaces(of(0)));
        assert!(!of(5).replaces(of(5)));
    }
}
