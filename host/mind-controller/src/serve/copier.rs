//! Copies invalidations for several blades, where the switch's TC program does not: a thread of its own, since a blade
//! waits for each.

use std::{
    net::{Ipv4Addr, SocketAddrV4, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Context as _, Result};
use mind_api::operator::CopyStatus;
use mind_common::wire::UDP_PORT;
use mind_dataplane::Copies;
use rustix::event::{PollFd, PollFlags, poll};

/// What the thread counts.
#[derive(Debug, Default)]
pub(super) struct Copied {
    packets: AtomicU64,
    copies: AtomicU64,
    missing: AtomicU64,
    unsent: AtomicU64,
}

impl Copied {
    /// How many there are by now.
    pub(super) fn status(&self) -> CopyStatus {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        CopyStatus {
            packets: of(&self.packets),
            copies: of(&self.copies),
            missing: of(&self.missing),
            unsent: of(&self.unsent),
        }
    }
}

/// Starts the thread, which sends from the switch's address. It ends with the process.
///
/// # Errors
///
/// When the port is taken, or there is no thread to be had.
pub(super) fn start(copies: Copies, switch: Ipv4Addr) -> Result<Arc<Copied>> {
    let socket = UdpSocket::bind(SocketAddrV4::new(switch, UDP_PORT))
        .with_context(|| format!("cannot send from port {UDP_PORT} of {switch}"))?;
    let copied = Arc::new(Copied::default());
    let counts = Arc::clone(&copied);
    std::thread::Builder::new()
        .name("copier".into())
        .spawn(move || {
            if let Err(error) = run(copies, &socket, &counts) {
                tracing::error!(%error, "invalidations for several blades are not copied any more");
            }
        })
        .context("cannot start the thread that copies invalidations")?;
    Ok(copied)
}

fn run(mut copies: Copies, socket: &UdpSocket, counts: &Copied) -> rustix::io::Result<()> {
    loop {
        match poll(&mut [PollFd::new(&copies, PollFlags::IN)], None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        let taken = copies.take(|address, payload| {
            // One that is not sent is as lost as on the wire: the requester asks again.
            if let Err(error) = socket.send_to(payload, (address, UDP_PORT)) {
                counts.unsent.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(%address, %error, "an invalidation was not sent");
            }
        });
        counts.packets.fetch_add(taken.packets, Ordering::Relaxed);
        counts.copies.fetch_add(taken.copies, Ordering::Relaxed);
        counts.missing.fetch_add(taken.missing, Ordering::Relaxed);
    }
}
