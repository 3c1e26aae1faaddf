//! How many directory slots there are to be: as many as the operator says, or as follows from the memory that is offered.

/// Bytes of memory for each slot: a quarter of it can be cached at a time, in regions of 16 KiB.
const BYTES_PER_SLOT: u64 = 64 << 10;
/// By how much more slots there are with the next step: each replaces the data plane.
const STEP: u32 = 4;
/// How many steps there are.
const STEPS: u32 = 2;
/// Slots where little memory is offered.
pub(super) const LEAST: u32 = 262_144;

/// What decides about their number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// What the operator says.
    pub(super) said: Option<u32>,
    /// How many there are at least, if nothing is said.
    pub(super) least: u32,
}

impl Rule {
    /// How many there are to be for so many bytes of memory, where there are `now` now. What follows from memory does not
    /// become less: memory that is gone may come back.
    pub(super) fn wanted(self, offered: u64, now: Option<u32>) -> u32 {
        if let Some(said) = self.said {
            return said;
        }
        let mut wanted = self.least;
        for _ in 0..STEPS {
            if u64::from(wanted) * BYTES_PER_SLOT < offered {
                wanted = wanted.saturating_mul(STEP);
            }
        }
        wanted.max(now.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_memory_has_more_slots() {
        let rule = Rule {
            said: None,
            least: LEAST,
        };
        let gib = 1 << 30;
        for (offered, wanted) in [
            (0, LEAST),
            (16 * gib, LEAST),
            (17 * gib, 4 * LEAST),
            (64 * gib, 4 * LEAST),
            (65 * gib, 16 * LEAST),
            (512 * 32 * gib, 16 * LEAST),
        ] {
            assert_eq!(rule.wanted(offered, None), wanted, "{offered}");
        }
        assert_eq!(rule.wanted(0, Some(4 * LEAST)), 4 * LEAST);
        let said = Rule {
            said: Some(16),
            ..rule
        };
        assert_eq!(said.wanted(512 * gib, Some(LEAST)), 16);
    }
}
