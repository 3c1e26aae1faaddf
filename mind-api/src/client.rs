//! The calling side of a connection: requests with a time limit, and the controller's commands.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::codec::{Framed, LengthDelimitedCodec};
use tokio_util::either::Either;

use crate::VERSION;
use crate::endpoint::Endpoint;
use crate::errno::Failure;
use crate::frame;
use crate::message::{Command, Frame, Hello, Reply, Report, Request};

/// Commands that may wait for the agent before the connection stops being read.
const WAITING_COMMANDS: usize = 64;

type Connection = Framed<Either<TcpStream, UnixStream>, LengthDelimitedCodec>;

/// Why a call brought no reply.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The controller refused.
    #[error(transparent)]
    Refused(#[from] Failure),
    /// The connection does not come about.
    #[error("cannot connect to the controller at {endpoint}")]
    Connect {
        /// Where it should be.
        endpoint: Endpoint,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The controller is gone, or it is no controller.
    #[error("the connection to the controller is lost: {0}")]
    Lost(String),
    /// The controller said nothing in time.
    #[error("the controller did not answer within {} ms", .0.as_millis())]
    Late(Duration),
}

/// A call that waits for its answer.
#[derive(Debug)]
struct Waiting {
    /// What was asked, to be asked again on another connection.
    body: Request,
    answer: oneshot::Sender<Result<Reply, Failure>>,
}

/// What clones share.
#[derive(Debug)]
struct Shared {
    /// To the connection that there is; it is closed if there is none.
    outgoing: mpsc::UnboundedSender<Frame>,
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

    /// Sends a request on the connection that there is; whether there is one. What is lower than `answered` has its
    /// answer, or has given up.
    fn send(&self, id: u64, body: Request) -> bool {
        let answered = self.waiting.keys().next().copied().unwrap_or(id);
        let frame = Frame::Request { id, answered, body };
        self.outgoing.send(frame).is_ok()
    }
}

/// A connection to the controller. Clones share it.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Mutex<Shared>>,
    limit: Duration,
}

/// A command of the controller; it waits for [`Client::carried`] with this number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Its number.
    pub id: u64,
    /// What is asked.
    pub command: Command,
}

impl Client {
    /// Connects and says hello as `name`. Each call may take `limit`, and so may this. The receiver brings the
    /// controller's commands and ends with the connection.
    ///
    /// # Errors
    ///
    /// When there is no controller, or it refuses.
    pub async fn connect(
        endpoint: impl Into<Endpoint>,
        name: &str,
        limit: Duration,
    ) -> Result<(Self, mpsc::Receiver<Order>), ClientError> {
        let connection = connect(endpoint.into(), name, limit).await?;
        let (sink, stream) = connection.split();
        let (outgoing, queue) = mpsc::unbounded_channel();
        let (orders, incoming) = mpsc::channel(WAITING_COMMANDS);
        let shared = Shared {
            outgoing,
            waiting: BTreeMap::new(),
            next: 0,
            lasts: false,
        };
        let shared = Arc::new(Mutex::new(shared));
        tokio::spawn(send(sink, queue));
        tokio::spawn(receive(stream, Arc::clone(&shared), orders));
        Ok((Self { shared, limit }, incoming))
    }

    /// From now on a call outlives its connection: it waits for [`resume`](Self::resume), for as long as it may take.
    pub fn outlive_connection(&self) {
        lock(&self.shared).lasts = true;
    }

    /// Connects again, when the receiver of commands has ended. `body` says on the new connection who is back; when the
    /// controller has answered that, calls that wait are made again there, under their old numbers.
    ///
    /// # Errors
    ///
    /// As of [`connect`](Self::connect); and the controller's refusal.
    pub async fn resume(
        &self,
        endpoint: impl Into<Endpoint>,
        name: &str,
        body: Request,
    ) -> Result<(Reply, mpsc::Receiver<Order>), ClientError> {
        let mut connection = connect(endpoint.into(), name, self.limit).await?;
        let id = lock(&self.shared).number();
        let answered = 0;
        let frame = Frame::Request { id, answered, body };
        let reply = timeout(self.limit, ask_first(&mut connection, frame))
            .await
            .map_err(|_| ClientError::Late(self.limit))??;
        let (sink, stream) = connection.split();
        let (outgoing, queue) = mpsc::unbounded_channel();
        let (orders, incoming) = mpsc::channel(WAITING_COMMANDS);
        {
            let mut shared = lock(&self.shared);
            shared.outgoing = outgoing;
            for (id, waiting) in &shared.waiting {
                shared.send(*id, waiting.body.clone());
            }
        }
        tokio::spawn(send(sink, queue));
        tokio::spawn(receive(stream, Arc::clone(&self.shared), orders));
        Ok((reply, incoming))
    }

    /// Asks the controller.
    ///
    /// # Errors
    ///
    /// The controller's refusal; or that no answer came, when it is not known whether the request was carried out.
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
        // One step: a connection that comes now finds the call either waiting or not there.
        let waits = {
            let mut shared = lock(&self.shared);
            let id = shared.number();
            let waiting = Waiting {
                body: body.clone(),
                answer,
            };
            shared.waiting.insert(id, waiting);
            let waits = Waits { client: self, id };
            if !shared.send(id, body) && !shared.lasts {
                drop(shared);
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
    /// When the connection is lost.
    pub async fn carried(&self, id: u64, body: Result<Report, Failure>) -> Result<(), ClientError> {
        let frame = Frame::Carried { id, body };
        lock(&self.shared).outgoing.send(frame).map_err(lost)
    }
}

/// A call; however it ends, nothing waits any more.
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
    let mut connection = frame::framed(stream);
    timeout(limit, greet(&mut connection, name))
        .await
        .map_err(|_| ClientError::Late(limit))??;
    Ok(connection)
}

/// Asks something on a connection on which nothing else has been asked.
async fn ask_first(connection: &mut Connection, request: Frame) -> Result<Reply, ClientError> {
    let bytes = frame::encode(&request).map_err(lost)?;
    connection.send(bytes).await.map_err(lost)?;
    let answer = connection
        .next()
        .await
        .ok_or_else(|| lost("it was closed"))?;
    match frame::decode(&answer.map_err(lost)?).map_err(lost)? {
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

fn lost(error: impl std::fmt::Display) -> ClientError {
    ClientError::Lost(error.to_string())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A map of waiting calls is whole whatever its holder was doing.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn greet(connection: &mut Connection, name: &str) -> Result<(), ClientError> {
    let hello = Frame::Hello(Hello {
        version: VERSION,
        name: name.to_owned(),
    });
    let bytes = frame::encode(&hello).map_err(lost)?;
    connection.send(bytes).await.map_err(lost)?;
    let answer = connection
        .next()
        .await
        .ok_or_else(|| lost("it was closed"))?;
    match frame::decode(&answer.map_err(lost)?).map_err(lost)? {
        Frame::Welcome(welcome) if welcome.version == VERSION => Ok(()),
        Frame::Welcome(welcome) => Err(lost(format_args!(
            "it speaks version {}, this program {VERSION}",
            welcome.version
        ))),
        Frame::Refused(failure) => Err(failure.into()),
        other => Err(lost(format_args!("unexpected answer to hello: {other:?}"))),
    }
}

async fn send(
    mut sink: SplitSink<Connection, bytes::Bytes>,
    mut queue: mpsc::UnboundedReceiver<Frame>,
) {
    while let Some(frame) = queue.recv().await {
        let Ok(bytes) = frame::encode(&frame) else {
            // Only a request can be so long, and it gets no answer.
            continue;
        };
        if sink.send(bytes).await.is_err() {
            return;
        }
    }
    sink.close().await.ok();
}

async fn receive(
    mut stream: SplitStream<Connection>,
    shared: Arc<Mutex<Shared>>,
    orders: mpsc::Sender<Order>,
) {
    while let Some(Ok(bytes)) = stream.next().await {
        match frame::decode(&bytes) {
            Ok(Frame::Reply { id, body }) => {
                let waiting = lock(&shared).waiting.remove(&id);
                if let Some(waiting) = waiting {
                    // It may have given up.
                    waiting.answer.send(body).ok();
                }
            }
            Ok(Frame::Command { id, body }) => {
                let order = Order { id, command: body };
                // A program takes no commands, and the controller sends it none.
                orders.send(order).await.ok();
            }
            // Whatever else comes is not meant for this side.
            Ok(_) => {}
            Err(_) => break,
        }
    }
    let mut shared = lock(&shared);
    // What is sent from now on goes nowhere.
    shared.outgoing = mpsc::unbounded_channel().0;
    if !shared.lasts {
        // Whoever waits learns that nothing will come.
        shared.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errno::Errno;
    use crate::message::Welcome;
    use tokio::net::TcpListener;

    const LIMIT: Duration = Duration::from_secs(5);

    async fn take(connection: &mut Connection) -> Frame {
        frame::decode(&connection.next().await.unwrap().unwrap()).unwrap()
    }

    async fn give(connection: &mut Connection, frame: Frame) {
        connection
            .send(frame::encode(&frame).unwrap())
            .await
            .unwrap();
    }

    fn at(listener: &TcpListener) -> Endpoint {
        listener.local_addr().unwrap().to_string().parse().unwrap()
    }

    async fn accepted(listener: &TcpListener) -> Connection {
        frame::framed(Either::Left(listener.accept().await.unwrap().0))
    }

    /// A listener, and a client of it that was welcomed.
    async fn pair(limit: Duration) -> (Connection, Client, mpsc::Receiver<Order>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = at(&listener);
        let client = tokio::spawn(Client::connect(endpoint, "test", limit));
        let mut connection = accepted(&listener).await;
        assert!(matches!(take(&mut connection).await, Frame::Hello(hello) if hello.name == "test"));
        give(
            &mut connection,
            Frame::Welcome(Welcome { version: VERSION }),
        )
        .await;
        let (client, orders) = client.await.unwrap().unwrap();
        (connection, client, orders)
    }

    #[tokio::test]
    async fn answers_find_their_calls_in_any_order() {
        let (mut connection, client, _orders) = pair(LIMIT).await;
        let other = client.clone();
        let first = tokio::spawn(async move { other.call(Request::Status).await });
        let Frame::Request { id: first_id, .. } = take(&mut connection).await else {
            panic!("expected a request");
        };
        let second = tokio::spawn(async move {
            let unlink = Request::UnlinkArea {
                domain: 1,
                name: "x".into(),
            };
            client.call(unlink).await
        });
        let Frame::Request { id: second_id, .. } = take(&mut connection).await else {
            panic!("expected a request");
        };
        let refusal = Failure::new(Errno::ENOENT, "no area `x`");
        let body = Err(refusal.clone());
        give(
            &mut connection,
            Frame::Reply {
                id: second_id,
                body,
            },
        )
        .await;
        let body = Ok(Reply::Done);
        give(&mut connection, Frame::Reply { id: first_id, body }).await;
        assert_eq!(first.await.unwrap().unwrap(), Reply::Done);
        let error = second.await.unwrap().unwrap_err();
        assert!(matches!(error, ClientError::Refused(failure) if failure == refusal));
    }

    #[tokio::test]
    async fn a_controller_that_goes_ends_every_call() {
        let (mut connection, client, mut orders) = pair(LIMIT).await;
        let call = tokio::spawn(async move { client.call(Request::Status).await });
        take(&mut connection).await;
        drop(connection);
        let error = call.await.unwrap().unwrap_err();
        assert!(matches!(error, ClientError::Lost(_)), "{error}");
        assert_eq!(orders.recv().await, None);
    }

    #[tokio::test]
    async fn a_call_outlives_its_connection_and_is_made_again_under_its_number() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = at(&listener);
        let client = tokio::spawn(Client::connect(endpoint.clone(), "test", LIMIT));
        let mut connection = accepted(&listener).await;
        take(&mut connection).await;
        let welcome = Frame::Welcome(Welcome { version: VERSION });
        give(&mut connection, welcome.clone()).await;
        let (client, mut orders) = client.await.unwrap().unwrap();
        client.outlive_connection();
        let unlink = |name: &str| Request::UnlinkArea {
            domain: 1,
            name: name.into(),
        };
        let asked = |body| {
            let client = client.clone();
            tokio::spawn(async move { client.call(body).await })
        };
        let first = asked(unlink("a"));
        let Frame::Request { id, .. } = take(&mut connection).await else {
            panic!("expected a request");
        };
        drop(connection);
        assert_eq!(orders.recv().await, None);
        let second = asked(unlink("b"));

        let again = client.clone();
        let resumed =
            tokio::spawn(async move { again.resume(endpoint, "test", Request::Status).await });
        let mut connection = accepted(&listener).await;
        assert!(matches!(take(&mut connection).await, Frame::Hello(_)));
        give(&mut connection, welcome).await;
        let Frame::Request {
            id: greeting,
            body: Request::Status,
            ..
        } = take(&mut connection).await
        else {
            panic!("expected what says who is back");
        };
        let answer = |id| Frame::Reply {
            id,
            body: Ok(Reply::Done),
        };
        give(&mut connection, answer(greeting)).await;
        let (reply, _orders) = resumed.await.unwrap().unwrap();
        assert_eq!(reply, Reply::Done);
        let Frame::Request {
            id: same,
            answered,
            body,
        } = take(&mut connection).await
        else {
            panic!("expected the request again");
        };
        assert_eq!((same, answered, body), (id, id, unlink("a")));
        let Frame::Request { id: other, .. } = take(&mut connection).await else {
            panic!("expected the second request");
        };
        give(&mut connection, answer(other)).await;
        give(&mut connection, answer(id)).await;
        assert_eq!(first.await.unwrap().unwrap(), Reply::Done);
        assert_eq!(second.await.unwrap().unwrap(), Reply::Done);
    }

    #[tokio::test]
    async fn a_controller_that_says_nothing_is_late() {
        let (_connection, client, _orders) = pair(Duration::from_millis(50)).await;
        let error = client.call(Request::Status).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "the controller did not answer within 50 ms"
        );
        assert!(
            lock(&client.shared).waiting.is_empty(),
            "a late call is forgotten"
        );
    }

    #[tokio::test]
    async fn commands_arrive_and_are_answered() {
        let (mut connection, client, mut orders) = pair(LIMIT).await;
        let body = Command::ZeroPages { first: 3, count: 4 };
        let frame = Frame::Command {
            id: 9,
            body: body.clone(),
        };
        give(&mut connection, frame).await;
        let order = orders.recv().await.unwrap();
        assert_eq!(
            order,
            Order {
                id: 9,
                command: body
            }
        );
        client.carried(order.id, Ok(Report::Done)).await.unwrap();
        let answer = take(&mut connection).await;
        assert_eq!(
            answer,
            Frame::Carried {
                id: 9,
                body: Ok(Report::Done)
            }
        );
    }

    #[tokio::test]
    async fn a_socket_that_is_not_there_is_named() {
        let endpoint = Endpoint::Unix("/nowhere/mind-ctl.sock".into());
        let error = Client::connect(endpoint, "test", LIMIT).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot connect to the controller at /nowhere/mind-ctl.sock"
        );
    }

    #[tokio::test]
    async fn another_version_is_refused_by_name() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = tokio::spawn(Client::connect(at(&listener), "test", LIMIT));
        let mut connection = accepted(&listener).await;
        take(&mut connection).await;
        give(&mut connection, Frame::Welcome(Welcome { version: 99 })).await;
        let error = client.await.unwrap().unwrap_err();
        assert!(error.to_string().contains("speaks version 99"), "{error}");
    }
}
