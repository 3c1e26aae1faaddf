//! The results of a run of the demo, as numbers; [`tables`](crate::tables) prints them.

use std::collections::BTreeMap;
use std::time::Duration;

use mind_api::program::BladeReport;
use mind_common::verdict::Verdict;
use serde::Serialize;

use crate::{graph::Named, job::Done, layout::Layout, private::Expected};

/// The largest difference of two ranks that counts as equal. The same operations in the same order
/// give the same bits, so 0 is expected; this is what another compiler's fusing of operations might
/// make of it.
pub const TOLERANCE: f64 = 1e-12;

/// How many of the highest ranks are shown.
const TOP: usize = 10;

/// All of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// What was ranked, and in how much memory.
    pub job: Summary,
    /// Shared against private memory.
    pub comparison: Comparison,
    /// The highest ranks.
    pub top: Vec<Top>,
    /// Each compute blade.
    pub blades: Vec<Blade>,
    /// Pages that crossed the network.
    pub pages: Pages,
    /// Packets at all ports of the switch by verdict, without verdicts that no packet got.
    pub packets: BTreeMap<String, u64>,
}

/// What was ranked, and in how much memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Where the graph comes from.
    pub graph: String,
    /// Its vertices.
    pub vertices: usize,
    /// Its edges.
    pub edges: usize,
    /// Compute blades, each with a worker.
    pub compute_blades: usize,
    /// Memory blades.
    pub memory_blades: usize,
    /// Bytes of the job's memory.
    pub footprint_bytes: u64,
    /// Bytes of each compute blade's page cache.
    pub cache_bytes: u64,
    /// Iterations done.
    pub iterations: u64,
    /// By how much all ranks together changed in the last one.
    pub last_change: f64,
    /// How long the iterations took in shared memory; the slowest worker's time.
    pub shared_seconds: f64,
    /// How long they took in the private memory of one process.
    pub private_seconds: f64,
}

/// Shared against private memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The largest absolute difference of two ranks.
    pub largest_difference: f64,
    /// The vertex whose ranks differ most, if any do.
    pub at: Option<String>,
    /// Whether all blades see the same ranks to the last bit.
    pub blades_agree: bool,
    /// Whether the shared and the private computation took as many iterations.
    pub same_iterations: bool,
}

/// One of the highest ranks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Top {
    /// The vertex.
    pub name: String,
    /// As calculated in shared memory.
    pub shared: f64,
    /// As calculated in private memory.
    pub private: f64,
}

/// A compute blade.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Blade {
    /// Its name.
    pub name: String,
    /// How often its worker accessed the job's memory.
    pub accesses: u64,
    /// The part of these accesses that needed nothing from elsewhere: 1 - requests / accesses.
    pub hit_rate: f64,
    /// Its agent's counters.
    pub counted: BladeReport,
}

/// Pages that crossed the network, as the switch saw them; a page that was asked for again because
/// an answer was lost counts again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pages {
    /// From memory blades to compute blades.
    pub from_memory: u64,
    /// From a compute blade that owned them to another.
    pub from_blades: u64,
    /// From compute blades to memory blades.
    pub written_back: u64,
}

impl Pages {
    /// All of them.
    pub const fn moved(self) -> u64 {
        self.from_memory + self.from_blades + self.written_back
    }

    fn of(packets: &BTreeMap<String, u64>) -> Self {
        let count = |verdict: Verdict| packets.get(verdict.name()).copied().unwrap_or(0);
        Self {
            from_memory: count(Verdict::Fetch) + count(Verdict::Fetched),
            from_blades: count(Verdict::PageForwarded),
            written_back: count(Verdict::WriteBack),
        }
    }
}

/// What a worker returned.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its blade.
    pub blade: String,
    /// Its result.
    pub done: Done,
    /// The counters of the blade's agent.
    pub counted: BladeReport,
}

/// All that a report is made from.
#[derive(Clone, Debug)]
pub struct Findings<'a> {
    /// The graph.
    pub named: &'a Named,
    /// The job's memory.
    pub layout: Layout,
    /// Memory blades.
    pub memory_blades: usize,
    /// What is expected.
    pub expected: &'a Expected,
    /// What is there instead.
    pub ranks: &'a [f64],
    /// The workers, in order.
    pub parts: Vec<Part>,
    /// Packets by verdict.
    pub packets: BTreeMap<String, u64>,
}

impl Report {
    /// Compares and adds up.
    pub fn new(findings: Findings<'_>) -> Self {
        let Findings {
            named,
            layout,
            memory_blades,
            expected,
            ranks,
            parts,
            packets,
        } = findings;
        let first = parts.first().map(|part| &part.done);
        let slowest = parts.iter().map(|part| part.done.nanos).max().unwrap_or(0);
        let digest = crate::worker::digest(ranks);
        let (largest_difference, at) = largest_difference(ranks, &expected.ranks);
        let iterations = first.map_or(0, |done| done.iterations);
        Self {
            job: Summary {
                graph: named.origin.clone(),
                vertices: layout.vertices,
                edges: layout.edges,
                compute_blades: parts.len(),
                memory_blades,
                footprint_bytes: layout.footprint(),
                cache_bytes: layout.cache(),
                iterations,
                last_change: first.map_or(0.0, |done| done.delta),
                shared_seconds: Duration::from_nanos(slowest).as_secs_f64(),
                private_seconds: expected.elapsed.as_secs_f64(),
            },
            comparison: Comparison {
                largest_difference,
                at: at.map(|vertex| named.names[vertex].clone()),
                blades_agree: parts.iter().all(|part| part.done.digest == digest),
                same_iterations: iterations == expected.outcome.iterations,
            },
            top: top(named, ranks, &expected.ranks),
            pages: Pages::of(&packets),
            blades: parts.into_iter().map(Blade::new).collect(),
            packets,
        }
    }

    /// What is wrong with the result, if anything is.
    pub fn fault(&self) -> Option<String> {
        let Comparison {
            largest_difference,
            at,
            blades_agree,
            same_iterations,
        } = &self.comparison;
        // Not `>`: a rank that is no number is wrong.
        if !matches!(
            largest_difference.partial_cmp(&TOLERANCE),
            Some(std::cmp::Ordering::Less | std::cmp::Ordering::Equal)
        ) {
            return Some(format!(
                "ranks in shared memory differ from those in private memory, by {largest_difference:e} \
                 at `{}`; expected at most {TOLERANCE:e}",
                at.as_deref().unwrap_or("none")
            ));
        }
        if !blades_agree {
            return Some("two blades see different ranks in the same memory".to_owned());
        }
        if !same_iterations {
            return Some(
                "shared and private memory took different numbers of iterations".to_owned(),
            );
        }
        None
    }
}

impl Blade {
    fn new(part: Part) -> Self {
        let accesses = part.done.accesses;
        let missed = part.counted.requests.min(accesses);
        Self {
            name: part.blade,
            accesses,
            hit_rate: ratio(accesses - missed, accesses),
            counted: part.counted,
        }
    }
}

/// `part` of `whole`; of nothing, all.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        1.0
    } else {
        part as f64 / whole as f64
    }
}

/// The largest absolute difference, and where it is. A value that is no number differs most.
fn largest_difference(found: &[f64], expected: &[f64]) -> (f64, Option<usize>) {
    let mut largest = (0.0, None);
    for (vertex, (found, expected)) in found.iter().zip(expected).enumerate() {
        let difference = (found - expected).abs();
        if difference.is_nan() {
            return (f64::INFINITY, Some(vertex));
        }
        if difference > largest.0 {
            largest = (difference, Some(vertex));
        }
    }
    if found.len() != expected.len() {
        return (f64::INFINITY, None);
    }
    largest
}

fn top(named: &Named, shared: &[f64], private: &[f64]) -> Vec<Top> {
    let mut order: Vec<_> = (0..shared.len().min(private.len())).collect();
    order.sort_by(|a, b| shared[*b].total_cmp(&shared[*a]).then(a.cmp(b)));
    let name = |vertex: usize| Top {
        name: named.names[vertex].clone(),
        shared: shared[vertex],
        private: private[vertex],
    };
    order.into_iter().take(TOP).map(name).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::graph::Graph;
    use crate::private;
    use crate::rank::Settings;
    use mind_api::program::TransitionReport;

    /// A report about three packages; `change` may change what was found.
    pub(crate) fn report(change: impl FnOnce(&mut Vec<f64>, &mut Vec<Part>)) -> Report {
        let named = Named {
            origin: "a list".to_owned(),
            names: ["app", "lib", "libc6"].map(str::to_owned).to_vec(),
            graph: Graph::new(3, vec![(0, 1), (0, 2), (1, 2)]),
        };
        let settings = Settings {
            iterations: 10,
            tolerance: 0.0,
        };
        let expected = private::run(&named.graph, settings);
        let mut ranks = expected.ranks.clone();
        let done = Done {
            iterations: 10,
            delta: expected.outcome.delta,
            accesses: 1000,
            nanos: 2_500_000_000,
            digest: crate::worker::digest(&ranks),
            ranks: 0,
        };
        let transition = |transition: &str, count, p50_ns, p99_ns| TransitionReport {
            transition: transition.to_owned(),
            count,
            p50_ns,
            p99_ns,
            ..TransitionReport::default()
        };
        let part = |blade: &str| Part {
            blade: blade.to_owned(),
            done: done.clone(),
            counted: BladeReport {
                faults: 60,
                hits: 10,
                requests: 50,
                invalidations: 7,
                false_invalidations: 2,
                write_backs: 20,
                transitions: vec![
                    transition("I->S", 40, 52_400, 1_250_000),
                    transition("owned", 0, 0, 0),
                ],
                ..BladeReport::default()
            },
        };
        let mut parts = vec![part("c0"), part("c1")];
        change(&mut ranks, &mut parts);
        Report::new(Findings {
            named: &named,
            layout: Layout {
                vertices: 3,
                edges: 3,
                workers: 2,
            },
            memory_blades: 2,
            expected: &expected,
            ranks: &ranks,
            parts,
            packets: [
                ("fetch", 30),
                ("fetched", 4),
                ("page-forwarded", 5),
                ("write-back", 40),
            ]
            .map(|(verdict, count)| (verdict.to_owned(), count))
            .into(),
        })
    }

    #[test]
    fn equal_ranks_are_without_fault() {
        let report = report(|_, _| ());
        assert_eq!(report.comparison.largest_difference, 0.0);
        assert_eq!(report.fault(), None);
        let names: Vec<_> = report.top.iter().map(|top| top.name.as_str()).collect();
        assert_eq!(names, ["libc6", "lib", "app"]);
        assert_eq!(report.blades[0].hit_rate, 0.95);
        assert_eq!(report.pages.moved(), 79);
        assert_eq!(report.job.shared_seconds, 2.5);
    }

    #[test]
    fn a_difference_is_a_fault_that_names_the_vertex() {
        let fault = report(|ranks, _| ranks[1] += 1e-9).fault().unwrap();
        assert!(
            fault.contains("at `lib`; expected at most 1e-12"),
            "{fault}"
        );
        let fault = report(|ranks, _| ranks[2] = f64::NAN).fault().unwrap();
        assert!(fault.contains("by inf at `libc6`"), "{fault}");
        assert!(report(|ranks, _| ranks.truncate(2)).fault().is_some());
    }

    #[test]
    fn blades_that_see_different_ranks_are_a_fault() {
        let fault = report(|_, parts| parts[1].done.digest ^= 1)
            .fault()
            .unwrap();
        assert!(fault.contains("two blades see different ranks"), "{fault}");
        let fault = report(|_, parts| parts[0].done.iterations = 9)
            .fault()
            .unwrap();
        assert!(fault.contains("different numbers of iterations"), "{fault}");
    }

    #[test]
    fn the_report_is_json() {
        let value = serde_json::to_value(report(|_, _| ())).unwrap();
        assert_eq!(value["job"]["vertices"], 3);
        assert_eq!(value["comparison"]["largest_difference"], 0.0);
        assert_eq!(value["blades"][1]["name"], "c1");
        assert_eq!(
            value["blades"][0]["counted"]["transitions"][0]["p50_ns"],
            52_400
        );
        assert_eq!(value["pages"]["written_back"], 40);
        assert_eq!(value["packets"]["page-forwarded"], 5);
        assert_eq!(value["top"][0]["name"], "libc6");
    }
}
