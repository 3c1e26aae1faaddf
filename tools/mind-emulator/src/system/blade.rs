//! A compute blade: its page cache. What a fault asks for, what an invalidation takes, which page is evicted and how long
//! one stays are decided by the live blade's functions ([`step`], [`TwoQueue`], [`Residency`]).

use mind_common::{
    directory::{Target, Want},
    id::{BladeId, Connection},
    refusal::Refusal,
    serial::Version,
};
use mind_machines::compute::{
    Access, Config,
    eviction::TwoQueue,
    page::{Event, Page, Phase, Reaction, step},
    residency::Residency,
    retransmission::RoundTrip,
};

use super::pages::{Kind, Pages, State};
use crate::{modes::Protocol, trace::access::va};

/// A compute blade.
#[derive(Debug)]
pub(super) struct Blade {
    pub(super) id: BladeId,
    pub(super) pages: Pages,
    /// How long to pause after "busy".
    pub(super) trip: RoundTrip,
    config: Config,
    order: TwoQueue,
    residency: Residency,
    protocol: Protocol,
    /// Pages that take room.
    used: usize,
}

/// What became of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Given {
    /// It is gone.
    pub(super) is_dropped: bool,
    /// It was written back.
    pub(super) is_flushed: bool,
}

/// Pages that were evicted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Evicted {
    pub(super) pages: u64,
    /// How many of them were written back.
    pub(super) flushed: u64,
}

impl Blade {
    /// A blade whose cache has room for `capacity` pages.
    pub(super) fn new(id: BladeId, capacity: usize, protocol: Protocol) -> Self {
        let connection = Connection {
            blade: id,
            incarnation: 1,
        };
        let config = Config::new(connection, capacity);
        Self {
            id,
            pages: Pages::default(),
            trip: RoundTrip::new(config.timeout, u64::from(connection.to_qp())),
            order: TwoQueue::new(config.capacity),
            residency: Residency::new(config.residency),
            protocol,
            used: 0,
            config,
        }
    }

    /// The least time for which a page stays, in nanoseconds.
    pub(super) const fn least_residency(&self) -> u64 {
        self.config.residency.least
    }

    /// Pages that take room.
    #[cfg(test)]
    pub(super) const fn used(&self) -> usize {
        self.used
    }

    /// Evicts until there is room for a page and the reserve, as far as there is what may go. Whether there is room for
    /// the page.
    pub(super) fn make_room(&mut self, now: u64, evicted: &mut Evicted) -> bool {
        let wanted = (self.config.reserve + 1).min(self.config.capacity);
        while self.config.capacity - self.used < wanted {
            let pages = &self.pages;
            let victim = self.order.victim(|va| {
                let state = pages.get(crate::trace::access::page_of(va));
                matches!(state.kind(), Kind::Shared | Kind::Modified) && state.value() <= now
            });
            let Some(victim) = victim else {
                break;
            };
            let given = self.give(crate::trace::access::page_of(victim), &[Event::Evict], true);
            evicted.pages += 1;
            evicted.flushed += u64::from(given.is_flushed);
        }
        self.used < self.config.capacity
    }

    /// A thread faulted on a page for which no request is under way, and there is room: what to ask for, in the request of
    /// that number.
    pub(super) fn fault(&mut self, page: u32, is_write: bool, request: u32) -> Option<Want> {
        let state = self.pages.get(page);
        let access = if is_write {
            Access::Write
        } else {
            Access::Read
        };
        let (after, reactions) = step(at_rest(state.phase()), Event::Fault(access));
        let want = reactions.iter().find_map(|reaction| match reaction {
            Reaction::Request(want) => Some(want),
            _ => None,
        })?;
        let kind = match after.phase {
            Phase::Reading => Kind::Reading,
            Phase::Acquiring => Kind::Acquiring,
            Phase::Upgrading => Kind::Upgrading,
            _ => return None,
        };
        if state.kind() == Kind::Absent {
            self.used += 1;
        } else {
            self.order.touch(va(page));
        }
        self.pages
            .set(page, State::new(kind, state.is_dirty(), u64::from(request)));
        Some(want)
    }

    /// What a request was for has come.
    pub(super) fn install(&mut self, page: u32, now: u64) {
        let state = self.pages.get(page);
        let event = match state.kind() {
            Kind::Upgrading => Event::Granted,
            _ => Event::Data(Version::default()),
        };
        let (after, reactions) = step(at_rest(state.phase()), event);
        if reactions
            .iter()
            .any(|reaction| matches!(reaction, Reaction::Install { .. }))
        {
            self.order.insert(va(page));
        }
        let until = now.saturating_add(self.residency.on_install(va(page), now));
        let kind = match after.phase {
            Phase::Modified => Kind::Modified,
            _ => Kind::Shared,
        };
        self.pages.set(page, State::new(kind, false, until));
    }

    /// Lets a page that may be read be written, without asking.
    pub(super) fn write_silently(&mut self, page: u32) {
        let until = self.pages.get(page).value();
        self.pages
            .set(page, State::new(Kind::Modified, false, until));
    }

    /// A page's region is invalidated, and the page's residency is over. No request for the page is under way, but for
    /// one that was told "busy".
    pub(super) fn invalidate(
        &mut self,
        page: u32,
        target: Target,
        is_wanted: bool,
        now: u64,
    ) -> Given {
        let state = self.pages.get(page);
        let is_owners = self.protocol == Protocol::Moesi && state.is_dirty();
        if is_owners && target == Target::Shared {
            // It keeps what it has written, to forward it.
            if state.kind() == Kind::Modified {
                self.residency.on_given(va(page), now);
                self.pages
                    .set(page, State::new(Kind::Shared, true, state.value()));
            }
            return Given::default();
        }
        if is_owners && is_wanted {
            // The requester gets it with what was written.
            self.pages
                .set(page, State::new(Kind::Shared, false, state.value()));
        }
        let invalidate = Event::Invalidate {
            target,
            wanted: is_wanted,
            residency_over: true,
        };
        let given = match state.kind() {
            // It is given up with the request.
            Kind::Upgrading => self.give(page, &[invalidate, Event::Refused(Refusal::Busy)], false),
            _ => self.give(page, &[invalidate], false),
        };
        if given.is_dropped || given.is_flushed {
            self.residency.on_given(va(page), now);
        }
        given
    }

    /// Carries events of a page out that take its copy, or a part of its permissions.
    fn give(&mut self, page: u32, events: &[Event], is_eviction: bool) -> Given {
        let state = self.pages.get(page);
        let mut now = at_rest(match state.is_dirty() {
            true => Phase::Modified,
            false => state.phase(),
        });
        let mut given = Given::default();
        for event in events {
            let mut next = Some(*event);
            while let Some(event) = next {
                let (after, reactions) = step(now, event);
                for reaction in reactions.iter() {
                    given.is_flushed |= reaction == Reaction::WriteBack;
                    given.is_dropped |= reaction == Reaction::Drop;
                }
                now = after;
                next = match after.phase {
                    // Memory has what was written.
                    Phase::Cleaning { .. } => Some(Event::Stored),
                    Phase::Leaving => Some(Event::Answered { more: false }),
                    _ => None,
                };
            }
        }
        match now.phase {
            Phase::Absent => {
                self.order.remove(va(page), is_eviction);
                self.used -= usize::from(state.kind() != Kind::Absent);
                self.pages.set(page, State::ABSENT);
            }
            Phase::Shared => self
                .pages
                .set(page, State::new(Kind::Shared, false, state.value())),
            _ => {}
        }
        given
    }
}

/// A page of which nothing is owed, and which no thread waits for.
fn at_rest(phase: Phase) -> Page {
    Page {
        phase,
        ..Page::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blade(capacity: usize, protocol: Protocol) -> Blade {
        Blade::new(BladeId::from_low_bits(0), capacity, protocol)
    }

    fn filled(blade: &mut Blade, page: u32, is_write: bool) {
        assert!(blade.make_room(1_000_000, &mut Evicted::default()));
        assert!(blade.fault(page, is_write, 0).is_some());
        blade.install(page, 0);
    }

    const DROPPED: Given = Given {
        is_dropped: true,
        is_flushed: false,
    };
    const FLUSHED: Given = Given {
        is_dropped: false,
        is_flushed: true,
    };
    const BOTH: Given = Given {
        is_dropped: true,
        is_flushed: true,
    };

    #[test]
    fn what_a_fault_asks_for_depends_on_what_is_there() {
        let mut blade = blade(100, Protocol::Msi);
        assert_eq!(blade.fault(1, false, 7), Some(Want::Read));
        assert_eq!(blade.pages.get(1), State::new(Kind::Reading, false, 7));
        blade.install(1, 0);
        assert_eq!(blade.fault(1, true, 8), Some(Want::Upgrade));
        blade.install(1, 0);
        assert_eq!(blade.pages.get(1).kind(), Kind::Modified);
        assert_eq!(blade.fault(2, true, 9), Some(Want::Acquire));
        assert_eq!(blade.fault(1, true, 9), None);
    }

    #[test]
    fn an_invalidation_takes_what_it_is_to_take() {
        for (protocol, is_write, target, is_wanted, expected) in [
            (Protocol::Msi, false, Target::Invalid, false, DROPPED),
            (Protocol::Msi, false, Target::Shared, true, Given::default()),
            (Protocol::Msi, true, Target::Invalid, false, BOTH),
            (Protocol::Msi, true, Target::Invalid, true, BOTH),
            (Protocol::Msi, true, Target::Shared, true, FLUSHED),
            (Protocol::Moesi, true, Target::Invalid, false, BOTH),
            (Protocol::Moesi, true, Target::Invalid, true, DROPPED),
            (
                Protocol::Moesi,
                true,
                Target::Shared,
                true,
                Given::default(),
            ),
            (Protocol::Moesi, false, Target::Invalid, true, DROPPED),
        ] {
            let mut blade = blade(100, protocol);
            filled(&mut blade, 5, is_write);
            let given = blade.invalidate(5, target, is_wanted, 1_000_000);
            assert_eq!(
                given, expected,
                "{protocol:?} {is_write} {target:?} {is_wanted}"
            );
            assert_eq!(blade.used(), usize::from(!given.is_dropped));
            let kept = if given.is_dropped {
                Kind::Absent
            } else {
                Kind::Shared
            };
            assert_eq!(blade.pages.get(5).kind(), kept);
        }
    }

    #[test]
    fn an_owner_writes_back_what_it_kept_when_it_gives_it_up() {
        let mut blade = blade(100, Protocol::Moesi);
        filled(&mut blade, 5, true);
        blade.invalidate(5, Target::Shared, true, 1_000_000);
        assert_eq!(blade.invalidate(5, Target::Invalid, false, 1_000_000), BOTH);
        filled(&mut blade, 5, true);
        blade.invalidate(5, Target::Shared, true, 1_000_000);
        assert_eq!(blade.fault(5, true, 3), Some(Want::Upgrade));
        assert_eq!(blade.invalidate(5, Target::Invalid, false, 1_000_000), BOTH);
    }

    #[test]
    fn an_upgrade_that_was_put_off_gives_its_copy_up() {
        let mut blade = blade(100, Protocol::Msi);
        filled(&mut blade, 5, false);
        assert_eq!(blade.fault(5, true, 3), Some(Want::Upgrade));
        assert_eq!(
            blade.invalidate(5, Target::Invalid, false, 1_000_000),
            DROPPED
        );
        assert_eq!((blade.pages.get(5).kind(), blade.used()), (Kind::Absent, 0));
    }

    #[test]
    fn room_is_made_by_what_may_go() {
        let mut blade = blade(4, Protocol::Msi);
        for page in 0..4 {
            filled(&mut blade, page, page < 2);
        }
        let mut evicted = Evicted::default();
        assert!(
            !blade.make_room(0, &mut evicted),
            "all pages have just come"
        );
        assert!(blade.make_room(1_000_000, &mut evicted));
        assert_eq!((evicted.pages, evicted.flushed, blade.used()), (1, 1, 3));
    }
}
