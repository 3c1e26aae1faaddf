//! Runs in which a few blades bring something about step by step, again and again: what takes
//! several things in the right order, of which each is rare.

use mind_common::{
    addr::{PAGE_SHIFT, Region, Va, WINDOW_BASE},
    blade::{
        Access,
        page::{Event, Phase},
    },
    directory::{State, Target, Want, Was, Word},
    id::{BladeSet, DomainId},
    serial::Version,
};
use mind_nodes::Node;

use super::{
    Area, Change, Disturbance, Load, MILLISECOND, Mapping, Op, Place, Plan, Program, WORDS,
    Weather, blade, dice,
};
use crate::{
    coverage::{Happening, Kind as WordKind, Pair},
    echo::{Echo, Sort, Then},
};

/// Whose memory it is.
const DOMAIN: DomainId = DomainId(1);

/// A microsecond, in nanoseconds.
const MICROSECOND: u64 = 1_000;

/// Threads of a blade of which all but one read.
const LEAVERS: usize = 6;

/// What is brought about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scene {
    /// A blade may not write a page that has just come, gives it up for somebody else, and asks
    /// for it again while it is wanted back again.
    Denied,
    /// Timers of a page go off when it has long been given up and asked for again.
    Timers,
    /// A page that is to be forwarded waits for another of its region, and threads that faulted
    /// on it before make themselves heard.
    Leaving,
    /// A blade is granted permission to write and does not hear of it; when it asks again, its
    /// region has been given to somebody who failed, or up.
    Repeats,
    /// The owner of one half of a region fails while the halves are joined, and sharers of the
    /// other half stay listed.
    Halves,
    /// Pages are written back while their region is split and joined.
    Moves,
    /// A blade that asks for permission to write hears from nobody until it gives up.
    Silence,
}

impl Scene {
    const ALL: [Self; 7] = [
        Self::Denied,
        Self::Timers,
        Self::Leaving,
        Self::Repeats,
        Self::Halves,
        Self::Moves,
        Self::Silence,
    ];

    /// How long it takes, in nanoseconds, and how often it is played.
    const fn rounds(self) -> (u64, u64) {
        match self {
            Self::Denied => (6 * MILLISECOND, 8),
            Self::Timers => (12 * MILLISECOND, 6),
            Self::Leaving => (10 * MILLISECOND, 8),
            Self::Moves => (2 * MILLISECOND, 20),
            Self::Silence => (8_000 * MILLISECOND, 1),
            Self::Repeats | Self::Halves => (12 * MILLISECOND, 6),
        }
    }
}

/// What threads do and what is done to them, as it is written down.
struct Script {
    random: fastrand::Rng,
    region: Region,
    programs: Vec<Program>,
    disturbances: Vec<(u64, Disturbance)>,
}

impl Script {
    fn page(&self, number: u64) -> Va {
        Va(self.region.base().0 + (number << PAGE_SHIFT))
    }

    fn place(&mut self, page: u64) -> Place {
        Place {
            page: self.page(page),
            word: self.random.usize(0..WORDS),
        }
    }

    /// The thread reads that page at that time, or as soon as it can.
    fn load(&mut self, thread: usize, page: u64, at: u64) {
        let place = self.place(page);
        self.programs[thread]
            .ops
            .extend([Op::Until(at), Op::Load(place)]);
    }

    /// The thread writes that page at that time, or as soon as it can.
    fn store(&mut self, thread: usize, page: u64, at: u64) {
        let place = self.place(page);
        self.programs[thread]
            .ops
            .extend([Op::Until(at), Op::Store(place)]);
    }

    /// That happens between these two times.
    fn disturb(&mut self, times: std::ops::Range<u64>, what: Disturbance) {
        self.disturbances.push((self.random.u64(times), what));
    }

    /// What was lost is forgotten.
    fn begin_anew(&mut self, at: u64) {
        for (after, mapping) in [(0, Mapping::Unmap), (400 * MICROSECOND, Mapping::Map)] {
            let mapping = Disturbance::Mapping(mapping, DOMAIN, self.region);
            self.disturbances.push((at + after, mapping));
        }
    }

    /// The first blade hears nothing, nor is heard.
    fn unplug(&mut self, at: u64, lasts: u64) {
        let node = Node::Compute(blade(0));
        let unplug = Disturbance::Unplug { node, lasts };
        self.disturbances.push((at, unplug));
    }

    fn crash(&mut self, number: u8, times: std::ops::Range<u64>, noticed: u64) {
        let crash = Disturbance::Crash {
            blade: blade(number),
            noticed,
            back: MILLISECOND + noticed,
        };
        self.disturb(times, crash);
    }

    fn denied(&mut self, at: u64) {
        let us = |after: u64| at + after * MICROSECOND;
        self.store(0, 0, us(0));
        self.load(1, 0, us(500));
        self.store(0, 0, us(1_000));
        self.store(1, 0, us(1_600));
        for (after, mapping) in [(2_400, Mapping::Freeze), (5_000, Mapping::Thaw)] {
            let mapping = Disturbance::Mapping(mapping, DOMAIN, self.region);
            self.disturbances.push((us(after), mapping));
        }
        // The other page keeps the invalidation from being answered when this one is given up.
        self.load(0, 1, us(3_200));
        self.load(0, 0, us(3_400));
        self.store(0, 0, us(3_400));
        if self.random.bool() {
            self.load(0, 0, us(3_400));
        } else {
            self.store(0, 0, us(3_400));
        }
    }

    fn timers(&mut self, at: u64) {
        let us = |after: u64| at + after * MICROSECOND;
        self.store(1, 0, us(0));
        self.store(0, 0, us(200));
        self.store(1, 0, us(600));
        self.load(0, 0, us(1_000));
        self.store(1, 0, us(1_100));
        self.unplug(us(1_380), MILLISECOND);
        if self.random.bool() {
            self.store(0, 0, us(1_300));
            // There is room for one.
            self.store(0, 1, us(1_400));
        } else {
            self.load(0, 0, us(1_300));
            self.store(0, 0, us(1_400));
        }
    }

    /// The first thread of the first blade writes, the others read; who has no room for two pages
    /// evicts the first for the second.
    fn leaving(&mut self, at: u64, has_room: bool) {
        let us = |after: u64| at + after * MICROSECOND;
        for reader in 1..LEAVERS {
            self.load(reader, 0, us(0));
        }
        self.store(0, 0, us(0));
        if has_room {
            self.store(0, 1, us(300));
            self.store(LEAVERS, 0, us(450));
        } else {
            self.unplug(us(430), MILLISECOND);
            self.store(0, 1, us(450));
        }
        self.store(LEAVERS, 0, us(7_000));
        self.store(LEAVERS, 1, us(7_000));
    }

    fn moves(&mut self, at: u64, round: u64) {
        let us = |after: u64| at + after * MICROSECOND;
        let written = self.random.u64(0..2);
        self.store(0, written, us(0));
        let change = [Change::Split, Change::Merge][(round % 2) as usize];
        let change = Disturbance::Change(change, self.region.base());
        self.disturbances.push((us(200), change));
        let then = us(self.random.u64(250..800));
        if self.random.bool() {
            self.store(0, 1 - written, then);
        } else {
            let sync = Op::Sync(self.region);
            self.programs[0].ops.extend([Op::Until(then), sync]);
        }
    }

    fn silence(&mut self, at: u64) {
        self.load(0, 0, at);
        self.unplug(at + MILLISECOND, 7_000 * MILLISECOND);
        self.store(0, 0, at + 2 * MILLISECOND);
    }

    fn repeats(&mut self, at: u64) {
        let us = |after: u64| at + after * MICROSECOND;
        let want = self.random.u8(0..4);
        if want < 2 {
            self.load(0, 0, us(0));
        }
        self.load(1, 0, us(0));
        self.unplug(us(500), MILLISECOND);
        if want < 3 {
            self.store(0, 0, us(600));
        } else {
            self.load(0, 0, us(600));
        }
        // It asks again 4 ms later.
        let reset = Disturbance::Change(Change::Reset, self.region.base());
        match self.random.u8(0..8) {
            0 | 1 => {
                for after in [5_000, 5_700] {
                    self.disturb(us(after)..us(after + 200), reset);
                }
            }
            2 | 3 => {
                self.load(1, 0, us(5_000));
                self.disturb(us(5_400)..us(5_800), reset);
            }
            4 => self.disturb(us(4_700)..us(5_400), reset),
            _ => {
                if self.random.bool() {
                    self.load(1, 0, us(4_750));
                    self.store(1, 0, us(4_900));
                }
                self.store(2, 0, us(5_100));
                self.crash(2, us(5_400)..us(6_000), 0);
            }
        }
        self.begin_anew(us(10_000));
    }

    fn halves(&mut self, at: u64) {
        let us = |after: u64| at + after * MICROSECOND;
        let [split, merge] = [Change::Split, Change::Merge]
            .map(|change| Disturbance::Change(change, self.region.base()));
        self.disturbances.push((us(0), split));
        let written = self.random.u64(0..2);
        self.store(0, written, us(1_500));
        self.load(1, 1 - written, us(1_500));
        self.load(2, 1 - written, us(1_500));
        // It is waited for, until that is known.
        self.disturbances.push((us(2_500), merge));
        let noticed = self.random.u64(50 * MICROSECOND..1_000 * MICROSECOND);
        self.crash(0, us(2_300)..us(2_500), noticed);
        self.store(1, 1 - written, us(3_500));
        self.store(2, 1 - written, us(3_500));
        self.crash(1, us(4_500)..us(6_000), 0);
        self.begin_anew(us(8_000));
    }
}

fn threads(scene: Scene) -> (u8, usize) {
    match scene {
        Scene::Denied => (2, 1),
        Scene::Timers => (2, 1),
        Scene::Moves | Scene::Silence => (1, 1),
        Scene::Leaving => (2, LEAVERS),
        Scene::Repeats | Scene::Halves => (3, 1),
    }
}

/// The run that a seed stands for.
pub(super) fn plan(seed: u64) -> Plan {
    let scene = Scene::ALL[(seed / 5 % Scene::ALL.len() as u64) as usize];
    let region = Region::containing(Va(WINDOW_BASE), 1)
        .unwrap_or_else(|| unreachable!("regions have such orders"));
    let (blades, threads) = threads(scene);
    let homes = (0..blades).flat_map(|number| std::iter::repeat_n(number, threads));
    let programs = homes.map(|number| Program {
        blade: blade(number),
        domain: DOMAIN,
        ops: Vec::new(),
    });
    let mut script = Script {
        random: dice(seed, 1),
        region,
        programs: programs.collect(),
        disturbances: Vec::new(),
    };
    let (length, count) = scene.rounds();
    let has_room = match scene {
        Scene::Leaving => script.random.u8(0..3) > 0,
        Scene::Timers | Scene::Moves => false,
        _ => true,
    };
    for round in 0..count {
        let at = MILLISECOND + round * length + script.random.u64(0..100_000);
        match scene {
            Scene::Denied => script.denied(at),
            Scene::Timers => script.timers(at),
            Scene::Leaving => script.leaving(at, has_room),
            Scene::Moves => script.moves(at, round),
            Scene::Silence => script.silence(at),
            Scene::Repeats => script.repeats(at),
            Scene::Halves => script.halves(at),
        }
    }
    let random = &mut script.random;
    let load = Load {
        faults: match scene {
            Scene::Leaving => 1_000 * MICROSECOND,
            _ => 2 * MICROSECOND,
        },
        late_faults: match scene {
            Scene::Leaving => 300,
            _ => 1000,
        },
        timers: match scene {
            Scene::Timers => 4 * MILLISECOND,
            _ => 20 * MICROSECOND,
        },
        controller: match scene {
            Scene::Moves => 80 * MICROSECOND,
            _ => 5_000 << random.u32(0..5),
        },
        hold: match scene {
            Scene::Denied | Scene::Leaving => 400 * MICROSECOND,
            _ => Load::default().hold,
        },
    };
    Plan {
        seed,
        blades,
        memories: 1,
        capacity: if has_room { 1024 } else { 1 },
        areas: vec![Area {
            domain: DOMAIN,
            region,
            fails: matches!(scene, Scene::Repeats | Scene::Halves),
            is_writable: true,
            is_mapped: true,
        }],
        programs: script.programs,
        pace: MICROSECOND,
        load,
        weather: Weather {
            loss: 0,
            duplication: 0,
            lateness: 0,
            latest: 0,
            until: MILLISECOND + count * length,
        },
        disturbances: script.disturbances,
        echoes: echoes(scene),
        flaw: None,
    }
}

/// Once in so many times, within so many nanoseconds.
const fn echo(after: Pair, one_in: u32, then: Then, within: u64) -> Echo {
    Echo {
        after,
        one_in,
        then,
        within,
    }
}

fn echoes(scene: Scene) -> Vec<Echo> {
    let [all, most] = [Target::Invalid, Target::Shared].map(Sort::Invalidate);
    let [all, most] = [all, most].map(Then::Arrives);
    let faults = |phase, access| Pair::Page(phase, Event::Fault(access));
    match scene {
        Scene::Denied => vec![
            echo(faults(Phase::Shared, Access::Write), 1, all, 3_000),
            echo(faults(Phase::Absent, Access::Read), 3, all, 4_000),
            echo(faults(Phase::Absent, Access::Read), 3, most, 4_000),
            echo(faults(Phase::Absent, Access::Write), 3, all, 4_000),
            echo(faults(Phase::Absent, Access::Write), 3, most, 4_000),
        ],
        Scene::Timers => {
            let came = Pair::Page(Phase::Reading, Event::Data(Version::new(0)));
            vec![echo(came, 2, all, 5_000)]
        }
        Scene::Repeats => {
            let taken = [State::Invalid, State::Shared, State::Modified];
            let taken = taken.map(|state| Pair::Word(WordKind::of_state(state), Happening::Taken));
            let held = |was| {
                let held = Word::default().held(was, BladeSet::EMPTY);
                Pair::Word(WordKind::of(held), Happening::Given)
            };
            let given = [Was::Invalid, Was::Shared, Was::Modified].map(held);
            let begun = [Want::Read, Want::Acquire].map(|want| {
                let kind = WordKind::of_state(State::Modified);
                Pair::Word(kind, Happening::Request(want, false))
            });
            // Nobody gets it by these.
            let futile = [
                Sort::Request(Want::Upgrade, true),
                Sort::Request(Want::Upgrade, false),
                Sort::Answer,
                Sort::Write,
            ];
            let others = [Want::Read, Want::Acquire].map(|want| Sort::Request(want, true));
            let always = taken.into_iter().chain(given).chain(begun);
            let always = always.flat_map(|after| futile.map(|what| (after, what)));
            let taken = taken.into_iter();
            let taken = taken.flat_map(|after| others.map(|what| (after, what)));
            let late = always.chain(taken);
            late.map(|(after, what)| echo(after, 1, Then::Arrives(what), 1_000))
                .collect()
        }
        Scene::Leaving | Scene::Halves | Scene::Moves | Scene::Silence => Vec::new(),
    }
}
