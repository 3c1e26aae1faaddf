//! The guard: a thread of the program that receives the agent's messages, hands answers to the calls that wait for them,
//! and turns accesses that failed into signals (SIGSEGV, SIGBUS).

mod altered;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    time::Instant,
};

use mind_api::{
    Failure,
    program::{FromBlade, Mapping},
};
use mind_common::addr::Va;
use mind_connection::packets::Packets;
use mind_userfault::Window;

use altered::Altered;

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
    let mut altered = Altered::default();
    loop {
        let message = match next(packets, altered.next_end()) {
            Ok(Next::Message(message)) => Some(message),
            Ok(Next::TimeOver) => None,
            Ok(Next::Ended) => break,
            Err(error) => {
                tracing::error!(%error, "the blade's agent cannot be understood");
                break;
            }
        };
        let now = Instant::now();
        let result = window
            .change(|window| altered.end_denials(window, now))
            .and_then(|()| match message {
                Some(FromBlade::Answer { id, result }) => {
                    calls.answer(id, result);
                    Ok(())
                }
                Some(FromBlade::Denied { page, readable }) => {
                    window.change(|window| altered.deny(window, Va(page), readable, now))
                }
                Some(FromBlade::Unreachable { page }) => {
                    window.change(|window| altered.give_up(window, Va(page)))
                }
                Some(FromBlade::Changed { range }) => {
                    let range = Va(range.va)..Va(range.va.saturating_add(range.length));
                    window.change(|window| altered.restore(window, range))
                }
                Some(
                    FromBlade::Memory { .. }
                    | FromBlade::Attached
                    | FromBlade::Refused { .. }
                    | FromBlade::Report(_),
                )
                | None => Ok(()),
            });
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

/// What comes next.
enum Next {
    Message(FromBlade),
    /// Nothing, until it was time.
    TimeOver,
    /// The end of the connection.
    Ended,
}

/// Waits for the agent's next message, until `end` at most.
fn next(packets: &Packets, end: Option<Instant>) -> std::io::Result<Next> {
    if let Some(end) = end
        && !packets.wait(end.saturating_duration_since(Instant::now()))?
    {
        return Ok(Next::TimeOver);
    }
    Ok(match packets.receive()? {
        Some((message, _)) => Next::Message(message),
        None => Next::Ended,
    })
}
