//! How a blade's agent is told what to do: a command goes out on its session, and its answer comes back there.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use mind_api::{
    Command, Errno, Failure,
    message::{Frame, Report},
};
use tokio::sync::{mpsc, oneshot};

/// How long a command may take. A flush waits for write-backs; zeroing takes about a second per GiB.
const LIMIT: Duration = Duration::from_secs(30);
/// How long it may take an agent to say what it knows.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

type Waiting = HashMap<u64, oneshot::Sender<Result<Report, Failure>>>;

/// Where a session's frames go, and the answers that are expected on it.
#[derive(Clone, Debug)]
pub(super) struct Agent {
    name: Arc<str>,
    outgoing: mpsc::Sender<Frame>,
    waiting: Arc<Mutex<(u64, Waiting)>>,
}

impl Agent {
    /// An agent whose frames go there.
    pub(super) fn new(name: &str, outgoing: mpsc::Sender<Frame>) -> Self {
        Self {
            name: name.into(),
            outgoing,
            waiting: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, (u64, Waiting)> {
        // A number and a map, whole whatever their holder was doing.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for something and waits until it is done.
    ///
    /// # Errors
    ///
    /// What the agent says, or `EIO` when it says nothing.
    pub(super) async fn order(&self, body: Command) -> Result<(), Failure> {
        self.order_within(body, LIMIT).await
    }

    /// Asks for a report, and waits for it.
    ///
    /// # Errors
    ///
    /// As [`order`](Self::order).
    pub(super) async fn ask(&self, body: Command) -> Result<Report, Failure> {
        self.ask_within(body, ANSWER_LIMIT).await
    }

    /// The same, with a limit of its own.
    ///
    /// # Errors
    ///
    /// As [`order`](Self::order).
    pub(super) async fn order_within(&self, body: Command, limit: Duration) -> Result<(), Failure> {
        self.ask_within(body, limit).await.map(|_| ())
    }

    async fn ask_within(&self, body: Command, limit: Duration) -> Result<Report, Failure> {
        let (sender, answer) = oneshot::channel();
        let id = {
            let mut waiting = self.lock();
            waiting.0 += 1;
            let id = waiting.0;
            waiting.1.insert(id, sender);
            id
        };
        let silent = |what: &str| {
            let message = format!("{} {what} when asked for {body:?}", self.name);
            Failure::new(Errno::EIO, message)
        };
        let result = tokio::time::timeout(limit, async {
            let frame = Frame::Command {
                id,
                body: body.clone(),
            };
            self.outgoing
                .send(frame)
                .await
                .map_err(|_| silent("was gone"))?;
            answer.await.map_err(|_| silent("went"))?
        })
        .await;
        self.lock().1.remove(&id);
        result.map_err(|_| silent("did not answer in time"))?
    }

    /// The agent answers a command.
    pub(super) fn answered(&self, id: u64, result: Result<Report, Failure>) {
        if let Some(waiting) = self.lock().1.remove(&id) {
            // Whoever waited may have given up.
            let _ = waiting.send(result);
        }
    }

    /// Tells the agent to end, if it can be told at once, and waits for nothing more of it.
    pub(super) fn dismiss(&self) {
        let frame = Frame::Command {
            id: 0,
            body: Command::Leave,
        };
        if self.outgoing.try_send(frame).is_err() {
            tracing::debug!(name = %self.name, "an agent cannot be told to end");
        }
        self.gone();
    }

    /// The agent is gone: nobody need wait.
    pub(super) fn gone(&self) {
        self.lock().1.clear();
    }
}
