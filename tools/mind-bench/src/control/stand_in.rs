//! What registers in place of a blade: it answers every order at once, and holds no pages. It can be told to hang; then
//! it answers nothing more.

use std::{
    collections::BTreeSet,
    net::Ipv4Addr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use mind_api::{
    Command, Errno, Failure, Reply, Request,
    message::{BladeKind, Identity, Registration, Report},
};
use mind_connection::{Client, ClientError, client::ReceivedCommand};
use tokio::{
    net::TcpStream,
    sync::{mpsc, watch},
    task::JoinHandle,
};

/// How long the controller may take to answer.
pub(super) const LIMIT: Duration = Duration::from_secs(60);

/// A blade's agent that holds no pages. Its connection ends when this is dropped, or when the controller sends it away.
pub(super) struct StandIn {
    client: Client,
    known: Arc<Known>,
    serving: JoinHandle<()>,
}

/// What the task that answers orders shares with it.
struct Known {
    kind: BladeKind,
    number: u8,
    incarnation: u16,
    pages: u64,
    processes: Mutex<BTreeSet<(u32, i32)>>,
    is_hung: AtomicBool,
    /// Orders that came while it hung.
    ignored: watch::Sender<u64>,
    is_gone: watch::Sender<bool>,
}

impl StandIn {
    /// Registers over a connection that comes from the blade's address. `orders` counts the orders of all stand-ins.
    pub(super) async fn register(
        stream: TcpStream,
        registration: Registration,
        orders: watch::Sender<u64>,
    ) -> Result<Self> {
        let Registration {
            kind,
            ref name,
            pages,
            ..
        } = registration;
        let name = name.clone();
        let (client, commands) = Client::over(stream, &name, LIMIT).await?;
        let reply = client
            .call(Request::Register(registration))
            .await
            .with_context(|| format!("the controller refused the stand-in for {name}"))?;
        let Reply::Registered {
            number,
            incarnation,
            ..
        } = reply
        else {
            bail!("the controller answers a registration with {reply:?}");
        };
        let known = Arc::new(Known {
            kind,
            number,
            incarnation,
            pages,
            processes: Mutex::default(),
            is_hung: AtomicBool::new(false),
            ignored: watch::Sender::new(0),
            is_gone: watch::Sender::new(false),
        });
        let serving = serve(client.clone(), commands, Arc::clone(&known), orders);
        Ok(Self {
            client,
            known,
            serving: tokio::spawn(serving),
        })
    }

    /// What it asks the controller by.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Its number among the blades of its kind, and the blade's incarnation.
    pub(super) fn identity(&self) -> (u8, u16) {
        (self.known.number, self.known.incarnation)
    }

    /// A process runs on it; the domain's number.
    ///
    /// # Errors
    ///
    /// The controller's refusal.
    pub(super) async fn enter(&self, domain: &str, pid: i32) -> Result<u32, ClientError> {
        let request = Request::EnterProcess {
            domain: domain.to_owned(),
            pid,
            on_loss: None,
        };
        match self.client.call(request).await? {
            Reply::Entered { domain } => {
                self.known.processes().insert((domain, pid));
                Ok(domain)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// A process has ended.
    ///
    /// # Errors
    ///
    /// The controller's refusal.
    pub(super) async fn exit(&self, domain: u32, pid: i32) -> Result<(), ClientError> {
        self.client
            .call(Request::ExitProcess { domain, pid })
            .await?;
        self.known.processes().remove(&(domain, pid));
        Ok(())
    }

    /// From now on it answers no order.
    pub(super) fn hang(&self) {
        self.known.is_hung.store(true, Ordering::Release);
    }

    /// Waits until it was given an order that it does not answer.
    pub(super) async fn ignores_an_order(&self) {
        let mut ignored = self.known.ignored.subscribe();
        // The sender is there as long as this is.
        let _ = ignored.wait_for(|count| *count > 0).await;
    }

    /// Whether the controller has sent it away.
    pub(super) fn is_gone(&self) -> bool {
        *self.known.is_gone.borrow()
    }

    /// Waits until the controller has sent it away.
    pub(super) async fn gone(&self) {
        let mut is_gone = self.known.is_gone.subscribe();
        // The sender is there as long as this is.
        let _ = is_gone.wait_for(|is_gone| *is_gone).await;
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Known {
    fn processes(&self) -> MutexGuard<'_, BTreeSet<(u32, i32)>> {
        // It is changed at once.
        self.processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// What it says to an order.
    fn answer(&self, command: &Command) -> Result<Report, Failure> {
        match (command, self.kind) {
            (Command::Identify, _) => Ok(Report::Identity(Identity {
                number: self.number,
                incarnation: self.incarnation,
                pages: self.pages,
                processes: self.processes().clone(),
            })),
            (Command::CountCache, BladeKind::Compute) => Ok(Report::Cache(Box::default())),
            (Command::ZeroPages { count, .. }, BladeKind::Memory) => {
                Ok(Report::Zeroed { pages: *count })
            }
            (Command::FlushRange { .. }, BladeKind::Compute)
            | (Command::FencePages { .. } | Command::FenceBlade { .. }, BladeKind::Memory) => {
                Ok(Report::Done)
            }
            (other, kind) => {
                let message = format!("{other:?} is not for a {kind:?} blade");
                Err(Failure::new(Errno::ENOSYS, message))
            }
        }
    }
}

/// Answers orders until the connection ends or the blade is sent away.
async fn serve(
    client: Client,
    mut commands: mpsc::Receiver<ReceivedCommand>,
    known: Arc<Known>,
    orders: watch::Sender<u64>,
) {
    while let Some(ReceivedCommand { id, command }) = commands.recv().await {
        orders.send_modify(|count| *count += 1);
        if command == Command::Leave {
            break;
        }
        if known.is_hung.load(Ordering::Acquire) {
            known.ignored.send_modify(|count| *count += 1);
            continue;
        }
        if client.answer_command(id, known.answer(&command)).is_err() {
            break;
        }
    }
    known.is_gone.send_replace(true);
}

/// What a blade says of itself.
pub(super) fn registration(
    kind: BladeKind,
    name: &str,
    (address, mac): (Ipv4Addr, [u8; 6]),
    pages: u64,
) -> Registration {
    Registration {
        kind,
        name: name.to_owned(),
        address,
        mac,
        pages,
    }
}

/// An answer that does not belong to the request.
pub(super) fn unexpected(reply: &Reply) -> ClientError {
    ClientError::Lost(format!("the controller answers with {reply:?}"))
}

#[cfg(test)]
mod tests {
    use futures_util::{SinkExt as _, StreamExt as _};
    use mind_api::{Welcome, message::Frame};
    use mind_connection::frame::{decode, encode, framed};
    use tokio::net::TcpListener;
    use tokio_util::codec::{Framed, LengthDelimitedCodec};

    use super::*;

    type Connection = Framed<TcpStream, LengthDelimitedCodec>;

    async fn next(connection: &mut Connection) -> Frame {
        let bytes = connection.next().await.expect("it is open");
        decode(&bytes.expect("it can be read")).expect("it is a frame")
    }

    async fn send(connection: &mut Connection, frame: Frame) {
        let bytes = encode(&frame).expect("it fits");
        connection.send(bytes).await.expect("it is open");
    }

    /// A stand-in, the controller's side of its connection, and the count of orders.
    async fn registered(kind: BladeKind) -> (StandIn, Connection, watch::Receiver<u64>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it has one");
        let stream = TcpStream::connect(address).await.expect("it listens");
        let (stream_there, _) = listener.accept().await.expect("a connection");
        let mut connection = framed(stream_there);
        let orders = watch::Sender::new(0);
        let counted = orders.subscribe();
        let registration = registration(kind, "c3", (Ipv4Addr::LOCALHOST, [2; 6]), 7);
        let expected = registration.clone();
        let stand_in = tokio::spawn(StandIn::register(stream, registration, orders));
        assert!(matches!(next(&mut connection).await, Frame::Hello(_)));
        let version = mind_api::VERSION;
        send(&mut connection, Frame::Welcome(Welcome { version })).await;
        let Frame::Request { id, body, .. } = next(&mut connection).await else {
            panic!("it does not register");
        };
        assert_eq!(body, Request::Register(expected));
        let body = Ok(Reply::Registered {
            number: 3,
            incarnation: 9,
            switch: Ipv4Addr::LOCALHOST,
            window_base: 0,
            window_size: 0,
        });
        send(&mut connection, Frame::Reply { id, body }).await;
        let stand_in = stand_in.await.expect("it does not panic");
        (stand_in.expect("it is accepted"), connection, counted)
    }

    async fn told(connection: &mut Connection, id: u64, body: Command) -> Result<Report, Failure> {
        send(connection, Frame::Command { id, body }).await;
        match next(connection).await {
            Frame::Carried { id: other, body } if other == id => body,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn orders_of_its_kind_are_answered_and_others_refused() {
        let flush = || Command::FlushRange { va: 0, length: 4 };
        let zero = || Command::ZeroPages { first: 0, count: 1 };
        let (stand_in, mut connection, counted) = registered(BladeKind::Compute).await;
        assert_eq!(stand_in.identity(), (3, 9));
        assert_eq!(told(&mut connection, 1, flush()).await, Ok(Report::Done));
        let refused = told(&mut connection, 2, zero()).await;
        assert_eq!(refused.map_err(|failure| failure.errno), Err(Errno::ENOSYS));
        let cache = told(&mut connection, 3, Command::CountCache).await;
        assert!(matches!(cache, Ok(Report::Cache(_))));
        assert_eq!(*counted.borrow(), 3);

        let (_stand_in, mut connection, _) = registered(BladeKind::Memory).await;
        let zeroed = told(&mut connection, 8, zero()).await;
        assert_eq!(zeroed, Ok(Report::Zeroed { pages: 1 }));
        for (id, command) in [
            Command::FencePages { first: 0, count: 1 },
            Command::FenceBlade { qp: 1 },
        ]
        .into_iter()
        .enumerate()
        {
            let answer = told(&mut connection, id as u64, command).await;
            assert_eq!(answer, Ok(Report::Done));
        }
        assert!(told(&mut connection, 9, flush()).await.is_err());
    }

    #[tokio::test]
    async fn it_says_which_processes_it_has() {
        let (stand_in, mut connection, _) = registered(BladeKind::Compute).await;
        let stand_in = Arc::new(stand_in);
        let other = Arc::clone(&stand_in);
        let entering = tokio::spawn(async move { other.enter("a", 5).await });
        let Frame::Request { id, .. } = next(&mut connection).await else {
            panic!("it does not ask");
        };
        let body = Ok(Reply::Entered { domain: 4 });
        send(&mut connection, Frame::Reply { id, body }).await;
        let entered = entering.await.expect("it does not panic");
        assert_eq!(entered.expect("it is entered"), 4);
        let identity = told(&mut connection, 1, Command::Identify).await;
        let Ok(Report::Identity(identity)) = identity else {
            panic!("{identity:?}");
        };
        assert_eq!((identity.number, identity.pages), (3, 7));
        assert_eq!(identity.processes, [(4, 5)].into());
    }

    #[tokio::test]
    async fn one_that_hangs_answers_nothing_and_is_gone_when_it_is_sent_away() {
        let (stand_in, mut connection, _) = registered(BladeKind::Compute).await;
        stand_in.hang();
        for (id, body) in [(1, Command::Identify), (2, Command::CountCache)] {
            send(&mut connection, Frame::Command { id, body }).await;
        }
        stand_in.ignores_an_order().await;
        assert!(!stand_in.is_gone());
        let body = Command::Leave;
        send(&mut connection, Frame::Command { id: 3, body }).await;
        stand_in.gone().await;
        assert!(stand_in.is_gone());
        drop(stand_in);
        // No answer was sent before the end of the connection.
        assert!(connection.next().await.is_none());
    }
}
