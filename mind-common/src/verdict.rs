//! What can become of a packet: one verdict each, counted per port.
//!
//! A verdict's number is its place in the counters of a port. Programs count it, and the loader,
//! the metrics and the tests name it, so the reason why a packet was lost can be found.

use crate::refusal::Refusal;

/// What the network sees of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The host's stack, or the bridge, gets the packet: it is not ours.
    Passed,
    /// It goes on to a blade, or up to TC.
    Forwarded,
    /// It goes back as the answer to its request.
    Answered,
    /// It goes back as a refusal.
    Refused(Refusal),
    /// It has had its effect and ends here.
    Consumed,
    /// It ends here because something is wrong with it, or with what it needs.
    Dropped,
}

impl Kind {
    /// Its name in metrics and on the command line; all refusals have one.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Forwarded => "forwarded",
            Self::Answered => "answered",
            Self::Refused(_) => "refused",
            Self::Consumed => "consumed",
            Self::Dropped => "dropped",
        }
    }
}

/// Declares the verdicts: their numbers follow from their order.
macro_rules! verdicts {
    ($($(#[doc = $doc:literal])+ $variant:ident: $name:literal, $kind:expr;)+) => {
        /// What became of a packet.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Verdict {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Verdict {
            /// All of them, in the order of their numbers.
            pub const ALL: [Self; [$(Self::$variant),+].len()] = [$(Self::$variant),+];

            /// Its name in metrics and on the command line.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// What it says of a packet, in Markdown: for references.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($doc),+),)+
                }
            }

            /// What the network sees of it.
            #[inline(always)]
            pub const fn kind(self) -> Kind {
                match self {
                    $(Self::$variant => $kind,)+
                }
            }
        }
    };
}

verdicts! {
    /// Not for the switch (the memory blade), or not RoCEv2.
    Foreign: "foreign", Kind::Passed;

    /// Request: the region needs no invalidation; on to memory.
    Fetch: "fetch", Kind::Forwarded;
    /// Request: the requester may write the page that it has.
    Grant: "grant", Kind::Answered;
    /// Request: became the one INVALIDATE that is needed.
    Invalidate: "invalidate", Kind::Forwarded;
    /// Request: passed up to TC, which sends several INVALIDATEs.
    PassedUp: "passed-up", Kind::Forwarded;
    /// Request: handed over to the controller, which sends several INVALIDATEs.
    HandedOver: "handed-over", Kind::Consumed;
    /// A write-back, on to memory.
    WriteBack: "write-back", Kind::Forwarded;
    /// An atomic operation, on to memory.
    Operate: "operate", Kind::Forwarded;
    /// A memory blade's answer, on to the requester.
    Delivered: "delivered", Kind::Forwarded;

    /// Answer to an INVALIDATE: others still owe theirs.
    Counted: "counted", Kind::Consumed;
    /// Answer to an INVALIDATE, the last one: became the requester's acknowledgement.
    Granted: "granted", Kind::Forwarded;
    /// Answer to an INVALIDATE, the last one: became a READ in the requester's name.
    Fetched: "fetched", Kind::Forwarded;
    /// Answer to an INVALIDATE, the last one: the page goes on to the requester.
    PageForwarded: "page-forwarded", Kind::Forwarded;
    /// Answer to an INVALIDATE that is over, or was answered before.
    StaleAnswer: "stale-answer", Kind::Dropped;

    /// TC sent an INVALIDATE to every listed blade that is there.
    FannedOut: "fanned-out", Kind::Consumed;
    /// TC could not make or send one of the copies; the requester's retry has it sent again.
    CopyFailed: "copy-failed", Kind::Dropped;

    /// Refused: misaligned, of a wrong length, or outside of the window.
    Invalid: "invalid", Kind::Refused(Refusal::Invalid);
    /// Refused: the protection domain is not placed on this blade.
    NotPlaced: "not-placed", Kind::Refused(Refusal::Denied);
    /// Refused: no protection entry of the domain allows it.
    Protected: "protected", Kind::Refused(Refusal::Denied);
    /// Refused: no memory blade serves the address, or it is gone.
    NoMemory: "no-memory", Kind::Refused(Refusal::Unreachable);
    /// Refused: the page's region has no slot, and none is left; the controller takes some back.
    NoSlot: "no-slot", Kind::Refused(Refusal::Busy);
    /// Refused: the page's slot is given to another region, or cannot be found just now.
    Moved: "moved", Kind::Refused(Refusal::Busy);
    /// Refused: the region is being changed.
    Busy: "busy", Kind::Refused(Refusal::Busy);
    /// Refused: other processors changed the word again and again meanwhile.
    Contended: "contended", Kind::Refused(Refusal::Busy);
    /// Refused: the request that began the invalidation that is to be repeated is not noted yet.
    NoOrigin: "no-origin", Kind::Refused(Refusal::Busy);
    /// Refused: the requester has no copy to upgrade, or owns nothing to operate on.
    NoCopy: "no-copy", Kind::Refused(Refusal::NoCopy);
    /// Refused: writes to the region were lost with a blade, and its domain chose that accesses
    /// then fail; or its memory blade is gone.
    Lost: "lost", Kind::Refused(Refusal::Unreachable);
    /// Refused: a write-back of a blade that does not own the region.
    NotOwner: "not-owner", Kind::Refused(Refusal::Stale);

    /// Dropped: shorter than its headers say or its opcode needs.
    Truncated: "truncated", Kind::Dropped;
    /// Dropped: a coherence header field has an invalid value.
    Malformed: "malformed", Kind::Dropped;
    /// Dropped: a test wants the switch to lose it ([`LossPoint`](crate::losses::LossPoint)).
    LostOnPurpose: "lost-on-purpose", Kind::Dropped;
    /// Dropped: an opcode that is not of this protocol.
    UnknownOpcode: "unknown-opcode", Kind::Dropped;
    /// Dropped: an opcode that nothing behind such a port sends.
    UnexpectedOpcode: "unexpected-opcode", Kind::Dropped;
    /// Dropped: the opcode that XDP and TC use between them, from outside.
    Internal: "internal", Kind::Dropped;
    /// Dropped: its time to live is used up.
    Expired: "expired", Kind::Dropped;
    /// Dropped: not for the switch, but a blade could take it for the switch's: from the switch's
    /// address; or RoCEv2 for another host, tagged, in fragments, or with IPv4 options.
    Bypass: "bypass", Kind::Dropped;
    /// Dropped: for the switch's port 4791, but no blade is registered behind the port.
    UnknownPort: "unknown-port", Kind::Dropped;
    /// Dropped: claims a connection that is not the port's.
    Impostor: "impostor", Kind::Dropped;
    /// Dropped: a memory blade's answer for a blade that is gone or has a new incarnation.
    StaleConnection: "stale-connection", Kind::Dropped;
    /// Dropped: the blade that should get it is not present.
    DeadBlade: "dead-blade", Kind::Dropped;
    /// Dropped: several blades should get it, and the controller takes no more; the requester's retry asks again.
    HandOverFull: "hand-over-full", Kind::Dropped;
    /// Dropped: several blades should get it, and the port has no TC program, nor hands over.
    NoFanOut: "no-fan-out", Kind::Dropped;
    /// Dropped: no device behind the blade's port.
    NoDevice: "no-device", Kind::Dropped;

    /// Memory blade: a page was read.
    Read: "read", Kind::Answered;
    /// Memory blade: a page was stored.
    Stored: "stored", Kind::Answered;
    /// Memory blade: the write-back was stored before; acknowledged again.
    Duplicate: "duplicate", Kind::Answered;
    /// Memory blade: an atomic operation was carried out.
    Operated: "operated", Kind::Answered;
    /// Memory blade: an atomic operation's answer was sent again.
    Replayed: "replayed", Kind::Answered;
    /// Memory blade, refused: a newer version of the page is there.
    Outdated: "outdated", Kind::Refused(Refusal::Stale);
    /// Memory blade, refused: the offset is outside of its store.
    OutOfRange: "out-of-range", Kind::Refused(Refusal::Unreachable);
    /// Memory blade, refused: the page is being written.
    PageBusy: "page-busy", Kind::Refused(Refusal::Busy);
    /// Memory blade, refused: the page was written while it was read.
    Torn: "torn", Kind::Refused(Refusal::Busy);
    /// Memory blade, dropped: an atomic operation older than the blade's latest, or one that is
    /// being carried out now.
    StaleOperation: "stale-operation", Kind::Dropped;
    /// Memory blade, dropped: for its port 4791, but not from the switch.
    NotFromSwitch: "not-from-switch", Kind::Dropped;
}

/// The counters of a port: one for each verdict, and room for more.
pub const COUNTERS: usize = 64;

/// A port's counters, by the verdict's number.
pub type Counters = [u64; COUNTERS];

const _: () = assert!(Verdict::ALL.len() <= COUNTERS);

impl Verdict {
    /// The verdict with that number.
    pub fn from_number(number: usize) -> Option<Self> {
        Self::ALL.get(number).copied()
    }

    /// The verdict on a request that the directory's state machine refuses.
    #[inline(always)]
    pub const fn of_directory(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Busy => Self::Busy,
            Refusal::NoCopy => Self::NoCopy,
            Refusal::Invalid => Self::Invalid,
            Refusal::Denied => Self::Protected,
            Refusal::Stale => Self::NotOwner,
            Refusal::Unreachable => Self::Lost,
        }
    }

    /// Its number: its place among a port's [`Counters`].
    #[inline(always)]
    pub const fn number(self) -> usize {
        self as usize
    }
}

impl core::fmt::Display for Verdict {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.name())
    }
}

/// Why a packet's way ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The host's stack gets it.
    Pass(Verdict),
    /// It goes back as a refusal.
    Refuse(Verdict, Refusal),
    /// It ends here.
    Drop(Verdict),
}

impl Stop {
    /// How a packet with `verdict` ends. [`stop!`](crate::stop) calls it in a `const` block, so that no program carries
    /// the table of verdicts.
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

    /// The refusal of the directory's state machine.
    #[inline(always)]
    pub const fn directory(refusal: Refusal) -> Self {
        Self::Refuse(Verdict::of_directory(refusal), refusal)
    }

    /// What became of the packet.
    #[inline(always)]
    pub const fn verdict(self) -> Verdict {
        match self {
            Self::Pass(verdict) | Self::Refuse(verdict, _) | Self::Drop(verdict) => verdict,
        }
    }
}

/// Ends a stage early, with a verdict that is known when it is compiled.
#[macro_export]
macro_rules! stop {
    ($verdict:ident) => {
        const { $crate::verdict::Stop::because($crate::verdict::Verdict::$verdict) }
    };
}

/// A stage's result.
pub type Staged<T> = Result<T, Stop>;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_verdicts_number_is_its_place() {
        for (number, verdict) in Verdict::ALL.into_iter().enumerate() {
            assert_eq!(verdict.number(), number);
            assert_eq!(Verdict::from_number(number), Some(verdict));
        }
        assert_eq!(Verdict::from_number(Verdict::ALL.len()), None);
    }

    #[test]
    fn the_directorys_refusals_go_out_as_they_are() {
        for refusal in Refusal::ALL {
            let verdict = Verdict::of_directory(refusal);
            assert_eq!(verdict.kind(), Kind::Refused(refusal), "{verdict}");
        }
    }

    #[test]
    fn names_tell_verdicts_apart_and_fit_metrics() {
        let names: HashSet<_> = Verdict::ALL.into_iter().map(Verdict::name).collect();
        assert_eq!(names.len(), Verdict::ALL.len());
        for name in names {
            let fits = |c: char| c.is_ascii_lowercase() || c == '-';
            assert!(name.chars().all(fits), "{name}");
        }
    }
}
