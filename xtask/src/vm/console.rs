//! What the guest's kernel says on its console: which lines are complaints, and of what kind. Text in, verdict out.

use std::fmt;

/// Why the guest's kernel is not to be trusted any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Complaint {
    /// It has stopped.
    Panic,
    /// It met an exception in its own code, or a `BUG()`.
    Oops,
    /// A CPU, a task or RCU makes no progress.
    Stall,
    /// Its memory is not what it left there.
    Corruption,
    /// A `WARN()`, or a lock debugger's finding.
    Warning,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Panic => "guest panic",
            Self::Oops => "guest oops",
            Self::Stall => "guest stall",
            Self::Corruption => "guest memory corruption",
            Self::Warning => "guest kernel warning",
        })
    }
}

/// How a complaint's text begins, after the time stamp. The first that fits says the kind.
const BEGINNINGS: &[(&str, Complaint)] = &[
    ("Kernel panic - ", Complaint::Panic),
    ("BUG: soft lockup", Complaint::Stall),
    ("watchdog: BUG: soft lockup", Complaint::Stall),
    ("watchdog: Watchdog detected hard LOCKUP", Complaint::Stall),
    ("watchdog: CPU", Complaint::Stall),
    ("BUG: workqueue lockup", Complaint::Stall),
    ("BUG: Bad ", Complaint::Corruption),
    ("BUG: KASAN", Complaint::Corruption),
    ("BUG: KFENCE", Complaint::Corruption),
    ("list_add corruption", Complaint::Corruption),
    ("list_del corruption", Complaint::Corruption),
    ("refcount_t: ", Complaint::Corruption),
    ("pagealloc: memory corruption", Complaint::Corruption),
    ("pagealloc: single bit error", Complaint::Corruption),
    ("Oops: ", Complaint::Oops),
    ("Oops ", Complaint::Oops),
    ("BUG: ", Complaint::Oops),
    ("kernel BUG at ", Complaint::Oops),
    ("general protection fault", Complaint::Oops),
    ("invalid opcode: ", Complaint::Oops),
    ("Internal error: ", Complaint::Oops),
    ("WARNING: ", Complaint::Warning),
];

/// What `line` of the console complains of, if of anything.
pub(crate) fn classify(line: &str) -> Option<Complaint> {
    let text = text_of(line);
    if let Some((_, complaint)) = BEGINNINGS
        .iter()
        .find(|(beginning, _)| text.starts_with(beginning))
    {
        return Some(*complaint);
    }
    let rcu_stall = text.starts_with("rcu: INFO: ") && text.contains("stall");
    let hung_task = text.starts_with("INFO: task ") && text.contains(" blocked for more than ");
    (rcu_stall || hung_task).then_some(Complaint::Stall)
}

/// A line of the console without what precedes its text: time stamp and, on some kernels, the caller.
pub(crate) fn text_of(line: &str) -> &str {
    let mut text = line.trim();
    while let Some(rest) = text.strip_prefix('[') {
        let Some((_, rest)) = rest.split_once(']') else {
            break;
        };
        text = rest.trim_start();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_complaint_is_known_by_its_line() {
        let cases = [
            (
                "[   41.007111] Kernel panic - not syncing: sysrq triggered crash",
                Complaint::Panic,
            ),
            (
                "[    9.1] BUG: kernel NULL pointer dereference, address: 0000000000000000",
                Complaint::Oops,
            ),
            (
                "[    9.1] Oops: general protection fault, probably for non-canonical address 0xdead: 0000 [#1] SMP",
                Complaint::Oops,
            ),
            (
                "[    9.1] Oops: 0002 [#1] PREEMPT SMP NOPTI",
                Complaint::Oops,
            ),
            (
                "[    9.1] kernel BUG at include/linux/skbuff.h:2685!",
                Complaint::Oops,
            ),
            (
                "[   70.2] watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [sh:99]",
                Complaint::Stall,
            ),
            (
                "[   70.2] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
                Complaint::Stall,
            ),
            (
                "[  242.6] INFO: task sh:312 blocked for more than 120 seconds.",
                Complaint::Stall,
            ),
            (
                "[    9.1] BUG: Bad page state in process ksoftirqd/0  pfn:11a1c",
                Complaint::Corruption,
            ),
            (
                "[    9.1][ T1203] list_del corruption. next->prev should be ffff",
                Complaint::Corruption,
            ),
            (
                "[    9.1] WARNING: CPU: 0 PID: 21 at net/core/skbuff.c:5 skb_x+0x1/0x2",
                Complaint::Warning,
            ),
            (
                "[    9.1][   T21] WARNING: net/core/dev.c:5 at x+0x1/0x2, CPU#0: sh/21",
                Complaint::Warning,
            ),
            (
                "WARNING: possible circular locking dependency detected",
                Complaint::Warning,
            ),
        ];
        for (line, complaint) in cases {
            assert_eq!(classify(line), Some(complaint), "{line}");
        }
    }

    #[test]
    fn ordinary_lines_are_no_complaints() {
        for line in [
            "",
            "[    0.000000] Linux version 6.12.95+deb12-amd64",
            "[    0.0] Command line: console=ttyS0 oops=panic panic_on_warn=1",
            "[    0.2] Spectre V2 : WARNING: Unprivileged eBPF is enabled with eIBRS on",
            "[    0.3] rcu: Hierarchical RCU implementation.",
            "[   61.1] page_pool_release_retry() stalled pool shutdown: id 9, 1 inflight 60 sec",
            "[    1.0] ERST: Error Record Serialization Table (ERST) support is initialized.",
        ] {
            assert_eq!(classify(line), None, "{line}");
        }
    }

    #[test]
    fn the_text_of_a_line_is_what_follows_its_stamps() {
        assert_eq!(text_of("[   12.5][  T99] hello [x]\r"), "hello [x]");
        assert_eq!(text_of("[no end"), "[no end");
    }
}
