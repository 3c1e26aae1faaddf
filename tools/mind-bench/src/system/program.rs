//! The program on a compute blade: touches pages of shared memory and times each access.

use std::{
    hint::black_box,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use mind_client::{Memory, Process};
use mind_common::addr::{PAGE_SIZE, WINDOW_BASE, WINDOW_SIZE};

use super::{
    placement,
    task::{Access, Answer, DOMAIN, Serve, Task, misplaced},
};

/// The pause of programs that are not to take a processor for themselves.
const PAUSE: Duration = Duration::from_millis(1);

/// A process in the protection domain of the bench.
pub(crate) struct Program {
    process: Process,
    mapped: Option<Memory>,
}

impl Program {
    /// Attaches to the blade that the environment names.
    pub(crate) fn attach() -> Result<Self> {
        let process = Process::attach(DOMAIN).context("cannot attach to the blade")?;
        Ok(Self {
            process,
            mapped: None,
        })
    }
}

impl Serve for Program {
    fn serve(&mut self, task: &Task) -> Result<Answer> {
        match *task {
            Task::Map { length } => {
                let memory = self
                    .process
                    .map(length, mind_client::Access::Write)
                    .with_context(|| format!("cannot allocate {length} bytes"))?;
                self.mapped = Some(memory);
                Ok(Answer::Mapped { first: memory.va() })
            }
            Task::Unmap => {
                let memory = self.mapped.take().context("nothing is allocated")?;
                self.process.unmap(memory).context("cannot free memory")?;
                Ok(Answer::Unmapped)
            }
            Task::Touch {
                first,
                stride,
                count,
                access,
            } => {
                check(first, stride, count as u64)?;
                let pages = (0..count as u64).map(|number| first + number * stride);
                Ok(Answer::Times {
                    nanos: touch(pages, count, access),
                })
            }
            Task::RandomAccess {
                first,
                pages,
                threads,
                millis,
            } => {
                check(first, PAGE_SIZE as u64, pages)?;
                access(first, pages, threads, Duration::from_millis(millis))
            }
            Task::WriteEach {
                first,
                stride,
                count,
                millis,
            } => {
                check(first, stride, count)?;
                let pages = (0..count).map(|number| first + number * stride);
                Ok(write_each(pages, Duration::from_millis(millis)))
            }
            Task::Probe {
                first,
                stride,
                count,
                millis,
            } => {
                check(first, stride, count)?;
                let pages = (0..count).map(|number| first + number * stride);
                Ok(probe(pages, Duration::from_millis(millis)))
            }
            Task::Measure { .. } => Err(misplaced(task)),
        }
    }
}

/// Whether all pages lie in the window, so that they can be touched at all.
fn check(first: u64, stride: u64, count: u64) -> Result<()> {
    let end = WINDOW_BASE + WINDOW_SIZE;
    let inside = stride
        .checked_mul(count)
        .and_then(|length| first.checked_add(length))
        .is_some_and(|last| first >= WINDOW_BASE && last <= end);
    ensure!(
        inside && first.is_multiple_of(PAGE_SIZE as u64) && count > 0,
        "{count} pages from {first:#x} are not in the window"
    );
    Ok(())
}

/// Accesses the first word of each page; nanoseconds of each access.
pub(crate) fn touch(pages: impl Iterator<Item = u64>, count: usize, access: Access) -> Vec<u64> {
    // Written to before, so that storing a time is no fault.
    let mut nanos = vec![u64::MAX; count];
    for (nanos, page) in nanos.iter_mut().zip(pages) {
        let word = word(page);
        let begin = Instant::now();
        perform(word, access);
        *nanos = begin.elapsed().as_nanos() as u64;
    }
    nanos
}

/// The first word of a page.
fn word(page: u64) -> &'static AtomicU64 {
    // SAFETY: the page lies in the window, which is mapped for as long as the process is there
    // (`check`, or the caller's own); atomic words may be shared.
    unsafe { &*std::ptr::with_exposed_provenance::<AtomicU64>(page as usize) }
}

fn perform(word: &AtomicU64, access: Access) {
    match access {
        Access::Read => {
            black_box(word.load(Ordering::Relaxed));
        }
        Access::Write => word.store(1, Ordering::Relaxed),
    }
}

/// Stores into each page in turn, over and over, for a while.
fn write_each(pages: impl Iterator<Item = u64> + Clone, length: Duration) -> Answer {
    let begin = Instant::now();
    let mut at = Vec::new();
    while begin.elapsed() < length {
        for page in pages.clone() {
            perform(word(page), Access::Write);
        }
        at.push(begin.elapsed().as_nanos() as u64);
        std::thread::sleep(PAUSE);
    }
    Answer::Wrote { at }
}

/// Times a load of each page, for a while at most.
fn probe(pages: impl Iterator<Item = u64>, length: Duration) -> Answer {
    let begin = Instant::now();
    let (mut at, mut nanos) = (Vec::new(), Vec::new());
    for page in pages {
        let start = begin.elapsed();
        if start >= length {
            break;
        }
        perform(word(page), Access::Read);
        at.push(start.as_nanos() as u64);
        nanos.push((begin.elapsed() - start).as_nanos() as u64);
        std::thread::sleep(PAUSE);
    }
    Answer::Probed { at, nanos }
}

/// Lets threads access pages at random for a while.
fn access(first: u64, pages: u64, threads: u64, length: Duration) -> Result<Answer> {
    ensure!(threads > 0, "no thread is to access memory");
    let begin = Instant::now();
    let until = begin + length;
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|seed| {
                scope.spawn(move || -> Result<()> {
                    if threads > 1 {
                        // They do not all run on one processor.
                        placement::unpin()?;
                    }
                    wander(first, pages, seed, until);
                    Ok(())
                })
            })
            .collect();
        running
            .into_iter()
            .try_for_each(|thread| match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            })
    })?;
    Ok(Answer::Roamed {
        nanos: begin.elapsed().as_nanos() as u64,
    })
}

/// Loads and stores in turns, in pages at random, until `until`.
fn wander(first: u64, pages: u64, seed: u64, until: Instant) {
    let mut random = fastrand::Rng::with_seed(seed);
    for access in [Access::Read, Access::Write].into_iter().cycle() {
        if Instant::now() >= until {
            return;
        }
        let page = first + random.u64(..pages) * PAGE_SIZE as u64;
        perform(word(page), access);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_the_window_are_touched() {
        let page = PAGE_SIZE as u64;
        assert!(check(WINDOW_BASE, 4 * page, 100).is_ok());
        assert!(check(WINDOW_BASE + WINDOW_SIZE - page, page, 1).is_ok());
        for (first, stride, count) in [
            (WINDOW_BASE - page, page, 1),
            (WINDOW_BASE + 1, page, 1),
            (WINDOW_BASE + WINDOW_SIZE - page, page, 2),
            (WINDOW_BASE, u64::MAX, 3),
            (WINDOW_BASE, page, 0),
        ] {
            assert!(check(first, stride, count).is_err(), "{first:#x} {count}");
        }
    }
}
