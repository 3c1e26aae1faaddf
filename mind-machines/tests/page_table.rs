//! Every (phase, event) pair of a page on a compute blade, with its expected outcome.
//!
//! A row is a page, an event, and what must come of it. Events without meaning in a phase are
//! listed, too; the last test checks that no pair is missing.

use std::collections::HashSet;

use mind_common::{
    directory::{Target, Want},
    refusal::Refusal,
    serial::Version,
};
use mind_machines::compute::{
    Access,
    page::{Event, Owed, Page, Phase, Reaction, step},
};

const ABSENT: Phase = Phase::Absent;
const READING: Phase = Phase::Reading;
const ACQUIRING: Phase = Phase::Acquiring;
const SHARED: Phase = Phase::Shared;
const UPGRADING: Phase = Phase::Upgrading;
const MODIFIED: Phase = Phase::Modified;
const CLEANING: Phase = Phase::Cleaning { evicting: false };
const EVICTING: Phase = Phase::Cleaning { evicting: true };
const LEAVING: Phase = Phase::Leaving;

const READ: Event = Event::Fault(Access::Read);
const WRITE: Event = Event::Fault(Access::Write);
const DATA: Event = Event::Data(Version::new(40));
const BUSY: Event = Event::Refused(Refusal::Busy);
const NO_COPY: Event = Event::Refused(Refusal::NoCopy);
const DENIED: Event = Event::Refused(Refusal::Denied);
const NOT_NOW: Event = Event::NotStored(Refusal::Busy);
const NOT_STORED: Event = Event::NotStored(Refusal::Stale);
const ANSWERED: Event = Event::Answered { more: false };
const ONE_ANSWERED: Event = Event::Answered { more: true };

const fn invalidate(target: Target, residency_over: bool) -> Event {
    Event::Invalidate {
        target,
        wanted: true,
        residency_over,
    }
}
const TAKE: Event = invalidate(Target::Invalid, true);
const TAKE_TOO_SOON: Event = invalidate(Target::Invalid, false);
const SHARE: Event = invalidate(Target::Shared, true);
const SHARE_TOO_SOON: Event = invalidate(Target::Shared, false);

/// A page of version 30.
fn at(phase: Phase) -> Page {
    Page {
        phase,
        version: Version::new(30),
        ..Page::default()
    }
}

/// Builds a row's page step by step.
trait Written {
    fn v(self, version: u32) -> Self;
    fn owes(self, target: Target) -> Self;
    fn unwanted(self) -> Self;
    fn reader(self) -> Self;
    fn writer(self) -> Self;
    fn answering(self) -> Self;
}

impl Written for Page {
    fn v(mut self, version: u32) -> Self {
        self.version = Version::new(version);
        self
    }
    fn owes(mut self, target: Target) -> Self {
        self.owed = Some(Owed {
            target,
            wanted: true,
        });
        self.answering = true;
        self
    }
    fn unwanted(mut self) -> Self {
        if let Some(owed) = &mut self.owed {
            owed.wanted = false;
        }
        self
    }
    fn reader(mut self) -> Self {
        self.waiting = Some(Access::Read);
        self
    }
    fn writer(mut self) -> Self {
        self.waiting = Some(Access::Write);
        self
    }
    fn answering(mut self) -> Self {
        self.answering = true;
        self
    }
}

struct Row {
    before: Page,
    event: Event,
    after: Page,
    reactions: Vec<Reaction>,
}

fn rows() -> Vec<Row> {
    use Access::Write;
    use Reaction::{Abandon, Drop, Fail, Install, Lost, Map, Protect, Request, Retry, WriteBack};
    use Target::{Invalid, Shared};

    let mut rows = Vec::new();
    let mut row = |before: Page, event, after: Page, reactions: &[Reaction]| {
        rows.push(Row {
            before,
            event,
            after,
            reactions: reactions.to_vec(),
        });
    };
    let unreachable = Event::Refused(Refusal::Unreachable);
    let fail = |access| Fail(access, Refusal::Denied);
    let expire = |access| Fail(access, Refusal::Unreachable);
    const RO: bool = false;
    const RW: bool = true;
    let map = |writable| Map { writable };
    let install = |writable| Install { writable };

    // Absent: a fault asks, unless the region's invalidation is still to be answered.
    row(
        at(ABSENT),
        READ,
        at(READING).reader(),
        &[Request(Want::Read)],
    );
    row(
        at(ABSENT),
        WRITE,
        at(ACQUIRING).writer(),
        &[Request(Want::Acquire)],
    );
    row(
        at(ABSENT).writer(),
        READ,
        at(ACQUIRING).writer(),
        &[Request(Want::Acquire)],
    );
    for (event, waiting) in [
        (READ, at(ABSENT).reader().answering()),
        (WRITE, at(ABSENT).writer().answering()),
    ] {
        row(at(ABSENT).answering(), event, waiting, &[]);
    }
    for event in [TAKE, TAKE_TOO_SOON, SHARE, SHARE_TOO_SOON] {
        row(at(ABSENT), event, at(ABSENT).answering(), &[]);
    }
    row(
        at(ABSENT).answering(),
        ONE_ANSWERED,
        at(ABSENT).answering(),
        &[],
    );
    row(
        at(ABSENT).answering().writer(),
        ANSWERED,
        at(ABSENT).writer(),
        &[],
    );

    // Reading.
    row(at(READING).reader(), READ, at(READING).reader(), &[]);
    row(at(READING).reader(), WRITE, at(READING).writer(), &[]);
    row(at(READING).reader(), DATA, at(SHARED).v(40), &[install(RO)]);
    row(
        at(READING).writer(),
        DATA,
        at(UPGRADING).v(40).writer(),
        &[install(RO), Request(Want::Upgrade)],
    );
    // Installed for the reader; the writer's turn comes after the answer.
    row(
        at(READING).writer().owes(Invalid),
        DATA,
        at(SHARED).v(40).writer().owes(Invalid),
        &[install(RO)],
    );
    row(at(READING).reader(), BUSY, at(READING).reader(), &[Retry]);
    row(
        at(READING).reader().owes(Invalid),
        BUSY,
        at(ABSENT).reader().answering(),
        &[Abandon],
    );
    row(
        at(READING).reader(),
        NO_COPY,
        at(ABSENT),
        &[Fail(Access::Read, Refusal::NoCopy)],
    );
    row(
        at(READING).reader(),
        DENIED,
        at(ABSENT),
        &[fail(Access::Read)],
    );
    row(
        at(READING).reader(),
        unreachable,
        at(ABSENT),
        &[expire(Access::Read)],
    );
    row(
        at(READING).owes(Invalid),
        DENIED,
        at(ABSENT).answering(),
        &[fail(Access::Read)],
    );
    for event in [TAKE, TAKE_TOO_SOON] {
        row(at(READING), event, at(READING).owes(Invalid), &[]);
    }
    for event in [SHARE, SHARE_TOO_SOON] {
        row(at(READING), event, at(READING).answering(), &[]);
    }
    row(at(READING).answering(), ANSWERED, at(READING), &[]);
    row(at(READING), ONE_ANSWERED, at(READING).answering(), &[]);

    // Acquiring.
    row(at(ACQUIRING).writer(), READ, at(ACQUIRING).writer(), &[]);
    row(at(ACQUIRING).writer(), WRITE, at(ACQUIRING).writer(), &[]);
    row(
        at(ACQUIRING).writer(),
        DATA,
        at(MODIFIED).v(40),
        &[install(RW)],
    );
    row(
        at(ACQUIRING).writer().owes(Shared),
        DATA,
        at(MODIFIED).v(40).owes(Shared),
        &[install(RW)],
    );
    row(
        at(ACQUIRING).writer(),
        Event::Granted,
        at(ACQUIRING).writer(),
        &[Request(Want::Acquire)],
    );
    row(
        at(ACQUIRING).writer().owes(Invalid),
        Event::Granted,
        at(ABSENT).writer().answering(),
        &[],
    );
    row(
        at(ACQUIRING).writer(),
        BUSY,
        at(ACQUIRING).writer(),
        &[Retry],
    );
    row(
        at(ACQUIRING).writer().owes(Shared),
        BUSY,
        at(ABSENT).writer().answering(),
        &[Abandon],
    );
    row(
        at(ACQUIRING).writer(),
        NO_COPY,
        at(ABSENT),
        &[Fail(Write, Refusal::NoCopy)],
    );
    row(at(ACQUIRING).writer(), DENIED, at(ABSENT), &[fail(Write)]);
    row(
        at(ACQUIRING).writer(),
        unreachable,
        at(ABSENT),
        &[expire(Write)],
    );
    for event in [TAKE, TAKE_TOO_SOON] {
        row(at(ACQUIRING), event, at(ACQUIRING).owes(Invalid), &[]);
        // The stricter of two invalidations counts.
        row(
            at(ACQUIRING).owes(Shared),
            event,
            at(ACQUIRING).owes(Invalid),
            &[],
        );
    }
    for event in [SHARE, SHARE_TOO_SOON] {
        row(at(ACQUIRING), event, at(ACQUIRING).owes(Shared), &[]);
        row(
            at(ACQUIRING).owes(Invalid),
            event,
            at(ACQUIRING).owes(Invalid),
            &[],
        );
    }
    row(at(ACQUIRING).answering(), ANSWERED, at(ACQUIRING), &[]);
    row(at(ACQUIRING), ONE_ANSWERED, at(ACQUIRING).answering(), &[]);

    // Upgrading: as acquiring, with a copy that readers use meanwhile.
    row(
        at(UPGRADING).writer(),
        READ,
        at(UPGRADING).writer(),
        &[map(RO)],
    );
    row(at(UPGRADING).writer(), WRITE, at(UPGRADING).writer(), &[]);
    for event in [DATA, Event::Granted] {
        row(at(UPGRADING).writer(), event, at(MODIFIED), &[map(RW)]);
        row(
            at(UPGRADING).writer().owes(Invalid),
            event,
            at(MODIFIED).owes(Invalid),
            &[map(RW)],
        );
    }
    row(
        at(UPGRADING).writer(),
        BUSY,
        at(UPGRADING).writer(),
        &[Retry],
    );
    row(
        at(UPGRADING).writer().owes(Invalid),
        BUSY,
        at(ABSENT).writer().answering(),
        &[Abandon, Drop],
    );
    row(
        at(UPGRADING).writer().owes(Shared),
        BUSY,
        at(SHARED).writer().answering(),
        &[Abandon],
    );
    row(
        at(UPGRADING).writer(),
        NO_COPY,
        at(ABSENT).writer(),
        &[Drop],
    );
    row(
        at(UPGRADING).writer().owes(Invalid),
        NO_COPY,
        at(ABSENT).writer().answering(),
        &[Drop],
    );
    row(at(UPGRADING).writer(), DENIED, at(SHARED), &[fail(Write)]);
    row(
        at(UPGRADING).writer().owes(Invalid),
        DENIED,
        at(ABSENT).answering(),
        &[fail(Write), Drop],
    );
    row(
        at(UPGRADING).writer(),
        unreachable,
        at(SHARED),
        &[expire(Write)],
    );
    for event in [TAKE, TAKE_TOO_SOON] {
        row(at(UPGRADING), event, at(UPGRADING).owes(Invalid), &[]);
    }
    for event in [SHARE, SHARE_TOO_SOON] {
        row(at(UPGRADING), event, at(UPGRADING).owes(Shared), &[]);
    }
    row(at(UPGRADING).answering(), ANSWERED, at(UPGRADING), &[]);
    row(at(UPGRADING), ONE_ANSWERED, at(UPGRADING).answering(), &[]);

    // Shared.
    row(at(SHARED), READ, at(SHARED), &[map(RO)]);
    row(
        at(SHARED),
        WRITE,
        at(UPGRADING).writer(),
        &[Request(Want::Upgrade)],
    );
    row(
        at(SHARED).answering(),
        WRITE,
        at(SHARED).writer().answering(),
        &[],
    );
    row(at(SHARED), TAKE, at(ABSENT).answering(), &[Drop]);
    row(at(SHARED), TAKE_TOO_SOON, at(SHARED).owes(Invalid), &[]);
    for event in [SHARE, SHARE_TOO_SOON] {
        row(at(SHARED), event, at(SHARED).answering(), &[]);
    }
    row(
        at(SHARED).owes(Invalid),
        Event::ResidencyOver,
        at(ABSENT).answering(),
        &[Drop],
    );
    row(at(SHARED), Event::ResidencyOver, at(SHARED), &[]);
    row(at(SHARED), Event::Evict, at(ABSENT), &[Drop]);
    row(at(SHARED).answering(), ANSWERED, at(SHARED), &[]);
    row(
        at(SHARED).writer().answering(),
        ANSWERED,
        at(UPGRADING).writer(),
        &[Request(Want::Upgrade)],
    );
    row(
        at(SHARED).writer().answering(),
        ONE_ANSWERED,
        at(SHARED).writer().answering(),
        &[],
    );

    // Modified: protected before it is written back.
    row(at(MODIFIED), READ, at(MODIFIED), &[map(RW)]);
    row(at(MODIFIED), WRITE, at(MODIFIED), &[map(RW)]);
    row(
        at(MODIFIED),
        TAKE,
        at(CLEANING).owes(Invalid),
        &[Protect, WriteBack],
    );
    row(
        at(MODIFIED),
        SHARE,
        at(CLEANING).owes(Shared),
        &[Protect, WriteBack],
    );
    row(at(MODIFIED), TAKE_TOO_SOON, at(MODIFIED).owes(Invalid), &[]);
    row(at(MODIFIED), SHARE_TOO_SOON, at(MODIFIED).owes(Shared), &[]);
    row(
        at(MODIFIED).owes(Invalid),
        Event::ResidencyOver,
        at(CLEANING).owes(Invalid),
        &[Protect, WriteBack],
    );
    row(at(MODIFIED), Event::ResidencyOver, at(MODIFIED), &[]);
    row(
        at(MODIFIED),
        Event::Evict,
        at(EVICTING),
        &[Protect, WriteBack],
    );
    row(
        at(MODIFIED).owes(Shared),
        Event::Evict,
        at(CLEANING).owes(Shared),
        &[Protect, WriteBack],
    );
    row(at(MODIFIED).answering(), ANSWERED, at(MODIFIED), &[]);
    row(at(MODIFIED), ONE_ANSWERED, at(MODIFIED).answering(), &[]);

    // A write-back under way: nothing is given up before memory has it.
    for phase in [CLEANING, EVICTING] {
        row(at(phase), READ, at(CLEANING), &[map(RO)]);
        row(at(phase), WRITE, at(CLEANING).writer(), &[]);
        for event in [TAKE, TAKE_TOO_SOON] {
            row(at(phase), event, at(phase).owes(Invalid), &[]);
        }
        for event in [SHARE, SHARE_TOO_SOON] {
            row(at(phase), event, at(phase).owes(Shared), &[]);
        }
        row(
            at(phase).owes(Invalid),
            Event::Stored,
            at(LEAVING).v(31).answering(),
            &[],
        );
        row(
            at(phase).owes(Invalid).unwanted(),
            Event::Stored,
            at(ABSENT).v(31).answering(),
            &[Drop],
        );
        row(
            at(phase).owes(Shared),
            Event::Stored,
            at(SHARED).v(31).answering(),
            &[],
        );
        row(at(phase), NOT_NOW, at(phase), &[Retry]);
        row(
            at(phase).writer(),
            NOT_STORED,
            at(ABSENT).writer(),
            &[Lost, Drop],
        );
        row(
            at(phase),
            Event::NotStored(Refusal::Unreachable),
            at(ABSENT),
            &[Lost, Drop],
        );
        row(at(phase).answering(), ANSWERED, at(phase), &[]);
        row(at(phase), ONE_ANSWERED, at(phase).answering(), &[]);
    }
    row(at(CLEANING), Event::Stored, at(SHARED).v(31), &[]);
    row(
        at(CLEANING).writer(),
        Event::Stored,
        at(UPGRADING).v(31).writer(),
        &[Request(Want::Upgrade)],
    );
    row(at(EVICTING), Event::Stored, at(ABSENT).v(31), &[Drop]);
    row(at(CLEANING), Event::Evict, at(EVICTING), &[]);
    row(
        at(CLEANING).writer(),
        Event::Evict,
        at(CLEANING).writer(),
        &[],
    );
    row(
        at(CLEANING).owes(Shared),
        Event::Evict,
        at(CLEANING).owes(Shared),
        &[],
    );
    row(at(EVICTING), Event::Evict, at(EVICTING), &[]);

    // Leaving: it goes with the first answer.
    row(at(LEAVING), READ, at(LEAVING).reader(), &[]);
    row(at(LEAVING), WRITE, at(LEAVING).writer(), &[]);
    for event in [TAKE, TAKE_TOO_SOON, SHARE, SHARE_TOO_SOON] {
        row(at(LEAVING), event, at(LEAVING).answering(), &[]);
    }
    row(
        at(LEAVING).reader().answering(),
        ANSWERED,
        at(ABSENT).reader(),
        &[Drop],
    );
    row(
        at(LEAVING).answering(),
        ONE_ANSWERED,
        at(ABSENT).answering(),
        &[Drop],
    );

    rows
}

/// The events that leave a page in that phase as it is.
fn ignored() -> Vec<(Phase, Vec<Event>)> {
    let unreachable = Event::Refused(Refusal::Unreachable);
    let replies = vec![DATA, Event::Granted, BUSY, NO_COPY, DENIED, unreachable];
    let stores = vec![
        Event::Stored,
        NOT_NOW,
        NOT_STORED,
        Event::NotStored(Refusal::Unreachable),
    ];
    let both = [replies.clone(), stores.clone()].concat();
    let idle = vec![Event::ResidencyOver, Event::Evict];
    vec![
        (ABSENT, [both.clone(), idle.clone()].concat()),
        (
            READING,
            [vec![Event::Granted], stores.clone(), idle.clone()].concat(),
        ),
        (ACQUIRING, [stores.clone(), idle.clone()].concat()),
        (UPGRADING, [stores, idle.clone()].concat()),
        (SHARED, both.clone()),
        (MODIFIED, both.clone()),
        (
            CLEANING,
            [replies.clone(), vec![Event::ResidencyOver]].concat(),
        ),
        (EVICTING, [replies, vec![Event::ResidencyOver]].concat()),
        (LEAVING, [both, idle].concat()),
    ]
}

#[test]
fn every_event_has_its_expected_outcome() {
    for row in rows() {
        let (after, reactions) = step(row.before, row.event);
        let reactions: Vec<_> = reactions.iter().collect();
        assert_eq!(
            (after, reactions),
            (row.after, row.reactions),
            "{:?} of {:?}",
            row.event,
            row.before
        );
    }
}

#[test]
fn an_event_without_meaning_leaves_a_page_as_it_is() {
    for (phase, events) in ignored() {
        for event in events {
            for page in [at(phase), at(phase).writer().owes(Target::Invalid)] {
                let (after, reactions) = step(page, event);
                assert_eq!(after, page, "{event:?}");
                assert_eq!(reactions.iter().count(), 0, "{event:?} of {page:?}");
            }
        }
    }
}

#[test]
fn no_pair_of_phase_and_event_is_missing() {
    let mut seen: HashSet<(Phase, Event)> = rows()
        .iter()
        .map(|row| (row.before.phase, row.event.kind()))
        .collect();
    for (phase, events) in ignored() {
        for event in events {
            assert!(
                seen.insert((phase, event.kind())),
                "{event:?} of {phase:?} is listed twice"
            );
        }
    }
    for phase in Phase::ALL {
        for event in Event::KINDS {
            assert!(seen.contains(&(phase, event)), "{event:?} of {phase:?}");
        }
    }
    assert_eq!(seen.len(), Phase::ALL.len() * Event::KINDS.len());
}
