//! What the threads of a worker do with shared memory, and how each checks what it reads.
//!
//! Each kind of work has three parts: what one thread does until it is stopped, how many operations that was, and what
//! must then be found from any blade.

pub mod board;
pub mod churn;
pub mod lanes;
pub mod locked;
pub mod roam;
pub mod sweep;
pub mod tickets;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Result, bail};
use mind_client::Process;
use mind_e2e::area::Area;

use crate::{
    job::Done,
    layout::{Areas, Part},
};

/// Steps after which a thread reports how many it has made.
const REPORT: u64 = 64;

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// [`lanes`].
    Lanes,
    /// [`tickets`].
    Tickets,
    /// [`board`].
    Board,
    /// [`sweep`].
    Sweep,
    /// [`locked`].
    Locked,
    /// [`roam`].
    Roam,
    /// [`churn`].
    Churn,
}

impl Work {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Lanes,
        Self::Tickets,
        Self::Board,
        Self::Sweep,
        Self::Locked,
        Self::Roam,
        Self::Churn,
    ];

    /// How many threads of a blade do it. More of them read the board: only a page that several blades share goes
    /// through TC, and it takes many reads to get there.
    pub const fn threads(self) -> usize {
        match self {
            Self::Board => 4,
            Self::Lanes | Self::Tickets | Self::Sweep | Self::Locked | Self::Roam | Self::Churn => {
                1
            }
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lanes => "lanes",
            Self::Tickets => "tickets",
            Self::Board => "board",
            Self::Sweep => "sweep",
            Self::Locked => "locked",
            Self::Roam => "roam",
            Self::Churn => "churn",
        }
    }
}

/// A thread of one kind of work, among those of all blades.
#[derive(Debug)]
pub struct WorkThread<'a> {
    /// Its number.
    pub number: usize,
    /// How many there are.
    pub of: usize,
    /// Set when it is time to stop.
    pub stop: &'a AtomicBool,
    /// Operations of all threads of the process so far.
    pub operations: &'a AtomicU64,
    /// Steps of this thread; in the end, those that have written.
    pub steps: u64,
    /// Steps that have not written: reads.
    pub reads: u64,
    /// Its random numbers.
    pub random: fastrand::Rng,
}

impl WorkThread<'_> {
    /// Returns whether to go on; counts a step if so.
    pub fn goes_on(&mut self) -> bool {
        if self.stop.load(Ordering::Relaxed) {
            self.operations
                .fetch_add(self.steps % REPORT, Ordering::Relaxed);
            return false;
        }
        self.steps += 1;
        if self.steps.is_multiple_of(REPORT) {
            self.operations.fetch_add(REPORT, Ordering::Relaxed);
        }
        true
    }

    /// Uncounts the step that [`goes_on`](Self::goes_on) counted: it had no effect.
    pub fn nothing_done(&mut self) {
        if self.steps.is_multiple_of(REPORT) {
            self.operations.fetch_sub(REPORT, Ordering::Relaxed);
        }
        self.steps -= 1;
    }
}

/// Does `work` until it is time to stop; returns the steps that have written, and those that have not.
///
/// # Errors
///
/// What is wrong with the memory.
pub fn run(
    work: Work,
    areas: Areas,
    process: &Process,
    mut thread: WorkThread<'_>,
) -> Result<(u64, u64)> {
    match work {
        Work::Lanes => lanes::run(areas.of(Part::Lanes), &mut thread)?,
        Work::Tickets => tickets::run(areas.of(Part::Tickets), &mut thread)?,
        Work::Board => board::run(areas.of(Part::Board), &mut thread)?,
        Work::Sweep => sweep::run(areas.of(Part::Sweep), &mut thread)?,
        Work::Locked => locked::run(areas.of(Part::Locked), &mut thread)?,
        Work::Roam => roam::run(areas.of(Part::Roam), &mut thread)?,
        Work::Churn => churn::run(process, &mut thread)?,
    }
    Ok((thread.steps, thread.reads))
}

/// Checks all shared memory after all threads have stopped and done `total`.
///
/// # Errors
///
/// What is wrong with the memory.
pub fn verify(areas: Areas, total: &Done) -> Result<()> {
    for (work, found) in [
        (Work::Lanes, lanes::sum(areas.of(Part::Lanes))),
        (Work::Tickets, tickets::sum(areas.of(Part::Tickets))),
        (Work::Board, board::check(areas.of(Part::Board))?),
        (Work::Sweep, sweep::check(areas.of(Part::Sweep))?),
        (Work::Locked, locked::check(areas.of(Part::Locked))?),
        (Work::Roam, roam::sum(areas.of(Part::Roam))),
    ] {
        let expected = total.get(work.name()).copied().unwrap_or_default();
        if found != expected {
            bail!(
                "{}: all that was written adds up to {found}, expected {expected}",
                work.name()
            );
        }
    }
    Ok(())
}

/// Fails unless the word holds `expected`.
fn must_be(area: Area, page: usize, word: usize, found: u64, expected: u64) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(wrong(area, page, word, found, &format!("{expected:#x}")))
}

/// The error about a word that does not hold what is `expected`.
fn wrong(area: Area, page: usize, word: usize, found: u64, expected: &str) -> anyhow::Error {
    let address: *const AtomicU64 = area.word(page, word);
    anyhow::anyhow!("at {address:p}: expected {expected}, found {found:#x}")
}

/// What a word of a page holds in that page's `version`-th contents. Zero in the first, like fresh memory.
fn pattern(page: usize, word: usize, version: u64) -> u64 {
    if version == 0 {
        return 0;
    }
    let place = ((page as u64) << 9 | word as u64) + 1;
    (place ^ version << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

#[cfg(test)]
mod tests {
    use mind_e2e::area::WORDS;

    use super::*;

    #[test]
    fn fresh_memory_is_every_pages_first_contents() {
        assert_eq!(pattern(7, 3, 0), 0);
        assert_ne!(pattern(7, 3, 1), pattern(7, 3, 2));
        assert_ne!(pattern(7, 3, 1), pattern(7, 4, 1));
        assert_ne!(pattern(7, 3, 1), pattern(8, 3, 1));
    }

    /// Private memory that is never given back: a test's end is near.
    fn area(pages: usize) -> Area {
        let words: Vec<_> = (0..pages * WORDS).map(|_| AtomicU64::new(0)).collect();
        Area::of(words.leak())
    }

    type Run = fn(Area, &mut WorkThread<'_>) -> Result<()>;
    type Check = fn(Area) -> Result<u64>;

    /// What works on an area, and how it is checked.
    const ALL: [(&str, Run, Check); 6] = [
        ("lanes", lanes::run, |area| Ok(lanes::sum(area))),
        ("tickets", tickets::run, |area| Ok(tickets::sum(area))),
        ("roam", roam::run, |area| Ok(roam::sum(area))),
        ("board", board::run, board::check),
        ("sweep", sweep::run, sweep::check),
        ("locked", locked::run, locked::check),
    ];

    /// So many threads work on `area` until they have done `operations`, or one of them has found something wrong.
    fn work(of: usize, run: Run, area: Area, until: u64) -> Result<u64> {
        let (stop, operations) = (&AtomicBool::new(false), &AtomicU64::new(0));
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..of)
                .map(|number| {
                    scope.spawn(move || -> Result<u64> {
                        let mut thread = WorkThread {
                            number,
                            of,
                            stop,
                            operations,
                            steps: 0,
                            reads: 0,
                            random: fastrand::Rng::with_seed(number as u64),
                        };
                        let result = run(area, &mut thread);
                        if result.is_err() {
                            stop.store(true, Ordering::Relaxed);
                        }
                        result.map(|()| thread.steps)
                    })
                })
                .collect();
            while operations.load(Ordering::Relaxed) < until && !stop.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed);
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum()
        })
    }

    #[test]
    fn what_was_done_to_sound_memory_is_found_there() {
        for (name, run, check) in ALL {
            let area = area(32);
            let done = work(4, run, area, 20_000).unwrap();
            assert!(done > 0);
            assert_eq!(check(area).unwrap(), done, "{name}");
        }
    }

    #[test]
    fn a_write_that_is_lost_is_found() {
        for (name, run, check) in ALL {
            let area = area(16);
            let done = work(1, run, area, 5_000).unwrap();
            // Page 3 as it was: nothing was ever written back.
            for word in area.page(3) {
                word.store(0, Ordering::Relaxed);
            }
            assert_ne!(check(area).unwrap(), done, "{name}");
        }
    }

    #[test]
    fn a_page_that_is_old_in_part_is_found() {
        for (name, run, check) in ALL.into_iter().skip(3) {
            let area = area(16);
            work(1, run, area, 5_000).unwrap();
            for page in 0..area.pages() {
                for word in &area.page(page)[WORDS / 2..] {
                    word.store(0, Ordering::Relaxed);
                }
            }
            let error = check(area).unwrap_err().to_string();
            assert!(error.starts_with("at 0x"), "{name}: {error}");
            assert!(error.ends_with(", found 0x0"), "{name}: {error}");
        }
    }

    #[test]
    fn a_thread_finds_that_its_own_write_is_gone() {
        // Written by another thread before it begins: the same as a lost write.
        let area = area(16);
        for page in 0..area.pages() {
            area.word(page, 0).store(77, Ordering::Relaxed);
        }
        let error = work(1, lanes::run, area, u64::MAX).unwrap_err().to_string();
        assert!(error.contains("expected 0x0, found 0x4d"), "{error}");
    }

    #[test]
    fn operations_are_counted_once() {
        let (stop, operations) = (AtomicBool::new(false), AtomicU64::new(0));
        let mut thread = WorkThread {
            number: 0,
            of: 1,
            stop: &stop,
            operations: &operations,
            steps: 0,
            reads: 0,
            random: fastrand::Rng::with_seed(0),
        };
        for step in 0..200 {
            assert!(thread.goes_on());
            if step % 3 == 0 {
                thread.nothing_done();
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(!thread.goes_on());
        assert_eq!(thread.steps, 133);
        assert_eq!(operations.load(Ordering::Relaxed), 133);
    }
}
