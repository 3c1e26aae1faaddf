//! The guard: a thread of the program that receives the agent's messages, hands answers to the calls that wait for them,
//! and turns accesses that failed into signals (SIGSEGV, SIGBUS).

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
};

use mind_api::{
    Failure,
    program::{FromBlade, Mapping},
};
use mind_common::addr::{PAGE_SIZE, Va};
use mind_connection::packets::Packets;
use mind_userfault::Window;

/// What a call waits for.
pub(crate) type Answer = Result<Option<Mapping>, Failure>;

/// Calls under way, by number; `None` once the agent is gone.
type Waiting = Option<HashMap<u64, mpsc::Sender<Answer>>>;

/// Calls under way.
#[derive(Clone, Debug)]
pub(crate) struct Calls(Arc<Mutex<Waiting>>);

impl Calls {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Some(HashMap::new()))))
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // A map of waiting calls is whole whatever its holder was doing.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a call; `None` when no answer can come any more.
    pub(crate) fn begin(&self, id: u64) -> Option<mpsc::Receiver<Answer>> {
        let (sender, receiver) = mpsc::channel();
        self.lock().as_mut()?.insert(id, sender);
        Some(receiver)
    }

    fn answer(&self, id: u64, answer: Answer) {
        if let Some(waiting) = self.lock().as_mut().and_then(|calls| calls.remove(&id)) {
            // It may have given up.
            let _ = waiting.send(answer);
        }
    }

    fn end(&self) {
        self.lock().take();
    }
}

/// The window, which is changed no more once it is given up as a whole.
#[derive(Debug)]
pub(crate) struct Guarded {
    window: Window,
    given_up: Mutex<bool>,
}

impl Guarded {
    pub(crate) fn new(window: Window) -> Self {
        Self {
            window,
            given_up: Mutex::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        // A flag is whole whatever its holder was doing.
        self.given_up.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something to it, unless it is given up.
    fn change(
        &self,
        act: impl FnOnce(&Window) -> Result<(), mind_userfault::Error>,
    ) -> Result<(), mind_userfault::Error> {
        match *self.lock() {
            true => Ok(()),
            false => act(&self.window),
        }
    }

    /// Gives it up for good: every access is a SIGBUS.
    pub(crate) fn give_up(&self) -> Result<(), mind_userfault::Error> {
        let mut given_up = self.lock();
        if !*given_up {
            self.window.give_up_all()?;
            *given_up = true;
        }
        Ok(())
    }
}

/// Listens until the agent is gone.
pub(crate) fn run(packets: &Packets, window: &Guarded, calls: &Calls) {
    let mut altered = BTreeSet::new();
    loop {
        let message = match packets.receive::<FromBlade>() {
            Ok(Some((message, _))) => message,
            Ok(None) => break,
            Err(error) => {
                tracing::error!(%error, "the blade's agent cannot be understood");
                break;
            }
        };
        let result = match message {
            FromBlade::Answer { id, result } => {
                calls.answer(id, result);
                Ok(())
            }
            FromBlade::Denied { page, readable } => {
                altered.insert(page);
                window.change(|window| window.deny(Va(page), readable))
            }
            FromBlade::Unreachable { page } => {
                altered.insert(page);
                window.change(|window| window.give_up(page..page + PAGE_SIZE as u64))
            }
            FromBlade::Changed { range } => {
                window.change(|window| restore(window, &mut altered, range))
            }
            FromBlade::Memory { .. }
            | FromBlade::Attached
            | FromBlade::Refused(_)
            | FromBlade::Report(_) => Ok(()),
        };
        if let Err(error) = result {
            // The thread that made the access would wait for ever.
            tracing::error!(%error, "an access that failed cannot be told so");
            std::process::abort();
        }
    }
    // Faults are not resolved any more. Pages that are mapped now may be stale later, and those that are not would read
    // as zeros once the last descriptor is closed.
    if let Err(error) = window.give_up() {
        tracing::error!(%error, "the window cannot be given up");
        std::process::abort();
    }
    calls.end();
}

fn restore(
    window: &Window,
    altered: &mut BTreeSet<u64>,
    range: Mapping,
) -> Result<(), mind_userfault::Error> {
    let pages: Vec<u64> = altered
        .range(range.va..range.va.saturating_add(range.length))
        .copied()
        .collect();
    for page in pages {
        window.restore(page..page + PAGE_SIZE as u64)?;
        altered.remove(&page);
    }
    Ok(())
}
