//! An interrupt of bringing a testbed up, as a file descriptor for `poll`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use mind_cli::Interrupt;
use rustix::event::{EventfdFlags, eventfd};

use crate::error::{Error, Result};

/// An [`Interrupt`] that can be waited for with `poll`.
#[derive(Debug)]
pub(crate) struct Halt {
    interrupt: Interrupt,
    event: Arc<OwnedFd>,
}

impl Halt {
    /// That of `interrupt`.
    ///
    /// # Errors
    ///
    /// When there is no file descriptor left.
    pub(crate) fn of(interrupt: &Interrupt) -> Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC)
            .map_err(Error::io("make an", Path::new("eventfd")))?;
        let event = Arc::new(event);
        let own = Arc::clone(&event);
        interrupt.on_interrupt(move || {
            // It cannot fail: nothing else adds to the count.
            rustix::io::write(&own, &1_u64.to_ne_bytes()).ok();
        });
        Ok(Self {
            interrupt: interrupt.clone(),
            event,
        })
    }

    /// Fails if interrupted.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`], if so.
    pub(crate) fn check(&self) -> Result<()> {
        self.interrupt.check().map_err(|_| Error::Interrupted)
    }
}

impl AsFd for Halt {
    /// Readable once it is interrupted.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
