//! Wakes the engine when something is due.
//!
//! A timeout of `epoll_wait` would be set and cancelled at each fault, and hardly ever expire. This timer is set only
//! when something is due *earlier* than it expires, and may expire when nothing is due.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::{Context as _, Result};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// A timer with a descriptor that is readable when it has expired.
pub(super) struct Alarm {
    fd: OwnedFd,
    /// When it expires, in nanoseconds of the caller's clock.
    rings_at: Option<u64>,
}

impl Alarm {
    /// One that is not set.
    pub(super) fn new() -> Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags).context("cannot make a timer")?;
        Ok(Self { fd, rings_at: None })
    }

    /// Makes it expire at `due` or before; both times in nanoseconds of the caller's clock.
    pub(super) fn set(&mut self, now: u64, due: u64) -> Result<()> {
        if self.rings_at.is_some_and(|at| at <= due) {
            return Ok(());
        }
        // Zero would cancel it.
        let nanos = due.saturating_sub(now).max(1);
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let when = Itimerspec {
            it_interval: zero,
            it_value: Timespec {
                tv_sec: (nanos / 1_000_000_000) as i64,
                tv_nsec: (nanos % 1_000_000_000) as _,
            },
        };
        timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &when)
            .context("cannot set a timer")?;
        self.rings_at = Some(due);
        Ok(())
    }

    /// It has expired.
    pub(super) fn rang(&mut self) {
        self.rings_at = None;
        let mut count = [0; 8];
        // Nothing to read means that it was read before.
        let _ = rustix::io::read(&self.fd, &mut count);
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    fn rings(alarm: &Alarm, patience: &Timespec) -> bool {
        let mut fds = [PollFd::new(alarm, PollFlags::IN)];
        poll(&mut fds, Some(patience)).expect("a timer can be waited for") == 1
    }

    const LONG: Timespec = Timespec {
        tv_sec: 60,
        tv_nsec: 0,
    };
    const NOW: Timespec = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };

    #[test]
    fn it_rings_for_the_earliest_of_what_it_was_set_to() {
        let hour = 3_600_000_000_000;
        let mut alarm = Alarm::new().expect("timers can be made");
        alarm.set(5, hour).expect("it can be set");
        assert!(!rings(&alarm, &NOW));
        alarm.set(5, 6).expect("it can be set");
        alarm.set(5, hour).expect("it can be set");
        assert!(rings(&alarm, &LONG), "a later time put the earlier one off");
    }

    #[test]
    fn it_rings_once_each_time_it_is_set() {
        let mut alarm = Alarm::new().expect("timers can be made");
        for _ in 0..3 {
            alarm.set(7, 0).expect("it can be set to what is over");
            assert!(rings(&alarm, &LONG));
            alarm.rang();
            assert!(!rings(&alarm, &NOW));
        }
    }
}
