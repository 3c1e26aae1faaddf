//! Ctrl-C: what waits is told, and the program ends through its usual way out.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The program was told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted; nothing is left running")]
pub struct Interrupted;

/// What is to be done when the program is told to end.
type Listener = Box<dyn FnOnce() + Send>;

/// Whether the program was told to end, and what is to be called then.
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
    /// From now on SIGINT, SIGTERM and SIGHUP tell the program to end. To be called once.
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

    /// Tells the program to end.
    pub fn happen(&self) {
        self.wanted.store(true, Ordering::SeqCst);
        let listeners = std::mem::take(&mut *self.lock());
        for listener in listeners {
            listener();
        }
    }

    /// Has `listener` called when the program is told to end; at once if it has been.
    pub fn tell(&self, listener: impl FnOnce() + Send + 'static) {
        self.lock().push(Box::new(listener));
        if self.is_wanted() {
            self.happen();
        }
    }

    /// Whether the program was told to end.
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
    fn a_listener_is_told_whether_it_comes_before_or_after() {
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
