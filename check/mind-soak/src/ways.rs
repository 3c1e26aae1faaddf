//! How each verdict of the switch and of the memory blades is taken, and how often it must be.
//! Exhaustive: a new verdict does not compile until it is said here how the soak takes it.

use mind_common::verdict::Verdict;

/// How often every path must be taken in [`FULL_MINUTES`] or more.
pub const FULL: u64 = 100_000;

/// Minutes of a run for which [`FULL`] is asked.
pub const FULL_MINUTES: f64 = 10.0;

/// How the soak takes a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// The honest load does, by reading and writing shared memory.
    Load,
    /// A frame does, that no blade would send.
    Injected,
    /// It does not, for this reason.
    NotHere(&'static str),
}

/// How the soak takes `verdict`.
pub const fn of(verdict: Verdict) -> Way {
    use Way::{Injected, Load, NotHere};
    match verdict {
        Verdict::Fetch
        | Verdict::Grant
        | Verdict::Invalidate
        | Verdict::PassedUp
        | Verdict::WriteBack
        | Verdict::Delivered
        | Verdict::Counted
        | Verdict::Granted
        | Verdict::Fetched
        | Verdict::PageForwarded
        | Verdict::FannedOut
        | Verdict::Busy
        | Verdict::Read
        | Verdict::Stored => Load,

        Verdict::Foreign
        | Verdict::Operate
        | Verdict::StaleAnswer
        | Verdict::Invalid
        | Verdict::NotPlaced
        | Verdict::Protected
        | Verdict::NoMemory
        | Verdict::NoSlot
        | Verdict::NoCopy
        | Verdict::NotOwner
        | Verdict::Truncated
        | Verdict::Malformed
        | Verdict::UnknownOpcode
        | Verdict::UnexpectedOpcode
        | Verdict::Internal
        | Verdict::Expired
        | Verdict::Bypass
        | Verdict::UnknownPort
        | Verdict::Impostor
        | Verdict::StaleConnection
        | Verdict::DeadBlade
        | Verdict::Duplicate
        | Verdict::Operated
        | Verdict::Replayed
        | Verdict::Outdated
        | Verdict::OutOfRange
        | Verdict::StaleOperation
        | Verdict::NotFromSwitch => Injected,

        Verdict::CopyFailed => NotHere("only when the kernel has no memory for a copy"),
        Verdict::Moved => NotHere("only while the controller gives a slot to another region"),
        Verdict::Lost => NotHere("only after a blade is gone, where a domain chose that"),
        Verdict::LostOnPurpose => NotHere("only in a switch that tests have loaded for it"),
        Verdict::Contended => NotHere("only when other processors win a word again and again"),
        Verdict::NoOrigin => NotHere("only between the winning of a word and the note of it"),
        Verdict::NoFanOut | Verdict::HandedOver | Verdict::HandOverFull => {
            NotHere("every port of the testbed has its TC program")
        }
        Verdict::NoDevice => NotHere("every port of the testbed has its device"),
        Verdict::PageBusy => NotHere("only while another processor writes the same page"),
        Verdict::Torn => NotHere("only when a page is written while it is read"),
    }
}

/// How often every path must be taken in a run of so many minutes, if `full` is asked of a full one.
pub fn least(full: u64, minutes: f64) -> u64 {
    let part = (minutes / FULL_MINUTES).clamp(0.0, 1.0);
    (full as f64 * part).ceil() as u64
}

/// What is to be said of a verdict at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Which.
    pub verdict: Verdict,
    /// How.
    pub way: Way,
    /// How often.
    pub count: u64,
    /// Whether that is often enough.
    pub enough: bool,
}

/// Judges how often each verdict was met, at least `least` times being enough.
pub fn judge(count: impl Fn(Verdict) -> u64, least: u64) -> Vec<Taken> {
    let taken = |verdict| {
        let (way, count) = (of(verdict), count(verdict));
        Taken {
            verdict,
            way,
            count,
            enough: matches!(way, Way::NotHere(_)) || count >= least,
        }
    };
    Verdict::ALL.into_iter().map(taken).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_run_asks_for_as_much_a_minute() {
        assert_eq!(least(FULL, 10.0), 100_000);
        assert_eq!(least(FULL, 60.0), 100_000);
        assert_eq!(least(FULL, 0.5), 5_000);
        assert_eq!(least(FULL, 0.0), 0);
    }

    #[test]
    fn a_path_taken_too_rarely_is_found_and_one_that_is_not_here_forgiven() {
        let rare = |verdict| match verdict {
            Verdict::Granted => 99,
            Verdict::Torn => 0,
            _ => 100,
        };
        let judged = judge(rare, 100);
        assert_eq!(judged.len(), Verdict::ALL.len());
        let short: Vec<_> = judged.iter().filter(|taken| !taken.enough).collect();
        assert_eq!(short.len(), 1);
        assert_eq!(short[0].verdict, Verdict::Granted);
    }

    #[test]
    fn all_paths_but_these_are_taken() {
        let not_here: Vec<_> = Verdict::ALL
            .into_iter()
            .filter(|verdict| matches!(of(*verdict), Way::NotHere(_)))
            .map(Verdict::name)
            .collect();
        let expected = [
            "handed-over",
            "copy-failed",
            "moved",
            "contended",
            "no-origin",
            "lost",
            "lost-on-purpose",
            "hand-over-full",
            "no-fan-out",
            "no-device",
            "page-busy",
            "torn",
        ];
        assert_eq!(not_here, expected);
    }
}
