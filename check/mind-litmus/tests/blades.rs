//! The participants' own code, by threads of this process over its own memory: the same path as on blades,
//! but for what shares the memory. And that forbidden outcomes are found: by memory that reorders.

use std::error::Error;
use std::time::{Duration, Instant};

use mind_litmus::blades::access::{Accesses, Processor};
use mind_litmus::blades::barrier::{Barrier, Mapping, Shared, StepCounter};
use mind_litmus::blades::gather::gather;
use mind_litmus::blades::job::{Job, Seen};
use mind_litmus::blades::layout::{ARENA_BYTES, Layout};
use mind_litmus::blades::participant::{Arena, Participant};
use mind_litmus::family::{self, Size};
use mind_litmus::histogram::Histogram;
use mind_litmus::oracle::Judgement;
use mind_litmus::report::{RIGHT, Report, WRONG};
use mind_litmus::runner::{self, Runner, Unable};
use mind_litmus::tables;
use mind_litmus::test::{Fence, Test, Width};

fn named(name: &str) -> Test {
    family::test(&family::named(name).unwrap()).unwrap()
}

/// The memory that is tested.
fn words() -> Mapping {
    Shared::new("test", ARENA_BYTES).unwrap().map().unwrap()
}

/// Participants that are threads of this process, whose accesses are made by what `memory` makes.
struct Threads<A> {
    participants: usize,
    layout: Layout,
    memory: fn() -> A,
    words: Mapping,
    step_counters: Vec<StepCounter>,
    step: u64,
    random: fastrand::Rng,
}

impl<A: Accesses> Threads<A> {
    fn new(participants: usize, layout: Layout, memory: fn() -> A) -> Self {
        Self {
            participants,
            layout,
            memory,
            words: words(),
            step_counters: (0..participants).map(|_| StepCounter::default()).collect(),
            step: 0,
            random: fastrand::Rng::with_seed(3),
        }
    }
}

impl<A: Accesses> Runner for Threads<A> {
    fn setting(&self) -> String {
        format!("threads, {}", self.layout)
    }

    fn run(&mut self, test: &Test, copies: u64) -> Result<Histogram, Unable> {
        let job = Job {
            test: test.to_string(),
            layout: self.layout,
            copies: usize::try_from(copies)?,
            seed: self.random.u64(..),
            step: self.step,
        };
        self.step = job.last_step();
        let (words, step_counters) = (&self.words, self.step_counters.as_slice());
        let play = |own| {
            // SAFETY: it is as long, outlives the participant, and only participants access it.
            let arena = unsafe { Arena::new(words.as_ptr()) };
            let barrier = Barrier::new(step_counters, own, Duration::from_secs(60));
            Participant { arena, barrier }.run(&job, &mut (self.memory)())
        };
        let seen: Vec<Seen> = std::thread::scope(|scope| {
            let play = &play;
            let threads: Vec<_> = (0..self.participants)
                .map(|own| scope.spawn(move || play(own)))
                .collect();
            let threads = threads.into_iter();
            threads
                .map(|thread| thread.join().unwrap())
                .collect::<Result<_, _>>()
        })?;
        let (test, plan) = job.plan(self.participants)?;
        Ok(gather(&test, &plan, &seen)?)
    }
}

/// Runs the tests with all layouts by so many participants.
fn run<A: Accesses + 'static>(
    tests: &[Test],
    participants: usize,
    copies: u64,
    memory: fn() -> A,
) -> Report {
    let mut runners = Layout::ALL.map(|layout| runner(participants, layout, memory));
    runner::run(tests, &mut runners, copies, |_| ()).unwrap()
}

fn runner<A: Accesses + 'static>(
    participants: usize,
    layout: Layout,
    memory: fn() -> A,
) -> Box<dyn Runner> {
    Box::new(Threads::new(participants, layout, memory))
}

#[test]
fn what_this_machine_does_is_allowed() {
    let names = [
        "SB", "MP", "LB", "R", "S", "2+2W", "WRC", "ISA2", "IRIW", "CoRR", "CoRW2", "CO-SBI",
    ];
    let report = run(&names.map(named), 4, 200, || Processor);
    assert_eq!(report.faults(), [""; 0]);
    assert_eq!(report.exit_code(), RIGHT);
    assert_eq!(report.tests.len(), 3 * names.len());
    assert!(report.tests.iter().all(|judged| judged.copies == 200));
    // Threads overlap: both orders of two threads come up, or nothing would be tested.
    for judged in report.tests.iter().filter(|judged| judged.name == "SB") {
        let seen = judged.outcomes.iter().filter(|row| row.count > 0).count();
        assert!(seen >= 2, "{judged:?}");
    }
}

#[test]
fn every_test_of_the_collection_can_be_played() {
    let size = Size {
        threads: 4,
        length: 8,
    };
    let collection = family::collection(size).unwrap();
    let tests: Vec<_> = collection.into_values().collect();
    // Each layout has a third of them: where other programs run, a barrier takes milliseconds.
    for (layout, tests) in Layout::ALL
        .into_iter()
        .zip(tests.chunks(tests.len().div_ceil(3)))
    {
        let mut runners = [runner(4, layout, || Processor)];
        let report = runner::run(tests, &mut runners, 2, |_| ()).unwrap();
        assert_eq!(report.faults(), [""; 0]);
        assert_eq!(report.tests.len(), tests.len());
    }
}

#[test]
fn stores_that_wait_for_later_loads_are_seen_or_the_report_says_that_they_are_not() {
    let report = run(&[named("SB")], 2, 256, || Processor);
    let relaxed = report.tests.iter().flat_map(|judged| &judged.outcomes);
    let relaxed = relaxed.filter(|row| row.judgement == Judgement::TsoOnly);
    let missed = relaxed.filter(|row| row.count == 0).count();
    let text = tables::report(&report);
    let said = text.matches("allowed outcomes never seen").count();
    assert!(said >= missed, "{missed} were not seen, and\n{text}");
}

/// Memory with partial store order (SPARC's PSO): a store waits until a later store to elsewhere has
/// been seen, which x86-TSO never lets happen. Fences and locked instructions still wait for it.
#[derive(Default)]
struct Pso {
    waiting: Option<(*mut u8, Width, u64)>,
}

impl Pso {
    /// So long, others see the later store only.
    const WINDOW: Duration = Duration::from_micros(20);

    fn drain(&mut self) {
        if let Some((at, width, value)) = self.waiting.take() {
            let begin = Instant::now();
            while begin.elapsed() < Self::WINDOW {
                std::thread::yield_now();
            }
            // SAFETY: the guarantee of the caller that stored it.
            unsafe { Processor.store(at, width, value) };
        }
    }
}

// SAFETY of all: the callers' guarantee is passed on.
#[allow(
    clippy::undocumented_unsafe_blocks,
    reason = "it is the same for all, and said above"
)]
impl Accesses for Pso {
    unsafe fn load(&mut self, at: *mut u8, width: Width) -> u64 {
        match self.waiting {
            Some((of, _, value)) if of == at => value,
            _ => unsafe { Processor.load(at, width) },
        }
    }

    unsafe fn store(&mut self, at: *mut u8, width: Width, value: u64) {
        match self.waiting {
            None => self.waiting = Some((at, width, value)),
            Some((of, ..)) if of == at => self.waiting = Some((at, width, value)),
            Some(_) => unsafe { Processor.store(at, width, value) },
        }
    }

    unsafe fn exchange(&mut self, at: *mut u8, width: Width, value: u64) -> u64 {
        self.drain();
        unsafe { Processor.exchange(at, width, value) }
    }

    unsafe fn fetch_add(&mut self, at: *mut u8, width: Width, value: u64) -> u64 {
        self.drain();
        unsafe { Processor.fetch_add(at, width, value) }
    }

    unsafe fn compare_exchange(
        &mut self,
        at: *mut u8,
        width: Width,
        expected: u64,
        new: u64,
    ) -> u64 {
        self.drain();
        unsafe { Processor.compare_exchange(at, width, expected, new) }
    }

    unsafe fn add(&mut self, at: *mut u8, width: Width, value: u64) {
        self.drain();
        unsafe { Processor.add(at, width, value) };
    }

    fn fence(&mut self, fence: Fence) {
        self.drain();
        Processor.fence(fence);
    }

    fn end(&mut self) {
        self.drain();
    }
}

#[test]
fn memory_that_reorders_stores_is_found_out() {
    let report = run(&[named("MP")], 3, 256, Pso::default);
    assert_eq!(report.exit_code(), WRONG);
    assert_eq!(report.faults().len(), 3, "with every layout");
    for judged in &report.tests {
        let forbidden: Vec<_> = judged
            .outcomes
            .iter()
            .filter(|row| row.judgement == Judgement::Forbidden)
            .collect();
        assert_eq!(forbidden.len(), 1, "{judged:?}");
        // The flag is up and the message is not there.
        assert!(forbidden[0].count > 0 && forbidden[0].condition);
        assert_eq!(forbidden[0].values["1:rax"], 1);
        assert_eq!(forbidden[0].values["1:rbx"], 0);
    }
    let fenced = run(&[named("MP+mfence+po")], 3, 256, Pso::default);
    assert_eq!(fenced.exit_code(), RIGHT, "{:?}", fenced.faults());
}

/// Memory of which each thread sees what was there when it looked first: stale copies.
#[derive(Default)]
struct Stale {
    seen: Vec<(*mut u8, u64)>,
}

#[allow(
    clippy::undocumented_unsafe_blocks,
    reason = "the callers' guarantee is passed on"
)]
impl Accesses for Stale {
    unsafe fn load(&mut self, at: *mut u8, width: Width) -> u64 {
        if let Some((_, value)) = self.seen.iter().find(|(of, _)| *of == at) {
            return *value;
        }
        let value = unsafe { Processor.load(at, width) };
        self.seen.push((at, value));
        value
    }

    unsafe fn store(&mut self, at: *mut u8, width: Width, value: u64) {
        // Its own first load brought the page in.
        unsafe { self.load(at, width) };
        unsafe { Processor.store(at, width, value) };
    }

    unsafe fn exchange(&mut self, at: *mut u8, width: Width, value: u64) -> u64 {
        unsafe { Processor.exchange(at, width, value) }
    }

    unsafe fn fetch_add(&mut self, at: *mut u8, width: Width, value: u64) -> u64 {
        unsafe { Processor.fetch_add(at, width, value) }
    }

    unsafe fn compare_exchange(
        &mut self,
        at: *mut u8,
        width: Width,
        expected: u64,
        new: u64,
    ) -> u64 {
        unsafe { Processor.compare_exchange(at, width, expected, new) }
    }

    unsafe fn add(&mut self, at: *mut u8, width: Width, value: u64) {
        unsafe { Processor.add(at, width, value) };
    }

    fn fence(&mut self, fence: Fence) {
        Processor.fence(fence);
    }

    fn end(&mut self) {
        self.seen.clear();
    }
}

#[test]
fn memory_in_which_copies_grow_old_is_found_out() {
    // A thread does not see its own store: wrong in every copy, whatever the others do.
    let report = run(&[named("CoWR")], 2, 64, Stale::default);
    assert_eq!(report.exit_code(), WRONG);
    assert_eq!(report.faults().len(), 3, "with every layout");
}

#[test]
fn a_player_who_does_not_come_is_named() {
    let words = words();
    let step_counters: [StepCounter; 2] = Default::default();
    // SAFETY: it is as long, outlives the participant, and only participants access it.
    let arena = unsafe { Arena::new(words.as_ptr()) };
    let barrier = Barrier::new(&step_counters, 0, Duration::from_millis(20));
    let job = Job {
        test: named("SB").to_string(),
        layout: Layout::OnePage,
        copies: 8,
        seed: 1,
        step: 0,
    };
    let error = Participant { arena, barrier }
        .run(&job, &mut Processor)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot go on with setting variables of the test `SB`"
    );
    let source = error.source().unwrap().to_string();
    assert!(
        source.starts_with("participant 1 has not come to step 1"),
        "{source}"
    );
}

#[test]
fn a_job_that_makes_no_sense_is_refused() {
    let job = Job {
        test: "X86_64 broken".to_owned(),
        layout: Layout::OnePage,
        copies: 1,
        seed: 1,
        step: 0,
    };
    assert_eq!(
        job.plan(2).unwrap_err().to_string(),
        "cannot read the test of a job"
    );
    let too_many = Job {
        test: named("SB").to_string(),
        copies: 1_000_000,
        ..job
    };
    assert_eq!(
        too_many.plan(2).unwrap_err().to_string(),
        "cannot plan a job"
    );
}
