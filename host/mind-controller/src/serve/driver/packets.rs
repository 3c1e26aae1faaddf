//! A thread that waits until packets have left the switch, which takes a few milliseconds: what was taken out of the
//! directory can be used again then, and operations that wait for it go on. Another one waits for the switch's program to
//! tell that little is left.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use anyhow::{Context as _, Result};
use mind_common::table::FreeKind;
use mind_dataplane::{Directory, Retired, Shortages, wait_for_packets};
use mind_machines::controller::OperationId;
use rustix::event::{PollFd, PollFlags, poll};
use tokio::sync::mpsc::WeakSender;

use super::Message;

/// What waits for packets.
struct Wait {
    retired: Retired,
    operation: Option<OperationId>,
}

/// How to reach the thread.
pub(super) struct Packets {
    waits: mpsc::Sender<Wait>,
    waiting: Waiting,
}

/// How many slots were taken out and cannot be used yet.
#[derive(Clone, Default)]
pub(super) struct Waiting(Arc<Mutex<usize>>);

impl Waiting {
    /// Slots in no use: those in the directory's list, and those that will be.
    pub(super) fn free_slots(&self, directory: &Directory) -> usize {
        let waiting = self.count();
        directory.left(FreeKind::Slots) + *waiting
    }

    fn count(&self) -> MutexGuard<'_, usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Packets {
    /// Starts the thread; it ends with this value.
    ///
    /// # Errors
    ///
    /// When packets cannot be waited for on this host, or there is no thread to be had.
    pub(super) fn start(directory: Directory, driver: WeakSender<Message>) -> Result<Self> {
        wait_for_packets()?;
        let (waits, received) = mpsc::channel();
        let waiting = Waiting::default();
        let count = waiting.clone();
        std::thread::Builder::new()
            .name("packets".into())
            .spawn(move || run(&directory, &received, &driver, &count))
            .context("cannot start the thread that waits for packets")?;
        Ok(Self { waits, waiting })
    }

    /// What was taken out of the directory is used again when packets have left that are in the switch; the operation is
    /// told of that.
    pub(super) fn wait(&self, retired: Retired, operation: Option<OperationId>) {
        if retired.is_empty() && operation.is_none() {
            return;
        }
        *self.waiting.count() += retired.slots();
        // The thread has ended only if it panicked, which is told.
        let _ = self.waits.send(Wait { retired, operation });
    }

    /// How many slots cannot be used yet.
    pub(super) fn waiting(&self) -> &Waiting {
        &self.waiting
    }
}

fn run(
    directory: &Directory,
    received: &mpsc::Receiver<Wait>,
    driver: &WeakSender<Message>,
    waiting: &Waiting,
) {
    while let Ok(first) = received.recv() {
        let mut waits = vec![first];
        waits.extend(received.try_iter());
        if let Err(error) = wait_for_packets() {
            // It worked when the controller began; until it does again, nothing that was taken out is used.
            tracing::error!(%error, "what was taken out of the directory stays in no use");
            return;
        }
        for Wait { retired, operation } in waits {
            {
                // A look at both finds each slot in one place.
                let mut waiting = waiting.count();
                *waiting -= retired.slots();
                directory.give_retired(retired);
            }
            let Some(operation) = operation else {
                continue;
            };
            let Some(driver) = driver.upgrade() else {
                return;
            };
            if driver
                .blocking_send(Message::PacketsLeft(operation))
                .is_err()
            {
                return;
            }
        }
    }
}

/// Starts a thread that tells the driver when little is left of slots or tables. It ends with the process.
///
/// # Errors
///
/// When there is no thread to be had.
pub(super) fn tell_of_shortages(
    mut shortages: Shortages,
    driver: WeakSender<Message>,
) -> Result<()> {
    let run = move || {
        loop {
            match poll(&mut [PollFd::new(&shortages, PollFlags::IN)], None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "slots that are running out are not noticed any more");
                    return;
                }
            }
            for kind in shortages.take() {
                tracing::debug!(?kind, "little is left");
                let Some(driver) = driver.upgrade() else {
                    return;
                };
                if driver.blocking_send(Message::Short).is_err() {
                    return;
                }
            }
        }
    };
    std::thread::Builder::new()
        .name("shortages".into())
        .spawn(run)
        .context("cannot start the thread that notices when slots run out")?;
    Ok(())
}
