//! Interrupts: SIGINT, SIGTERM, SIGHUP.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    time::Duration,
};

use anyhow::{Context as _, Result};

/// The soak was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// Whether the soak was interrupted.
#[derive(Debug)]
pub struct Signals {
    receiver: Receiver<()>,
    interrupted: Arc<AtomicBool>,
}

impl Signals {
    /// Handles the signals from now on.
    ///
    /// # Errors
    ///
    /// When the handlers cannot be installed.
    pub fn take() -> Result<Self> {
        let (sender, receiver) = mpsc::channel();
        let interrupted = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&interrupted);
        ctrlc::set_handler(move || {
            flag.store(true, Ordering::SeqCst);
            // A thread that does not wait for a signal checks the flag.
            sender.send(()).ok();
        })
        .context("cannot take Ctrl-C")?;
        Ok(Self {
            receiver,
            interrupted,
        })
    }

    /// Whether there was one.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::SeqCst)
    }

    /// Fails if there was one.
    ///
    /// # Errors
    ///
    /// [`Interrupted`].
    pub fn check(&self) -> Result<(), Interrupted> {
        if self.is_interrupted() {
            Err(Interrupted)
        } else {
            Ok(())
        }
    }

    /// Waits for one, for so long at most.
    ///
    /// # Errors
    ///
    /// [`Interrupted`], when there is one.
    pub fn wait(&self, time: Duration) -> Result<(), Interrupted> {
        match self.receiver.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => self.check(),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => Err(Interrupted),
        }
    }
}
