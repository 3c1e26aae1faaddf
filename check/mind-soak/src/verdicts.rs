//! What causes each verdict of the switch and of the memory blades, and how often it must come up.
//! Exhaustive: a new verdict does not compile until its cause is added here.

use mind_common::verdict::Verdict;

/// How often every verdict must come up in [`FULL_MINUTES`] or more.
pub const FULL: u64 = 100_000;

/// Minutes of a run for which [`FULL`] counts.
pub const FULL_MINUTES: f64 = 10.0;

/// What causes a verdict in the soak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The load, by reading and writing shared memory.
    Load,
    /// An injected frame.
    Injected,
    /// Nothing does, for this reason.
    Nothing(&'static str),
}

/// What causes `verdict` in the soak.
pub const fn of(verdict: Verdict) -> Cause {
    use Cause::{Injected, Load, Nothing};
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
        | Verdict::NoSlot
        | Verdict::Read
        | Verdict::Stored => Load,

        Verdict::Foreign
        | Verdict::Operate
        | Verdict::StaleAnswer
        | Verdict::Invalid
        | Verdict::NotPlaced
        | Verdict::Protected
        | Verdict::NoMemory
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

        Verdict::CopyFailed => Nothing("only when the kernel has no memory for a copy"),
        Verdict::Moved => Nothing("only while the controller gives a slot to another region"),
        Verdict::Lost => Nothing("only after a blade is gone, where a domain chose that"),
        Verdict::LostOnPurpose => Nothing("only in a switch that tests have loaded for it"),
        Verdict::Contended => Nothing("only when other processors change a word again and again"),
        Verdict::NoOrigin => {
            Nothing("only between the change of a word and the note of its origin")
        }
        Verdict::NoFanOut | Verdict::HandedOver | Verdict::HandOverFull => {
            Nothing("every port of the testbed has its TC program")
        }
        Verdict::NoDevice => Nothing("every port of the testbed has its device"),
        Verdict::PageBusy => Nothing("only while another processor writes the same page"),
        Verdict::Torn => Nothing("only when a page is written while it is read"),
    }
}

/// How often every verdict must come up in a run of so many minutes, if `full` counts for a full
/// one.
pub fn least(full: u64, minutes: f64) -> u64 {
    let part = (minutes / FULL_MINUTES).clamp(0.0, 1.0);
    (full as f64 * part).ceil() as u64
}

/// The result for one verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Which.
    pub verdict: Verdict,
    /// How.
    pub cause: Cause,
    /// How often.
    pub count: u64,
    /// Whether that is often enough.
    pub enough: bool,
}

/// Checks how often each verdict came up; at least `least` times is enough.
pub fn judge(count: impl Fn(Verdict) -> u64, least: u64) -> Vec<Taken> {
    let taken = |verdict| {
        let (cause, count) = (of(verdict), count(verdict));
        Taken {
            verdict,
            cause,
            count,
            enough: matches!(cause, Cause::Nothing(_)) || count >= least,
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
            .filter(|verdict| matches!(of(*verdict), Cause::Nothing(_)))
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
