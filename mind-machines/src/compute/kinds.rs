//! The kinds of what happens to a page: what tables and counts of events tell apart.

use super::page::{Access, Event};
use mind_common::{directory::Target, refusal::Refusal, serial::Version};

const fn invalidate(target: Target, ripe: bool) -> Event {
    Event::Invalidate {
        target,
        wanted: true,
        ripe,
    }
}

impl Event {
    /// One of each kind.
    pub const KINDS: [Self; 20] = [
        Self::Fault(Access::Read),
        Self::Fault(Access::Write),
        Self::Data(Version::new(0)),
        Self::Granted,
        Self::Refused(Refusal::Busy),
        Self::Refused(Refusal::NoCopy),
        Self::Refused(Refusal::Denied),
        Self::Refused(Refusal::Unreachable),
        Self::Stored,
        Self::NotStored(Refusal::Busy),
        Self::NotStored(Refusal::Stale),
        Self::NotStored(Refusal::Unreachable),
        invalidate(Target::Invalid, true),
        invalidate(Target::Invalid, false),
        invalidate(Target::Shared, true),
        invalidate(Target::Shared, false),
        Self::Ripe,
        Self::Evict,
        Self::Answered { more: false },
        Self::Answered { more: true },
    ];

    /// The one of [`KINDS`](Self::KINDS) that it is.
    #[must_use]
    pub const fn kind(self) -> Self {
        match self {
            Self::Data(_) => Self::Data(Version::new(0)),
            // Refusals for good, which a page does not tell apart.
            Self::Refused(Refusal::Denied | Refusal::Invalid | Refusal::Stale) => {
                Self::Refused(Refusal::Denied)
            }
            Self::NotStored(
                Refusal::NoCopy | Refusal::Denied | Refusal::Invalid | Refusal::Stale,
            ) => Self::NotStored(Refusal::Stale),
            Self::Invalidate { target, ripe, .. } => invalidate(target, ripe),
            Self::Fault(_)
            | Self::Granted
            | Self::Refused(_)
            | Self::Stored
            | Self::NotStored(_)
            | Self::Ripe
            | Self::Evict
            | Self::Answered { .. } => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_of_its_own_kind() {
        for (number, kind) in Event::KINDS.into_iter().enumerate() {
            assert_eq!(kind.kind(), kind);
            assert!(!Event::KINDS[..number].contains(&kind), "{kind:?} twice");
        }
    }

    #[test]
    fn what_a_page_does_not_tell_apart_is_of_one_kind() {
        let unwanted = Event::Invalidate {
            target: Target::Shared,
            wanted: false,
            ripe: true,
        };
        let data = Event::Data(Version::new(9));
        let invalid = Event::Refused(Refusal::Invalid);
        let denied = Event::NotStored(Refusal::Denied);
        for event in [unwanted, data, invalid, denied] {
            assert!(Event::KINDS.contains(&event.kind()), "{event:?}");
        }
    }
}
