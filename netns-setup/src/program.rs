//! Processes of the testbed: identified beyond reuse of their numbers, found by their namespace,
//! ended without a race.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, waitpid,
};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// How long a process may take over SIGTERM, and then over SIGKILL.
const GRACE: Duration = Duration::from_secs(3);

/// A process. Its number may be used again, so the time of its start identifies it as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// When it was started, in clock ticks since the machine was.
    pub start: u64,
}

impl Process {
    /// The process that has this number now; `None` if there is none, or if it has ended and waits for its parent.
    pub fn with_pid(pid: i32) -> Option<Self> {
        let (state, start) = stat(pid)?;
        (state != 'Z' && state != 'X').then_some(Self { pid, start })
    }

    /// This one.
    pub fn current() -> Self {
        let pid = std::process::id().cast_signed();
        // Without /proc nothing else here works either.
        Self::with_pid(pid).unwrap_or(Self { pid, start: 0 })
    }

    /// Whether it has not ended.
    pub fn is_alive(self) -> bool {
        Self::with_pid(self.pid) == Some(self)
    }

    /// A handle of it and of no other; `None` if it has ended.
    pub fn open(self) -> Option<OwnedFd> {
        let handle = pidfd_open(Pid::from_raw(self.pid)?, PidfdFlags::empty()).ok()?;
        // Checked while the handle keeps the number from being used again.
        self.is_alive().then_some(handle)
    }

    /// The same, also while it is ending: its first thread may be gone, and others still hold its sockets.
    fn open_to_its_end(self) -> Option<OwnedFd> {
        let handle = pidfd_open(Pid::from_raw(self.pid)?, PidfdFlags::empty()).ok()?;
        let (_, start) = stat(self.pid)?;
        (start == self.start).then_some(handle)
    }
}

/// State and start time of the process that has this number now.
fn stat(pid: i32) -> Option<(char, u64)> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// State and start time in `/proc/PID/stat`. The name before them may hold spaces and parentheses.
fn parse_stat(text: &str) -> Option<(char, u64)> {
    let (_, rest) = text.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?.chars().next()?;
    // Field 22 of all, and `state` is the third.
    let start = fields.nth(18)?.parse().ok()?;
    Some((state, start))
}

/// The processes in the namespaces with these numbers, but for the calling one.
pub fn in_namespaces(ids: &BTreeSet<u64>) -> Vec<Process> {
    let own = std::process::id().cast_signed();
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &i32| *pid != own)
        .filter(|pid| {
            let namespace = fs::metadata(format!("/proc/{pid}/ns/net"));
            namespace.is_ok_and(|metadata| ids.contains(&metadata.ino()))
        })
        .filter_map(Process::with_pid)
        .collect()
}

/// Asks all to end, waits, and kills those that do not.
///
/// # Errors
///
/// [`Error::Unkillable`] for one that outlives SIGKILL.
pub fn end(processes: &[Process]) -> Result<()> {
    let mut open: Vec<_> = processes
        .iter()
        .filter_map(|process| Some((*process, process.open_to_its_end()?)))
        .collect();
    for signal in [Signal::TERM, Signal::KILL] {
        for (_, handle) in &open {
            // It may have ended by now.
            pidfd_send_signal(handle, signal).ok();
        }
        let deadline = Instant::now() + GRACE;
        open.retain(|(process, handle)| {
            let ended = wait(handle, deadline);
            if ended {
                // If it is a child of this process, only this process can reap it.
                waitpid(Pid::from_raw(process.pid), WaitOptions::NOHANG).ok();
            }
            !ended
        });
    }
    match open.first() {
        None => Ok(()),
        Some((process, _)) => Err(Error::Unkillable { pid: process.pid }),
    }
}

/// Ends a process as a crash would, and waits until it is gone.
///
/// # Errors
///
/// [`Error::Unkillable`] for one that outlives SIGKILL.
pub fn kill(process: Process) -> Result<()> {
    let Some(handle) = process.open_to_its_end() else {
        return Ok(());
    };
    pidfd_send_signal(&handle, Signal::KILL).ok();
    if !wait(&handle, Instant::now() + GRACE) {
        return Err(Error::Unkillable { pid: process.pid });
    }
    waitpid(Pid::from_raw(process.pid), WaitOptions::NOHANG).ok();
    Ok(())
}

/// Waits for the process's end; returns whether it came in time.
fn wait(handle: &OwnedFd, deadline: Instant) -> bool {
    let mut events = [PollFd::new(handle, PollFlags::IN)];
    poll_until(&mut events, deadline)
}

/// Waits for one of the events; returns whether one came in time.
pub(crate) fn poll_until(events: &mut [PollFd<'_>], deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).expect("a few seconds fit in a timespec");
        match poll(events, Some(&left)) {
            Err(rustix::io::Errno::INTR) => {}
            Err(_) | Ok(0) => return false,
            Ok(_) => return true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_name_with_parentheses_hides_nothing() {
        let fields = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        let text = format!("77 (a) b (c)) {fields}");
        assert_eq!(parse_stat(&text), Some(('S', 4711)));
        assert_eq!(parse_stat("77 (short) S 1 2"), None);
    }

    #[test]
    fn another_process_with_the_same_number_is_not_the_one() {
        let current = Process::current();
        assert!(current.is_alive());
        let earlier = Process {
            start: current.start - 1,
            ..current
        };
        assert!(!earlier.is_alive());
        assert!(earlier.open().is_none());
    }

    #[test]
    fn a_process_that_ignores_the_request_to_end_is_killed() {
        // What is ignored stays so across exec.
        let mut child = Command::new("sh")
            .args(["-c", "trap '' TERM; echo ready; exec sleep 1000"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pid = child.id().cast_signed();
        let mut line = String::new();
        let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
        let process = Process::with_pid(pid).unwrap();
        end(&[process]).unwrap();
        assert!(!process.is_alive());
        // `end` has reaped it, or this does.
        child.wait().ok();
    }
}
