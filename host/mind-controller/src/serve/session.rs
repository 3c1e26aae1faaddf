//! A connection: greets, takes requests to the driver, and answers and commands back.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::{SinkExt as _, StreamExt as _};
use mind_api::{
    Errno, Failure, Reply, Request, Welcome,
    message::{Frame, Registration},
};
use mind_connection::{
    endpoint::Peer,
    frame::{decode, encode, framed},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{mpsc, watch},
};

use super::{
    driver::{Handle, Message},
    fdb::Bridge,
    tracer::Following,
};

/// Frames that may wait to be sent on a connection. A connection of which more wait is closed: its other end does not
/// read.
const WAITING: usize = 1024;

/// What an operator on a connection traces.
#[derive(Clone, Default)]
pub(super) struct Trace(Arc<Mutex<Option<Arc<Following>>>>);

impl Trace {
    /// Notes packets from now on, for as long as the connection is there.
    pub(super) fn begin(&self, following: Following) {
        *self.lock() = Some(Arc::new(following));
    }

    fn end(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Following>>> {
        // It is replaced at once.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves a connection until it ends.
pub(super) async fn run<S>(handle: Handle, bridge: Arc<Bridge>, stream: S, peer: Peer)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let (mut sink, mut stream) = framed(stream).split();
    let greeted = match stream.next().await {
        Some(Ok(bytes)) => greeting(&bytes),
        _ => return,
    };
    let (name, greeting) = match greeted {
        Ok(name) => {
            let version = mind_api::VERSION;
            (Some(name), Frame::Welcome(Welcome { version }))
        }
        Err(Some(failure)) => (None, Frame::Refused(failure)),
        Err(None) => {
            tracing::warn!(%peer, "a connection does not begin with a greeting");
            return;
        }
    };
    let Ok(bytes) = encode(&greeting) else {
        return;
    };
    let is_sent = sink.send(bytes).await.is_ok();
    let Some(name) = name.filter(|_| is_sent) else {
        return;
    };

    let (outgoing, mut queue) = mpsc::channel::<Frame>(WAITING);
    let sending = async move {
        while let Some(frame) = queue.recv().await {
            match encode(&frame) {
                Ok(bytes) => {
                    if sink.send(bytes).await.is_err() {
                        return;
                    }
                }
                Err(error) => tracing::error!(%error, "an answer cannot be sent"),
            }
        }
    };
    let trace = Trace::default();
    let (session, is_over) = handle.open(peer, &name, &outgoing, &trace).await;
    let receiving = async {
        while let Some(Ok(bytes)) = stream.next().await {
            let message = match decode(&bytes) {
                Ok(Frame::Request {
                    id,
                    body: Request::AwaitBlades,
                    ..
                }) => {
                    let is_complete = handle.is_complete();
                    tokio::spawn(await_blades(id, is_complete, outgoing.clone()));
                    continue;
                }
                Ok(Frame::Request {
                    id,
                    body: Request::NextTraced,
                    ..
                }) => {
                    let following = trace.lock().clone();
                    tokio::spawn(next_traced(id, following, outgoing.clone()));
                    continue;
                }
                Ok(Frame::Request {
                    id,
                    body: Request::Register(registration),
                    ..
                }) => match port_of(&bridge, peer, &registration) {
                    Ok(port) => Message::Register {
                        session,
                        id,
                        registration,
                        port,
                    },
                    Err(failure) => Message::Refused {
                        session,
                        id,
                        request: "register",
                        failure,
                    },
                },
                Ok(Frame::Request { id, answered, body }) => Message::Request {
                    session,
                    id,
                    answered,
                    body,
                },
                Ok(Frame::Carried { id, body }) => Message::Carried {
                    session,
                    id,
                    result: body,
                },
                Ok(_) => continue,
                Err(error) => {
                    tracing::warn!(%peer, name, %error, "a frame that cannot be understood");
                    return;
                }
            };
            handle.send(message).await;
        }
    };
    tokio::select! {
        () = sending => {}
        () = receiving => {}
        // The driver does not want it any more.
        _ = is_over => {}
    }
    trace.end();
    handle.send(Message::Closed(session)).await;
}

/// The caller's name, if it says hello in this version of the protocol; why it is refused, if it says hello.
fn greeting(bytes: &[u8]) -> Result<String, Option<Failure>> {
    let Ok(Frame::Hello(hello)) = decode(bytes) else {
        return Err(None);
    };
    if hello.version == mind_api::VERSION {
        return Ok(hello.name);
    }
    let message = format!(
        "{} speaks version {}, this controller {}",
        hello.name,
        hello.version,
        mind_api::VERSION
    );
    Err(Some(Failure::new(Errno::EPROTO, message)))
}

/// The port that a blade is behind, if that, its addresses and its connection belong together.
fn port_of(bridge: &Bridge, peer: Peer, registration: &Registration) -> Result<u32, Failure> {
    let Registration {
        name, address, mac, ..
    } = registration;
    if !matches!(peer, Peer::Network(from) if from.ip() == *address) {
        let message = format!("{name} says it is {address}, and calls from {peer}");
        return Err(Failure::new(Errno::EINVAL, message));
    }
    let no_device = |error: anyhow::Error| Failure::new(Errno::ENODEV, format!("{error:#}"));
    let neighbour = bridge.neighbour_of(*address).map_err(no_device)?;
    if neighbour != *mac {
        let message = format!(
            "{name} says its Ethernet address is {mac:02x?}, and {address} is at {neighbour:02x?}"
        );
        return Err(Failure::new(Errno::EINVAL, message));
    }
    bridge.port_of(*mac).map_err(no_device)
}

/// Answers the request `id` when every port has its blade, unless the connection ends before.
async fn await_blades(
    id: u64,
    mut is_complete: watch::Receiver<bool>,
    outgoing: mpsc::Sender<Frame>,
) {
    tokio::select! {
        () = outgoing.closed() => {}
        is_here = async { is_complete.wait_for(|is_complete| *is_complete).await.is_ok() } => {
            let body = match is_here {
                true => Ok(Reply::Done),
                false => Err(Failure::new(Errno::EIO, "the controller is ending")),
            };
            let _ = outgoing.send(Frame::Reply { id, body }).await;
        }
    }
}

/// Answers the request `id` when packets were noted, unless the connection ends before.
async fn next_traced(id: u64, following: Option<Arc<Following>>, outgoing: mpsc::Sender<Frame>) {
    let Some(following) = following else {
        let message = "this connection traces nothing yet";
        let body = Err(Failure::new(Errno::EINVAL, message));
        let _ = outgoing.send(Frame::Reply { id, body }).await;
        return;
    };
    tokio::select! {
        () = outgoing.closed() => {}
        traced = following.next() => {
            let body = Ok(Reply::Traced(traced));
            let _ = outgoing.send(Frame::Reply { id, body }).await;
        }
    }
}
