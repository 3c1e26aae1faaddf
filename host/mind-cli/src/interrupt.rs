//! Ctrl-C: wakes waiting threads, and the program ends in the usual way.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The program was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted; nothing is left running")]
pub struct Interrupted;

/// A function to call at an interrupt.
type Listener = Box<dyn FnOnce() + Send>;

/// Whether the program was interrupted, and the functions to call then.
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
    /// Handles SIGINT, SIGTERM and SIGHUP as interrupts from now on. To be called once.
    ///
    /// # Errors
    ///
    /// When the handlers cannot be installed.
    pub fn with_signals() -> Result<Self, ctrlc::Error> {
        let interrupt = Self::default();
        let own = interrupt.clone();
        ctrlc::set_handler(move || own.happen())?;
        Ok(interrupt)
    }

    /// Interrupts the program.
    pub fn happen(&self) {
        self.wanted.store(true, Ordering::SeqCst);
        let listeners = std::mem::take(&mut *self.lock());
        for listener in listeners {
            listener();
        }
    }

    /// Calls `listener` at an interrupt; at once if there was one.
    pub fn on_interrupt(&self, listener: impl FnOnce() + Send + 'static) {
        self.lock().push(Box::new(listener));
        if self.is_wanted() {
            self.happen();
        }
    }

    /// Whether the program was interrupted.
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::SeqCst)
    }

    /// Fails if the tool was interrupted.
    ///
    /// # Errors
    ///
    /// [`Interrupted`], if so.
    pub fn check(&self) -> Result<(), Interrupted> {
        if self.is_wanted() {
            Err(Interrupted)
        } else {
            Ok(())
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Listener>> {
        // The list of listeners is consistent even if a thread panicked with the lock held.
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
    fn a_listener_is_told_whether_it_comes_before_or_after() {
        let interrupt = Interrupt::default();
        let (sender, told) = mpsc::channel();
        let early = sender.clone();
        interrupt.on_interrupt(move || early.send("early").unwrap());
        assert_eq!(interrupt.check(), Ok(()));
        interrupt.happen();
        assert_eq!(told.try_recv(), Ok("early"));
        interrupt.on_interrupt(move || sender.send("late").unwrap());
        assert_eq!(told.try_recv(), Ok("late"));
        assert_eq!(interrupt.check(), Err(Interrupted));
    }
}
