//! How many connections there may be at a time. One that comes beyond is told so, and closed.

use std::{sync::Arc, time::Duration};

use futures_util::{SinkExt as _, StreamExt as _};
use mind_api::{Errno, Failure, message::Frame};
use mind_connection::frame::{encode, framed};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// How long a connection may take to greet.
pub(super) const GREETING: Duration = Duration::from_secs(10);
/// Connections that are being told that there are too many; more are closed without a word.
const TOLD: usize = 64;

/// Counts connections of one kind.
pub(super) struct Admission {
    what: &'static str,
    most: usize,
    room: Arc<Semaphore>,
    telling: Arc<Semaphore>,
}

/// What becomes of a connection.
pub(super) enum Admitted {
    /// It is served, as long as it has its place.
    Served(OwnedSemaphorePermit),
    /// It is told that there are too many.
    Told(Refusal),
    /// It is closed.
    Closed,
}

/// Tells a connection that there are too many.
pub(super) struct Refusal {
    failure: Failure,
    _place: OwnedSemaphorePermit,
}

impl Admission {
    /// At most so many connections of what is named.
    pub(super) fn new(what: &'static str, most: usize) -> Self {
        Self {
            what,
            most,
            room: Arc::new(Semaphore::new(most)),
            telling: Arc::new(Semaphore::new(TOLD)),
        }
    }

    /// One more has come.
    pub(super) fn admit(&self) -> Admitted {
        if let Ok(place) = Arc::clone(&self.room).try_acquire_owned() {
            return Admitted::Served(place);
        }
        let Self { what, most, .. } = self;
        tracing::warn!(
            what,
            most,
            "a connection is refused: there are as many as there may be"
        );
        match Arc::clone(&self.telling).try_acquire_owned() {
            Ok(place) => {
                let message = format!(
                    "the controller has {most} connections of {what}, as many as it takes: connect again later"
                );
                Admitted::Told(Refusal {
                    failure: Failure::new(Errno::EBUSY, message),
                    _place: place,
                })
            }
            Err(_) => Admitted::Closed,
        }
    }
}

impl Refusal {
    /// Answers the greeting, in bounded time; then the connection is closed.
    pub(super) async fn tell<S: AsyncRead + AsyncWrite + Unpin>(self, stream: S) {
        let telling = async {
            let mut connection = framed(stream);
            // What is not read when a connection is closed would take the answer along.
            connection.next().await;
            if let Ok(bytes) = encode(&Frame::Refused(self.failure.clone())) {
                // It may be gone.
                let _ = connection.send(bytes).await;
            }
        };
        let _ = timeout(GREETING, telling).await;
    }
}

#[cfg(test)]
mod tests {
    use mind_api::message::Hello;
    use mind_connection::frame::decode;
    use tokio::io::duplex;

    use super::*;

    #[tokio::test]
    async fn a_connection_beyond_the_bound_is_told_so_and_closed() {
        let admission = Admission::new("operators", 2);
        let mut places = Vec::new();
        for _ in 0..2 {
            let Admitted::Served(place) = admission.admit() else {
                panic!("there is room");
            };
            places.push(place);
        }
        let Admitted::Told(refusal) = admission.admit() else {
            panic!("there are two");
        };
        let (near, far) = duplex(4096);
        let telling = tokio::spawn(refusal.tell(far));
        let mut connection = framed(near);
        let hello = Frame::Hello(Hello {
            version: mind_api::VERSION,
            name: "test".to_owned(),
        });
        let bytes = encode(&hello).expect("it is short");
        connection.send(bytes).await.expect("it is open");
        let answer = connection.next().await.expect("an answer");
        let answer = decode(&answer.expect("it can be read")).expect("it is a frame");
        let Frame::Refused(failure) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!(failure.errno, Errno::EBUSY);
        assert!(
            failure.message.contains("2 connections of operators"),
            "{failure}"
        );
        assert!(connection.next().await.is_none());
        telling.await.expect("it ends in order");

        places.pop();
        assert!(matches!(admission.admit(), Admitted::Served(_)));
    }

    #[test]
    fn more_than_can_be_told_are_closed() {
        let admission = Admission::new("operators", 0);
        let told: Vec<_> = (0..TOLD).map(|_| admission.admit()).collect();
        assert!(told.iter().all(|it| matches!(it, Admitted::Told(_))));
        assert!(matches!(admission.admit(), Admitted::Closed));
    }
}
