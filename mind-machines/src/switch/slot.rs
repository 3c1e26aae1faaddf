//! A slot of the directory: the word, and what stands beside it that the protocol needs. Counters
//! and memos are left out.

use mind_common::{
    addr::{Region, Va},
    directory::{Invalidations, Origin, Queue, Word},
    serial::Seq,
    verdict::Verdict,
};

/// A slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The region's word.
    pub word: Word,
    /// Which request began the invalidation.
    pub origin: Origin,
    /// The blades that wait.
    pub queue: Queue,
    /// Which region it is for. Stays when the slot is freed.
    pub region: Option<Region>,
}

/// The number that packets have for the slot at `index`. In the real table, 0 is none.
pub(super) const fn number(index: usize) -> u32 {
    index as u32 + 1
}

/// The slot of a number.
pub(super) const fn index(number: u32) -> usize {
    number as usize - 1
}

impl Slot {
    /// The slot's region, if `va` is in it.
    pub(super) fn region_with(&self, va: Va) -> Option<Region> {
        self.region.filter(|region| region.contains(va))
    }

    /// The request that began the invalidations in `order`: the request at hand, or for repeated
    /// ones the origin that was noted.
    pub(super) fn origin_of(
        &mut self,
        invalidations: &Invalidations,
        region: Region,
        page: Va,
        seq: Seq,
    ) -> Result<(Seq, Va), Verdict> {
        if invalidations.repeated {
            let known = self.origin.of(invalidations.episode, region);
            return known.ok_or(Verdict::NoOrigin);
        }
        let origin = Origin::new(invalidations.episode, seq, page);
        if origin.replaces(self.origin) {
            self.origin = origin;
        }
        Ok((seq, page))
    }
}
