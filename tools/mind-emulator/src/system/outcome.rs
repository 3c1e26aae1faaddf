//! What an emulation counts, and what it answers.

use std::{collections::BTreeMap, time::Duration};

use mind_common::directory::Transition;
use serde::Serialize;

use super::System;

/// What is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) accesses: u64,
    pub(super) hits: u64,
    pub(super) joined: u64,
    pub(super) transitions: [u64; Transition::ALL.len()],
    pub(super) requests: u64,
    /// Nanoseconds that requests took.
    pub(super) waited: u64,
    pub(super) busy: u64,
    pub(super) invalidations: u64,
    pub(super) falsely: u64,
    pub(super) flushed: u64,
    pub(super) evicted: u64,
    pub(super) evicted_flushed: u64,
    pub(super) full: u64,
    pub(super) splits: u64,
    pub(super) merges: u64,
    pub(super) reclaimed: u64,
    pub(super) reclaimed_pages: u64,
    pub(super) no_slot: u64,
}

/// The state at a time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Modelled time.
    pub ms: f64,
    /// Slots in use.
    pub slots: u32,
    /// Pages falsely invalidated so far.
    pub false_invalidations: u64,
    /// Invalidations so far.
    pub invalidations: u64,
    /// Pages written back for invalidations so far.
    pub flushed: u64,
}

/// What came of a replay. The keys are part of the command's interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Which system it was.
    pub mode: String,
    /// Accesses that were made.
    pub accesses: u64,
    /// Those of a page that the blade had, and might access so.
    pub hits: u64,
    /// Hits in accesses.
    pub hit_rate: f64,
    /// Accesses that waited for what another thread of the blade had asked for.
    pub joined: u64,
    /// Requests, by the transition of the directory that they caused: `I->S` and so on.
    pub transitions: BTreeMap<&'static str, u64>,
    /// The mean time from a request's fault to its end, in microseconds.
    pub mean_fault_us: f64,
    /// How often requests were told "busy".
    pub busy: u64,
    /// Invalidations, one for each blade that is asked.
    pub invalidations: u64,
    /// Pages that an invalidation took from a blade though the requester wanted another one.
    pub false_invalidations: u64,
    /// Pages that were written back for an invalidation.
    pub flushed: u64,
    /// Pages that were evicted.
    pub evicted: u64,
    /// Those of them that were written back.
    pub evicted_flushed: u64,
    /// How often all pages of a cache had just come, so that a fault waited for room.
    pub full: u64,
    /// What the directory was like.
    pub directory: Directory,
    /// How long the trace took, in modelled milliseconds.
    pub run_time_ms: f64,
    /// Accesses in a modelled second.
    pub accesses_per_s: f64,
    /// How long the emulation took, in seconds.
    pub real_s: f64,
}

/// What the directory was like.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Directory {
    /// The most slots that were in use.
    pub most: u32,
    /// Those in use at the end.
    pub end: u32,
    /// Regions that were split.
    pub splits: u64,
    /// Pairs of halves that were merged.
    pub merges: u64,
    /// Regions that were given up since slots were few.
    pub reclaimed: u64,
    /// Pages that blades dropped for that.
    pub reclaimed_pages: u64,
    /// How often a request waited since there was no slot.
    pub no_slot: u64,
    /// Samples, at ends of epochs and at the end of the run; of long runs not all epochs.
    pub over_time: Vec<Sample>,
}

impl System {
    pub(super) fn outcome(self, took: Duration) -> Outcome {
        let Counters {
            accesses,
            hits,
            joined,
            transitions,
            requests,
            waited,
            busy,
            invalidations,
            falsely,
            flushed,
            evicted,
            evicted_flushed,
            full,
            splits,
            merges,
            reclaimed,
            reclaimed_pages,
            no_slot,
        } = self.counters;
        let (used, most) = self.directory.used();
        let run_time = self.end as f64;
        Outcome {
            mode: self.mode.to_string(),
            accesses,
            hits,
            hit_rate: ratio(hits as f64, accesses as f64),
            joined,
            transitions: Transition::ALL
                .into_iter()
                .map(Transition::name)
                .zip(transitions)
                .collect(),
            mean_fault_us: ratio(waited as f64, requests as f64) / 1e3,
            busy,
            invalidations,
            false_invalidations: falsely,
            flushed,
            evicted,
            evicted_flushed,
            full,
            directory: Directory {
                most,
                end: used,
                splits,
                merges,
                reclaimed,
                reclaimed_pages,
                no_slot,
                over_time: self.epochs.samples,
            },
            run_time_ms: run_time / 1e6,
            accesses_per_s: ratio(accesses as f64 * 1e9, run_time),
            real_s: took.as_secs_f64(),
        }
    }
}

/// 0 of nothing is 0.
fn ratio(part: f64, whole: f64) -> f64 {
    if whole == 0.0 { 0.0 } else { part / whole }
}
