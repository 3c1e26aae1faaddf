//! One page of a compute blade's cache: a pure function from a page's state and an event to the
//! next state and what is to be done. Everything that concerns more than one page (regions,
//! sequence numbers, time, room) is in [`super::machine`].
//!
//! Why it is correct:
//!
//! * A blade answers an invalidation only when none of its requests for the region can have been
//!   granted before it: each has completed or was given up (its answer, should it still come,
//!   carries a number that is no longer in use). A request that is refused as "busy" was not
//!   granted, so it is given up when another blade wants the region; otherwise two blades would
//!   wait for each other.
//! * A page is protected before it is read for a write-back, and stays so until memory has
//!   acknowledged it; the invalidation is answered after that.
//! * From the moment an invalidation arrives until it is answered, a page makes no new request
//!   (`answering`): the directory would refuse it as "busy".

use mind_common::{
    directory::{Target, Want},
    refusal::Refusal,
    serial::Version,
};

/// What a thread wants of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// To read it.
    Read,
    /// To write it.
    Write,
}

/// The state of a page on this blade.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// No copy, no request.
    #[default]
    Absent,
    /// No copy; a READ is under way.
    Reading,
    /// No copy; an ACQUIRE is under way.
    Acquiring,
    /// A copy that programs may read; memory has the same.
    Shared,
    /// The same, and an UPGRADE is under way.
    Upgrading,
    /// A copy that programs may write.
    Modified,
    /// A copy that programs may read; its write-back is under way.
    Cleaning {
        /// Whether the copy goes when that is done, to make room.
        evicting: bool,
    },
    /// A copy that programs may read, memory has the same; it stays only until the answer to the
    /// invalidation has forwarded it.
    Leaving,
}

impl Phase {
    /// One of each.
    pub const ALL: [Self; 9] = [
        Self::Absent,
        Self::Reading,
        Self::Acquiring,
        Self::Shared,
        Self::Upgrading,
        Self::Modified,
        Self::Cleaning { evicting: false },
        Self::Cleaning { evicting: true },
        Self::Leaving,
    ];

    /// Whether the page takes room in the cache, or will when its request is answered.
    pub const fn takes_room(self) -> bool {
        !matches!(self, Self::Absent)
    }

    /// Whether there is a copy that equals what memory has.
    pub const fn is_clean_copy(self) -> bool {
        matches!(self, Self::Shared | Self::Upgrading | Self::Leaving)
    }
}

/// What invalidations still demand of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owed {
    /// What may be left on the blade.
    pub target: Target,
    /// Whether it is the page that the requester waits for.
    pub wanted: bool,
}

/// A page on this blade.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Page {
    /// Its phase.
    pub phase: Phase,
    /// The version of the copy.
    pub version: Version,
    /// What invalidations still demand.
    pub owed: Option<Owed>,
    /// The strongest access that threads wait for.
    pub waiting: Option<Access>,
    /// An invalidation of its region is not answered yet.
    pub answering: bool,
}

/// An event of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A thread faulted. Of an absent page only when there is room for it.
    Fault(Access),
    /// The page came, of this version.
    Data(Version),
    /// The request was granted without the page.
    Granted,
    /// The request was refused, or (as [`Refusal::Unreachable`]) went unanswered for too long.
    Refused(Refusal),
    /// The write-back is in memory.
    Stored,
    /// The write-back was refused.
    NotStored(Refusal),
    /// Its region is invalidated.
    Invalidate {
        /// What may be left on the blade.
        target: Target,
        /// Whether it is the page that the requester waits for.
        wanted: bool,
        /// Whether its residency is over.
        residency_over: bool,
    },
    /// Its residency is over.
    ResidencyOver,
    /// Its room is needed.
    Evict,
    /// An invalidation of its region was answered.
    Answered {
        /// Whether others are still to be answered.
        more: bool,
    },
}

/// What is to be done, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reaction {
    /// Send a request with a number of its own.
    Request(Want),
    /// Send the request that is under way again, after a pause.
    Retry,
    /// End the request that is under way: its answer is ignored from now on.
    Abandon,
    /// Put the bytes that just came into the cache and let waiting threads go on.
    Install {
        /// Whether programs may write it.
        writable: bool,
    },
    /// Let programs use the copy that is there, and waiting threads go on.
    Map {
        /// Whether they may write it.
        writable: bool,
    },
    /// Take the permission to write from every program.
    Protect,
    /// Send the copy to memory, as the next version.
    WriteBack,
    /// Unmap the copy from every program and discard it.
    Drop,
    /// The access that threads wait for fails.
    Fail(Access, Refusal),
    /// The copy could not be written back, and the writes to it are lost.
    Lost,
}

/// At most four reactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reactions {
    list: [Option<Reaction>; 4],
}

impl Reactions {
    const NONE: Self = Self { list: [None; 4] };

    const fn and(mut self, reaction: Reaction) -> Self {
        let mut at = 0;
        while self.list[at].is_some() {
            at += 1;
        }
        self.list[at] = Some(reaction);
        self
    }

    /// In order.
    pub fn iter(self) -> impl Iterator<Item = Reaction> {
        self.list.into_iter().flatten()
    }
}

#[cfg(feature = "mutants")]
impl FromIterator<Reaction> for Reactions {
    /// # Panics
    ///
    /// If there are more than four.
    fn from_iter<I: IntoIterator<Item = Reaction>>(reactions: I) -> Self {
        reactions.into_iter().fold(Self::NONE, Self::and)
    }
}

const fn just(reaction: Reaction) -> Reactions {
    Reactions::NONE.and(reaction)
}

const fn more_of(a: Option<Access>, b: Access) -> Option<Access> {
    match (a, b) {
        (Some(Access::Write), _) | (_, Access::Write) => Some(Access::Write),
        _ => Some(Access::Read),
    }
}

const fn owed_too(owed: Option<Owed>, target: Target, wanted: bool) -> Option<Owed> {
    let (target, wanted) = match owed {
        None => (target, wanted),
        Some(before) => (
            match (before.target, target) {
                (Target::Shared, Target::Shared) => Target::Shared,
                _ => Target::Invalid,
            },
            before.wanted || wanted,
        ),
    };
    Some(Owed { target, wanted })
}

impl Page {
    const fn is(mut self, phase: Phase) -> Self {
        self.phase = phase;
        self
    }

    const fn no_longer_owes(mut self) -> Self {
        self.owed = None;
        self
    }

    const fn satisfied(mut self) -> Self {
        self.waiting = None;
        self
    }

    const fn wanted_for(mut self, access: Access) -> Self {
        self.waiting = more_of(self.waiting, access);
        self
    }

    const fn of_version(mut self, version: Version) -> Self {
        self.version = version;
        self
    }

    const fn owing(mut self, target: Target, wanted: bool) -> Self {
        self.owed = owed_too(self.owed, target, wanted);
        self.answering = true;
        self
    }

    const fn asked(mut self) -> Self {
        self.answering = true;
        self
    }

    /// Requests permission to write the copy, if a thread waits for that and no invalidation is to
    /// be answered first.
    const fn upgraded_if_wanted(self, before: Reactions) -> (Self, Reactions) {
        match self.waiting {
            Some(Access::Write) if self.owed.is_none() && !self.answering => (
                self.is(Phase::Upgrading),
                before.and(Reaction::Request(Want::Upgrade)),
            ),
            Some(Access::Write) | None => (self, before),
            Some(Access::Read) => (self.satisfied(), before),
        }
    }

    /// Begins the write-back.
    const fn cleaned(self, evicting: bool) -> (Self, Reactions) {
        (
            self.is(Phase::Cleaning { evicting }),
            just(Reaction::Protect).and(Reaction::WriteBack),
        )
    }

    /// Satisfies what invalidations demand of a clean copy.
    const fn settled(self, before: Reactions) -> (Self, Reactions) {
        match self.owed {
            Some(Owed {
                target: Target::Invalid,
                ..
            }) => (
                self.is(Phase::Absent).no_longer_owes(),
                before.and(Reaction::Drop),
            ),
            Some(Owed {
                target: Target::Shared,
                ..
            }) => (self.is(Phase::Shared).no_longer_owes(), before),
            None => (self.is(Phase::Shared), before),
        }
    }

    /// Ends a request for a page that is not here, without it. A thread that waits makes the
    /// machine ask again, when there is time and room.
    const fn without_copy(self, reactions: Reactions) -> (Self, Reactions) {
        (self.is(Phase::Absent).no_longer_owes(), reactions)
    }

    /// The request is refused for good.
    const fn failed(self, access: Access, refusal: Refusal) -> (Self, Reactions) {
        let reactions = just(Reaction::Fail(access, refusal));
        match self.phase {
            Phase::Upgrading => self.satisfied().settled(reactions),
            _ => self.satisfied().without_copy(reactions),
        }
    }
}

/// What becomes of `page`, and what is to be done, when `event` happens.
///
/// Total: an event that has no meaning in a page's phase leaves the page as it is.
pub const fn step(page: Page, event: Event) -> (Page, Reactions) {
    const NOTHING: Reactions = Reactions::NONE;
    match (page.phase, event) {
        (Phase::Absent, Event::Fault(access)) => {
            let page = page.wanted_for(access);
            if page.answering {
                return (page, NOTHING);
            }
            match page.waiting {
                Some(Access::Write) => (
                    page.is(Phase::Acquiring),
                    just(Reaction::Request(Want::Acquire)),
                ),
                _ => (page.is(Phase::Reading), just(Reaction::Request(Want::Read))),
            }
        }
        (Phase::Absent, Event::Invalidate { .. }) => (page.asked(), NOTHING),

        (Phase::Reading | Phase::Acquiring, Event::Fault(access)) => {
            (page.wanted_for(access), NOTHING)
        }
        // A reader's copy outlives an invalidation that leaves shared copies.
        (
            Phase::Reading,
            Event::Invalidate {
                target: Target::Shared,
                ..
            },
        ) => (page.asked(), NOTHING),
        (
            Phase::Reading | Phase::Acquiring | Phase::Upgrading | Phase::Cleaning { .. },
            Event::Invalidate { target, wanted, .. },
        ) => (page.owing(target, wanted), NOTHING),

        (Phase::Reading, Event::Data(version)) => page
            .is(Phase::Shared)
            .of_version(version)
            .upgraded_if_wanted(just(Reaction::Install { writable: false })),
        (Phase::Acquiring, Event::Data(version)) => (
            page.is(Phase::Modified).of_version(version).satisfied(),
            just(Reaction::Install { writable: true }),
        ),
        // No blade could write while this blade had its copy: what memory sent is the same.
        (Phase::Upgrading, Event::Data(_) | Event::Granted) => (
            page.is(Phase::Modified).satisfied(),
            just(Reaction::Map { writable: true }),
        ),
        // This blade owns the region, and fetches the page next; unless an invalidation arrived
        // meanwhile.
        (Phase::Acquiring, Event::Granted) => match page.owed {
            Some(_) => page.without_copy(NOTHING),
            None => (page, just(Reaction::Request(Want::Acquire))),
        },

        (Phase::Reading | Phase::Acquiring | Phase::Upgrading, Event::Refused(Refusal::Busy)) => {
            match (page.owed, page.phase) {
                (None, _) => (page, just(Reaction::Retry)),
                (Some(_), Phase::Upgrading) => page.settled(just(Reaction::Abandon)),
                (Some(_), _) => page.without_copy(just(Reaction::Abandon)),
            }
        }
        (Phase::Upgrading, Event::Refused(Refusal::NoCopy)) => {
            page.without_copy(just(Reaction::Drop))
        }
        (Phase::Reading, Event::Refused(refusal)) => page.failed(Access::Read, refusal),
        (Phase::Acquiring | Phase::Upgrading, Event::Refused(refusal)) => {
            page.failed(Access::Write, refusal)
        }

        (Phase::Upgrading | Phase::Shared, Event::Fault(Access::Read)) => {
            (page, just(Reaction::Map { writable: false }))
        }
        (Phase::Upgrading, Event::Fault(Access::Write)) => {
            (page.wanted_for(Access::Write), NOTHING)
        }
        (Phase::Shared, Event::Fault(Access::Write)) => {
            page.wanted_for(Access::Write).upgraded_if_wanted(NOTHING)
        }
        (
            Phase::Shared,
            Event::Invalidate {
                target: Target::Shared,
                ..
            },
        ) => (page.asked(), NOTHING),
        (
            Phase::Shared,
            Event::Invalidate {
                target: Target::Invalid,
                wanted,
                residency_over,
            },
        ) => {
            let page = page.owing(Target::Invalid, wanted);
            if residency_over {
                page.settled(NOTHING)
            } else {
                (page, NOTHING)
            }
        }
        (Phase::Shared, Event::ResidencyOver) if page.owed.is_some() => page.settled(NOTHING),
        (Phase::Shared, Event::Evict) => page.without_copy(just(Reaction::Drop)),

        (Phase::Modified, Event::Fault(_)) => (page, just(Reaction::Map { writable: true })),
        (
            Phase::Modified,
            Event::Invalidate {
                target,
                wanted,
                residency_over,
            },
        ) => {
            let page = page.owing(target, wanted);
            if residency_over {
                page.cleaned(false)
            } else {
                (page, NOTHING)
            }
        }
        (Phase::Modified, Event::ResidencyOver) if page.owed.is_some() => page.cleaned(false),
        (Phase::Modified, Event::Evict) => page.cleaned(page.owed.is_none()),

        // A fault on a page that is being evicted keeps it in the cache.
        (Phase::Cleaning { .. }, Event::Fault(Access::Read)) => (
            page.is(Phase::Cleaning { evicting: false }),
            just(Reaction::Map { writable: false }),
        ),
        (Phase::Cleaning { .. }, Event::Fault(Access::Write)) => (
            page.is(Phase::Cleaning { evicting: false })
                .wanted_for(Access::Write),
            NOTHING,
        ),
        (Phase::Cleaning { evicting: false }, Event::Evict)
            if page.waiting.is_none() && page.owed.is_none() =>
        {
            (page.is(Phase::Cleaning { evicting: true }), NOTHING)
        }
        (Phase::Cleaning { evicting }, Event::Stored) => {
            let page = page.of_version(page.version.next());
            match page.owed {
                Some(Owed {
                    target: Target::Invalid,
                    wanted: true,
                }) => (page.is(Phase::Leaving).no_longer_owes(), NOTHING),
                Some(_) => page.settled(NOTHING),
                None if evicting => page.without_copy(just(Reaction::Drop)),
                None => page.is(Phase::Shared).upgraded_if_wanted(NOTHING),
            }
        }
        (Phase::Cleaning { .. }, Event::NotStored(Refusal::Busy)) => (page, just(Reaction::Retry)),
        (Phase::Cleaning { .. }, Event::NotStored(_)) => {
            page.without_copy(just(Reaction::Lost).and(Reaction::Drop))
        }

        (Phase::Leaving, Event::Fault(access)) => (page.wanted_for(access), NOTHING),
        (Phase::Leaving, Event::Invalidate { .. }) => (page.asked(), NOTHING),

        (phase, Event::Answered { more }) => {
            let page = Page {
                answering: more,
                ..page
            };
            match phase {
                Phase::Leaving => page.without_copy(just(Reaction::Drop)),
                Phase::Shared => page.upgraded_if_wanted(NOTHING),
                _ => (page, NOTHING),
            }
        }

        (
            Phase::Absent,
            Event::Data(_)
            | Event::Granted
            | Event::Refused(_)
            | Event::Stored
            | Event::NotStored(_)
            | Event::ResidencyOver
            | Event::Evict,
        )
        | (
            Phase::Reading,
            Event::Granted
            | Event::Stored
            | Event::NotStored(_)
            | Event::ResidencyOver
            | Event::Evict,
        )
        | (
            Phase::Acquiring | Phase::Upgrading,
            Event::Stored | Event::NotStored(_) | Event::ResidencyOver | Event::Evict,
        )
        | (
            Phase::Shared | Phase::Modified,
            Event::Data(_)
            | Event::Granted
            | Event::Refused(_)
            | Event::Stored
            | Event::NotStored(_)
            | Event::ResidencyOver,
        )
        | (
            Phase::Cleaning { .. },
            Event::Data(_)
            | Event::Granted
            | Event::Refused(_)
            | Event::ResidencyOver
            | Event::Evict,
        )
        | (
            Phase::Leaving,
            Event::Data(_)
            | Event::Granted
            | Event::Refused(_)
            | Event::Stored
            | Event::NotStored(_)
            | Event::ResidencyOver
            | Event::Evict,
        ) => (page, NOTHING),
    }
}
