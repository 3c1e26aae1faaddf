//! What the programs of the pipeline bench put back before each run, and the headers of a frame. No program of the
//! product reads this.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::HEADERS_LEN;

plain! {
    /// What the bench's programs restore before each run, since a run changes them: the frame's
    /// headers, and a slot or a page's tag.
    pub struct Template {
        /// The slot's word.
        pub word: u64,
        /// The page's tag: a [`PageTag`](super::PageTag).
        pub tag: u64,
        /// What a region's first touch changes beside the slot.
        pub first_touch: FirstTouch,
        /// The slot's index; with [`scatter`](Self::scatter), that of the first region.
        pub slot: u32,
        /// The page's number in the memory blade's store.
        pub page: u32,
        /// If not 0, each run is for another region of 2^`scatter`, whose slots follow each other as they do: the page in
        /// `headers` is of the first one, and the `n`th run is for region [`scattered`](Self::scattered)`(n)`.
        pub scatter: u32,
        /// Whether the slot's memo is cleared: 1 or 0.
        pub clear_memo: u32,
        /// The frame's headers.
        pub headers: Headers,
        /// 0.
        pub reserved: [u8; 2],
    }
}

plain! {
    /// A directory in which the region of [`Template::slot`] has no slot: that slot is the topmost of its list. For a block
    /// that has a table.
    pub struct FirstTouch {
        /// The top of the list of slots: a [`FreeTop`](crate::directory::index::free::FreeTop).
        pub top: u64,
        /// How many were taken from it.
        pub taken: u64,
        /// The one below.
        pub next: u32,
        /// The block's table; 0 if nothing of this is restored.
        pub table: u32,
        /// Which unit of the block the region is.
        pub unit: u32,
        /// 0.
        pub reserved: u32,
    }
}

impl Template {
    /// Which of 2^`bits` regions (at most 2^32) the run with that number is for: each is one of so many runs, in an order
    /// that a processor does not foresee.
    #[inline(always)]
    pub const fn scattered(run: u64, bits: u32) -> u64 {
        // Each of the four steps has an inverse among numbers of so many bits: odd numbers do, and so has a shift to the
        // right beside the number itself.
        let mask = (1 << bits) - 1;
        let half = bits.div_ceil(2);
        let mut number = run & mask;
        number = number.wrapping_mul(0x9e37_79b1) & mask;
        number ^= number >> half;
        number = number.wrapping_mul(0x85eb_ca6b) & mask;
        number ^ number >> half
    }
}

/// The headers of a frame, as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct Headers(pub [u8; HEADERS_LEN]);

impl Headers {
    /// The headers of a frame; `None` if it has not so many bytes.
    pub fn of(frame: &[u8]) -> Option<Self> {
        frame.first_chunk().copied().map(Self)
    }
}

impl Default for Headers {
    fn default() -> Self {
        Self([0; HEADERS_LEN])
    }
}

const _: () = assert!(size_of::<FirstTouch>() == 32);
const _: () = assert!(size_of::<Template>() == 152);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_region_is_hit_once_in_as_many_runs() {
        for bits in [1, 2, 7, 16] {
            let runs = 1_u64 << bits;
            let mut hit = std::vec![false; runs as usize];
            for run in 3 * runs..4 * runs {
                let region = Template::scattered(run, bits) as usize;
                assert!(!std::mem::replace(&mut hit[region], true), "{bits}: {run}");
            }
        }
    }

    #[test]
    fn runs_after_each_other_are_not_for_regions_beside_each_other() {
        let near = (0..10_000).filter(|&run| {
            let [here, next] = [run, run + 1].map(|run| Template::scattered(run, 20));
            here.abs_diff(next) < 1 << 10
        });
        // One in 512 is by chance.
        assert!(near.count() < 100);
    }

    #[test]
    fn headers_are_the_beginning_of_a_frame() {
        let frame: [u8; HEADERS_LEN + 10] = std::array::from_fn(|at| at as u8);
        let headers = Headers::of(&frame).expect("the frame is long enough");
        assert_eq!(headers.0, frame[..HEADERS_LEN]);
        assert_eq!(Headers::of(&frame[..HEADERS_LEN - 1]), None);
    }
}
