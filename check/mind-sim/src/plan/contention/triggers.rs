//! The triggers of contention runs: what is possible and hardly ever coincides by chance.

use mind_common::{
    directory::{Prior, State, Target, Want, Word},
    id::BladeSet,
    refusal::Refusal,
    serial::Version,
};
use mind_machines::compute::{
    Access,
    page::{Event, Phase},
};

use super::{AREA, Kind};
use crate::{
    coverage::{Happening, Kind as WordKind, Pair},
    plan::{Change, Disturbance, MILLISECOND, blade},
    trigger::{Effect, PacketKind, Trigger},
};

/// What follows in a contention.
pub(super) fn triggers(kind: Kind) -> Vec<Trigger> {
    match kind {
        Kind::Losses | Kind::PacketLoss => late_requests(),
        Kind::LatePackets => {
            let mut triggers = late_requests();
            triggers.extend(repeats());
            triggers
        }
        Kind::Protection => denials(),
        Kind::Denials => {
            let read = Pair::Page(Phase::Reading, Event::Data(Version::new(0)));
            let all = Effect::Arrives(PacketKind::Invalidate(Target::Invalid));
            let mut triggers = denials();
            // Its residency grows each time, so that it is denied before the residency is over.
            triggers.push(Trigger::new(read, 4, all, 5_000));
            // And invalidated once more while it is requested again.
            let asked = Pair::Page(Phase::Absent, Event::Fault(Access::Read));
            for target in [Target::Invalid, Target::Shared] {
                let again = Effect::Arrives(PacketKind::Invalidate(target));
                triggers.push(Trigger::new(asked, 2, again, 10_000));
            }
            triggers
        }
        Kind::Room => crowds(),
        Kind::Changes | Kind::Isolation => Vec::new(),
    }
}

/// Requests and write-backs arrive while the controller has the region locked.
fn late_requests() -> Vec<Trigger> {
    let taken = [State::Invalid, State::Shared, State::Modified];
    let taken = taken.map(|state| Pair::Word(WordKind::of_state(state), Happening::Taken));
    let held = Word::default().locked(Prior::Modified, BladeSet::EMPTY);
    let lost = Pair::Word(WordKind::of(held), Happening::Given);
    let upgrades = [false, true].map(|again| PacketKind::Request(Want::Upgrade, again));
    let late = [upgrades[0], upgrades[1], PacketKind::Write];
    let pairs = taken.into_iter().chain([lost]);
    pairs
        .flat_map(|after| late.map(|what| Trigger::new(after, 1, Effect::Arrives(what), 1_000)))
        .collect()
}

/// A blade that has sent an UPGRADE hangs until it must repeat it, and then the region is reset, or
/// the other blade crashes.
fn repeats() -> Vec<Trigger> {
    let asks = Pair::Page(Phase::Shared, Event::Fault(Access::Write));
    let hang = |number| {
        let lasts = 5 * MILLISECOND;
        let blade = blade(number);
        Effect::Happens(Disturbance::Hang { blade, lasts })
    };
    let reset = Effect::Happens(Disturbance::Change(Change::Reset, AREA, 0));
    let again = Happening::Request(Want::Upgrade, true);
    let states = [State::Modified, State::Shared, State::Invalid];
    let repeats = states.map(|state| Pair::Word(WordKind::of_state(state), again));
    let resets = repeats.iter().flat_map(|after| {
        let then = [300_000, 600_000, MILLISECOND];
        then.map(|within| Trigger::new(*after, 1, reset, within))
    });
    let fails = [0, 1].map(|number| {
        let blade = blade(number);
        let (noticed, back) = (0, MILLISECOND);
        Effect::Happens(Disturbance::Crash {
            blade,
            noticed,
            back,
        })
    });
    let granted = Pair::Word(WordKind::of_state(State::Modified), again);
    let hangs = [0, 1].map(|number| Trigger::new(asks, 2, hang(number), 0));
    resets
        .chain(hangs)
        .chain(fails.map(|fails| Trigger::new(granted, 4, fails, 100_000)))
        .collect()
}

/// Pages are invalidated on blades that are denied the permission to write them.
fn denials() -> Vec<Trigger> {
    let [all, most] = [Target::Invalid, Target::Shared].map(PacketKind::Invalidate);
    let [all, most] = [all, most].map(Effect::Arrives);
    let asks = Pair::Page(Phase::Shared, Event::Fault(Access::Write));
    let denied = Pair::Page(Phase::Upgrading, Event::Refused(Refusal::Denied));
    vec![
        Trigger::new(asks, 1, all, 5_000),
        Trigger::new(denied, 1, most, 20_000),
        Trigger::new(denied, 1, all, 300_000),
        Trigger::new(denied, 1, most, 300_000),
    ]
}

/// Pages that have just come are invalidated, and evicted.
fn crowds() -> Vec<Trigger> {
    let [all, most] = [Target::Invalid, Target::Shared].map(PacketKind::Invalidate);
    let [all, most] = [all, most].map(Effect::Arrives);
    let came = [Phase::Reading, Phase::Acquiring];
    let came = came.map(|phase| Pair::Page(phase, Event::Data(Version::new(0))));
    let stored = Pair::Page(Phase::Cleaning { evicting: false }, Event::Stored);
    let came = [5_000, 50_000]
        .into_iter()
        .flat_map(|within| came.map(|after| Trigger::new(after, 2, all, within)));
    let stored = Trigger::new(stored, 1, most, 5_000);
    came.chain([stored]).collect()
}
