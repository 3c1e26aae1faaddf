//! How long to wait for an answer before a request is repeated (RFC 6298, scaled to microseconds),
//! and how long to pause after "busy".

/// Bounds, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// The shortest wait for an answer.
    pub least: u64,
    /// The longest, after backing off.
    pub most: u64,
}

/// Pause after the first "busy" when no round trip is known yet, in nanoseconds.
const FIRST_PAUSE: u64 = 10_000;
/// The longest pause after "busy", in nanoseconds.
const LONGEST_PAUSE: u64 = 1_000_000;

/// Round trips seen, and what follows from them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RoundTrip {
    bounds: Bounds,
    smoothed: Option<u64>,
    variation: u64,
    random: u64,
}

impl RoundTrip {
    /// No round trip is known yet. `seed` spreads the pauses of blades that would otherwise retry
    /// in step.
    pub const fn new(bounds: Bounds, seed: u64) -> Self {
        Self {
            bounds,
            smoothed: None,
            variation: 0,
            random: seed | 1,
        }
    }

    /// An answer took `nanos`. To be called only for requests that were sent once (Karn's rule).
    pub fn sample(&mut self, nanos: u64) {
        match self.smoothed {
            None => {
                self.smoothed = Some(nanos);
                self.variation = nanos / 2;
            }
            Some(smoothed) => {
                let off = smoothed.abs_diff(nanos);
                self.variation = self.variation - self.variation / 4 + off / 4;
                self.smoothed = Some(smoothed - smoothed / 8 + nanos / 8);
            }
        }
    }

    /// The smoothed round trip, in nanoseconds, once there is one.
    pub const fn smoothed(&self) -> Option<u64> {
        self.smoothed
    }

    /// How long to wait for the answer to a request sent `attempt` times before, in nanoseconds.
    pub fn timeout(&mut self, attempt: u8) -> u64 {
        let Bounds { least, most } = self.bounds;
        let base = match self.smoothed {
            None => least.saturating_mul(4),
            Some(smoothed) => smoothed.saturating_add(self.variation.saturating_mul(4)),
        };
        let wait = base
            .max(least)
            .saturating_mul(1 << attempt.min(16))
            .min(most.max(least));
        wait + self.jitter(wait / 8)
    }

    /// How long to pause after the `refusals`th "busy" in a row (from 1), in nanoseconds.
    pub fn pause(&mut self, refusals: u32) -> u64 {
        let base = self.smoothed.map_or(FIRST_PAUSE, |smoothed| smoothed / 2);
        let pause = base
            .max(1_000)
            .saturating_mul(1 << (refusals / 2).min(16))
            .min(LONGEST_PAUSE);
        pause + self.jitter(pause / 2)
    }

    /// A number below `limit` (xorshift64, Marsaglia 2003).
    fn jitter(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        if limit == 0 { 0 } else { self.random % limit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        least: 1_000_000,
        most: 50_000_000,
    };

    #[test]
    fn timeouts_grow_to_a_limit_and_never_fall_below_the_least() {
        let mut trip = RoundTrip::new(BOUNDS, 1);
        for _ in 0..100 {
            trip.sample(5_000);
        }
        let waits: Vec<_> = (0..=127).map(|attempt| trip.timeout(attempt)).collect();
        assert!(waits[0] >= BOUNDS.least && waits[0] < 2 * BOUNDS.least);
        assert!(waits[3] > waits[0]);
        assert!(waits.iter().all(|wait| *wait <= BOUNDS.most * 9 / 8));
    }

    #[test]
    fn the_timeout_follows_a_slow_network() {
        let mut trip = RoundTrip::new(BOUNDS, 1);
        for _ in 0..100 {
            trip.sample(20_000_000);
        }
        assert!(trip.timeout(0) >= 20_000_000);
    }

    #[test]
    fn pauses_are_short_at_first_and_bounded() {
        let mut trip = RoundTrip::new(BOUNDS, 7);
        trip.sample(10_000);
        assert!(trip.pause(1) < 10_000);
        assert!((0..1000).all(|n| trip.pause(n) <= LONGEST_PAUSE * 3 / 2));
    }
}
