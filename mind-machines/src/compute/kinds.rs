//! The kinds of events of a page: which events tables and counts distinguish.

use super::page::{Access, Event};
use mind_common::{directory::Target, refusal::Refusal, serial::Version};

const fn invalidate(target: Target, residency_over: bool) -> Event {
    Event::Invalidate {
        target,
        wanted: true,
        residency_over,
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
        Self::ResidencyOver,
        Self::Evict,
        Self::Answered { more: false },
        Self::Answered { more: true },
    ];

    /// The one of [`KINDS`](Self::KINDS) that it is.
    #[must_use]
    pub const fn kind(self) -> Self {
        match self {
            Self::Data(_) => Self::Data(Version::new(0)),
            // Final refusals, which have the same effect on a page.
            Self::Refused(Refusal::Denied | Refusal::Invalid | Refusal::Stale) => {
                Self::Refused(Refusal::Denied)
            }
            Self::NotStored(
                Refusal::NoCopy | Refusal::Denied | Refusal::Invalid | Refusal::Stale,
            ) => Self::NotStored(Refusal::Stale),
            Self::Invalidate {
                target,
                residency_over,
                ..
            } => invalidate(target, residency_over),
            Self::Fault(_)
            | Self::Granted
            | Self::Refused(_)
            | Self::Stored
            | Self::NotStored(_)
            | Self::ResidencyOver
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
            residency_over: true,
        };
        let data = Event::Data(Version::new(9));
        let invalid = Event::Refused(Refusal::Invalid);
        let denied = Event::NotStored(Refusal::Denied);
        for event in [unwanted, data, invalid, denied] {
            assert!(Event::KINDS.contains(&event.kind()), "{event:?}");
        }
    }
}
