//! The job's memory, shared or private, as typed words. All access is atomic, so that what another
//! process does to the memory at the same time is never undefined behaviour.

use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::{
    graph::Graph,
    layout::{Layout, Part},
};

/// A worker's phase, the first word of its slot.
const PHASE: usize = 0;
/// A worker's heartbeat.
const HEARTBEAT: usize = 1;
/// The first sum.
const SUMS: usize = 2;

/// What a block adds to the sums over all vertices.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    /// The ranks of its vertices that no edge leaves.
    pub dangling: f64,
    /// By how much its ranks have changed.
    pub delta: f64,
}

/// The parts of the job's memory.
#[derive(Clone, Copy, Debug)]
pub struct Memory<'a> {
    layout: Layout,
    control: &'a [AtomicU64],
    offsets: &'a [AtomicU64],
    sources: &'a [AtomicU32],
    degrees: &'a [AtomicU32],
    ranks: &'a [AtomicU64],
    shares: &'a [AtomicU64],
}

impl<'a> Memory<'a> {
    /// The memory whose parts begin where `at` says.
    ///
    /// # Safety
    ///
    /// Each part must be aligned to 8 bytes, be there for as many bytes as `layout` says as long as
    /// `'a` lasts, and be accessed in no other way than through values of this type.
    pub unsafe fn new(layout: Layout, at: impl Fn(Part) -> *mut u8) -> Self {
        let words = |part, count| {
            // SAFETY: as the caller guarantees; all bit patterns are words.
            unsafe { std::slice::from_raw_parts(at(part).cast::<AtomicU64>(), count) }
        };
        let halves = |part, count| {
            // SAFETY: as above.
            unsafe { std::slice::from_raw_parts(at(part).cast::<AtomicU32>(), count) }
        };
        Self {
            layout,
            control: words(Part::Control, layout.slot_words() * layout.workers),
            offsets: words(Part::Offsets, layout.vertices + 1),
            sources: halves(Part::Sources, layout.edges),
            degrees: halves(Part::Degrees, layout.vertices),
            ranks: words(Part::Ranks, layout.vertices),
            shares: words(Part::Shares, layout.share_words() + layout.vertices),
        }
    }

    /// Its sizes.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Stores the graph, and calls `alive` from time to time.
    ///
    /// # Errors
    ///
    /// Those of `alive`.
    pub fn load<E>(
        &self,
        graph: &Graph,
        mut alive: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        const OFTEN: usize = 1 << 16;
        for (at, (word, offset)) in self.offsets.iter().zip(graph.offsets()).enumerate() {
            word.store(*offset, Relaxed);
            if at.is_multiple_of(OFTEN) {
                alive()?;
            }
        }
        let halves = [
            (self.sources, graph.sources()),
            (self.degrees, graph.degrees()),
        ];
        for (words, values) in halves {
            for (at, (word, value)) in words.iter().zip(values).enumerate() {
                word.store(*value, Relaxed);
                if at.is_multiple_of(OFTEN) {
                    alive()?;
                }
            }
        }
        Ok(())
    }

    /// Where the edges into `vertex` begin.
    pub(crate) fn offset(&self, vertex: usize) -> usize {
        self.offsets[vertex].load(Relaxed) as usize
    }

    /// Where an edge comes from.
    pub(crate) fn source(&self, edge: usize) -> usize {
        self.sources[edge].load(Relaxed) as usize
    }

    /// How many edges leave `vertex`.
    pub(crate) fn degree(&self, vertex: usize) -> u32 {
        self.degrees[vertex].load(Relaxed)
    }

    /// A vertex's rank.
    pub fn rank(&self, vertex: usize) -> f64 {
        f64::from_bits(self.ranks[vertex].load(Relaxed))
    }

    pub(crate) fn set_rank(&self, vertex: usize, rank: f64) {
        self.ranks[vertex].store(rank.to_bits(), Relaxed);
    }

    /// What `vertex` passes on along each edge, in even or in odd iterations.
    pub(crate) fn share(&self, half: Half, vertex: usize) -> f64 {
        f64::from_bits(self.shares[self.share_at(half, vertex)].load(Relaxed))
    }

    pub(crate) fn set_share(&self, half: Half, vertex: usize, share: f64) {
        self.shares[self.share_at(half, vertex)].store(share.to_bits(), Relaxed);
    }

    fn share_at(&self, half: Half, vertex: usize) -> usize {
        half as usize * self.layout.share_words() + vertex
    }

    fn slot(&self, worker: usize) -> &'a [AtomicU64] {
        let words = self.layout.slot_words();
        &self.control[worker * words..(worker + 1) * words]
    }

    /// A worker's phase. Its earlier writes are visible afterwards.
    pub(crate) fn phase(&self, worker: usize) -> u64 {
        self.slot(worker)[PHASE].load(Acquire)
    }

    pub(crate) fn set_phase(&self, worker: usize, phase: u64) {
        self.slot(worker)[PHASE].store(phase, Release);
    }

    /// A worker's heartbeat.
    pub(crate) fn heartbeat(&self, worker: usize) -> u64 {
        self.slot(worker)[HEARTBEAT].load(Relaxed)
    }

    pub(crate) fn set_heartbeat(&self, worker: usize, beat: u64) {
        self.slot(worker)[HEARTBEAT].store(beat, Relaxed);
    }

    /// The sums of a block, as its worker wrote them.
    pub(crate) fn sums(&self, worker: usize, half: Half, block: usize) -> Sums {
        let slot = self.slot(worker);
        let at = self.sums_at(half, block);
        Sums {
            dangling: f64::from_bits(slot[at].load(Relaxed)),
            delta: f64::from_bits(slot[at + 1].load(Relaxed)),
        }
    }

    pub(crate) fn set_sums(&self, worker: usize, half: Half, block: usize, sums: Sums) {
        let slot = self.slot(worker);
        let at = self.sums_at(half, block);
        slot[at].store(sums.dangling.to_bits(), Relaxed);
        slot[at + 1].store(sums.delta.to_bits(), Relaxed);
    }

    fn sums_at(&self, half: Half, block: usize) -> usize {
        SUMS + 2 * (half as usize * self.layout.blocks() + block)
    }
}

/// Shares and sums are there twice: one half is read while the other is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    /// Written by the start and every second iteration.
    Even = 0,
    /// Written by the first iteration and every second one after it.
    Odd = 1,
}

impl Half {
    /// The one that iteration number `iteration` writes; 0 is the start.
    pub(crate) const fn of(iteration: u64) -> Self {
        if iteration.is_multiple_of(2) {
            Self::Even
        } else {
            Self::Odd
        }
    }
}

/// Memory of the calling process alone, zeroed.
#[derive(Debug)]
pub struct Private {
    layout: Layout,
    parts: [Box<[AtomicU64]>; Part::ALL.len()],
}

impl Private {
    /// As much as `layout` asks for.
    pub fn new(layout: Layout) -> Self {
        let words = |part| layout.length(part) / size_of::<u64>();
        Self {
            layout,
            parts: Part::ALL.map(|part| (0..words(part)).map(|_| AtomicU64::new(0)).collect()),
        }
    }

    /// Its parts.
    pub fn memory(&self) -> Memory<'_> {
        let at = |part: Part| self.parts[part as usize].as_ptr().cast_mut().cast::<u8>();
        // SAFETY: the words are aligned, as many as the layout says, private to this value, atomic
        // (so they may be changed through a shared reference), and borrowed as long as the result.
        unsafe { Memory::new(self.layout, at) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_two_values_share_a_place(
            vertices in 1usize..5000, edges in 0usize..100, workers in 1usize..5,
        ) {
            let layout = Layout { vertices, edges, workers };
            let private = Private::new(layout);
            let memory = private.memory();
            let mut next = 1.0;
            let mut fresh = || { next += 1.0; next };
            for vertex in [0, vertices / 2, vertices - 1] {
                memory.set_rank(vertex, fresh());
                memory.set_share(Half::Even, vertex, fresh());
                memory.set_share(Half::Odd, vertex, fresh());
                let values = [
                    memory.rank(vertex),
                    memory.share(Half::Even, vertex),
                    memory.share(Half::Odd, vertex),
                ];
                prop_assert!(values.is_sorted_by(|a, b| a < b), "{:?}", values);
            }
            for worker in 0..workers {
                memory.set_phase(worker, 7);
                memory.set_heartbeat(worker, 8);
                for half in [Half::Even, Half::Odd] {
                    for block in 0..layout.blocks() {
                        prop_assert_eq!(memory.sums(worker, half, block), Sums::default());
                        let sums = Sums { dangling: fresh(), delta: fresh() };
                        memory.set_sums(worker, half, block, sums);
                        prop_assert_eq!(memory.sums(worker, half, block), sums);
                    }
                }
                prop_assert_eq!((memory.phase(worker), memory.heartbeat(worker)), (7, 8));
            }
        }
    }
}
