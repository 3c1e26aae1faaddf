//! Address arithmetic: pages, power-of-two regions, prefixes, and the window of global addresses.
//!
//! A global virtual address ([`Va`]) means the same byte on every blade. Everything here is a
//! power of two and aligned to itself, as match-action tables and LPM tries want it (MIND, SOSP
//! 2021, section 4.2: "power-of-two ranges").

/// log2 of the page size.
pub const PAGE_SHIFT: u32 = 12;
/// Bytes of a page: the unit of caching and transfer.
pub const PAGE_SIZE: usize = 1 << PAGE_SHIFT;
/// log2 of a block's size. A block is the largest region, and the unit in which the directory's
/// hash map is keyed.
pub const BLOCK_SHIFT: u32 = 21;
/// Pages of a block.
pub const PAGES_PER_BLOCK: usize = 1 << (BLOCK_SHIFT - PAGE_SHIFT);
/// A page's bytes.
pub type Page = [u8; PAGE_SIZE];

/// Order (log2 of its pages) of the largest region: 2 MiB.
pub const MAX_REGION_ORDER: u8 = (BLOCK_SHIFT - PAGE_SHIFT) as u8;
/// Order of the regions of a new vma, 16 KiB (section 5.2 of the paper starts there too).
pub const INITIAL_REGION_ORDER: u8 = 2;

/// First address of the window that programs map at the same place on every blade. It lies in a
/// part of the user address space that x86-64 Linux leaves empty: above heaps of programs linked
/// at fixed addresses, far below position-independent programs and `mmap`'s own choices.
pub const WINDOW_BASE: u64 = 0x1000_0000_0000;
/// Bytes of the window: 16 TiB.
pub const WINDOW_SIZE: u64 = 1 << 44;
/// log2 of the slice of the window that belongs to one memory blade, 512 GiB: translation needs
/// one entry per blade, and outliers override it with longer prefixes (section 4.1).
pub const SLICE_SHIFT: u32 = 39;

const _: () = assert!(WINDOW_BASE.is_multiple_of(WINDOW_SIZE));
const _: () = assert!(WINDOW_SIZE >> SLICE_SHIFT == crate::id::MAX_BLADES as u64);
const _: () = assert!(WINDOW_BASE + WINDOW_SIZE < 1 << 47);

/// A global virtual address, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Va(pub u64);

impl Va {
    /// The first address of the page that this address is in.
    #[inline(always)]
    #[must_use]
    pub const fn page(self) -> Self {
        Self(self.0 & !(PAGE_SIZE as u64 - 1))
    }

    /// Whether this is the first address of a page.
    #[inline(always)]
    pub const fn is_page_aligned(self) -> bool {
        self.0 & (PAGE_SIZE as u64 - 1) == 0
    }

    /// The number of the block that this address is in.
    #[inline(always)]
    pub const fn block(self) -> u64 {
        self.0 >> BLOCK_SHIFT
    }

    /// Which page of its block this address is in: below [`PAGES_PER_BLOCK`].
    #[inline(always)]
    pub const fn page_in_block(self) -> usize {
        (self.0 >> PAGE_SHIFT) as usize & (PAGES_PER_BLOCK - 1)
    }

    /// Whether `len` bytes from here on lie in the window.
    #[inline(always)]
    pub const fn is_in_window(self, len: u64) -> bool {
        self.0 >= WINDOW_BASE && len <= WINDOW_SIZE && self.0 - WINDOW_BASE <= WINDOW_SIZE - len
    }

    /// The memory blade that owns the slice of this address (see [`SLICE_SHIFT`]); `None` outside
    /// the window.
    pub const fn slice(self) -> Option<u8> {
        if self.is_in_window(1) {
            Some(((self.0 - WINDOW_BASE) >> SLICE_SHIFT) as u8)
        } else {
            None
        }
    }
}

impl core::fmt::Display for Va {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A region: 2^order pages, aligned to its size. The unit of coherence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Region {
    base: Va,
    order: u8,
}

impl Region {
    /// The region of 2^`order` pages that `va` is in; `None` for an order above
    /// [`MAX_REGION_ORDER`].
    #[inline(always)]
    pub const fn containing(va: Va, order: u8) -> Option<Self> {
        if order > MAX_REGION_ORDER {
            return None;
        }
        let size = (PAGE_SIZE as u64) << order;
        Some(Self {
            base: Va(va.0 & !(size - 1)),
            order,
        })
    }

    /// Its first address.
    #[inline(always)]
    pub const fn base(self) -> Va {
        self.base
    }

    /// log2 of its pages.
    #[inline(always)]
    pub const fn order(self) -> u8 {
        self.order
    }

    /// Its size in bytes.
    #[inline(always)]
    pub const fn size(self) -> u64 {
        (PAGE_SIZE as u64) << self.order
    }

    /// Whether `va` lies in it.
    #[inline(always)]
    pub const fn contains(self, va: Va) -> bool {
        va.0 >= self.base.0 && va.0 - self.base.0 < self.size()
    }

    /// Its two halves, the lower one first; `None` for a page.
    pub fn halves(self) -> Option<(Self, Self)> {
        let order = self.order.checked_sub(1)?;
        let half = |offset| Self::containing(Va(self.base.0 + offset), order);
        half(0).zip(half(self.size() / 2))
    }

    /// The region of twice its size that it is a half of; `None` where a region can't be that large.
    pub const fn whole(self) -> Option<Self> {
        Self::containing(self.base, self.order + 1)
    }

    /// The first addresses of its pages, in order.
    pub fn pages(self) -> impl Iterator<Item = Va> {
        (0..1u64 << self.order).map(move |n| Va(self.base.0 + (n << PAGE_SHIFT)))
    }
}

impl core::fmt::Display for Region {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}+{}K", self.base, self.size() >> 10)
    }
}

/// A power-of-two range aligned to its size: what one entry of an LPM trie matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    /// First address; a multiple of the size.
    pub base: Va,
    /// log2 of the size in bytes.
    pub shift: u32,
}

impl core::fmt::Display for Prefix {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}+{}K", self.base, (1u64 << self.shift) >> 10)
    }
}

impl Prefix {
    /// Leading bits of an address that must match, of 64.
    pub const fn length(self) -> u32 {
        64 - self.shift
    }

    /// Bytes it covers.
    pub const fn size(self) -> u64 {
        1 << self.shift
    }
}

/// The fewest prefixes that together cover exactly `len` bytes from `start` on, lowest address
/// first. Both must be multiples of the page size, and the range must not wrap; otherwise, and
/// for `len` 0, there are none.
///
/// There are at most two prefixes of each size, so at most 2 x (64 - 12).
///
/// ```
/// use mind_common::addr::{Prefix, Va, prefixes};
///
/// // Three pages from the second one on: one page, then two.
/// let of = |base, shift| Prefix { base: Va(base), shift };
/// assert!(prefixes(Va(0x1000), 0x3000).eq([of(0x1000, 12), of(0x2000, 13)]));
/// ```
pub fn prefixes(start: Va, len: u64) -> impl Iterator<Item = Prefix> {
    let aligned = start.is_page_aligned() && len.is_multiple_of(PAGE_SIZE as u64);
    let valid = aligned && start.0.checked_add(len).is_some();
    let mut next = start.0;
    let mut left = if valid { len } else { 0 };
    core::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        // The largest power of two that both the address allows and the rest fills.
        let shift = next.trailing_zeros().min(63 - left.leading_zeros());
        let prefix = Prefix {
            base: Va(next),
            shift,
        };
        left -= prefix.size();
        next = next.wrapping_add(prefix.size());
        Some(prefix)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const PAGE: u64 = PAGE_SIZE as u64;

    #[test]
    fn the_window_ends_where_it_ends() {
        let last = Va(WINDOW_BASE + WINDOW_SIZE - PAGE);
        assert!(last.is_in_window(PAGE));
        assert!(!last.is_in_window(PAGE + 1));
        assert!(!Va(WINDOW_BASE - 1).is_in_window(1));
        assert!(!Va(u64::MAX).is_in_window(u64::MAX));
        assert!(Va(WINDOW_BASE).is_in_window(WINDOW_SIZE));
        assert_eq!(last.slice(), Some(31));
        assert_eq!(Va(WINDOW_BASE).slice(), Some(0));
        assert_eq!(Va(0).slice(), None);
    }

    #[test]
    fn a_region_above_2_mib_is_refused() {
        assert_eq!(
            Region::containing(Va(WINDOW_BASE), MAX_REGION_ORDER + 1),
            None
        );
        let largest = Region::containing(Va(WINDOW_BASE + 5), MAX_REGION_ORDER).unwrap();
        assert_eq!(largest.size(), 2 << 20);
    }

    #[test]
    fn five_pages_at_an_odd_place_take_the_fewest_prefixes() {
        let shifts: Vec<_> = prefixes(Va(3 * PAGE), 5 * PAGE)
            .map(|p| (p.base.0 / PAGE, p.size() / PAGE))
            .collect();
        assert_eq!(shifts, [(3, 1), (4, 4)]);
    }

    #[test]
    fn a_range_that_wraps_or_is_not_whole_pages_has_no_prefixes() {
        assert_eq!(prefixes(Va(u64::MAX - PAGE + 1), 2 * PAGE).count(), 0);
        assert_eq!(prefixes(Va(1), PAGE).count(), 0);
        assert_eq!(prefixes(Va(PAGE), 1).count(), 0);
        assert_eq!(prefixes(Va(PAGE), 0).count(), 0);
    }

    proptest! {
        #[test]
        fn a_region_contains_its_pages_and_no_others(
            offset in 0..WINDOW_SIZE, order in 0..=MAX_REGION_ORDER,
        ) {
            let va = Va(WINDOW_BASE + offset);
            let region = Region::containing(va, order).unwrap();
            prop_assert!(region.contains(va));
            prop_assert_eq!(region.pages().count() as u64 * PAGE, region.size());
            prop_assert!(region.pages().all(|page| region.contains(page)));
            prop_assert!(!region.contains(Va(region.base().0 + region.size())));
            prop_assert!(!region.contains(Va(region.base().0 - 1)));
            // A block holds whole regions only.
            prop_assert_eq!(region.base().block(), va.block());
        }

        #[test]
        fn prefixes_cover_a_range_exactly_and_in_order(start in 0u64..1 << 40, pages in 0u64..1 << 24) {
            let start = Va(start).page();
            let mut next = start.0;
            let mut count = 0;
            for prefix in prefixes(start, pages * PAGE) {
                prop_assert_eq!(prefix.base.0, next);
                prop_assert_eq!(prefix.base.0 % prefix.size(), 0);
                next += prefix.size();
                count += 1;
            }
            prop_assert_eq!(next, start.0 + pages * PAGE);
            prop_assert!(count <= 2 * 36);
        }
    }
}
