//! Keeps the processors from sleeping deeply while faults are frequent.
//!
//! Waking a halted virtual processor costs more than a whole remote fault. Linux lets a process
//! say how much latency it can bear, by keeping `/dev/cpu_dma_latency` open with a number in it
//! (`Documentation/power/pm_qos_interface.rst`).

use std::{fs::File, io::Write as _, time::Duration};

const DEVICE: &str = "/dev/cpu_dma_latency";
/// How many faults in a [`WINDOW`] make it worth it.
const FREQUENT: u64 = 20;
/// In nanoseconds.
const WINDOW: u64 = Duration::from_millis(10).as_nanos() as u64;
/// How long without so many before letting go, in nanoseconds.
const PATIENCE: u64 = Duration::from_millis(500).as_nanos() as u64;

/// Whether the processors are kept awake now.
pub(super) struct Wakefulness {
    wanted: bool,
    held: Option<File>,
    window_began: u64,
    faults: u64,
    last_frequent: u64,
}

impl Wakefulness {
    /// `wanted` is the user's choice.
    pub(super) fn new(wanted: bool) -> Self {
        Self {
            wanted,
            held: None,
            window_began: 0,
            faults: 0,
            last_frequent: 0,
        }
    }

    /// So many faults came at `now`.
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
            if self.held.is_none() {
                self.hold();
            }
        } else if self.held.is_some() && now.saturating_sub(self.last_frequent) > PATIENCE {
            self.held = None;
        }
    }

    /// When [`note`](Self::note) wants to be called again, even without faults.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.held
            .is_some()
            .then_some(self.last_frequent + PATIENCE + 1)
    }

    fn hold(&mut self) {
        let held = File::options()
            .write(true)
            .open(DEVICE)
            .and_then(|mut file| file.write_all(&0i32.to_ne_bytes()).map(|()| file));
        match held {
            Ok(file) => self.held = Some(file),
            Err(error) => {
                tracing::info!(%error, "cannot use {DEVICE}: faults take longer when processors sleep");
                self.wanted = false;
            }
        }
    }
}
