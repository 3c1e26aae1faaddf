//! PageRank (Brin and Page, 1998) by pulling along incoming edges, over memory that is shared or
//! private. Pure but for the memory: no clock, no output.
//!
//! ```text
//! rank(v) = (1 - d) / n + d * (dangling / n + sum of rank(u) / degree(u) over edges u -> v)
//! ```
//!
//! `dangling` is the rank of all vertices that no edge leaves; it goes to all vertices alike, so
//! ranks add up to 1. Sums over vertices are taken block by block and then over the blocks in order,
//! and a vertex's edges are added in order. As blocks depend on the graph alone, the result is the
//! same to the last bit, however many workers share the blocks.
//!
//! One barrier an iteration is enough: what vertices pass on is kept twice, and is read in one half
//! while the next iteration's is written to the other.

use std::ops::Range;

use crate::{
    barrier::{Barrier, Stuck},
    layout,
    memory::{Half, Memory, Sums},
};

/// How much of a rank is passed on; the rest is spread over all vertices.
pub const DAMPING: f64 = 0.85;

/// When to stop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Most iterations.
    pub iterations: u64,
    /// Enough when all ranks together changed by less.
    pub tolerance: f64,
}

/// The result; all but the last field are the same for all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Iterations done.
    pub iterations: u64,
    /// By how much all ranks together changed in the last one.
    pub delta: f64,
    /// How often this worker accessed the parts that hold graph, ranks and shares.
    pub accesses: u64,
}

/// A worker's progress.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// An iteration is done, and ranks changed by so much in it.
    Iteration {
        /// Its number, from 1.
        number: u64,
        /// By how much all ranks together changed.
        delta: f64,
    },
    /// Within a long iteration.
    Alive,
}

/// Why a worker did not finish.
#[derive(Debug, thiserror::Error)]
pub enum Error<E: std::error::Error + 'static> {
    /// Another worker does not arrive.
    #[error(transparent)]
    Stuck(#[from] Stuck),
    /// The watcher stopped it.
    #[error(transparent)]
    Watcher(E),
}

/// Accesses to memory of one iteration over so many vertices with so many edges into them: the
/// vertex's offset, degree, rank (read and written) and share; the edge's source and its share.
pub const fn accesses(vertices: u64, edges: u64) -> u64 {
    5 * vertices + 2 * edges
}

/// Divides the blocks among `workers`, by the accesses that they cost. `offsets` are the graph's.
pub fn divide(layout: layout::Layout, offsets: &[u64]) -> Vec<Range<usize>> {
    let weights: Vec<_> = (0..layout.blocks())
        .map(|block| {
            let rows = layout.block(block);
            let edges = offsets[rows.end] - offsets[rows.start];
            accesses(rows.len() as u64, edges)
        })
        .collect();
    layout::divide(&weights, layout.workers)
}

/// One of the workers that share a computation.
#[derive(Debug)]
pub struct Worker<'a> {
    memory: Memory<'a>,
    number: usize,
    /// The blocks of each worker, in order.
    owners: &'a [Range<usize>],
    settings: Settings,
    accesses: u64,
}

impl<'a> Worker<'a> {
    /// The worker called `number`, whose blocks are `owners[number]`.
    pub fn new(
        memory: Memory<'a>,
        number: usize,
        owners: &'a [Range<usize>],
        settings: Settings,
    ) -> Self {
        Self {
            memory,
            number,
            owners,
            settings,
            accesses: 0,
        }
    }

    /// Does its part, from the moment when the graph is in memory. When it returns, all ranks are
    /// final, those of the other workers as well.
    ///
    /// # Errors
    ///
    /// When another worker does not arrive; those of `watch`.
    pub fn run<E: std::error::Error + 'static>(
        &mut self,
        barrier: &mut Barrier<'_>,
        mut watch: impl FnMut(Step) -> Result<(), E>,
    ) -> Result<Outcome, Error<E>> {
        self.start();
        barrier.arrive()?;
        let mut dangling = self.total(Half::of(0)).dangling;
        let (mut iterations, mut delta) = (0, f64::INFINITY);
        while iterations < self.settings.iterations && delta >= self.settings.tolerance {
            iterations += 1;
            let mut sums = Vec::new();
            for block in self.owners[self.number].clone() {
                sums.push((block, self.iterate(block, iterations, dangling)));
                if barrier.show_life() {
                    watch(Step::Alive).map_err(Error::Watcher)?;
                }
            }
            // All at once, since other workers may be polling their region.
            for (block, sums) in sums {
                let half = Half::of(iterations);
                self.memory.set_sums(self.number, half, block, sums);
            }
            barrier.arrive()?;
            // All workers read the same sums, and so decide alike.
            let total = self.total(Half::of(iterations));
            (dangling, delta) = (total.dangling, total.delta);
            let number = iterations;
            watch(Step::Iteration { number, delta }).map_err(Error::Watcher)?;
        }
        Ok(Outcome {
            iterations,
            delta,
            accesses: self.accesses,
        })
    }

    /// All ranks are equal at first.
    fn start(&mut self) {
        let half = Half::of(0);
        let rank = 1.0 / self.memory.layout().vertices as f64;
        for block in self.owners[self.number].clone() {
            let mut sums = Sums::default();
            let rows = self.memory.layout().block(block);
            self.accesses += 3 * rows.len() as u64;
            for vertex in rows {
                self.memory.set_rank(vertex, rank);
                sums.dangling += self.pass_on(half, vertex, rank);
            }
            self.memory.set_sums(self.number, half, block, sums);
        }
    }

    /// One iteration over one block; its sums.
    fn iterate(&mut self, block: usize, iteration: u64, dangling: f64) -> Sums {
        let memory = self.memory;
        let (before, after) = (Half::of(iteration - 1), Half::of(iteration));
        let vertices = memory.layout().vertices as f64;
        let everywhere = (1.0 - DAMPING) / vertices + DAMPING * dangling / vertices;
        let rows = memory.layout().block(block);
        let mut sums = Sums::default();
        let mut edge = memory.offset(rows.start);
        let first = edge;
        for vertex in rows.clone() {
            let end = memory.offset(vertex + 1);
            let mut pulled = 0.0;
            while edge < end {
                pulled += memory.share(before, memory.source(edge));
                edge += 1;
            }
            let rank = everywhere + DAMPING * pulled;
            sums.delta += (rank - memory.rank(vertex)).abs();
            memory.set_rank(vertex, rank);
            sums.dangling += self.pass_on(after, vertex, rank);
        }
        self.accesses += accesses(rows.len() as u64, (edge - first) as u64);
        sums
    }

    /// Stores what `vertex` passes on along each of its edges; returns its rank if it has none.
    fn pass_on(&self, half: Half, vertex: usize, rank: f64) -> f64 {
        let degree = self.memory.degree(vertex);
        let (share, left) = if degree == 0 {
            (0.0, rank)
        } else {
            (rank / f64::from(degree), 0.0)
        };
        self.memory.set_share(half, vertex, share);
        left
    }

    /// The sums over all blocks.
    fn total(&self, half: Half) -> Sums {
        let mut total = Sums::default();
        for (worker, blocks) in self.owners.iter().enumerate() {
            for block in blocks.clone() {
                let sums = self.memory.sums(worker, half, block);
                total.dangling += sums.dangling;
                total.delta += sums.delta;
            }
        }
        total
    }
}
