//! The calling side of a connection: requests with a time limit, and the controller's commands.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::codec::{Framed, LengthDelimitedCodec};
use tokio_util::either::Either;

use mind_api::{
    VERSION,
    errno::{Errno, Failure},
    message::{Command, Frame, Hello, Reply, Report, Request},
};

use crate::{endpoint::Endpoint, frame};

/// Commands that may wait for the agent before the connection stops being read.
const WAITING_COMMANDS: usize = 64;

type Connection = Framed<Either<TcpStream, UnixStream>, LengthDelimitedCodec>;

/// Why a call has no reply.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The controller refused.
    #[error(transparent)]
    Refused(#[from] Failure),
    /// The connection could not be opened.
    #[error("cannot connect to the controller at {endpoint}")]
    Connect {
        /// Where the controller should listen.
        endpoint: Endpoint,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The connection ended, or the other side does not speak this protocol.
    #[error("the connection to the controller is lost: {0}")]
    Lost(String),
    /// The controller did not answer in time.
    #[error("the controller did not answer within {} ms", .0.as_millis())]
    Late(Duration),
}

/// A call that waits for its answer.
#[derive(Debug)]
struct Waiting {
    /// The request, to be sent again on another connection.
    body: Request,
    answer: oneshot::Sender<Result<Reply, Failure>>,
}

/// What clones share.
#[derive(Debug)]
struct Shared {
    /// The number of the current connection, from 0.
    connection: u64,
    /// To the current connection; closed if there is none.
    outgoing: mpsc::UnboundedSender<Bytes>,
    waiting: BTreeMap<u64, Waiting>,
    next: u64,
    /// Whether calls wait for another connection when this one is lost.
    lasts: bool,
}

impl Shared {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Sends a request on the current connection; returns whether there is one. Requests with lower numbers than the
    /// frame's `answered` have their answer, or have been given up.
    fn send(&self, id: u64, body: Request) -> Result<bool, Failure> {
        let answered = self.waiting.keys().next().copied().unwrap_or(id);
        let frame = Frame::Request { id, answered, body };
        let bytes = encoded(&frame)?;
        Ok(self.outgoing.send(bytes).is_ok())
    }
}

/// The calling side of a connection to the controller. Clones share it; with the last one it ends.
///
/// ```no_run
/// use std::time::Duration;
///
/// use mind_api::message::Request;
/// use mind_connection::{Client, Endpoint};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let endpoint: Endpoint = "198.18.0.1:4790".parse()?;
/// let (client, _commands) = Client::connect(endpoint, "example", Duration::from_secs(2)).await?;
/// let reply = client.call(Request::Status).await?;
/// println!("{reply:?}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Mutex<Shared>>,
    limit: Duration,
}

/// Identifies a command: its number, on the connection that it came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandId {
    connection: u64,
    id: u64,
}

/// A command of the controller, to be answered by [`Client::answer_command`] with this id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedCommand {
    /// Identifies it.
    pub id: CommandId,
    /// The command.
    pub command: Command,
}

impl Client {
    /// Connects as `name`. This and each call may take `limit`. The receiver yields the controller's commands and ends
    /// with the connection.
    ///
    /// # Errors
    ///
    /// When there is no controller, or it refuses.
    pub async fn connect(
        endpoint: impl Into<Endpoint>,
        name: &str,
        limit: Duration,
    ) -> Result<(Self, mpsc::Receiver<ReceivedCommand>), ClientError> {
        let connection = connect(endpoint.into(), name, limit).await?;
        Ok(Self::on(connection, limit))
    }

    /// The same on a connection that is there already, such as one that was made in another network namespace.
    ///
    /// # Errors
    ///
    /// When the controller refuses.
    pub async fn over(
        stream: TcpStream,
        name: &str,
        limit: Duration,
    ) -> Result<(Self, mpsc::Receiver<ReceivedCommand>), ClientError> {
        frame::prepare(&stream).map_err(lost)?;
        let connection = greeted(Either::Left(stream), name, limit).await?;
        Ok(Self::on(connection, limit))
    }

    /// The calling side of a connection that is greeted.
    fn on(connection: Connection, limit: Duration) -> (Self, mpsc::Receiver<ReceivedCommand>) {
        let (sink, stream) = connection.split();
        let (outgoing, queue) = mpsc::unbounded_channel();
        let (commands, incoming) = mpsc::channel(WAITING_COMMANDS);
        let shared = Shared {
            connection: 0,
            outgoing,
            waiting: BTreeMap::new(),
            next: 0,
            lasts: false,
        };
        let shared = Arc::new(Mutex::new(shared));
        tokio::spawn(send(sink, queue));
        tokio::spawn(receive(stream, Arc::downgrade(&shared), 0, commands));
        (Self { shared, limit }, incoming)
    }

    /// From now on a call outlives its connection: it waits for [`resume`](Self::resume), for as long as it may take.
    pub fn outlive_connection(&self) {
        lock(&self.shared).lasts = true;
    }

    /// Connects again, when the receiver of commands has ended. `body` is the first request on the new connection
    /// ([`Request::Resume`]); when the controller has answered it, calls that wait are sent again there, under their
    /// old numbers.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect); and the controller's refusal.
    pub async fn resume(
        &self,
        endpoint: impl Into<Endpoint>,
        name: &str,
        body: Request,
    ) -> Result<(Reply, mpsc::Receiver<ReceivedCommand>), ClientError> {
        let mut connection = connect(endpoint.into(), name, self.limit).await?;
        let id = lock(&self.shared).number();
        let answered = 0;
        let frame = Frame::Request { id, answered, body };
        let reply = timeout(self.limit, ask_first(&mut connection, frame))
            .await
            .map_err(|_| ClientError::Late(self.limit))??;
        let (sink, stream) = connection.split();
        let (outgoing, queue) = mpsc::unbounded_channel();
        let (commands, incoming) = mpsc::channel(WAITING_COMMANDS);
        let connection = {
            let mut shared = lock(&self.shared);
            shared.connection += 1;
            shared.outgoing = outgoing;
            for (id, waiting) in &shared.waiting {
                // It was short enough for the connection before.
                let _ = shared.send(*id, waiting.body.clone());
            }
            shared.connection
        };
        tokio::spawn(send(sink, queue));
        let shared = Arc::downgrade(&self.shared);
        tokio::spawn(receive(stream, shared, connection, commands));
        Ok((reply, incoming))
    }

    /// Sends a request to the controller and waits for the reply.
    ///
    /// # Errors
    ///
    /// The controller's refusal; or that no answer came: then it is unknown whether the request was carried out.
    pub async fn call(&self, body: Request) -> Result<Reply, ClientError> {
        self.call_within(body, self.limit).await
    }

    /// The same, with a limit of its own.
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call).
    pub async fn call_within(&self, body: Request, limit: Duration) -> Result<Reply, ClientError> {
        let (answer, answered) = oneshot::channel();
        // One step: a new connection finds the call either waiting or not yet made.
        let waits = {
            let mut shared = lock(&self.shared);
            let id = shared.number();
            let waiting = Waiting {
                body: body.clone(),
                answer,
            };
            shared.waiting.insert(id, waiting);
            let waits = Waits { client: self, id };
            let sent = shared.send(id, body);
            let lasts = shared.lasts;
            drop(shared);
            if !sent? && !lasts {
                return Err(lost("it was closed"));
            }
            waits
        };
        let result = timeout(limit, answered).await;
        drop(waits);
        Ok(result
            .map_err(|_| ClientError::Late(limit))?
            .map_err(lost)??)
    }

    /// Answers a command.
    ///
    /// # Errors
    ///
    /// When the connection that it came by is lost: a number is valid only on its own connection. An answer that is too
    /// long for a frame is sent as the failure that it is.
    pub fn answer_command(
        &self,
        id: CommandId,
        body: Result<Report, Failure>,
    ) -> Result<(), ClientError> {
        let CommandId { connection, id } = id;
        let shared = lock(&self.shared);
        if shared.connection != connection {
            return Err(lost("the connection that the command came by is gone"));
        }
        let frame = Frame::Carried { id, body };
        let bytes = encoded(&frame).or_else(|failure| {
            let body = Err(failure);
            encoded(&Frame::Carried { id, body })
        });
        shared.outgoing.send(bytes?).map_err(lost)
    }
}

/// A waiting call; removes it when dropped, however the call ends.
struct Waits<'a> {
    client: &'a Client,
    id: u64,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        lock(&self.client.shared).waiting.remove(&self.id);
    }
}

async fn connect(
    endpoint: Endpoint,
    name: &str,
    limit: Duration,
) -> Result<Connection, ClientError> {
    let connected = timeout(limit, open(&endpoint)).await;
    let stream = connected
        .map_err(|_| ClientError::Late(limit))?
        .map_err(|source| ClientError::Connect { endpoint, source })?;
    greeted(stream, name, limit).await
}

/// The connection over a stream, once the controller has accepted the caller.
async fn greeted(
    stream: Either<TcpStream, UnixStream>,
    name: &str,
    limit: Duration,
) -> Result<Connection, ClientError> {
    let mut connection = frame::framed(stream);
    timeout(limit, greet(&mut connection, name))
        .await
        .map_err(|_| ClientError::Late(limit))??;
    Ok(connection)
}

/// Sends a frame on a connection that is not in use yet; returns the next frame that comes.
async fn exchange(connection: &mut Connection, frame: &Frame) -> Result<Frame, ClientError> {
    let bytes = frame::encode(frame).map_err(lost)?;
    connection.send(bytes).await.map_err(lost)?;
    let answer = connection
        .next()
        .await
        .ok_or_else(|| lost("it was closed"))?;
    frame::decode(&answer.map_err(lost)?).map_err(lost)
}

/// Sends the first request on a connection; returns the reply.
async fn ask_first(connection: &mut Connection, request: Frame) -> Result<Reply, ClientError> {
    match exchange(connection, &request).await? {
        Frame::Reply { body, .. } => Ok(body?),
        other => Err(lost(format_args!("unexpected first answer: {other:?}"))),
    }
}

async fn open(endpoint: &Endpoint) -> io::Result<Either<TcpStream, UnixStream>> {
    match endpoint {
        Endpoint::Tcp(address) => {
            let stream = TcpStream::connect(address).await?;
            frame::prepare(&stream)?;
            Ok(Either::Left(stream))
        }
        Endpoint::Unix(path) => UnixStream::connect(path).await.map(Either::Right),
    }
}

/// The bytes of a frame.
///
/// # Errors
///
/// `EINVAL`: it is longer than a frame may be.
fn encoded(frame: &Frame) -> Result<Bytes, Failure> {
    frame::encode(frame).map_err(|error| Failure::new(Errno::EINVAL, error.to_string()))
}

fn lost(error: impl std::fmt::Display) -> ClientError {
    ClientError::Lost(error.to_string())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The map of waiting calls is consistent even if a thread panicked with the lock held.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn greet(connection: &mut Connection, name: &str) -> Result<(), ClientError> {
    let hello = Frame::Hello(Hello {
        version: VERSION,
        name: name.to_owned(),
    });
    match exchange(connection, &hello).await? {
        Frame::Welcome(welcome) if welcome.version == VERSION => Ok(()),
        Frame::Welcome(welcome) => Err(lost(format_args!(
            "it speaks version {}, this program {VERSION}",
            welcome.version
        ))),
        Frame::Refused(failure) => Err(failure.into()),
        other => Err(lost(format_args!("unexpected answer to hello: {other:?}"))),
    }
}

async fn send(mut sink: SplitSink<Connection, Bytes>, mut queue: mpsc::UnboundedReceiver<Bytes>) {
    while let Some(bytes) = queue.recv().await {
        if sink.send(bytes).await.is_err() {
            return;
        }
    }
    sink.close().await.ok();
}

async fn receive(
    mut stream: SplitStream<Connection>,
    shared: Weak<Mutex<Shared>>,
    connection: u64,
    commands: mpsc::Sender<ReceivedCommand>,
) {
    while let Some(Ok(bytes)) = stream.next().await {
        match frame::decode(&bytes) {
            Ok(Frame::Reply { id, body }) => {
                let shared = shared.upgrade();
                let waiting = shared.and_then(|shared| lock(&shared).waiting.remove(&id));
                if let Some(waiting) = waiting {
                    // The call may have been given up.
                    waiting.answer.send(body).ok();
                }
            }
            Ok(Frame::Command { id, body }) => {
                let received = ReceivedCommand {
                    id: CommandId { connection, id },
                    command: body,
                };
                // A program takes no commands, and the controller sends it none.
                commands.send(received).await.ok();
            }
            // Other frames are not for this side.
            Ok(_) => {}
            Err(_) => break,
        }
    }
    let Some(shared) = shared.upgrade() else {
        return;
    };
    let mut shared = lock(&shared);
    if shared.connection != connection {
        return;
    }
    // Frames sent from now on are discarded.
    shared.outgoing = mpsc::unbounded_channel().0;
    if !shared.lasts {
        // Waiting calls end with an error.
        shared.waiting.clear();
    }
}

#[cfg(test)]
mod tests;
