//! The first limit: a fault on a missing page of shared memory that another thread of the same
//! process resolves at once. The memory, the descriptor and the way to wait are those of a compute
//! blade's agent; no request is sent for the page.

use std::os::fd::{AsFd as _, OwnedFd};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{ValueEnum, builder::PossibleValue};
use mind_cli::Interrupt;
use mind_common::addr::{INITIAL_REGION_ORDER, PAGE_SIZE, Page, Va, WINDOW_BASE};
use mind_userfault::{Backing, Outcome, Window};
use rustix::{
    event::epoll,
    io::Errno,
    process::{Pid, Signal, WaitOptions, set_parent_process_death_signal},
};

use crate::system::{
    placement::{self, Placement},
    program,
    task::{Access, Answer, Serve, Task, misplaced},
    worker::Worker,
};

/// From one page to the next: as far as in the transitions.
const STRIDE: u64 = (PAGE_SIZE as u64) << INITIAL_REGION_ORDER;

/// What resolves the faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Handler {
    /// A thread of the process that faults: the limit.
    Thread,
    /// Another process, as in the system: shows how much of the system's time that costs.
    Process,
}

/// Starts the worker that measures it.
pub(super) fn start(
    handler: Handler,
    placement: &Placement,
    interrupt: &Interrupt,
) -> Result<Worker> {
    let by = handler.to_possible_value();
    let by = by.as_ref().map_or("", PossibleValue::get_name);
    let args = [
        format!("--cpu={}", placement.program(0)),
        "userfault".to_owned(),
        format!("--engine={}", placement.engine(0)),
        format!("--handler={by}"),
    ];
    let name = format!("the worker whose faults a {by} resolves");
    Worker::start(&name, args, interrupt, |command| Ok(command.spawn()?))
}

/// A window of this process's own.
pub(crate) struct Local {
    window: Window,
    backing: Backing,
    handler: Handler,
    engine: usize,
}

impl Local {
    /// Maps the window; faults will be resolved by `handler` on the processor `engine`.
    pub(crate) fn new(handler: Handler, engine: usize) -> Result<Self> {
        let backing = Backing::new("mind-fault-bench")?;
        let same = backing
            .as_fd()
            .try_clone_to_owned()
            .context("cannot duplicate a memfd's descriptor")?;
        Ok(Self {
            window: Window::map(Backing::from_fd(same))?,
            backing,
            handler,
            engine,
        })
    }

    /// Takes faults on `count` pages, one after the other.
    fn measure(&self, count: usize) -> Result<Vec<u64>> {
        let epoll = self.epoll()?;
        let pages = (0..count as u64).map(|number| WINDOW_BASE + number * STRIDE);
        let touch = || program::touch(pages.clone(), count, Access::Read);
        let nanos = match self.handler {
            Handler::Thread => std::thread::scope(|scope| {
                let handler = scope.spawn(|| self.handle(&epoll, count));
                let nanos = touch();
                match handler.join() {
                    Ok(()) => Ok(nanos),
                    Err(_) => bail!("the handler of local faults panicked"),
                }
            })?,
            Handler::Process => {
                let child = fork(|| self.handle(&epoll, count))?;
                let nanos = touch();
                rustix::process::waitpid(Some(child), WaitOptions::empty())
                    .context("cannot wait for the handler of local faults")?;
                nanos
            }
        };
        for page in pages {
            self.backing.remove(Va(page))?;
        }
        // How long the handler took to begin.
        Ok(nanos[1..].to_vec())
    }

    /// Resolves `count` faults, or ends the process: a thread that waits for a page would wait for
    /// ever.
    fn handle(&self, epoll: &OwnedFd, count: usize) {
        let handled = placement::pin(self.engine).and_then(|()| self.resolve(epoll, count));
        if let Err(error) = handled {
            eprintln!("{error:#}");
            std::process::exit(1);
        }
    }

    fn epoll(&self) -> Result<OwnedFd> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("cannot make an epoll")?;
        let (data, events) = (epoll::EventData::new_u64(0), epoll::EventFlags::IN);
        epoll::add(&epoll, self.window.userfault(), data, events)
            .context("cannot wait for faults")?;
        Ok(epoll)
    }

    /// Resolves `count` faults.
    fn resolve(&self, epoll: &OwnedFd, count: usize) -> Result<()> {
        let data: Page = [1; PAGE_SIZE];
        let userfault = self.window.userfault();
        let mut events: Vec<epoll::Event> = Vec::with_capacity(1);
        let mut faults = Vec::new();
        let mut resolved = 0;
        while resolved < count {
            events.clear();
            match epoll::wait(epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno).context("cannot wait for faults"),
            }
            userfault.read(|fault| faults.push(fault))?;
            for fault in faults.drain(..) {
                match userfault.copy(fault.page, &data, false) {
                    Outcome::Done => resolved += 1,
                    other => bail!("a local fault cannot be resolved: {other:?}"),
                }
            }
        }
        Ok(())
    }
}

impl Serve for Local {
    fn serve(&mut self, task: &Task) -> Result<Answer> {
        match *task {
            Task::Measure { count } => {
                ensure!(count > 0, "nothing is to be measured");
                // The first one includes the handler's start, and is not reported.
                let nanos = self.measure(count + 1)?;
                Ok(Answer::Times { nanos })
            }
            _ => Err(misplaced(task)),
        }
    }
}

/// Does `work` in a child process, which ends with the calling one at the latest. The window is not
/// the child's (`MADV_DONTFORK`); its descriptor is.
fn fork(work: impl FnOnce()) -> Result<Pid> {
    // SAFETY: a worker that measures has one thread at this point, so in the child no lock is held,
    // and any call is allowed.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // Without it, a worker that is killed would leave the child behind.
        if set_parent_process_death_signal(Some(Signal::KILL)).is_ok() {
            work();
        }
        // SAFETY: ends the process. What the parent had still to write is the parent's.
        unsafe { libc::_exit(0) };
    }
    Pid::from_raw(child).context("cannot start the handler of local faults")
}
