//! Accepts the programs of this host: as many as the agent takes. One that comes beyond is told so, and closed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result};
use mind_api::{
    Errno, Failure,
    program::{FromBlade, ToBlade},
};
use mind_connection::packets::{Listener, Packets};

use super::server::Server;

/// Connections of programs at a time, with descriptors enough.
const PROGRAMS: usize = 1024;
/// Descriptors of a program: its connection, its process, its userfaultfd, and the memory of a domain of its own.
const DESCRIPTORS: usize = 4;
/// Descriptors that the agent needs besides.
const OWN_DESCRIPTORS: usize = 128;
/// Connections that are being told that there are too many; more are closed at once.
const TOLD: usize = 16;
/// How long a connection may take for a message that begins it.
pub(super) const GREETING: Duration = Duration::from_secs(10);
/// How long to wait when a connection cannot be accepted. Nothing tells when there is a descriptor again.
const RETRY: Duration = Duration::from_millis(100);

/// Accepts programs until the process ends, which may have `descriptors` open.
pub(super) fn start(server: Arc<Server>, listener: Listener, descriptors: u64) -> Result<()> {
    let most = programs(descriptors);
    std::thread::Builder::new()
        .name("accept".into())
        .spawn(move || run(&server, &listener, most))
        .context("cannot start the thread that accepts programs")?;
    Ok(())
}

/// How many programs an agent takes that may have so many descriptors open.
fn programs(descriptors: u64) -> usize {
    let descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX);
    (descriptors.saturating_sub(OWN_DESCRIPTORS) / DESCRIPTORS).clamp(1, PROGRAMS)
}

fn run(server: &Arc<Server>, listener: &Listener, most: usize) {
    let (served, told) = (Room::new(most), Room::new(TOLD));
    loop {
        let packets = match listener.accept() {
            Ok(packets) => packets,
            Err(error) => {
                tracing::error!(%error, "a program was not accepted; it is tried again");
                std::thread::sleep(RETRY);
                continue;
            }
        };
        let thread = std::thread::Builder::new().name("program".into());
        let started = if let Some(place) = served.enter() {
            let server = Arc::clone(server);
            thread.spawn(move || {
                server.serve(packets);
                drop(place);
            })
        } else {
            tracing::warn!(
                most,
                "a program is refused: there are as many as there may be"
            );
            let Some(place) = told.enter() else { continue };
            thread.spawn(move || {
                refuse(&packets, most);
                drop(place);
            })
        };
        if let Err(error) = started {
            tracing::error!(%error, "cannot start a thread for a program");
        }
    }
}

/// Answers the first message of a connection for which there is no room.
fn refuse(packets: &Packets, most: usize) {
    let message = format!(
        "the agent has {most} connections of programs, as many as it takes: attach again when one has ended"
    );
    let refusal = FromBlade::Refused {
        failure: Failure::new(Errno::EAGAIN, message),
    };
    // What is not read when a connection is closed would take the answer along. It may be gone.
    if let Ok(true) = packets.wait(GREETING)
        && let Ok(Some(_)) = packets.receive::<ToBlade>()
    {
        let _ = packets.send(&refusal, None);
    }
}

/// Places that may be taken at a time.
struct Room(Arc<AtomicUsize>);

/// A place that is taken, until this is dropped.
struct Place(Arc<AtomicUsize>);

impl Room {
    fn new(places: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(places)))
    }

    /// Takes a place, if there is one.
    fn enter(&self) -> Option<Place> {
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |free| {
                free.checked_sub(1)
            })
            .ok()
            .map(|_| Place(Arc::clone(&self.0)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_places_as_were_said() {
        let room = Room::new(2);
        let places = [room.enter(), room.enter()];
        assert!(places.iter().all(Option::is_some));
        assert!(room.enter().is_none());
        drop(places);
        assert!(room.enter().is_some());
    }

    #[test]
    fn few_descriptors_are_enough_for_few_programs() {
        assert_eq!(programs(1024), 224);
        assert_eq!(programs(1 << 20), PROGRAMS);
        assert_eq!(programs(u64::MAX), PROGRAMS);
        assert_eq!(programs(10), 1);
    }
}
