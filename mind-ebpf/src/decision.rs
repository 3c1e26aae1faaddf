//! What becomes of a packet in a program, and how that is counted.

use aya_ebpf::{EbpfContext, Global};
use mind_common::verdict::Verdict;

use crate::maps;

/// The end of a packet that passed all stages: the verdict, and the program's return value.
#[derive(Clone, Copy)]
pub struct Decision {
    /// The verdict.
    pub verdict: Verdict,
    /// What the kernel is to do: an XDP action.
    pub action: u32,
}

/// Whether each verdict is logged. The loader sets it before the program is loaded, so the verifier
/// removes the logging from a program that does not log.
#[unsafe(no_mangle)]
static LOG_VERDICTS: Global<u8> = Global::new(0);

/// Counts `verdict` for the interface `ifindex`.
#[inline(always)]
pub fn count<C: EbpfContext>(ctx: &C, ifindex: u32, verdict: Verdict) {
    let counters = match maps::COUNTERS.get_ptr_mut(ifindex) {
        Some(counters) => Some(counters),
        None => maps::COUNTERS.get_ptr_mut(0),
    };
    if let Some(counters) = counters {
        // SAFETY: a value of this processor's own, which no other program changes while this one
        // runs, and a verdict's number is below their count.
        unsafe { (*counters)[verdict.number() % mind_common::verdict::COUNTERS] += 1 };
    }
    if LOG_VERDICTS.load() != 0 {
        aya_log_ebpf::debug!(ctx, "interface {} verdict {}", ifindex, verdict as u8);
    }
}
