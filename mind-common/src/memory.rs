//! The memory blade's side: which write-back is stored, which atomic operation is carried out.
//!
//! A page's version counts its write-backs. It stays with the page's place in memory for good, also
//! when the page is freed, zeroed and mapped again: a late duplicate from an earlier mapping has an
//! older version than the page.

use crate::{
    id::Connection,
    serial::{Seq, Version},
};

/// What becomes of a WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Store {
    /// Store its page and version, then acknowledge it.
    Accept,
    /// The same write-back was stored before and its acknowledgement lost: acknowledge it, store
    /// nothing (the page may have been read since, and an atomic operation must not be undone).
    Duplicate,
    /// Something newer is there: refuse it.
    Stale,
}

/// What becomes of a WRITE of version `incoming` where `stored` is.
#[inline(always)]
pub const fn on_write(stored: Version, incoming: Version) -> Store {
    if incoming.get() == stored.get() {
        Store::Duplicate
    } else if incoming.is_after(stored) {
        Store::Accept
    } else {
        Store::Stale
    }
}

/// The version that a page of `stored` gets, its bytes as they are, when the blade that may have
/// written it back last is gone: a write-back of that blade's which is still on its way is not
/// newer, then. It has one under way at a time, and the next owner's begins above this version.
#[inline(always)]
pub const fn fenced(stored: Version) -> Version {
    stored.next()
}

/// A compute blade's latest atomic operation, in 64 bits that are changed by compare-and-swap, so
/// that of two copies of one request only one is carried out:
///
/// ```text
/// bit  63    62   61    47..24          23..0
///      open  any  over  queue pair 24   sequence number 24
/// ```
///
/// `open` is set while the operation is carried out, `any` once there was one, `over` when that
/// incarnation of the blade has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Claim(u64);

const CLAIM_OPEN: u64 = 1 << 63;
const CLAIM_ANY: u64 = 1 << 62;
const CLAIM_OVER: u64 = 1 << 61;
const CLAIM_QP_SHIFT: u32 = 24;
const INCARNATION_SHIFT: u32 = 8;
const INCARNATION_HALF: u16 = 1 << 15;

/// What becomes of an atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// Put this claim there, by compare-and-swap; then carry it out and
    /// [close](Claim::closed) the claim.
    CarryOut(Claim),
    /// It was carried out before, and its answer lost: answer with the value noted then.
    Replay,
    /// A late duplicate, or a copy of one that is being carried out now: send no answer.
    Ignore,
}

impl Claim {
    /// The claim that the table holds as `raw`.
    #[inline(always)]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The claim as it stands in the table.
    #[inline(always)]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The same, with the operation carried out and its result noted.
    #[inline(always)]
    #[must_use]
    pub const fn closed(self) -> Self {
        Self(self.0 & !CLAIM_OPEN)
    }

    /// Whether its operation is being carried out.
    #[inline(always)]
    pub const fn is_open(self) -> bool {
        self.0 & CLAIM_OPEN != 0
    }

    /// The claim after the end of an incarnation of the blade: operations that it sent and that are
    /// still on their way are ignored, since the region may have another owner by then. `None`
    /// while an operation is being carried out, which takes microseconds: try again. The claim of a
    /// newer incarnation stays as it is.
    pub const fn over(self, incarnation: Connection) -> Option<Self> {
        if self.is_open() {
            return None;
        }
        let is_newer = self.0 & CLAIM_ANY != 0
            && incarnation.incarnation != self.incarnation()
            && self.incarnation().wrapping_sub(incarnation.incarnation) < INCARNATION_HALF;
        if is_newer {
            return Some(self);
        }
        Some(Self(
            CLAIM_ANY | CLAIM_OVER | (incarnation.to_qp() as u64) << CLAIM_QP_SHIFT,
        ))
    }

    #[inline(always)]
    const fn is_over(self) -> bool {
        self.0 & CLAIM_OVER != 0
    }

    #[inline(always)]
    const fn seq(self) -> Seq {
        Seq::new(self.0 as u32)
    }

    #[inline(always)]
    const fn incarnation(self) -> u16 {
        (self.0 >> (CLAIM_QP_SHIFT + INCARNATION_SHIFT)) as u16
    }
}

/// What becomes of the atomic operation number `seq` of `connection`, where `last` is the latest
/// one of the same blade. A blade has one in flight at a time, so an older number is a late
/// duplicate.
#[inline(always)]
pub const fn on_operation(last: Claim, connection: Connection, seq: Seq) -> Attempt {
    let claim = Claim(
        CLAIM_OPEN | CLAIM_ANY | (connection.to_qp() as u64) << CLAIM_QP_SHIFT | seq.get() as u64,
    );
    if last.0 & CLAIM_ANY == 0 {
        return Attempt::CarryOut(claim);
    }
    if last.is_open() {
        return Attempt::Ignore;
    }
    let ahead = connection.incarnation.wrapping_sub(last.incarnation());
    if ahead >= INCARNATION_HALF {
        Attempt::Ignore
    } else if ahead != 0 {
        Attempt::CarryOut(claim)
    } else if last.is_over() {
        Attempt::Ignore
    } else if last.seq().get() == seq.get() {
        Attempt::Replay
    } else if seq.is_after(last.seq()) {
        Attempt::CarryOut(claim)
    } else {
        Attempt::Ignore
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::BladeId;

    fn connection(incarnation: u16) -> Connection {
        Connection {
            blade: BladeId::new(31).expect("31 is a blade"),
            incarnation,
        }
    }

    fn carried_out(last: Claim, incarnation: u16, seq: u32) -> Claim {
        match on_operation(last, connection(incarnation), Seq::new(seq)) {
            Attempt::CarryOut(claim) => claim,
            other => panic!("operation {seq} should be carried out, not {other:?}"),
        }
    }

    #[test]
    fn an_operation_is_carried_out_once_and_then_replayed() {
        let open = carried_out(Claim::default(), 0, 0);
        let again = |last| on_operation(last, connection(0), Seq::new(0));
        assert_eq!(again(open), Attempt::Ignore);
        assert_eq!(again(open.closed()), Attempt::Replay);
    }

    #[test]
    fn an_older_operation_is_a_late_duplicate() {
        let last = carried_out(Claim::default(), 3, 7).closed();
        assert_eq!(
            on_operation(last, connection(3), Seq::new(6)),
            Attempt::Ignore
        );
        let last = carried_out(last, 3, 8).closed();
        assert_eq!(
            on_operation(last, connection(3), Seq::new(8)),
            Attempt::Replay
        );
    }

    #[test]
    fn a_new_incarnation_counts_anew_and_the_old_one_is_over() {
        let last = carried_out(Claim::default(), 0xffff, 900).closed();
        let last = carried_out(last, 0, 1).closed();
        let late = on_operation(last, connection(0xffff), Seq::new(901));
        assert_eq!(late, Attempt::Ignore);
    }

    #[test]
    fn an_incarnation_that_is_over_operates_no_more_and_the_next_one_does() {
        for last in [
            Claim::default(),
            carried_out(Claim::default(), 3, 7).closed(),
            carried_out(Claim::default(), 2, 9).closed(),
        ] {
            let over = last.over(connection(3)).expect("nothing is being done");
            assert_eq!(over.over(connection(3)), Some(over));
            for (incarnation, seq) in [(3, 7), (3, 8), (2, 9), (2, 10)] {
                let late = on_operation(over, connection(incarnation), Seq::new(seq));
                assert_eq!(late, Attempt::Ignore, "{incarnation} {seq}");
            }
            for seq in [0, 1, 0x00ff_ffff] {
                let next = carried_out(over, 4, seq);
                assert_eq!(next.over(connection(3)), None);
                assert_eq!(next.closed().over(connection(3)), Some(next.closed()));
            }
        }
    }

    #[test]
    fn a_fence_is_between_a_late_write_back_and_the_next_owners() {
        for raw in [0, 7, 0x00ff_ffff] {
            let stored = Version::new(raw);
            let late = stored.next();
            let fence = fenced(stored);
            assert_ne!(on_write(fence, late), Store::Accept);
            assert_eq!(on_write(fence, fence.next()), Store::Accept);
        }
    }

    #[test]
    fn only_a_newer_version_is_stored() {
        let stored = Version::new(0x00ff_ffff);
        assert_eq!(on_write(stored, stored.next()), Store::Accept);
        assert_eq!(on_write(stored, Version::new(5)), Store::Accept);
        assert_eq!(on_write(stored, stored), Store::Duplicate);
        assert_eq!(on_write(stored, Version::new(0x00ff_fffe)), Store::Stale);
    }
}
