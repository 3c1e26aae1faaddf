//! The coherence extended transport header, in an INVALIDATE and, echoed, in its answers.

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    big_endian::{U16, U32, U64},
};

use super::Malformed;
use crate::{
    addr::{Region, Va},
    directory::{Source, Target},
    id::{BladeId, BladeSet},
    serial::{Episode, Version},
};

/// Coherence extended transport header.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct Ceth {
    /// Address of the page that the requester wants, a multiple of the page size.
    pub va: U64,
    /// Which invalidation of the slot this is: an [`Episode`], 24 bits.
    pub episode: U32,
    /// Blades that are still to answer, one bit each.
    pub pending: U32,
    /// Version of the page behind this header (FORWARD).
    pub version: U32,
    /// log2 of the region's pages; the region is the one that `va` is in.
    pub order: u8,
    /// The blade that wants the page.
    pub requester: u8,
    /// What the invalidated blade may keep: see [`Target`].
    pub target: u8,
    /// How the requester is to get the page: see [`Source`].
    pub source: u8,
    /// Answers: pages that were dropped though the requester did not want them.
    pub dropped: U16,
    /// Answers: pages that had to be written back.
    pub flushed: U16,
    /// Number of the directory's slot that counts the episodes. A page's region changes its slot when
    /// regions are split or merged, or mapped anew.
    pub slot: U32,
}

/// An invalidation, as the header carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Invalidation {
    /// The page that the requester wants.
    pub page: Va,
    /// The region to give up, which `page` is in.
    pub region: Region,
    /// The directory's slot that the region had when the invalidation began.
    pub slot: u32,
    /// Which invalidation of that slot this is.
    pub episode: Episode,
    /// The blade that wants the page.
    pub requester: BladeId,
    /// What the invalidated blade may keep.
    pub target: Target,
    /// How the requester is to get the page.
    pub source: Source,
}

/// What an invalidation cost the blade that answers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Cost {
    /// Pages dropped though the requester did not want them: false invalidations.
    pub dropped: u16,
    /// Pages written back.
    pub flushed: u16,
}

impl Ceth {
    /// The header of `invalidation` for the blades in `pending`; the fields of answers are 0.
    #[inline(always)]
    pub fn new(invalidation: &Invalidation, pending: BladeSet) -> Self {
        Self {
            va: U64::new(invalidation.page.0),
            episode: U32::new(invalidation.episode.get()),
            pending: U32::new(pending.bits()),
            version: U32::ZERO,
            order: invalidation.region.order(),
            requester: invalidation.requester.get(),
            target: invalidation.target as u8,
            source: invalidation.source as u8,
            dropped: U16::ZERO,
            flushed: U16::ZERO,
            slot: U32::new(invalidation.slot),
        }
    }

    /// The invalidation in this header.
    ///
    /// # Errors
    ///
    /// [`Malformed::Field`] when the address is not a page's in the window, or a field has an
    /// invalid value.
    #[inline(always)]
    pub fn invalidation(&self) -> Result<Invalidation, Malformed> {
        let page = Va(self.va.get());
        if !page.is_page_aligned() || !page.is_in_window(1) {
            return Err(Malformed::Field("va"));
        }
        Ok(Invalidation {
            page,
            region: Region::containing(page, self.order).ok_or(Malformed::Field("order"))?,
            slot: self.slot.get(),
            episode: Episode::new(self.episode.get()),
            requester: BladeId::new(self.requester).ok_or(Malformed::Field("requester"))?,
            target: Target::from_u8(self.target).ok_or(Malformed::Field("target"))?,
            source: Source::from_u8(self.source).ok_or(Malformed::Field("source"))?,
        })
    }

    /// The cost in an answer's header.
    #[inline(always)]
    pub const fn cost(&self) -> Cost {
        Cost {
            dropped: self.dropped.get(),
            flushed: self.flushed.get(),
        }
    }

    /// The version of the page behind the header.
    #[inline(always)]
    pub fn version(&self) -> Version {
        Version::new(self.version.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::WINDOW_BASE;

    fn example() -> Invalidation {
        let page = Va(WINDOW_BASE + 0x5000);
        Invalidation {
            page,
            region: Region::containing(page, 2).expect("order 2 is a region's"),
            slot: 0x0405_0607,
            episode: Episode::new(0x01_0203),
            requester: BladeId::new(3).expect("3 is a blade"),
            target: Target::Shared,
            source: Source::Forward,
        }
    }

    #[test]
    fn a_header_is_these_bytes() {
        let ceth = Ceth::new(&example(), BladeSet::from_bits(0x8000_0001));
        assert_eq!(
            ceth.as_bytes(),
            [
                0, 0, 0x10, 0, 0, 0, 0x50, 0, // va
                0, 1, 2, 3, // episode
                0x80, 0, 0, 1, // pending
                0, 0, 0, 0, // version
                2, 3, 1, 2, // order, requester, target, source
                0, 0, 0, 0, 4, 5, 6, 7, // dropped, flushed, slot
            ]
        );
        assert_eq!(ceth.invalidation(), Ok(example()));
        assert_eq!(example().region.base(), Va(WINDOW_BASE + 0x4000));
    }

    #[test]
    fn a_field_that_nobody_sends_is_named() {
        let good = Ceth::new(&example(), BladeSet::EMPTY);
        type Spoil = fn(&mut Ceth);
        let cases: [(&str, Spoil); 6] = [
            ("va", |c| c.va += U64::new(1)),
            ("va", |c| c.va = U64::new(0x1000)),
            ("order", |c| c.order = 10),
            ("requester", |c| c.requester = 32),
            ("target", |c| c.target = 2),
            ("source", |c| c.source = 3),
        ];
        for (field, spoil) in cases {
            let mut ceth = good;
            spoil(&mut ceth);
            assert_eq!(ceth.invalidation(), Err(Malformed::Field(field)));
        }
    }
}
