//! How a stage says what becomes of a packet, and how that is counted.

use aya_ebpf::{EbpfContext, Global};
use mind_common::{
    verdict::{Kind, Verdict},
    wire::Refusal,
};

use crate::maps;

/// A stage ends the packet's way through the program: early, as `Err`.
#[derive(Clone, Copy)]
pub enum Stop {
    /// The host's stack gets it.
    Pass(Verdict),
    /// It goes back as a refusal.
    Refuse(Verdict, Refusal),
    /// It ends here.
    Drop(Verdict),
}

impl Stop {
    /// What `verdict` stands for. Call it with a constant, in a `const` block, so that no program
    /// carries the table of verdicts.
    #[inline(always)]
    pub const fn because(verdict: Verdict) -> Self {
        match verdict.kind() {
            Kind::Passed => Self::Pass(verdict),
            Kind::Refused(refusal) => Self::Refuse(verdict, refusal),
            Kind::Forwarded | Kind::Answered | Kind::Consumed | Kind::Dropped => {
                Self::Drop(verdict)
            }
        }
    }

    /// The directory's state machine refuses.
    #[inline(always)]
    pub const fn directory(refusal: Refusal) -> Self {
        Self::Refuse(Verdict::of_directory(refusal), refusal)
    }
}

/// What becomes of a packet that went all the way: the verdict, and the program's return value.
#[derive(Clone, Copy)]
pub struct Decision {
    /// What it was.
    pub verdict: Verdict,
    /// What the kernel shall do: an XDP action.
    pub action: u32,
}

/// A stage's result.
pub type Staged<T = Decision> = Result<T, Stop>;

/// Ends a stage early, with a verdict that is known when it is compiled.
macro_rules! stop {
    ($verdict:ident) => {
        const { $crate::decision::Stop::because(mind_common::verdict::Verdict::$verdict) }
    };
}
pub(crate) use stop;

/// Whether each verdict is logged: the loader says so before the program is loaded, so the
/// verifier takes the logging out of a program that does not log.
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
