//! What follows what in fights: what is possible and hardly ever comes together by chance.

use mind_common::{
    addr::Region,
    directory::{Prior, State, Target, Want, Word},
    id::BladeSet,
    refusal::Refusal,
    serial::Version,
};
use mind_machines::compute::{
    Access,
    page::{Event, Phase},
};

use super::Kind;
use crate::{
    coverage::{Happening, Kind as WordKind, Pair},
    echo::{Echo, Sort, Then},
    plan::{Change, Disturbance, MILLISECOND, blade},
};

/// What follows in a fight.
pub(super) fn echoes(kind: Kind, region: Region) -> Vec<Echo> {
    match kind {
        Kind::Losses | Kind::Deafness => late_requests(),
        Kind::Echoes => {
            let mut echoes = late_requests();
            echoes.extend(repeats(region));
            echoes
        }
        Kind::Protection => denials(),
        Kind::Denials => {
            let read = Pair::Page(Phase::Reading, Event::Data(Version::new(0)));
            let all = Then::Arrives(Sort::Invalidate(Target::Invalid));
            let mut echoes = denials();
            // Kept for longer each time, so that it is denied before it was here for long enough.
            echoes.push(Echo::new(read, 4, all, 5_000));
            // And wanted back once more while it is asked for again.
            let asked = Pair::Page(Phase::Absent, Event::Fault(Access::Read));
            for target in [Target::Invalid, Target::Shared] {
                let again = Then::Arrives(Sort::Invalidate(target));
                echoes.push(Echo::new(asked, 2, again, 10_000));
            }
            echoes
        }
        Kind::Room => crowds(),
        Kind::Changes | Kind::Silence => Vec::new(),
    }
}

/// Requests and write-backs arrive when the controller has the region.
fn late_requests() -> Vec<Echo> {
    let taken = [State::Invalid, State::Shared, State::Modified];
    let taken = taken.map(|state| Pair::Word(WordKind::of_state(state), Happening::Taken));
    let held = Word::default().locked(Prior::Modified, BladeSet::EMPTY);
    let lost = Pair::Word(WordKind::of(held), Happening::Given);
    let upgrades = [false, true].map(|again| Sort::Request(Want::Upgrade, again));
    let late = [upgrades[0], upgrades[1], Sort::Write];
    let pairs = taken.into_iter().chain([lost]);
    pairs
        .flat_map(|after| late.map(|what| Echo::new(after, 1, Then::Arrives(what), 1_000)))
        .collect()
}

/// A blade that has asked for permission to write stands still until it must ask again, and then
/// the region is given up, or that blade's opponent fails.
fn repeats(region: Region) -> Vec<Echo> {
    let asks = Pair::Page(Phase::Shared, Event::Fault(Access::Write));
    let hang = |number| {
        let lasts = 5 * MILLISECOND;
        let blade = blade(number);
        Then::Happens(Disturbance::Hang { blade, lasts })
    };
    let reset = Then::Happens(Disturbance::Change(Change::Reset, region.base()));
    let again = Happening::Request(Want::Upgrade, true);
    let states = [State::Modified, State::Shared, State::Invalid];
    let repeats = states.map(|state| Pair::Word(WordKind::of_state(state), again));
    let resets = repeats.iter().flat_map(|after| {
        let then = [300_000, 600_000, MILLISECOND];
        then.map(|within| Echo::new(*after, 1, reset, within))
    });
    let fails = [0, 1].map(|number| {
        let blade = blade(number);
        let (noticed, back) = (0, MILLISECOND);
        Then::Happens(Disturbance::Crash {
            blade,
            noticed,
            back,
        })
    });
    let granted = Pair::Word(WordKind::of_state(State::Modified), again);
    let hangs = [0, 1].map(|number| Echo::new(asks, 2, hang(number), 0));
    resets
        .chain(hangs)
        .chain(fails.map(|fails| Echo::new(granted, 4, fails, 100_000)))
        .collect()
}

/// Pages are wanted back from those who are denied the permission to write them.
fn denials() -> Vec<Echo> {
    let [all, most] = [Target::Invalid, Target::Shared].map(Sort::Invalidate);
    let [all, most] = [all, most].map(Then::Arrives);
    let asks = Pair::Page(Phase::Shared, Event::Fault(Access::Write));
    let denied = Pair::Page(Phase::Upgrading, Event::Refused(Refusal::Denied));
    vec![
        Echo::new(asks, 1, all, 5_000),
        Echo::new(denied, 1, most, 20_000),
        Echo::new(denied, 1, all, 300_000),
        Echo::new(denied, 1, most, 300_000),
    ]
}

/// Pages that hardly came are wanted back, and have to make room.
fn crowds() -> Vec<Echo> {
    let [all, most] = [Target::Invalid, Target::Shared].map(Sort::Invalidate);
    let [all, most] = [all, most].map(Then::Arrives);
    let came = [Phase::Reading, Phase::Acquiring];
    let came = came.map(|phase| Pair::Page(phase, Event::Data(Version::new(0))));
    let stored = Pair::Page(Phase::Cleaning { evicting: false }, Event::Stored);
    let came = [5_000, 50_000]
        .into_iter()
        .flat_map(|within| came.map(|after| Echo::new(after, 2, all, within)));
    let stored = Echo::new(stored, 1, most, 5_000);
    came.chain([stored]).collect()
}
