//! A barrier between participants: each counts its steps in a word of its own, which the others
//! read.
//!
//! The words lie in ordinary memory that the processes of one machine share, not in the memory that
//! is tested: so the barrier works also when the tested memory is broken, and costs a microsecond
//! instead of several faults. Participants on different machines would need a clock in common
//! instead.
//!
//! A waiting participant yields its processor: with fewer processors than participants, the participant that it waits
//! for needs it, or the agent that handles that one's fault.

use std::fmt;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{io, ops::Deref};

use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};

/// A participant's step counters, on a cache line of their own.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct StepCounter {
    /// To which step it has come.
    come: AtomicU64,
    /// The last step at which it found all others, and went on.
    runs: AtomicU64,
}

/// A participant that does not come to a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("participant {participant} has not come to step {step} for {} s; it is at step {is}", patience.as_secs_f64())]
pub struct Missing {
    /// Which participant.
    pub participant: usize,
    /// Where it should be.
    pub step: u64,
    /// Where it is.
    pub is: u64,
    /// How long it was waited for.
    pub patience: Duration,
}

/// A participant's view of the barrier.
#[derive(Clone, Copy, Debug)]
pub struct Barrier<'a> {
    step_counters: &'a [StepCounter],
    own: usize,
    patience: Duration,
}

impl<'a> Barrier<'a> {
    /// The barrier of as many participants as there are step counters, for participant number `own`, which waits for
    /// others for at most `patience`.
    pub const fn new(step_counters: &'a [StepCounter], own: usize, patience: Duration) -> Self {
        Self {
            step_counters,
            own,
            patience,
        }
    }

    /// This participant's number.
    pub const fn own(&self) -> usize {
        self.own
    }

    /// How many participants there are.
    pub const fn participants(&self) -> usize {
        self.step_counters.len()
    }

    /// Comes to a step, and waits until `others` have come to it or beyond. Their earlier stores
    /// are visible afterwards.
    ///
    /// # Errors
    ///
    /// [`Missing`], when one does not come in time.
    #[inline]
    pub fn wait(&self, others: impl IntoIterator<Item = usize>, step: u64) -> Result<(), Missing> {
        self.step_counters[self.own]
            .come
            .store(step, Ordering::SeqCst);
        others
            .into_iter()
            .filter(|other| *other != self.own)
            .try_for_each(|other| self.wait_for(other, step))
    }

    /// As [`wait`](Self::wait), and then waits a few microseconds for `others` to run as well: a participant that has
    /// waited may not have its processor back yet. Those that run leave within a fraction of a microsecond of each
    /// other.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    #[inline]
    pub fn wait_closely(&self, others: &[usize], step: u64) -> Result<(), Missing> {
        /// Checks before this participant runs alone.
        const CHECKS: usize = 64;
        self.wait(others.iter().copied(), step)?;
        self.step_counters[self.own]
            .runs
            .store(step, Ordering::SeqCst);
        for _ in 0..CHECKS {
            let runs =
                |other: &usize| self.step_counters[*other].runs.load(Ordering::SeqCst) >= step;
            if others.iter().all(runs) {
                break;
            }
            std::hint::spin_loop();
        }
        Ok(())
    }

    fn wait_for(&self, participant: usize, step: u64) -> Result<(), Missing> {
        /// Checks before the processor is yielded: half a microsecond.
        const CHECKS: usize = 16;
        let seat = &self.step_counters[participant].come;
        let mut begin = None;
        loop {
            for _ in 0..CHECKS {
                if seat.load(Ordering::SeqCst) >= step {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            std::thread::yield_now();
            let begin = *begin.get_or_insert_with(Instant::now);
            if begin.elapsed() > self.patience {
                return Err(Missing {
                    participant,
                    step,
                    is: seat.load(Ordering::SeqCst),
                    patience: self.patience,
                });
            }
        }
    }
}

/// Memory that processes of this machine share.
#[derive(Debug)]
pub struct Shared {
    file: File,
}

impl Shared {
    /// So many bytes of zeros, which go with the processes that have them. `name` shows in
    /// `/proc/PID/maps`.
    ///
    /// # Errors
    ///
    /// When there is no memory.
    pub fn new(name: &str, bytes: usize) -> io::Result<Self> {
        let file = File::from(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?);
        file.set_len(bytes as u64)?;
        Ok(Self { file })
    }

    /// The path by which another process opens it while this one runs.
    pub fn path(&self) -> PathBuf {
        let (process, file) = (std::process::id(), self.file.as_raw_fd());
        PathBuf::from(format!("/proc/{process}/fd/{file}"))
    }

    /// What another process's [`path`](Self::path) names.
    ///
    /// # Errors
    ///
    /// When it is not there.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        Ok(Self { file })
    }

    /// Maps all of it.
    ///
    /// # Errors
    ///
    /// When that cannot be done.
    pub fn map(&self) -> io::Result<Mapping> {
        let length = usize::try_from(self.file.metadata()?.len()).map_err(io::Error::other)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let first = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                protection,
                MapFlags::SHARED,
                &self.file,
                0,
            )
        }?;
        let first = NonNull::new(first.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { first, length })
    }
}

/// Mapped memory; it is unmapped with this value.
pub struct Mapping {
    first: NonNull<u8>,
    length: usize,
}

// SAFETY: it is an address range, which any thread may use.
unsafe impl Send for Mapping {}
// SAFETY: as above; what is there is accessed as raw memory or as atomic words only.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Its first address.
    pub const fn as_ptr(&self) -> *mut u8 {
        self.first.as_ptr()
    }

    /// Its bytes.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// As many step counters as there is room for.
    pub fn into_step_counters(self) -> StepCounters {
        StepCounters(self)
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:p}", self.length, self.first)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: what `map` mapped, of which no reference outlives this value.
        let unmapped = unsafe { rustix::mm::munmap(self.first.as_ptr().cast(), self.length) };
        debug_assert_eq!(unmapped, Ok(()));
    }
}

/// Step counters in mapped memory.
#[derive(Debug)]
pub struct StepCounters(Mapping);

impl Deref for StepCounters {
    type Target = [StepCounter];

    fn deref(&self) -> &[StepCounter] {
        let count = self.0.length / size_of::<StepCounter>();
        // SAFETY: the mapping begins at a page, has that many, and lives as long as `self`; a step
        // counter is an atomic word, which may be anything and may be shared.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_participant_goes_on_before_the_others_have_come() {
        const STEPS: u64 = 200;
        let shared = Shared::new("test", 3 * size_of::<StepCounter>()).unwrap();
        let arrived = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for own in 0..3 {
                let (shared, arrived) = (&shared, &arrived);
                scope.spawn(move || {
                    // As another process would.
                    let shared = Shared::open(&shared.path()).unwrap();
                    let step_counters = shared.map().unwrap().into_step_counters();
                    let barrier = Barrier::new(&step_counters, own, Duration::from_secs(60));
                    assert_eq!((barrier.own(), barrier.participants()), (own, 3));
                    for step in 1..=STEPS {
                        arrived.fetch_add(1, Ordering::SeqCst);
                        match step % 2 {
                            0 => barrier.wait(0..3, step).unwrap(),
                            _ => barrier.wait_closely(&[0, 1, 2], step).unwrap(),
                        }
                        assert!(arrived.load(Ordering::SeqCst) >= 3 * step, "left early");
                    }
                });
            }
        });
    }

    #[test]
    fn a_missing_participant_is_named_and_one_that_is_not_expected_is_not_waited_for() {
        let step_counters: [StepCounter; 3] = Default::default();
        let barrier = Barrier::new(&step_counters, 0, Duration::from_millis(10));
        Barrier::new(&step_counters, 2, Duration::ZERO)
            .wait([2], 9)
            .unwrap();
        barrier.wait([0, 2], 5).unwrap();
        let missing = barrier.wait([0, 1, 2], 6).unwrap_err();
        assert_eq!(
            missing.to_string(),
            "participant 1 has not come to step 6 for 0.01 s; it is at step 0"
        );
    }
}
