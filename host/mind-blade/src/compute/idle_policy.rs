//! The idle policy of the processors: they do not enter deep idle states while faults are frequent.
//!
//! Waking a halted virtual processor costs more than a whole remote fault. A process limits the
//! wake-up latency by keeping `/dev/cpu_dma_latency` open after writing the limit to it
//! (`Documentation/power/pm_qos_interface.rst`).

use std::{fs::File, io::Write as _, time::Duration};

const DEVICE: &str = "/dev/cpu_dma_latency";
/// Faults in a [`WINDOW`] from which on they count as frequent.
const FREQUENT: u64 = 20;
/// Over how long faults are counted, in nanoseconds.
const WINDOW: u64 = Duration::from_millis(10).as_nanos() as u64;
/// How long after faults were last frequent idle states are allowed again, in nanoseconds.
const PATIENCE: u64 = Duration::from_millis(500).as_nanos() as u64;

/// The idle policy: deep idle states are forbidden while `limit` is open.
pub(super) struct IdlePolicy {
    wanted: bool,
    limit: Option<File>,
    window_began: u64,
    faults: u64,
    last_frequent: u64,
}

impl IdlePolicy {
    /// `wanted` is the user's choice; if false, idle states are never forbidden.
    pub(super) fn new(wanted: bool) -> Self {
        Self {
            wanted,
            limit: None,
            window_began: 0,
            faults: 0,
            last_frequent: 0,
        }
    }

    /// Notes that `faults` faults came at `now`.
    pub(super) fn note(&mut self, now: u64, faults: usize) {
        if !self.wanted {
            return;
        }
        if now.saturating_sub(self.window_began) > WINDOW {
            self.window_began = now;
            self.faults = 0;
        }
        self.faults += faults as u64;
        if self.faults >= FREQUENT {
            self.last_frequent = now;
            if self.limit.is_none() {
                self.forbid();
            }
        } else if self.limit.is_some() && now.saturating_sub(self.last_frequent) > PATIENCE {
            self.limit = None;
        }
    }

    /// When [`note`](Self::note) is to be called next, also without faults.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.limit
            .is_some()
            .then_some(self.last_frequent + PATIENCE + 1)
    }

    fn forbid(&mut self) {
        let file = File::options()
            .write(true)
            .open(DEVICE)
            .and_then(|mut file| file.write_all(&0i32.to_ne_bytes()).map(|()| file));
        match file {
            Ok(file) => self.limit = Some(file),
            Err(error) => {
                tracing::info!(%error, "cannot use {DEVICE}: faults take longer when processors sleep");
                self.wanted = false;
            }
        }
    }
}
