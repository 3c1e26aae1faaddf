//! Ctrl-C: whoever waits finds out, and the bench ends through its usual way out, which removes the
//! testbed.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
    mpsc::Sender,
};

use anyhow::{Context as _, Result};

use super::crew::Event;

/// Somebody wanted the bench to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted; nothing is left running")
    }
}

impl std::error::Error for Interrupted {}

/// Whether somebody wants the bench to end, and who waits for something else meanwhile.
#[derive(Clone, Debug, Default)]
pub(super) struct Interrupt {
    wanted: Arc<AtomicBool>,
    listeners: Arc<Mutex<Vec<Sender<Event>>>>,
}

impl Interrupt {
    /// Takes SIGINT, SIGTERM and SIGHUP for the wish to end.
    pub(super) fn with_signals() -> Result<Self> {
        let interrupt = Self::default();
        let own = interrupt.clone();
        ctrlc::set_handler(move || own.happen()).context("cannot take Ctrl-C")?;
        Ok(interrupt)
    }

    fn happen(&self) {
        self.wanted.store(true, Ordering::SeqCst);
        for listener in self.lock().drain(..) {
            // It may have ended.
            let _ = listener.send(Event::Interrupted);
        }
    }

    /// Sends [`Event::Interrupted`] to `listener` when it comes to that.
    pub(super) fn tell(&self, listener: Sender<Event>) {
        self.lock().push(listener);
        if self.check().is_err() {
            self.happen();
        }
    }

    /// Whether to go on.
    pub(super) fn check(&self) -> Result<(), Interrupted> {
        if self.wanted.load(Ordering::SeqCst) {
            Err(Interrupted)
        } else {
            Ok(())
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Sender<Event>>> {
        // A list of listeners is whole whatever its holder was doing.
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn whoever_waits_is_told_whether_before_or_after() {
        let interrupt = Interrupt::default();
        let (early, waits) = mpsc::channel();
        interrupt.tell(early);
        assert_eq!(interrupt.check(), Ok(()));
        interrupt.happen();
        assert!(matches!(waits.try_recv(), Ok(Event::Interrupted)));
        let (late, waits) = mpsc::channel();
        interrupt.tell(late);
        assert!(matches!(waits.try_recv(), Ok(Event::Interrupted)));
        assert_eq!(interrupt.check(), Err(Interrupted));
    }
}
