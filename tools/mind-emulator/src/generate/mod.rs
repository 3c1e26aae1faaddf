//! Accesses that no program has made: generators, each of a kind, seeded, one stream for each thread.
//!
//! * [`spec`]: what is generated, as the command line says it,
//! * [`kinds`]: what each kind accesses,
//! * [`layout`]: where in memory that lies,
//! * [`zipf`]: keys of which few are chosen often.
//!
//! A thread's accesses follow from the seed and its number alone, in whatever order threads are asked.

pub mod command;
pub mod kinds;
pub mod layout;
pub mod spec;
pub mod zipf;

pub use spec::{Kind, Options, Spec};

use fastrand::Rng;

use crate::trace::{Access, Error, Shape, Source};
use kinds::Stream;

/// Accesses as they are asked for.
#[derive(Debug)]
pub struct Generator {
    shape: Shape,
    gap: u64,
    threads: Vec<Thread>,
}

#[derive(Debug)]
struct Thread {
    random: Rng,
    stream: Stream,
    /// Accesses that are left to make.
    left: u64,
}

impl Generator {
    /// A generator of that.
    pub fn new(spec: &Spec) -> Self {
        let layout = spec.layout();
        let threads = spec.threads() as u64;
        let streams = Stream::all(spec, &layout);
        let thread = |(number, stream)| {
            let number = number as u64;
            Thread {
                // Neighbouring seeds of the random numbers give unlike streams: fastrand scrambles its state (wyrand).
                random: Rng::with_seed(spec.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number),
                stream,
                left: spec.accesses / threads + u64::from(number < spec.accesses % threads),
            }
        };
        Self {
            shape: Shape {
                blades: spec.blades,
                threads: spec.blades_of_threads(),
                pages: layout.pages(),
                footprint: None,
                accesses: spec.accesses,
            },
            gap: spec.gap,
            threads: streams.into_iter().enumerate().map(thread).collect(),
        }
    }
}

impl Source for Generator {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn next(&mut self, thread: usize) -> Result<Option<Access>, Error> {
        let Some(thread) = self
            .threads
            .get_mut(thread)
            .filter(|thread| thread.left > 0)
        else {
            return Ok(None);
        };
        let step = thread.stream.next(&mut thread.random);
        let count = u64::from(step.count).min(thread.left);
        thread.left -= count;
        Ok(Some(Access {
            gap: self.gap,
            page: step.page,
            is_write: step.is_write,
            count: count as u32,
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn spec(kind: Kind) -> Spec {
        Spec {
            kind,
            blades: 4,
            threads_per_blade: 2,
            pages: 40_000,
            accesses: 200_000,
            reads: 0.5,
            sharing: 0.5,
            theta: 0.99,
            gap: 0,
            seed: 1,
        }
    }

    fn all(spec: &Spec) -> Vec<Vec<Access>> {
        let mut generator = Generator::new(spec);
        let all = |thread| std::iter::from_fn(|| generator.next(thread).unwrap()).collect();
        (0..spec.threads()).map(all).collect()
    }

    fn portion(accesses: &[Vec<Access>], is_one: impl Fn(usize, &Access) -> bool) -> f64 {
        let (mut ones, mut all) = (0, 0);
        for (thread, accesses) in accesses.iter().enumerate() {
            all += accesses.len();
            ones += accesses
                .iter()
                .filter(|access| is_one(thread, access))
                .count();
        }
        ones as f64 / all as f64
    }

    fn assert_near(found: f64, expected: f64) {
        assert!(
            (found - expected).abs() < 0.01,
            "{found} instead of {expected}"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn every_kind_makes_as_many_accesses_as_asked_for_to_its_pages(
            kind in prop::sample::select(Kind::ALL.to_vec()), pages in 0..3000u64, accesses in 1..20_000u64,
            blades in 1..=32u8, threads_per_blade in 1..4u16, seed: u64,
        ) {
            let pages = pages + spec::least_pages(usize::from(blades) * usize::from(threads_per_blade));
            let spec = Spec { pages, accesses, blades, threads_per_blade, seed, ..spec(kind) };
            let made = all(&spec);
            let generator = Generator::new(&spec);
            let count: u64 = made.iter().flatten().map(|access| u64::from(access.count)).sum();
            prop_assert_eq!(count, accesses);
            let end = generator.shape.pages;
            prop_assert!(made.iter().flatten().all(|access| u64::from(access.page) < end && access.count > 0));
        }

        #[test]
        fn a_seed_makes_the_same_again_in_any_order(kind in prop::sample::select(Kind::ALL.to_vec()), seed: u64) {
            let spec = Spec { seed, accesses: 2000, ..spec(kind) };
            let made = all(&spec);
            let mut generator = Generator::new(&spec);
            let mut again = vec![Vec::new(); spec.threads()];
            while again.iter().flatten().count() < made.iter().flatten().count() {
                for thread in (0..spec.threads()).rev() {
                    again[thread].extend(generator.next(thread).unwrap());
                }
            }
            prop_assert_eq!(again, made);
        }
    }

    #[test]
    fn another_seed_makes_others() {
        for kind in [
            Kind::Uniform,
            Kind::Zipf,
            Kind::YcsbA,
            Kind::YcsbC,
            Kind::Graph,
        ] {
            let other = Spec {
                seed: 2,
                ..spec(kind)
            };
            assert_ne!(all(&spec(kind)), all(&other), "{kind:?}");
        }
    }

    #[test]
    fn uniform_has_the_ratios_asked_for() {
        for (reads, sharing) in [(0.0, 1.0), (0.25, 0.75), (1.0, 0.0), (0.9, 0.1)] {
            let spec = Spec {
                reads,
                sharing,
                ..spec(Kind::Uniform)
            };
            let layout = spec.layout();
            let made = all(&spec);
            assert_near(portion(&made, |_, access| !access.is_write), reads);
            assert_near(
                portion(&made, |_, access| layout.shared.contains(access.page)),
                sharing,
            );
            let is_own = |thread: usize, access: &Access| {
                layout.shared.contains(access.page) || layout.own[thread].contains(access.page)
            };
            assert_eq!(portion(&made, is_own), 1.0);
            let pages: BTreeSet<_> = made.iter().flatten().map(|access| access.page).collect();
            assert!(pages.len() > 35_000, "{}", pages.len());
        }
    }

    #[test]
    fn half_of_the_keys_of_ycsb_a_are_updated_and_none_of_c() {
        let (a, c) = (all(&spec(Kind::YcsbA)), all(&spec(Kind::YcsbC)));
        // Of two accesses of an operation, the first reads the index.
        assert_near(portion(&a, |_, access| access.is_write), 0.25);
        assert_near(portion(&c, |_, access| access.is_write), 0.0);
    }

    #[test]
    fn threads_write_ranks_of_their_own_and_read_those_of_others() {
        let made = all(&spec(Kind::Graph));
        let written = |thread: usize| -> BTreeSet<_> {
            made[thread]
                .iter()
                .filter(|access| access.is_write)
                .map(|access| access.page)
                .collect()
        };
        assert!(written(0).is_disjoint(&written(1)) && !written(0).is_empty());
        // Of 18 accesses, one writes.
        assert_near(portion(&made, |_, access| access.is_write), 1.0 / 18.0);
    }

    #[test]
    fn all_threads_read_all_parameters_of_training() {
        let spec = Spec {
            accesses: 4_000_000,
            ..spec(Kind::Training)
        };
        let layout = spec.layout();
        for accesses in all(&spec) {
            let read: BTreeSet<_> = accesses
                .iter()
                .filter(|access| !access.is_write && layout.shared.contains(access.page))
                .map(|access| access.page)
                .collect();
            assert_eq!(read.len() as u64, layout.shared.pages);
        }
    }
}
