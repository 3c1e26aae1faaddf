//! Where players meet: each counts its steps in a word of its own, which the others watch.
//!
//! The words lie in ordinary memory that the processes of one machine share, not in the memory that
//! is tested: so they wait for each other also when that is broken, and to meet costs a microsecond
//! and not several faults. Players on different machines would need a clock in common instead.
//!
//! Who waits yields its processor: where there are fewer than players, the one that is waited for
//! needs it, or the agent that works on its fault.

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

/// A player's step counts, on a cache line of their own.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Seat {
    /// To which step it has come.
    come: AtomicU64,
    /// At which step it has last seen that all have come, and runs.
    runs: AtomicU64,
}

/// A player who does not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("player {player} has not come to step {step} for {} s; it is at step {is}", patience.as_secs_f64())]
pub struct Missing {
    /// Who.
    pub player: usize,
    /// Where it should be.
    pub step: u64,
    /// Where it is.
    pub is: u64,
    /// How long it was waited for.
    pub patience: Duration,
}

/// A player's side of it.
#[derive(Clone, Copy, Debug)]
pub struct Meeting<'a> {
    seats: &'a [Seat],
    own: usize,
    patience: Duration,
}

impl<'a> Meeting<'a> {
    /// The meeting of as many players as there are seats, as player number `own` sees it, who waits
    /// for others for `patience`.
    pub const fn new(seats: &'a [Seat], own: usize, patience: Duration) -> Self {
        Self {
            seats,
            own,
            patience,
        }
    }

    /// This player's number.
    pub const fn own(&self) -> usize {
        self.own
    }

    /// How many players there are.
    pub const fn players(&self) -> usize {
        self.seats.len()
    }

    /// Comes to a step, and waits until `others` have come to it or beyond. What they stored before
    /// is seen after.
    ///
    /// # Errors
    ///
    /// [`Missing`], when one does not come.
    #[inline]
    pub fn meet(&self, others: impl IntoIterator<Item = usize>, step: u64) -> Result<(), Missing> {
        self.seats[self.own].come.store(step, Ordering::SeqCst);
        others
            .into_iter()
            .filter(|other| *other != self.own)
            .try_for_each(|other| self.wait_for(other, step))
    }

    /// As [`meet`](Self::meet), and then waits a few microseconds for `others` to run as well: who has
    /// waited may be about to be given a processor again. Those that run leave within a fraction of a
    /// microsecond of each other.
    ///
    /// # Errors
    ///
    /// As [`meet`](Self::meet).
    #[inline]
    pub fn meet_closely(&self, others: &[usize], step: u64) -> Result<(), Missing> {
        /// Looks before this player runs alone.
        const LOOKS: usize = 64;
        self.meet(others.iter().copied(), step)?;
        self.seats[self.own].runs.store(step, Ordering::SeqCst);
        for _ in 0..LOOKS {
            let runs = |other: &usize| self.seats[*other].runs.load(Ordering::SeqCst) >= step;
            if others.iter().all(runs) {
                break;
            }
            std::hint::spin_loop();
        }
        Ok(())
    }

    fn wait_for(&self, player: usize, step: u64) -> Result<(), Missing> {
        /// Looks before the processor is given away: half a microsecond.
        const LOOKS: usize = 16;
        let seat = &self.seats[player].come;
        let mut begin = None;
        loop {
            for _ in 0..LOOKS {
                if seat.load(Ordering::SeqCst) >= step {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            std::thread::yield_now();
            let begin = *begin.get_or_insert_with(Instant::now);
            if begin.elapsed() > self.patience {
                return Err(Missing {
                    player,
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

    /// Where another process finds it while this one is there.
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

    /// As many seats as there is room for.
    pub fn into_seats(self) -> Seats {
        Seats(self)
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

/// Seats in mapped memory.
#[derive(Debug)]
pub struct Seats(Mapping);

impl Deref for Seats {
    type Target = [Seat];

    fn deref(&self) -> &[Seat] {
        let count = self.0.length / size_of::<Seat>();
        // SAFETY: the mapping begins at a page, has that many, and lives as long as `self`; a seat is
        // an atomic word, which may be anything and may be shared.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_goes_on_before_those_who_meet_have_come() {
        const STEPS: u64 = 200;
        let shared = Shared::new("test", 3 * size_of::<Seat>()).unwrap();
        let arrived = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for own in 0..3 {
                let (shared, arrived) = (&shared, &arrived);
                scope.spawn(move || {
                    // As another process would.
                    let shared = Shared::open(&shared.path()).unwrap();
                    let seats = shared.map().unwrap().into_seats();
                    let meeting = Meeting::new(&seats, own, Duration::from_secs(60));
                    assert_eq!((meeting.own(), meeting.players()), (own, 3));
                    for step in 1..=STEPS {
                        arrived.fetch_add(1, Ordering::SeqCst);
                        match step % 2 {
                            0 => meeting.meet(0..3, step).unwrap(),
                            _ => meeting.meet_closely(&[0, 1, 2], step).unwrap(),
                        }
                        assert!(arrived.load(Ordering::SeqCst) >= 3 * step, "left early");
                    }
                });
            }
        });
    }

    #[test]
    fn who_does_not_come_is_named_and_who_is_not_expected_is_not_waited_for() {
        let seats: [Seat; 3] = Default::default();
        let meeting = Meeting::new(&seats, 0, Duration::from_millis(10));
        Meeting::new(&seats, 2, Duration::ZERO)
            .meet([2], 9)
            .unwrap();
        meeting.meet([0, 2], 5).unwrap();
        let missing = meeting.meet([0, 1, 2], 6).unwrap_err();
        assert_eq!(
            missing.to_string(),
            "player 1 has not come to step 6 for 0.01 s; it is at step 0"
        );
    }
}
