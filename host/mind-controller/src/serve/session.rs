//! A connection: greets, takes requests, passes commands on and their answers back.

use std::{
    sync::{Arc, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures_util::{SinkExt as _, StreamExt as _};
use mind_api::{Errno, Failure, Reply, Request, Welcome, message::{BladeKind, Frame}};
use mind_connection::{endpoint::Peer, frame::{decode, encode, framed}};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{Mutex, mpsc, watch},
};

use super::{agent::Agent, core::Core, tracer::Following};

/// Frames that may wait to be sent on a connection.
const WAITING: usize = 64;

/// How often a check looks again that finds something.
const LOOKS: usize = 5;
/// And after how long.
const PAUSE: Duration = Duration::from_millis(100);

/// Whose connection it is, once that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Registered {
    pub(super) kind: BladeKind,
    pub(super) number: u8,
    pub(super) incarnation: u16,
}

/// A connection, as requests see it.
pub(super) struct Session {
    pub(super) peer: Peer,
    pub(super) agent: Agent,
    pub(super) registered: Mutex<Option<Registered>>,
    /// What an operator traces.
    following: std::sync::Mutex<Option<Arc<Following>>>,
}

impl Session {
    /// Notes packets for it from now on, as long as it is there.
    pub(super) fn trace(&self, following: Following) {
        *self.following() = Some(Arc::new(following));
    }

    fn following(&self) -> MutexGuard<'_, Option<Arc<Following>>> {
        // It is replaced at once.
        self.following
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves a connection until it ends.
pub(super) async fn run<S>(core: Arc<Mutex<Core>>, stream: S, peer: Peer)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let (mut sink, mut stream) = framed(stream).split();
    let name = match stream.next().await {
        Some(Ok(bytes)) => match decode(&bytes) {
            Ok(Frame::Hello(hello)) => {
                let greeting = if hello.version == mind_api::VERSION {
                    Frame::Welcome(Welcome {
                        version: mind_api::VERSION,
                    })
                } else {
                    let message = format!(
                        "{} speaks version {}, this controller {}",
                        hello.name,
                        hello.version,
                        mind_api::VERSION
                    );
                    Frame::Refused(Failure::new(Errno::EPROTO, message))
                };
                let refused = matches!(greeting, Frame::Refused(_));
                let Ok(bytes) = encode(&greeting) else {
                    return;
                };
                if sink.send(bytes).await.is_err() || refused {
                    return;
                }
                hello.name
            }
            _ => {
                tracing::warn!(%peer, "a connection does not begin with a greeting");
                return;
            }
        },
        _ => return,
    };

    let (outgoing, mut queue) = mpsc::channel::<Frame>(WAITING);
    let session = Arc::new(Session {
        peer,
        agent: Agent::new(&name, outgoing.clone()),
        registered: Mutex::new(None),
        following: std::sync::Mutex::new(None),
    });
    let sender = tokio::spawn(async move {
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
    });
    let (is_complete, is_recovered, events) = {
        let core = core.lock().await;
        (core.is_complete(), core.is_recovered(), core.events())
    };
    while let Some(Ok(bytes)) = stream.next().await {
        match decode(&bytes) {
            Ok(Frame::Request {
                id,
                body: Request::AwaitBlades,
                ..
            }) => {
                tokio::spawn(await_blades(id, is_complete.clone(), outgoing.clone()));
            }
            Ok(Frame::Request {
                id,
                body: Request::NextTraced,
                ..
            }) => {
                let following = session.following().clone();
                tokio::spawn(next_traced(id, following, outgoing.clone()));
            }
            Ok(Frame::Request { id, answered, body }) => {
                // Not here: what is asked may wait for a command's answer on this connection.
                let (core, session) = (Arc::clone(&core), Arc::clone(&session));
                let (outgoing, events) = (outgoing.clone(), Arc::clone(&events));
                let (name, asked) = (body.name(), Instant::now());
                let mut is_recovered = is_recovered.clone();
                tokio::spawn(async move {
                    if let Request::Register(registration) = &body {
                        let (kind, address) = (registration.kind, registration.address);
                        core.lock().await.will_not_resume(kind, address);
                    }
                    let waits = !matches!(body, Request::Resume { .. } | Request::Status);
                    if waits
                        && is_recovered
                            .wait_for(|is_recovered| *is_recovered)
                            .await
                            .is_err()
                    {
                        return;
                    }
                    let body = answer(&core, &session, (id, answered), body).await;
                    events.answered(name, body.is_ok(), asked.elapsed());
                    if let Err(failure) = &body {
                        tracing::debug!(%failure, "refused");
                    }
                    let _ = outgoing.send(Frame::Reply { id, body }).await;
                });
            }
            Ok(Frame::Carried { id, body }) => session.agent.answered(id, body),
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%peer, name, %error, "a frame that cannot be understood");
                break;
            }
        }
    }
    session.agent.gone();
    *session.following() = None;
    let registered = *session.registered.lock().await;
    if let Some(registered) = registered {
        tracing::warn!(name, ?registered, "a blade is gone");
        let mut is_recovered = is_recovered;
        // What it had is not on the books before.
        let _ = is_recovered.wait_for(|is_recovered| *is_recovered).await;
        core.lock().await.lost(registered).await;
    }
    sender.abort();
}

/// Does what is asked. What a check finds may be on its way: a process that comes or goes is on one list and not yet on
/// the other, and what its agent asks may wait for the check. So it looks again before it says so.
async fn answer(
    core: &Mutex<Core>,
    session: &Session,
    numbers: (u64, u64),
    body: Request,
) -> Result<Reply, Failure> {
    for _ in 0..LOOKS {
        let answer = core
            .lock()
            .await
            .request(session, numbers, body.clone())
            .await;
        match &answer {
            Ok(Reply::Checked(check)) if !check.discrepancies.is_empty() => {}
            _ => return answer,
        }
        tokio::time::sleep(PAUSE).await;
    }
    core.lock().await.request(session, numbers, body).await
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
