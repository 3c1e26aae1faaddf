//! The same computation in one process's private memory, for comparison.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use crate::{
    barrier::Barrier,
    graph::Graph,
    layout::Layout,
    memory::Private,
    rank::{self, Outcome, Settings, Worker},
};

/// Its ranks and result.
#[derive(Clone, Debug)]
pub struct Expected {
    /// Rank by vertex.
    pub ranks: Vec<f64>,
    /// The result.
    pub outcome: Outcome,
    /// How long the iterations took.
    pub elapsed: Duration,
}

/// Ranks the vertices of `graph`, with the worker's own code.
pub fn run(graph: &Graph, settings: Settings) -> Expected {
    let layout = Layout {
        vertices: graph.vertices(),
        edges: graph.edges(),
        workers: 1,
    };
    let private = Private::new(layout);
    let memory = private.memory();
    let loaded: Result<(), Infallible> = memory.load(graph, || Ok(()));
    let Ok(()) = loaded;
    let owners = rank::divide(layout, graph.offsets());
    let mut barrier = Barrier::new(memory, 0, Duration::MAX);
    let begin = Instant::now();
    let result =
        Worker::new(memory, 0, &owners, settings).run(&mut barrier, |_| Ok::<(), Infallible>(()));
    let elapsed = begin.elapsed();
    let outcome = result.expect("the only worker waits for no other, and is not stopped");
    Expected {
        ranks: (0..layout.vertices)
            .map(|vertex| memory.rank(vertex))
            .collect(),
        outcome,
        elapsed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank::DAMPING;

    const MANY: Settings = Settings {
        iterations: 1000,
        tolerance: 1e-14,
    };

    fn ranks(vertices: usize, edges: &[(u32, u32)], settings: Settings) -> Vec<f64> {
        run(&Graph::new(vertices, edges.to_vec()), settings).ranks
    }

    fn assert_close(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!(
                (found - expected).abs() < 1e-12,
                "{found} should be {expected}"
            );
        }
    }

    #[test]
    fn a_ring_has_equal_ranks() {
        assert_close(
            &ranks(4, &[(0, 1), (1, 2), (2, 3), (3, 0)], MANY),
            &[0.25; 4],
        );
    }

    #[test]
    fn a_chain_of_two_is_as_calculated_by_hand() {
        // No edge leaves b, so half of its rank goes to each: a = (1 - d) / 2 + d b / 2. With
        // a + b = 1 that is a = 1 / (2 + d).
        let a = 1.0 / (2.0 + DAMPING);
        let b = 1.0 - a;
        assert_close(&ranks(2, &[(0, 1)], MANY), &[a, b]);
    }

    #[test]
    fn one_iteration_is_as_calculated_by_hand() {
        // 0 -> 1, 0 -> 2, 1 -> 2; 2 is dangling. All begin with 1/3.
        let once = Settings {
            iterations: 1,
            tolerance: 0.0,
        };
        let third = 1.0 / 3.0;
        let everywhere = (1.0 - DAMPING) / 3.0 + DAMPING * third / 3.0;
        let expected = [
            everywhere,
            everywhere + DAMPING * third / 2.0,
            everywhere + DAMPING * (third / 2.0 + third),
        ];
        assert_close(&ranks(3, &[(0, 1), (0, 2), (1, 2)], once), &expected);
    }

    #[test]
    fn it_stops_at_the_tolerance_or_the_last_iteration() {
        let graph = Graph::new(3, vec![(0, 1), (1, 2), (2, 0), (0, 2)]);
        let loose = run(
            &graph,
            Settings {
                iterations: 1000,
                tolerance: 1e-3,
            },
        );
        assert!(loose.outcome.delta < 1e-3 && loose.outcome.iterations < 100);
        let few = run(
            &graph,
            Settings {
                iterations: 5,
                tolerance: 0.0,
            },
        );
        assert_eq!(few.outcome.iterations, 5);
        assert_eq!(few.outcome.accesses, 3 * 3 + 5 * rank::accesses(3, 4));
    }

    #[test]
    fn a_single_vertex_has_all() {
        assert_close(&ranks(1, &[], MANY), &[1.0]);
    }
}
