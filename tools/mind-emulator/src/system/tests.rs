//! What must be true of a system whenever it stands still, and what modes must answer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use mind_common::{
    directory::State,
    id::{BladeId, BladeSet},
};
use proptest::prelude::*;

use super::{Latencies, Outcome, Setup, System, pages::Kind, run};
use crate::{
    generate::{Generator, Kind as Generated, Spec},
    modes::{Mode, Protocol},
    trace::{Access, Error, Shape, Source},
};

const ALL: [Mode; 9] = [
    Mode::Mind,
    Mode::Fixed(2),
    Mode::Fixed(6),
    Mode::Unlimited,
    Mode::Private,
    Mode::Home,
    Mode::Moesi,
    Mode::Pso,
    Mode::PsoPlus,
];

/// Accesses by thread.
struct Given {
    shape: Shape,
    threads: Vec<VecDeque<Access>>,
}

impl Given {
    fn new(blades: u8, threads: Vec<Vec<(u32, bool)>>) -> Self {
        let access = |(page, is_write)| Access {
            gap: 0,
            page,
            is_write,
            count: 1,
        };
        let threads: Vec<VecDeque<_>> = threads
            .into_iter()
            .map(|all| all.into_iter().map(access).collect())
            .collect();
        Self {
            shape: Shape {
                blades,
                threads: (0..threads.len())
                    .map(|n| BladeId::from_low_bits(n as u64 % u64::from(blades)))
                    .collect(),
                pages: 1 << 16,
                footprint: None,
                accesses: threads.iter().map(VecDeque::len).sum::<usize>() as u64,
            },
            threads,
        }
    }
}

impl Source for Given {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn next(&mut self, thread: usize) -> Result<Option<Access>, Error> {
        Ok(self.threads[thread].pop_front())
    }
}

fn setup(mode: Mode) -> Setup {
    Setup {
        mode,
        cache: 64,
        slots: 1 << 16,
        epoch_ms: 1,
        latencies: Latencies::default(),
    }
}

fn spec(kind: Generated, accesses: u64, seed: u64) -> Spec {
    Spec {
        kind,
        blades: 4,
        threads_per_blade: 2,
        pages: 200,
        accesses,
        reads: 0.6,
        sharing: 0.7,
        theta: 0.9,
        gap: 0,
        seed,
    }
}

impl System {
    /// Fails unless the system's parts agree.
    fn check(&self) {
        self.check_slots();
        let mut copies = BTreeMap::<u32, Vec<(BladeId, Kind)>>::new();
        for blade in &self.blades {
            let pages = blade.pages.all();
            assert_eq!(pages.len(), blade.used(), "{} counts its pages", blade.id);
            for (page, state) in pages {
                if matches!(
                    state.kind(),
                    Kind::Shared | Kind::Upgrading | Kind::Modified
                ) {
                    copies
                        .entry(page)
                        .or_default()
                        .push((blade.id, state.kind()));
                }
            }
        }
        if self.mode.protocol() == Protocol::None {
            return;
        }
        for (page, copies) in copies {
            let word = self.directory.slot(self.directory.find(page)).word;
            let named = match word.state().is_busy() {
                true => word.blades().with(word.requester()),
                false => word.blades(),
            };
            let having: BladeSet = copies.iter().map(|(blade, _)| *blade).collect();
            assert!(
                having.minus(named).is_empty(),
                "page {page} is at {having:?}, and its word is {word:?}"
            );
            if copies.iter().any(|(_, kind)| *kind == Kind::Modified) {
                assert!(
                    having.is_single(),
                    "page {page} may be written at one of {having:?}"
                );
                let state = word.state();
                assert!(
                    state == State::Modified || state.is_busy(),
                    "page {page} may be written, and {word:?}"
                );
            }
        }
    }

    fn check_slots(&self) {
        let mut pages = BTreeSet::new();
        let mut used = 0;
        for slot in &self.directory.slots {
            assert_eq!(slot.region.is_none(), slot.word.state() == State::Free);
            let Some(region) = slot.region else { continue };
            used += 1;
            for page in region.pages() {
                assert!(pages.insert(page), "{page} is in two regions");
                let found = self.directory.find(crate::trace::access::page_of(page));
                assert_eq!(self.directory.slot(found).region, Some(region));
            }
            if slot.word.state() == State::Modified {
                assert!(slot.word.blades().is_single());
            }
        }
        assert_eq!(used, self.directory.used().0);
        if let Some(usable) = self.directory.usable() {
            assert!(used <= usable, "{used} of {usable} slots");
        }
    }
}

/// Replays it and checks the system after each event.
fn checked(setup: &Setup, source: &mut dyn Source) -> Outcome {
    checked_after(1, setup, source)
}

/// The same after each so many events.
fn checked_after(events: u64, setup: &Setup, source: &mut dyn Source) -> Outcome {
    let accesses = source.shape().accesses;
    let mut system = System::new(setup, source);
    let mut event = 0;
    while system.step(source).unwrap() {
        event += 1;
        if event % events == 0 {
            system.check();
        }
    }
    system.check();
    let outcome = system.outcome(std::time::Duration::ZERO);
    assert_eq!(outcome.accesses, accesses, "all accesses are made");
    let requests: u64 = outcome.transitions.values().sum();
    let waited = outcome.accesses - outcome.hits;
    assert!(
        outcome.hits <= outcome.accesses && waited <= requests + outcome.joined,
        "{outcome:?}"
    );
    outcome
}

fn replayed(mode: Mode, spec: &Spec) -> Outcome {
    let mut outcome = run(&setup(mode), &mut Generator::new(spec), &|_| ()).unwrap();
    outcome.real_s = 0.0;
    outcome
}

fn threads() -> impl Strategy<Value = Vec<Vec<(u32, bool)>>> {
    let access = (0..40u32, prop::bool::weighted(0.4));
    prop::collection::vec(prop::collection::vec(access, 0..80), 1..7)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Of any accesses, with caches and directories that are too small or large enough.
    #[test]
    fn parts_agree_after_every_event(
        mode in prop::sample::select(ALL.to_vec()), threads in threads(), blades in 1..5u8,
        cache in prop_oneof![1..6usize, Just(64)], slots in prop_oneof![9..12u32, Just(1000)],
    ) {
        let setup = Setup { cache, slots, ..setup(mode) };
        checked(&setup, &mut Given::new(blades, threads));
    }

    #[test]
    fn regions_of_a_page_have_no_false_invalidations(threads in threads(), seed: u64) {
        for mode in [Mode::Fixed(0), Mode::Unlimited, Mode::Home, Mode::PsoPlus] {
            let outcome = checked(&setup(mode), &mut Given::new(4, threads.clone()));
            prop_assert_eq!(outcome.false_invalidations, 0);
            prop_assert_eq!(replayed(mode, &spec(Generated::Uniform, 2000, seed)).false_invalidations, 0);
        }
    }

    #[test]
    fn what_is_not_shared_is_never_invalidated(threads in threads()) {
        let outcome = checked(&setup(Mode::Private), &mut Given::new(4, threads));
        prop_assert_eq!((outcome.invalidations, outcome.false_invalidations, outcome.flushed), (0, 0, 0));
        prop_assert_eq!(outcome.directory.most, 0);
    }

    #[test]
    fn the_same_again_is_the_same(mode in prop::sample::select(ALL.to_vec()), seed in 0..1000u64) {
        for kind in [Generated::Uniform, Generated::YcsbA] {
            let spec = spec(kind, 3000, seed);
            prop_assert_eq!(replayed(mode, &spec), replayed(mode, &spec));
        }
    }
}

#[test]
fn all_kinds_are_replayed_in_all_modes_with_small_and_large_directories() {
    for kind in Generated::ALL {
        for mode in ALL {
            for (slots, cache) in [(30, 20), (1000, 200)] {
                let setup = Setup {
                    slots,
                    cache,
                    ..setup(mode)
                };
                checked_after(53, &setup, &mut Generator::new(&spec(kind, 4000, 3)));
            }
        }
    }
}

/// The paper's example of false sharing: blades write different pages of one region.
fn falsely_shared(rounds: usize) -> Given {
    let thread = |blade: u32| {
        (0..rounds)
            .map(|round| (round as u32 % 50 * 4 + blade, true))
            .collect()
    };
    Given::new(4, (0..4).map(thread).collect())
}

#[test]
fn what_is_falsely_shared_is_split() {
    let mind = checked(&setup(Mode::Mind), &mut falsely_shared(2000));
    let fixed = checked(&setup(Mode::Fixed(2)), &mut falsely_shared(2000));
    assert!(mind.directory.splits > 100, "{mind:?}");
    assert!(
        mind.false_invalidations * 3 < fixed.false_invalidations,
        "{mind:?} {fixed:?}"
    );
    assert!(mind.run_time_ms < fixed.run_time_ms);
    assert!(mind.directory.most > fixed.directory.most);
    let still = Setup {
        epoch_ms: 0,
        ..setup(Mode::Mind)
    };
    let still = checked(&still, &mut falsely_shared(2000));
    assert_eq!(
        (still.directory.splits, still.false_invalidations),
        (0, fixed.false_invalidations)
    );
}

#[test]
fn larger_regions_have_more_false_invalidations_and_fewer_slots() {
    let spec = Spec {
        reads: 0.95,
        ..spec(Generated::Uniform, 20_000, 1)
    };
    let outcomes = [0, 1, 2, 4].map(|order| replayed(Mode::Fixed(order), &spec));
    for pair in outcomes.windows(2) {
        assert!(
            pair[0].false_invalidations < pair[1].false_invalidations,
            "{pair:?}"
        );
        assert!(pair[0].directory.most > pair[1].directory.most);
    }
}

#[test]
fn reads_of_what_is_shared_cost_a_fetch_each_and_then_nothing() {
    let thread = || (0..40).chain(0..40).map(|page| (page, false)).collect();
    let outcome = checked(
        &setup(Mode::Mind),
        &mut Given::new(2, vec![thread(), thread()]),
    );
    assert_eq!((outcome.accesses, outcome.hits), (160, 80));
    assert_eq!(outcome.transitions["I->S"], 10);
    assert_eq!(outcome.transitions["S->S"], 70);
    assert_eq!((outcome.invalidations, outcome.directory.most), (0, 10));
}

#[test]
fn a_page_that_is_written_by_turns_goes_from_owner_to_owner() {
    let thread = || (0..100).map(|_| (7, true)).collect::<Vec<_>>();
    let outcome = checked(
        &setup(Mode::Mind),
        &mut Given::new(2, vec![thread(), thread()]),
    );
    assert_eq!(outcome.transitions["I->M"], 1);
    assert!(outcome.transitions["M->M"] > 0);
    assert_eq!(outcome.false_invalidations, 0);
    assert_eq!(outcome.flushed, outcome.transitions["M->M"]);
}

#[test]
fn one_thread_takes_the_sum_of_what_its_accesses_cost() {
    let accesses = [(0, false), (0, false), (0, true), (8, true), (8, false)];
    let outcome = checked(
        &setup(Mode::Mind),
        &mut Given::new(1, vec![accesses.to_vec()]),
    );
    let of = Latencies::default();
    let expected = 5.0 * of.local_us + of.i_s_us + of.granted_us + of.i_m_us;
    assert!(
        (outcome.run_time_ms * 1e3 - expected).abs() < 1e-6,
        "{}",
        outcome.run_time_ms
    );
}

#[test]
fn an_extra_hop_makes_a_request_longer() {
    let thread = || vec![(0, false), (1, false), (2, false), (3, false)];
    let time = |mode| checked(&setup(mode), &mut Given::new(2, vec![thread()])).run_time_ms * 1e3;
    // Of four pages, two have their home at the other blade.
    let expected = 2.0 * Latencies::default().exchange_us;
    assert!((time(Mode::Home) - time(Mode::Unlimited) - expected).abs() < 1e-6);
}

#[test]
fn writes_that_do_not_wait_overlap() {
    let threads = || vec![(0..50).map(|page| (page * 4, true)).collect()];
    let time = |mode| checked(&setup(mode), &mut Given::new(1, threads())).run_time_ms;
    assert!(time(Mode::Pso) * 10.0 < time(Mode::Mind));
    // A read of what is written waits.
    let threads = || vec![vec![(0, true), (0, false)]];
    let time = |mode| checked(&setup(mode), &mut Given::new(1, threads())).run_time_ms * 1e3;
    assert!(time(Mode::Pso) > Latencies::default().i_m_us);
}

#[test]
fn an_owner_that_is_read_from_writes_nothing_back() {
    let writer = (0..40).map(|page| (page, true)).collect::<Vec<_>>();
    let reader = (0..40)
        .cycle()
        .take(400)
        .map(|page| (page, false))
        .collect::<Vec<_>>();
    let of = |mode| {
        checked(
            &setup(mode),
            &mut Given::new(2, vec![writer.clone(), reader.clone()]),
        )
    };
    let (msi, moesi) = (of(Mode::Mind), of(Mode::Moesi));
    assert!(
        msi.flushed > 0 && moesi.flushed < msi.flushed,
        "{msi:?} {moesi:?}"
    );
    // What no blade had may be written without asking.
    let threads = || vec![vec![(0, false), (0, true)]];
    let requests = |mode| {
        checked(&setup(mode), &mut Given::new(1, threads()))
            .transitions
            .values()
            .sum::<u64>()
    };
    assert_eq!((requests(Mode::Mind), requests(Mode::Moesi)), (2, 1));
}

#[test]
fn slots_are_taken_back_from_regions_without_requests() {
    let thread = (0..4000).map(|n| (n % 1000 * 4, false)).collect();
    let setup = Setup {
        slots: 100,
        cache: 50,
        ..setup(Mode::Mind)
    };
    let outcome = checked(&setup, &mut Given::new(1, vec![thread]));
    assert!(outcome.directory.reclaimed > 1000, "{outcome:?}");
    assert!(outcome.directory.most <= 99);
}

#[test]
fn long_gaps_come_to_an_end_and_longer_ones_are_refused() {
    let with_gaps = |gap| {
        let mut given = Given::new(2, vec![vec![(0, true), (9, true)], vec![(0, true)]]);
        given
            .threads
            .iter_mut()
            .flatten()
            .for_each(|access| access.gap = gap);
        given
    };
    // A year.
    let outcome = checked(&setup(Mode::Mind), &mut with_gaps(31_536_000_000_000_000));
    assert!(outcome.run_time_ms > 2.0 * 31_536_000_000.0);
    for gap in [u64::MAX, 1 << 60] {
        let replayed = run(&setup(Mode::Mind), &mut with_gaps(gap), &|_| ());
        assert!(matches!(replayed, Err(Error::Unfit(_))));
    }
}
