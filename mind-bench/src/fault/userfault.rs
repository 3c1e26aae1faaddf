//! The first limit: a fault on a missing page of shared memory that another thread of the same
//! process resolves at once. The memory, the descriptor and the way to wait are those of a compute
//! blade's agent; nobody is asked for the page.

use std::{
    os::fd::{AsFd as _, OwnedFd},
    sync::mpsc,
};

use anyhow::{Context as _, Result, bail, ensure};
use mind_common::{
    addr::{INITIAL_REGION_ORDER, PAGE_SIZE, Va, WINDOW_BASE},
    wire::message::Page,
};
use mind_userfault::{Backing, Outcome, Window};
use rustix::{event::epoll, io::Errno};

use super::{
    crew::Worker,
    interrupt::Interrupt,
    order::{Access, Answer, Order},
    placement::{self, Placement},
    program,
    worker::{Serve, misplaced},
};

/// From one page to the next: as far as in the transitions.
const STRIDE: u64 = (PAGE_SIZE as u64) << INITIAL_REGION_ORDER;

/// Starts the worker that measures it.
pub(super) fn start(placement: &Placement, interrupt: &Interrupt) -> Result<Worker> {
    let args = [
        format!("--cpu={}", placement.program(0)),
        "userfault".to_owned(),
        format!("--engine={}", placement.engine(0)),
    ];
    Worker::start(
        "the worker that faults locally",
        args,
        interrupt,
        |command| Ok(command.spawn()?),
    )
}

/// A window of this process's own.
pub(super) struct Local {
    window: Window,
    backing: Backing,
    engine: usize,
}

impl Local {
    /// Maps the window; faults will be resolved on the processor `engine`.
    pub(super) fn new(engine: usize) -> Result<Self> {
        let backing = Backing::new("mind-fault-bench")?;
        let same = backing
            .as_fd()
            .try_clone_to_owned()
            .context("cannot duplicate a memfd's descriptor")?;
        Ok(Self {
            window: Window::map(Backing::from_fd(same))?,
            backing,
            engine,
        })
    }

    /// Takes faults on `count` pages, one after the other.
    fn measure(&self, count: usize) -> Result<Vec<u64>> {
        let epoll = self.epoll()?;
        let (ready, is_ready) = mpsc::channel();
        let pages = (0..count as u64).map(|number| WINDOW_BASE + number * STRIDE);
        let nanos = std::thread::scope(|scope| {
            let handler = scope.spawn(|| {
                let begin = || -> Result<()> {
                    placement::pin(self.engine)?;
                    let _ = ready.send(());
                    self.resolve(&epoll, count)
                };
                if let Err(error) = begin() {
                    // Whoever waits for a page would wait for ever.
                    eprintln!("{error:#}");
                    std::process::exit(1);
                }
            });
            is_ready.recv().context("the handler has not begun")?;
            let nanos = program::touch(pages.clone(), count, Access::Read);
            match handler.join() {
                Ok(()) => Ok(nanos),
                Err(_) => bail!("the handler of local faults panicked"),
            }
        })?;
        for page in pages {
            self.backing.remove(Va(page))?;
        }
        Ok(nanos)
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
            userfault.read(&mut faults)?;
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
    fn serve(&mut self, order: &Order) -> Result<Answer> {
        match *order {
            Order::Measure { count } => {
                ensure!(count > 0, "nothing is to be measured");
                let nanos = self.measure(count)?;
                Ok(Answer::Times { nanos })
            }
            _ => Err(misplaced(order)),
        }
    }
}
