//! Ctrl-C: whoever waits finds out, and the tool ends through its usual way out.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Somebody wanted the tool to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted; nothing is left running")]
pub struct Interrupted;

/// What is to be done when somebody wants the tool to end.
type Listener = Box<dyn FnOnce() + Send>;

/// Whether somebody wants the tool to end, and who waits for something else meanwhile.
#[derive(Clone, Default)]
pub struct Interrupt {
    wanted: Arc<AtomicBool>,
    listeners: Arc<Mutex<Vec<Listener>>>,
}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wanted = self.is_wanted();
        f.debug_struct("Interrupt")
            .field("wanted", &wanted)
            .finish_non_exhaustive()
    }
}

impl Interrupt {
    /// Takes SIGINT, SIGTERM and SIGHUP for the wish to end, from now on. To be called once.
    ///
    /// # Errors
    ///
    /// When the signals cannot be taken.
    pub fn with_signals() -> Result<Self, ctrlc::Error> {
        let interrupt = Self::default();
        let own = interrupt.clone();
        ctrlc::set_handler(move || own.happen())?;
        Ok(interrupt)
    }

    /// Wants the tool to end.
    pub fn happen(&self) {
        self.wanted.store(true, Ordering::SeqCst);
        let listeners = std::mem::take(&mut *self.lock());
        for listener in listeners {
            listener();
        }
    }

    /// Has `listener` called when it comes to that; at once if it has.
    pub fn tell(&self, listener: impl FnOnce() + Send + 'static) {
        self.lock().push(Box::new(listener));
        if self.is_wanted() {
            self.happen();
        }
    }

    /// Whether somebody wants the tool to end.
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::SeqCst)
    }

    /// Whether to go on.
    ///
    /// # Errors
    ///
    /// [`Interrupted`], if not.
    pub fn check(&self) -> Result<(), Interrupted> {
        if self.is_wanted() {
            Err(Interrupted)
        } else {
            Ok(())
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Listener>> {
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
        let (sender, told) = mpsc::channel();
        let early = sender.clone();
        interrupt.tell(move || early.send("early").unwrap());
        assert_eq!(interrupt.check(), Ok(()));
        interrupt.happen();
        assert_eq!(told.try_recv(), Ok("early"));
        interrupt.tell(move || sender.send("late").unwrap());
        assert_eq!(told.try_recv(), Ok("late"));
        assert_eq!(interrupt.check(), Err(Interrupted));
    }
}
