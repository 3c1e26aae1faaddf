//! What each kind of generator accesses: an endless stream for each thread.
//!
//! | Kind | A thread |
//! |---|---|
//! | uniform | accesses a shared page or one of its own, each with the same chance (MIND, SOSP 2021, section 7.2) |
//! | zipf | accesses a page of all by Zipf's law |
//! | YCSB A, C | finds a record of 1 KiB by an index page, and reads it; in A it updates every second |
//! | graph | for each of its vertices: reads its edges, the ranks of 16 others, and writes its rank (PageRank) |
//! | training | for each batch: reads examples and all parameters, writes gradients, then sums its part of all threads' |

use fastrand::Rng;

use super::{
    Kind, Spec,
    layout::{Area, Layout},
    zipf::{Zipf, scattered},
};

/// Records of 1 KiB in a page.
const RECORDS_PER_PAGE: u64 = 4;
/// Pages of records for each page of the index, which has 16 bytes for a record.
pub(super) const RECORD_PAGES_PER_INDEX_PAGE: u64 = 64;
/// Vertices whose ranks are in a page.
const VERTICES_PER_PAGE: u64 = 512;
/// Edges of a vertex.
const EDGES: u64 = 16;
/// Vertices whose edges, of 4 bytes each, are in a page.
const VERTICES_PER_EDGE_PAGE: u64 = 64;
/// Pages of edges for each page of ranks.
pub(super) const EDGE_PAGES_PER_RANK_PAGE: u64 = VERTICES_PER_PAGE / VERTICES_PER_EDGE_PAGE;
/// How unequally vertices are linked to: in-degrees of web and social graphs follow power laws of about this kind.
const GRAPH_THETA: f64 = 0.75;
/// Pages of examples in a batch.
const BATCH: u64 = 32;
/// Accesses to a page that is gone through: its lines of 64 bytes.
const WHOLE_PAGE: u32 = 64;

/// A thread's next accesses, all to one page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) page: u32,
    pub(super) is_write: bool,
    pub(super) count: u32,
}

impl Step {
    const fn one(page: u32, is_write: bool) -> Self {
        Self {
            page,
            is_write,
            count: 1,
        }
    }

    const fn whole(page: u32, is_write: bool) -> Self {
        Self {
            page,
            is_write,
            count: WHOLE_PAGE,
        }
    }
}

/// A thread's accesses.
#[derive(Clone, Debug)]
pub(super) enum Stream {
    Uniform {
        shared: Area,
        own: Area,
        reads: f64,
        sharing: f64,
    },
    Zipf {
        all: Area,
        zipf: Zipf,
        reads: f64,
    },
    Store(Store),
    Graph(Graph),
    Training(Training),
}

impl Stream {
    /// One for each thread.
    pub(super) fn all(spec: &Spec, layout: &Layout) -> Vec<Self> {
        let zipf = |items| Zipf::new(items, spec.theta);
        let threads = spec.threads();
        let own = |thread: usize| layout.own.get(thread).copied().unwrap_or_default();
        let stream: Box<dyn Fn(usize) -> Self + '_> = match spec.kind {
            Kind::Uniform => Box::new(|thread| Self::Uniform {
                shared: layout.shared,
                own: own(thread),
                reads: spec.reads,
                sharing: spec.sharing,
            }),
            Kind::Zipf => {
                let zipf = zipf(layout.shared.pages);
                Box::new(move |_| Self::Zipf {
                    all: layout.shared,
                    zipf,
                    reads: spec.reads,
                })
            }
            Kind::YcsbA | Kind::YcsbC => {
                let store = Store {
                    records: layout.shared,
                    index: layout.second,
                    zipf: zipf(layout.shared.pages * RECORDS_PER_PAGE),
                    reads: if matches!(spec.kind, Kind::YcsbA) {
                        0.5
                    } else {
                        1.0
                    },
                    found: None,
                };
                Box::new(move |_| Self::Store(store.clone()))
            }
            Kind::Graph => {
                let zipf = Zipf::new(layout.shared.pages * VERTICES_PER_PAGE, GRAPH_THETA);
                Box::new(move |thread| {
                    Self::Graph(Graph {
                        ranks: [layout.shared, layout.second],
                        own: [layout.shared, layout.second]
                            .map(|ranks| ranks.part(thread, threads)),
                        edges: layout.input,
                        zipf,
                        vertex: 0,
                        step: 0,
                    })
                })
            }
            Kind::Training => Box::new(|thread| {
                Self::Training(Training {
                    parameters: layout.shared,
                    part: layout.shared.part(thread, threads),
                    gradients: layout.own.clone(),
                    thread,
                    examples: layout.input.part(thread, threads),
                    example: 0,
                    step: 0,
                })
            }),
        };
        (0..threads).map(stream).collect()
    }

    pub(super) fn next(&mut self, random: &mut Rng) -> Step {
        match self {
            Self::Uniform {
                shared,
                own,
                reads,
                sharing,
            } => {
                let area = if random.f64() < *sharing { shared } else { own };
                let page = area.page(random.u64(0..area.pages));
                Step::one(page, random.f64() >= *reads)
            }
            Self::Zipf { all, zipf, reads } => {
                Step::one(all.page(zipf.key(random)), random.f64() >= *reads)
            }
            Self::Store(store) => store.next(random),
            Self::Graph(graph) => graph.next(random),
            Self::Training(training) => training.next(),
        }
    }
}

/// A key-value store.
#[derive(Clone, Debug)]
pub(super) struct Store {
    records: Area,
    index: Area,
    zipf: Zipf,
    reads: f64,
    /// The record that was just looked up.
    found: Option<u64>,
}

impl Store {
    fn next(&mut self, random: &mut Rng) -> Step {
        match self.found.take() {
            None => {
                let key = self.zipf.key(random);
                self.found = Some(key);
                // In a hash table, keys that are neighbours are not.
                Step::one(self.index.page(scattered(key) % self.index.pages), false)
            }
            Some(key) => {
                let page = self.records.page(key / RECORDS_PER_PAGE);
                Step::one(page, random.f64() >= self.reads)
            }
        }
    }
}

/// PageRank: each iteration reads the ranks of the last one. Threads do not wait for each other between iterations.
#[derive(Clone, Debug)]
pub(super) struct Graph {
    /// Those that are read first, and those that are written first.
    ranks: [Area; 2],
    /// The thread's own of both.
    own: [Area; 2],
    edges: Area,
    zipf: Zipf,
    /// Of the thread's own, which is next, over all iterations.
    vertex: u64,
    /// What is next of it.
    step: u64,
}

impl Graph {
    fn next(&mut self, random: &mut Rng) -> Step {
        let vertices = self.own[0].pages * VERTICES_PER_PAGE;
        let (iteration, vertex) = (self.vertex / vertices, self.vertex % vertices);
        let (read, written) = ((iteration % 2) as usize, ((iteration + 1) % 2) as usize);
        let step = self.step;
        self.step += 1;
        if step == 0 {
            let first = u64::from(self.own[0].first - self.ranks[0].first) * VERTICES_PER_PAGE;
            Step::one(
                self.edges.page((first + vertex) / VERTICES_PER_EDGE_PAGE),
                false,
            )
        } else if step <= EDGES {
            let other = self.zipf.key(random) / VERTICES_PER_PAGE;
            Step::one(self.ranks[read].page(other), false)
        } else {
            (self.vertex, self.step) = (self.vertex + 1, 0);
            Step::one(self.own[written].page(vertex / VERTICES_PER_PAGE), true)
        }
    }
}

/// Training with the same model on all threads, each on its own examples. Threads do not wait for each other.
#[derive(Clone, Debug)]
pub(super) struct Training {
    parameters: Area,
    /// The thread's part of them.
    part: Area,
    /// Those of all threads.
    gradients: Vec<Area>,
    thread: usize,
    /// The thread's own.
    examples: Area,
    /// Which is next.
    example: u64,
    /// What is next of the batch.
    step: u64,
}

impl Training {
    fn next(&mut self) -> Step {
        let threads = self.gradients.len() as u64;
        let mut step = self.step;
        self.step += 1;
        if step < BATCH {
            self.example += 1;
            return Step::whole(
                self.examples.page(self.example % self.examples.pages),
                false,
            );
        }
        step -= BATCH;
        if step < 2 * self.parameters.pages {
            let page = step / 2;
            return match step % 2 {
                0 => Step::whole(self.parameters.page(page), false),
                _ => Step::whole(self.gradients[self.thread].page(page), true),
            };
        }
        step -= 2 * self.parameters.pages;
        let (page, of) = (step / (threads + 1), step % (threads + 1));
        if page == self.part.pages {
            self.step = 0;
            return self.next();
        }
        // The same page of all gradients, beginning with the thread's own.
        let at = u64::from(self.part.first - self.parameters.first) + page;
        if of < threads {
            let thread = (self.thread as u64 + of) % threads;
            Step::whole(self.gradients[thread as usize].page(at), false)
        } else {
            Step::whole(self.part.page(page), true)
        }
    }
}
