//! How long a run may take. A virtual machine without KVM is 5 to 20 times slower than its host, and hosts differ by
//! 3 times from day to day, so the limit follows how long the guest took to boot.

use std::fmt;
use std::time::Duration;

/// How long a guest takes to boot and be ready for its command, on a machine at its usual speed that has nothing else
/// to do.
const USUAL_BOOT: Duration = Duration::from_secs(13);

/// The limit on such a machine, and the least there is.
const USUAL_LIMIT: Duration = Duration::from_secs(1800);

/// How long a run may take, boot included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// As the user says.
    Fixed(Duration),
    /// In proportion to the time that the guest takes to boot.
    FollowsBoot,
}

impl Limit {
    /// The limit of a guest that is not ready yet.
    pub(crate) fn before_boot(self) -> Duration {
        match self {
            Self::Fixed(limit) => limit,
            Self::FollowsBoot => USUAL_LIMIT,
        }
    }

    /// The limit of a guest that was ready after `boot`.
    pub(crate) fn after_boot(self, boot: Duration) -> Duration {
        match self {
            Self::Fixed(limit) => limit,
            Self::FollowsBoot => {
                let factor = boot.as_secs_f64() / USUAL_BOOT.as_secs_f64();
                USUAL_LIMIT.mul_f64(factor.max(1.0))
            }
        }
    }

    /// The limit of a guest that was ready after `boot`, and why, for people.
    pub(crate) fn explained(self, boot: Duration) -> impl fmt::Display {
        let limit = self.after_boot(boot).as_secs();
        let boot = boot.as_secs();
        match self {
            Self::Fixed(_) => {
                format!("ready after {boot} s; it may take {limit} s in all, as --timeout says")
            }
            Self::FollowsBoot => format!(
                "ready after {boot} s; it may take {limit} s in all ({} s where a boot takes {} s)",
                USUAL_LIMIT.as_secs(),
                USUAL_BOOT.as_secs()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_slow_machine_gets_more_time_and_a_fast_one_no_less() {
        let limit = Limit::FollowsBoot;
        assert_eq!(limit.after_boot(seconds(13)), seconds(1800));
        assert_eq!(limit.after_boot(seconds(26)), seconds(3600));
        assert_eq!(limit.after_boot(seconds(2)), seconds(1800));
        assert_eq!(limit.before_boot(), seconds(1800));
    }

    #[test]
    fn what_the_user_says_counts() {
        let limit = Limit::Fixed(seconds(60));
        assert_eq!(limit.before_boot(), seconds(60));
        assert_eq!(limit.after_boot(seconds(26)), seconds(60));
    }
}
