//! Reading the records of every packet beside the bench.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use anyhow::{Context as _, Result};
use mind_common::trace::Tracing;
use mind_dataplane::{Switch, TraceControl, Traces};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::report::Records;

/// Reads the records of every packet of a switch, in a thread of its own.
pub(super) struct Reader {
    control: TraceControl,
    lost: u64,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<u64>>,
}

impl Reader {
    /// How long it waits for records before it checks whether the bench has ended.
    const WAIT: Timespec = Timespec {
        tv_sec: 0,
        tv_nsec: 50_000_000,
    };

    /// Has all packets traced from now on.
    pub(super) fn start(switch: &Switch) -> Result<Self> {
        let mut control = switch.open_trace_control()?;
        let traces = switch.open_traces()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&is_over);
        let lost = control.lost()?;
        control.set(Tracing::EVERYTHING)?;
        Ok(Self {
            control,
            lost,
            is_over,
            thread: thread::spawn(move || Self::read(traces, &until)),
        })
    }

    fn read(mut traces: Traces, is_over: &AtomicBool) -> Result<u64> {
        let mut count = 0;
        loop {
            // Records from before the end are read after the end was seen.
            let is_last = is_over.load(Ordering::Acquire);
            while traces.take().is_some() {
                count += 1;
            }
            if is_last {
                return Ok(count);
            }
            poll(
                &mut [PollFd::new(&traces, PollFlags::IN)],
                Some(&Self::WAIT),
            )?;
        }
    }

    /// Ends it; how many records there were.
    pub(super) fn end(mut self) -> Result<Records> {
        self.control.set(Tracing::default())?;
        self.is_over.store(true, Ordering::Release);
        let read = self.thread.join().ok();
        let read = read.context("the thread that reads records panicked")??;
        Ok(Records {
            read,
            lost: self.control.lost()? - self.lost,
        })
    }
}
