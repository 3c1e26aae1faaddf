//! What accesses cost: times of the live system, as its fault bench measures them.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use mind_common::directory::Transition;
use serde::{Deserialize, Serialize};

/// Times in microseconds, as `bench fault --json` has them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latencies {
    /// An access to a page that the blade has and may access so.
    pub local_us: f64,
    /// The directory grants at once what needs no page: a fault resolved locally and a bare exchange.
    pub granted_us: f64,
    /// A bare exchange of a page, which is what a page more to write back adds.
    pub exchange_us: f64,
    /// No blade had the region; to read.
    pub i_s_us: f64,
    /// Others share it; to read.
    pub s_s_us: f64,
    /// No blade had the region; to write.
    pub i_m_us: f64,
    /// One blade gave its copies up; to write.
    pub s_m_us: f64,
    /// Several did.
    pub s_m_several_us: f64,
    /// The owner wrote back and keeps copies to read.
    pub m_s_us: f64,
    /// The owner wrote back and gave the region up.
    pub m_m_us: f64,
}

impl Default for Latencies {
    /// Those of `cargo xtask bench fault` in `docs/src/checks/benches.md` ("Figures"): a virtual machine with two
    /// processors, Linux 6.18, a program and its agent on different ones. Local accesses: DRAM's latency, which the
    /// paper puts below 100 ns (MIND, SOSP 2021, section 7.2).
    fn default() -> Self {
        Self {
            local_us: 0.1,
            granted_us: 8.5,
            exchange_us: 1.9,
            i_s_us: 10.6,
            s_s_us: 10.4,
            i_m_us: 10.1,
            s_m_us: 15.3,
            s_m_several_us: 21.3,
            m_s_us: 22.5,
            m_m_us: 22.1,
        }
    }
}

/// What is read of the bench's report.
#[derive(Deserialize)]
struct Report {
    limits: Limits,
    sum_us: f64,
    transitions: Transitions,
}

#[derive(Deserialize)]
struct Limits {
    network_us: f64,
}

#[derive(Deserialize)]
struct Transitions {
    i_s: Times,
    s_s: Times,
    i_m: Times,
    s_m: Times,
    s_m_several: Times,
    m_s: Times,
    m_m: Times,
}

#[derive(Deserialize)]
struct Times {
    p50_us: f64,
}

impl Latencies {
    /// The medians in a file that `bench fault --json` has written.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or is no such report; the message names the file and what is missing.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| {
            format!(
                "{} is no report of `cargo xtask bench fault --json`",
                path.display()
            )
        })
    }

    fn parse(text: &str) -> Result<Self> {
        let Report {
            limits,
            sum_us,
            transitions,
        } = serde_json::from_str(text)?;
        let latencies = Self {
            local_us: Self::default().local_us,
            granted_us: sum_us,
            exchange_us: limits.network_us,
            i_s_us: transitions.i_s.p50_us,
            s_s_us: transitions.s_s.p50_us,
            i_m_us: transitions.i_m.p50_us,
            s_m_us: transitions.s_m.p50_us,
            s_m_several_us: transitions.s_m_several.p50_us,
            m_s_us: transitions.m_s.p50_us,
            m_m_us: transitions.m_m.p50_us,
        };
        latencies.check()?;
        Ok(latencies)
    }

    /// Checks that all are times of an access.
    ///
    /// # Errors
    ///
    /// When one is negative, above a second, or no number.
    pub fn check(&self) -> Result<()> {
        let Self {
            local_us,
            granted_us,
            exchange_us,
            i_s_us,
            s_s_us,
            i_m_us,
            s_m_us,
            s_m_several_us,
            m_s_us,
            m_m_us,
        } = *self;
        let all = [
            local_us,
            granted_us,
            exchange_us,
            i_s_us,
            s_s_us,
            i_m_us,
            s_m_us,
            s_m_several_us,
            m_s_us,
            m_m_us,
        ];
        for us in all {
            ensure!(
                (0.0..=1e6).contains(&us),
                "{us} us is no time of an access: 0 to a second is"
            );
        }
        Ok(())
    }
}

/// The same in nanoseconds, to be added up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nanos {
    pub(super) local: u64,
    pub(super) granted: u64,
    pub(super) exchange: u64,
    s_m_several: u64,
    /// By the number of the transition.
    transitions: [u64; Transition::ALL.len()],
}

impl Nanos {
    pub(super) fn new(latencies: &Latencies) -> Self {
        let nanos = |us: f64| (us * 1000.0).round() as u64;
        let of = |transition| match transition {
            Transition::InvalidToShared => latencies.i_s_us,
            Transition::SharedToShared => latencies.s_s_us,
            // The page comes from memory, and no blade gives anything up.
            Transition::InvalidToModified | Transition::Owned => latencies.i_m_us,
            Transition::SharedToModified => latencies.s_m_us,
            Transition::ModifiedToShared => latencies.m_s_us,
            Transition::ModifiedToModified => latencies.m_m_us,
        };
        Self {
            local: nanos(latencies.local_us),
            granted: nanos(latencies.granted_us),
            exchange: nanos(latencies.exchange_us),
            s_m_several: nanos(latencies.s_m_several_us),
            transitions: Transition::ALL.map(|transition| nanos(of(transition))),
        }
    }

    /// The page comes from memory, and no blade gives anything up.
    pub(super) const fn fetch(&self, transition: Transition) -> u64 {
        match transition {
            // No other blade has a copy.
            Transition::SharedToModified => {
                self.transitions[Transition::InvalidToModified as usize]
            }
            other => self.transitions[other as usize],
        }
    }

    /// So many blades give something up first.
    pub(super) const fn invalidation(&self, transition: Transition, blades: u32) -> u64 {
        match transition {
            Transition::SharedToModified if blades > 1 => self.s_m_several,
            other => self.transitions[other as usize],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"{
        "placement": "across", "limits": {"userfault_us": 6.0, "network_us": 5.0}, "sum_us": 11.0,
        "transitions": {
            "i_s": {"p50_us": 1.0, "p99_us": 9.0, "count": 10}, "s_s": {"p50_us": 2.0}, "i_m": {"p50_us": 3.0},
            "s_m": {"p50_us": 4.0}, "s_m_several": {"p50_us": 5.0}, "m_s": {"p50_us": 6.0}, "m_m": {"p50_us": 7.0}
        }
    }"#;

    #[test]
    fn a_report_of_the_bench_is_read() {
        let latencies = Latencies::parse(REPORT).unwrap();
        assert_eq!((latencies.granted_us, latencies.exchange_us), (11.0, 5.0));
        let nanos = Nanos::new(&latencies);
        assert_eq!(nanos.fetch(Transition::InvalidToShared), 1000);
        assert_eq!(nanos.fetch(Transition::Owned), 3000);
        assert_eq!(nanos.fetch(Transition::SharedToModified), 3000);
        assert_eq!(nanos.invalidation(Transition::SharedToModified, 1), 4000);
        assert_eq!(nanos.invalidation(Transition::SharedToModified, 2), 5000);
        assert_eq!(nanos.invalidation(Transition::ModifiedToModified, 1), 7000);
    }

    #[test]
    fn what_is_missing_or_no_time_is_named() {
        let error = |text: &str| format!("{:#}", Latencies::parse(text).unwrap_err());
        assert!(error(&REPORT.replace("m_m", "m_x")).contains("m_m"));
        assert!(error(&REPORT.replace("7.0", "-7.0")).contains("-7"));
        assert!(error("[]").contains("expected struct") || error("[]").contains("invalid"));
    }
}
