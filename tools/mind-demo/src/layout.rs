//! The job's memory: its parts, and how long each is. Pure: no memory is accessed here.

use std::ops::Range;

use mind_common::addr::{INITIAL_REGION_ORDER, PAGE_SIZE};

/// Bytes whose coherence the switch keeps as one, until it splits or merges regions. What different
/// workers write lies in different regions where it can.
pub const REGION: usize = PAGE_SIZE << INITIAL_REGION_ORDER;

/// Bytes of a word: a rank, an offset, a counter.
const WORD: usize = size_of::<u64>();

/// Most vertices of a block: as many as have their ranks in one region.
const LARGEST_BLOCK: usize = REGION / WORD;

/// Blocks to aim for in small graphs, so that there is work for as many blades as there can be.
const BLOCKS: usize = mind_common::id::MAX_BLADES;

/// The share of the job's footprint that a blade's cache may hold, in percent.
const CACHE_PERCENT: u64 = 25;

/// Fewest bytes of a cache, whatever the footprint: with a handful of pages there would be no room
/// for those that one instruction and the writes on their way need at a time.
const SMALLEST_CACHE: u64 = 64 * PAGE_SIZE as u64;

/// Fewest bytes of a memory blade.
const SMALLEST_MEMORY: u64 = 16 << 20;

/// A part of the job's memory: an area of its own, so that the controller can spread them over the
/// memory blades.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// Per worker, what it tells the others: its phase, and the sums of its blocks.
    Control,
    /// Where the edges into each vertex begin, and where the last ones end (64 bits each).
    Offsets,
    /// The edges, as the vertices that they come from, in the order of those they lead to (32 bits).
    Sources,
    /// How many edges leave each vertex (32 bits).
    Degrees,
    /// The rank of each vertex (64-bit floating point).
    Ranks,
    /// What each vertex passes on along each edge: twice, of this iteration and of the next.
    Shares,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Control,
        Self::Offsets,
        Self::Sources,
        Self::Degrees,
        Self::Ranks,
        Self::Shares,
    ];

    /// Its name as an area of the protection domain.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Offsets => "offsets",
            Self::Sources => "sources",
            Self::Degrees => "degrees",
            Self::Ranks => "ranks",
            Self::Shares => "shares",
        }
    }
}

/// The sizes that everything else follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Vertices of the graph.
    pub vertices: usize,
    /// Its edges.
    pub edges: usize,
    /// Processes that share the work.
    pub workers: usize,
}

impl Layout {
    /// Vertices of a block. It depends on the graph alone, so sums over blocks are the same
    /// whichever worker adds them up.
    pub const fn block_size(self) -> usize {
        let size = (self.vertices / BLOCKS).next_power_of_two();
        if size < LARGEST_BLOCK {
            size
        } else {
            LARGEST_BLOCK
        }
    }

    /// Blocks of vertices.
    pub const fn blocks(self) -> usize {
        self.vertices.div_ceil(self.block_size())
    }

    /// The vertices of a block.
    pub fn block(self, block: usize) -> Range<usize> {
        let size = self.block_size();
        block * size..((block + 1) * size).min(self.vertices)
    }

    /// Words of a worker's slot in [`Part::Control`]: phase, heartbeat, and for either half of the
    /// iterations two sums a block.
    pub const fn slot_words(self) -> usize {
        (2 + 4 * self.blocks()).next_multiple_of(REGION / WORD)
    }

    /// Words from the one vector of [`Part::Shares`] to the other.
    pub const fn share_words(self) -> usize {
        self.vertices.next_multiple_of(REGION / WORD)
    }

    /// Bytes of a part; whole pages, and never none.
    pub const fn length(self, part: Part) -> usize {
        let bytes = match part {
            Part::Control => self.slot_words() * self.workers * WORD,
            Part::Offsets => (self.vertices + 1) * WORD,
            Part::Sources => self.edges * size_of::<u32>(),
            Part::Degrees => self.vertices * size_of::<u32>(),
            Part::Ranks => self.vertices * WORD,
            Part::Shares => (self.share_words() + self.vertices) * WORD,
        };
        let bytes = if bytes == 0 { 1 } else { bytes };
        bytes.next_multiple_of(PAGE_SIZE)
    }

    /// Bytes of all parts.
    pub fn footprint(self) -> u64 {
        Part::ALL
            .map(|part| self.length(part) as u64)
            .into_iter()
            .sum()
    }

    /// Bytes of a compute blade's page cache: 25 % of the footprint, in whole pages.
    pub fn cache(self) -> u64 {
        let quarter = (self.footprint() * CACHE_PERCENT).div_ceil(100);
        quarter
            .next_multiple_of(PAGE_SIZE as u64)
            .max(SMALLEST_CACHE)
    }

    /// Bytes that each of `blades` memory blades must offer. An area lies whole on the blade that has
    /// the least, so none gets more than its equal share and the largest area; and an area's place is
    /// aligned to its length rounded up to a power of two.
    pub fn memory_size(self, blades: u8) -> u64 {
        let lengths = Part::ALL.map(|part| {
            let granules = self.length(part).next_multiple_of(REGION);
            granules.next_power_of_two() as u64
        });
        let largest = lengths.into_iter().max().unwrap_or(0);
        let equal = lengths
            .into_iter()
            .sum::<u64>()
            .div_ceil(u64::from(blades).max(1));
        (equal + largest)
            .next_multiple_of(1 << 20)
            .max(SMALLEST_MEMORY)
    }
}

/// Divides blocks among `workers` in runs of about equal weight; a worker's share may be empty.
pub fn divide(weights: &[u64], workers: usize) -> Vec<Range<usize>> {
    let total: u64 = weights.iter().sum();
    let mut shares = Vec::with_capacity(workers);
    let (mut start, mut before) = (0, 0);
    for worker in 1..=workers as u64 {
        let until = u128::from(total) * u128::from(worker) / workers as u128;
        let mut end = start;
        // A block goes where the larger part of it lies.
        while end < weights.len()
            && (worker == workers as u64 || u128::from(before + weights[end] / 2) < until)
        {
            before += weights[end];
            end += 1;
        }
        shares.push(start..end);
        start = end;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DEBIAN: Layout = Layout {
        vertices: 63_000,
        edges: 300_000,
        workers: 2,
    };

    #[test]
    fn what_different_workers_write_lies_in_different_regions() {
        assert_eq!(DEBIAN.block_size() * WORD, REGION);
        assert!((DEBIAN.slot_words() * WORD).is_multiple_of(REGION));
        assert!((DEBIAN.share_words() * WORD).is_multiple_of(REGION));
    }

    #[test]
    fn the_cache_is_a_quarter_of_the_footprint_in_whole_pages() {
        let (cache, footprint) = (DEBIAN.cache(), DEBIAN.footprint());
        assert!(cache.is_multiple_of(PAGE_SIZE as u64));
        assert!(4 * cache >= footprint && 4 * (cache - PAGE_SIZE as u64) < footprint);
        let tiny = Layout {
            vertices: 3,
            edges: 0,
            workers: 1,
        };
        assert_eq!(tiny.cache(), SMALLEST_CACHE);
        assert_eq!(tiny.length(Part::Sources), PAGE_SIZE, "no area is empty");
    }

    #[test]
    fn a_small_graph_has_a_block_for_every_blade() {
        let small = Layout {
            vertices: 64,
            ..DEBIAN
        };
        assert_eq!((small.block_size(), small.blocks()), (2, 32));
        let none = Layout {
            vertices: 1,
            ..DEBIAN
        };
        assert_eq!((none.block_size(), none.blocks()), (1, 1));
    }

    #[test]
    fn blocks_of_equal_weight_are_divided_equally() {
        assert_eq!(divide(&[1; 8], 2), [0..4, 4..8]);
        assert_eq!(divide(&[1, 1, 100, 1], 2), [0..2, 2..4]);
        assert_eq!(divide(&[], 2), [0..0, 0..0]);
        assert_eq!(divide(&[0, 0], 1)[0], 0..2);
    }

    proptest! {
        #[test]
        fn every_block_has_one_worker_in_order(
            weights in prop::collection::vec(0u64..1000, 0..80), workers in 1usize..33,
        ) {
            let shares = divide(&weights, workers);
            prop_assert_eq!(shares.len(), workers);
            let mut next = 0;
            for share in shares {
                prop_assert_eq!(share.start, next);
                next = share.end;
            }
            prop_assert_eq!(next, weights.len());
        }

        #[test]
        fn parts_are_whole_pages_and_blocks_cover_all_vertices(
            vertices in 1usize..200_000, edges in 0usize..1_000_000, workers in 1usize..33,
        ) {
            let layout = Layout { vertices, edges, workers };
            for part in Part::ALL {
                prop_assert!(layout.length(part) > 0);
                prop_assert!(layout.length(part).is_multiple_of(PAGE_SIZE));
            }
            let mut next = 0;
            for block in 0..layout.blocks() {
                let range = layout.block(block);
                prop_assert_eq!(range.start, next);
                prop_assert!(!range.is_empty());
                next = range.end;
            }
            prop_assert_eq!(next, vertices);
            prop_assert!(layout.memory_size(1) >= layout.footprint());
        }
    }
}
