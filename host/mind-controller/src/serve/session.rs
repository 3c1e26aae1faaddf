//! A connection: greets, takes requests to the driver, and answers and commands back.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
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
    time::timeout,
};

use super::{
    admission::GREETING,
    driver::{Handle, Message},
    fdb::Bridge,
    tracer::Following,
};

/// Frames that may wait to be sent on a connection. A connection of which more wait is closed: its other end does not
/// read.
const WAITING: usize = 1024;

/// Requests of one connection that may be under way: those whose answers are not sent yet. More are refused.
const REQUESTS: usize = 256;

/// The requests of a connection that are under way.
#[derive(Clone, Default)]
struct UnderWay(Arc<AtomicUsize>);

impl UnderWay {
    /// One more has come.
    ///
    /// # Errors
    ///
    /// `EBUSY`: there are as many as there may be. It counts until that is sent, as any other.
    fn begin(&self) -> Result<(), Failure> {
        if self.0.fetch_add(1, Ordering::Relaxed) < REQUESTS {
            return Ok(());
        }
        let message = format!(
            "this connection has {REQUESTS} requests under way, as many as it may: await their answers first"
        );
        Err(Failure::new(Errno::EBUSY, message))
    }

    /// An answer is sent.
    fn end(&self) {
        let less = |count: usize| count.checked_sub(1);
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

/// The bytes of a frame; of an answer that is too long, those of a refusal that says so.
fn bytes_of(frame: Frame) -> Option<Bytes> {
    let error = match encode(&frame) {
        Ok(bytes) => return Some(bytes),
        Err(error) => error,
    };
    tracing::error!(%error, "an answer or a command cannot be sent");
    let Frame::Reply { id, .. } = frame else {
        return None;
    };
    let message = format!("the answer cannot be sent: {error}");
    let body = Err(Failure::new(Errno::EIO, message));
    encode(&Frame::Reply { id, body }).ok()
}

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
    let greeted = match timeout(GREETING, stream.next()).await {
        Ok(Some(Ok(bytes))) => greeting(&bytes),
        Ok(_) => return,
        Err(_) => {
            tracing::warn!(%peer, "a connection has not greeted for {} s", GREETING.as_secs());
            return;
        }
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
    let under_way = UnderWay::default();
    let answered = under_way.clone();
    let sending = async move {
        while let Some(frame) = queue.recv().await {
            let is_answer = matches!(frame, Frame::Reply { .. });
            if let Some(bytes) = bytes_of(frame)
                && sink.send(bytes).await.is_err()
            {
                return;
            }
            if is_answer {
                answered.end();
            }
        }
    };
    let trace = Trace::default();
    let (session, is_over) = handle.open(peer, &name, &outgoing, &trace).await;
    let receiving = async {
        while let Some(Ok(bytes)) = stream.next().await {
            let frame = decode(&bytes);
            if let Ok(Frame::Request { id, .. }) = frame
                && let Err(failure) = under_way.begin()
            {
                let body = Err(failure);
                if outgoing.try_send(Frame::Reply { id, body }).is_err() {
                    tracing::warn!(
                        %peer, name,
                        "a connection is closed: it asks more and more, and does not read what it is sent"
                    );
                    return;
                }
                continue;
            }
            let message = match frame {
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

#[cfg(test)]
mod tests {
    use mind_api::{message::Hello, operator::VmaStatus};
    use tokio::io::{DuplexStream, duplex};
    use tokio_util::codec::{Framed, LengthDelimitedCodec};

    use super::*;

    type Near = Framed<DuplexStream, LengthDelimitedCodec>;

    async fn give(near: &mut Near, frame: Frame) {
        let bytes = encode(&frame).expect("it is short");
        near.send(bytes).await.expect("it is open");
    }

    async fn take(near: &mut Near) -> Frame {
        let bytes = near.next().await.expect("it is open");
        decode(&bytes.expect("it can be read")).expect("it is a frame")
    }

    /// A session that has greeted, what it tells the driver, and what says whether all blades are there.
    async fn greeted() -> (Near, mpsc::Receiver<Message>, watch::Sender<bool>) {
        let (near, far) = duplex(1 << 20);
        let (messages, told) = mpsc::channel(16);
        let is_complete = watch::Sender::new(false);
        let handle = Handle::new(messages, is_complete.subscribe());
        let bridge = Arc::new(Bridge::new("br0", &[]).expect("it is not looked at"));
        tokio::spawn(run(handle, bridge, far, Peer::Local));
        let mut near = framed(near);
        let hello = Hello {
            version: mind_api::VERSION,
            name: "test".to_owned(),
        };
        give(&mut near, Frame::Hello(hello)).await;
        assert!(matches!(take(&mut near).await, Frame::Welcome(_)));
        (near, told, is_complete)
    }

    #[tokio::test]
    async fn more_requests_than_may_be_under_way_are_refused_until_others_are_answered() {
        let (mut near, _told, is_complete) = greeted().await;
        let wait = |id| Frame::Request {
            id,
            answered: 0,
            body: Request::AwaitBlades,
        };
        let most = REQUESTS as u64;
        for id in 1..=most + 2 {
            give(&mut near, wait(id)).await;
        }
        for expected in [most + 1, most + 2] {
            let Frame::Reply { id, body } = take(&mut near).await else {
                panic!("expected an answer");
            };
            let failure = body.expect_err("it is one too many");
            assert_eq!((id, failure.errno), (expected, Errno::EBUSY));
            assert!(failure.message.contains("256"), "{failure}");
        }
        is_complete.send_replace(true);
        for _ in 0..most {
            let answer = take(&mut near).await;
            assert!(matches!(
                answer,
                Frame::Reply {
                    body: Ok(Reply::Done),
                    ..
                }
            ));
        }
        give(&mut near, wait(most + 3)).await;
        let answer = take(&mut near).await;
        assert!(matches!(
            answer,
            Frame::Reply {
                body: Ok(Reply::Done),
                ..
            }
        ));
    }

    #[tokio::test]
    async fn one_that_asks_on_and_on_without_reading_is_closed() {
        let (near, mut told, _is_complete) = greeted().await;
        let (mut sink, _unread) = near.split();
        let bytes = encode(&Frame::Request {
            id: 1,
            answered: 0,
            body: Request::AwaitBlades,
        });
        let bytes = bytes.expect("it is short");
        // Far more than frames are kept and the stream holds; it never blocks for good, since the session reads.
        while sink.send(bytes.clone()).await.is_ok() {}
        while let Some(message) = told.recv().await {
            if matches!(message, Message::Closed(_)) {
                return;
            }
        }
        panic!("the driver is not told");
    }

    #[test]
    fn an_answer_that_is_too_long_becomes_a_refusal() {
        let vma = VmaStatus {
            va: 0,
            length: 0,
            domain: 1,
            domain_name: "x".repeat(mind_connection::frame::MAX_LENGTH),
            memory: Vec::new(),
            area: None,
            users: 0,
            access: Vec::new(),
            regions: 0,
            lost: 0,
        };
        let body = Ok(Reply::Vmas {
            vmas: vec![vma],
            next: None,
        });
        let bytes = bytes_of(Frame::Reply { id: 7, body }).expect("a refusal");
        let Ok(Frame::Reply { id: 7, body }) = decode(&bytes) else {
            panic!("expected an answer");
        };
        let failure = body.expect_err("it is too long");
        assert!(failure.message.contains("bytes"), "{failure}");
    }
}
