//! The workers' own code, by threads over private memory: the same path as over shared memory.

use std::cell::RefCell;
use std::io;

use mind_demo::graph::Graph;
use mind_demo::job::{Done, Event, Job, LOADER};
use mind_demo::layout::Layout;
use mind_demo::memory::{Memory, Private};
use mind_demo::private;
use mind_demo::rank::{self, Settings};
use mind_demo::worker;
use proptest::prelude::*;

/// The events and result of one worker.
struct Said {
    events: Vec<Event>,
    done: Done,
    ranks: Vec<f64>,
}

fn job(graph: &Graph, workers: usize, settings: Settings) -> Job {
    let layout = Layout {
        vertices: graph.vertices(),
        edges: graph.edges(),
        workers,
    };
    Job {
        worker: 0,
        vertices: layout.vertices,
        edges: layout.edges,
        owners: rank::divide(layout, graph.offsets()),
        iterations: settings.iterations,
        tolerance: settings.tolerance,
        patience_ms: 20_000,
    }
}

fn work(memory: Memory<'_>, job: &Job, graph: &Graph) -> Said {
    let events = RefCell::new(Vec::new());
    let report = |event: &Event| -> io::Result<()> {
        events.borrow_mut().push(event.clone());
        Ok(())
    };
    let graph = (job.worker == LOADER).then_some(graph);
    let (done, ranks) = worker::work(memory, job, graph, report).unwrap();
    Said {
        events: events.into_inner(),
        done,
        ranks,
    }
}

/// All workers at once.
fn together(graph: &Graph, job: &Job) -> Vec<Said> {
    let private = Private::new(job.layout());
    let memory = private.memory();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..job.owners.len())
            .map(|worker| {
                let job = Job {
                    worker,
                    ..job.clone()
                };
                scope.spawn(move || work(memory, &job, graph))
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    })
}

/// A graph of several blocks: everything points at few vertices, and some point nowhere.
fn large() -> Graph {
    let vertices = 20_000;
    let mut edges = Vec::new();
    for from in (0..vertices).filter(|from| from % 7 != 0) {
        edges.extend([
            (from, from / 10),
            (from, from % 13),
            (from, (from * 31) % vertices),
        ]);
    }
    Graph::new(vertices as usize, edges)
}

#[test]
fn any_number_of_workers_has_the_ranks_of_one_to_the_last_bit() {
    let graph = large();
    let settings = Settings {
        iterations: 30,
        tolerance: 1e-9,
    };
    let expected = private::run(&graph, settings);
    let sum: f64 = expected.ranks.iter().sum();
    assert!((sum - 1.0).abs() < 1e-12, "ranks add up to {sum}");
    for workers in [1, 2, 3, 8] {
        let said = together(&graph, &job(&graph, workers, settings));
        assert_eq!(said.len(), workers);
        for (worker, said) in said.iter().enumerate() {
            assert_eq!(
                said.done.digest,
                worker::digest(&expected.ranks),
                "worker {worker}"
            );
            assert_eq!(said.done.iterations, expected.outcome.iterations);
            assert_eq!(said.done.delta.to_bits(), expected.outcome.delta.to_bits());
        }
        assert_eq!(said[LOADER].ranks, expected.ranks);
        assert!(
            said[1..].iter().all(|said| said.ranks.is_empty()),
            "one sends the ranks"
        );
    }
}

#[test]
fn every_worker_reports_every_iteration() {
    let graph = Graph::new(3, vec![(0, 1), (1, 2), (2, 0), (0, 2)]);
    let settings = Settings {
        iterations: 5,
        tolerance: 0.0,
    };
    for said in together(&graph, &job(&graph, 2, settings)) {
        assert_eq!(said.events[0], Event::Loaded);
        let numbers: Vec<_> = said.events[1..]
            .iter()
            .map(|event| match event {
                Event::Iteration { number, .. } => *number,
                other => panic!("unexpected {other:?}"),
            })
            .collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5]);
    }
}

#[test]
fn a_worker_that_is_alone_names_the_one_that_it_waits_for() {
    let graph = Graph::new(3, vec![(0, 1), (1, 2)]);
    let settings = Settings {
        iterations: 5,
        tolerance: 0.0,
    };
    let job = Job {
        patience_ms: 20,
        ..job(&graph, 2, settings)
    };
    let private = Private::new(job.layout());
    let error = worker::work(private.memory(), &job, Some(&graph), |_| Ok(())).unwrap_err();
    let text = format!("{error:#}");
    assert!(
        text.starts_with("loading the graph: worker 1 has not responded"),
        "{text}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn however_the_blocks_are_divided_the_ranks_are_the_same(
        vertices in 1usize..200,
        pairs in prop::collection::vec((any::<u32>(), any::<u32>()), 0..600),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let number = |pair: u32| pair % vertices as u32;
        let edges = pairs.iter().map(|(from, to)| (number(*from), number(*to))).collect();
        let graph = Graph::new(vertices, edges);
        let settings = Settings { iterations: 8, tolerance: 0.0 };
        let expected = private::run(&graph, settings);
        let sum: f64 = expected.ranks.iter().sum();
        prop_assert!((sum - 1.0).abs() < 1e-12);

        let workers = cuts.len() + 1;
        let mut job = job(&graph, workers, settings);
        let blocks = job.layout().blocks();
        let mut bounds: Vec<_> = cuts.iter().map(|cut| cut.index(blocks + 1)).collect();
        bounds.sort_unstable();
        bounds.push(blocks);
        let mut start = 0;
        job.owners = bounds.into_iter().map(|end| std::mem::replace(&mut start, end)..end).collect();
        for said in together(&graph, &job) {
            prop_assert_eq!(said.done.digest, worker::digest(&expected.ranks));
        }
    }
}
