//! Runs in which a few blades bring something about step by step, again and again: what takes
//! several things in the right order, of which each is rare.

mod script;

use mind_common::{
    addr::{Region, Va, WINDOW_BASE},
    directory::{Prior, State, Target, Want, Word},
    id::{BladeSet, DomainId},
    serial::Version,
};
use mind_machines::compute::{
    Access,
    page::{Event, Phase},
};

use self::script::Script;
use super::{Area, Load, MILLISECOND, Plan, Program, Weather, blade, dice};
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
    /// Two blades take a page from each other before and after its region is split, and answers
    /// of before arrive when the other slot's invalidations have their numbers.
    Numbers,
}

impl Scene {
    const ALL: [Self; 8] = [
        Self::Denied,
        Self::Timers,
        Self::Leaving,
        Self::Repeats,
        Self::Halves,
        Self::Moves,
        Self::Silence,
        Self::Numbers,
    ];

    /// How long it takes, in nanoseconds, and how often it is played.
    const fn rounds(self) -> (u64, u64) {
        match self {
            Self::Denied => (6 * MILLISECOND, 8),
            Self::Timers => (12 * MILLISECOND, 6),
            Self::Leaving => (10 * MILLISECOND, 8),
            Self::Moves => (2 * MILLISECOND, 20),
            Self::Numbers => (6 * MILLISECOND, 1),
            Self::Silence => (8_000 * MILLISECOND, 1),
            Self::Repeats | Self::Halves => (12 * MILLISECOND, 6),
        }
    }
}

fn threads(scene: Scene) -> (u8, usize) {
    match scene {
        Scene::Denied | Scene::Timers | Scene::Numbers => (2, 1),
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
            Scene::Numbers => script.numbers(at),
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

fn echoes(scene: Scene) -> Vec<Echo> {
    let [all, most] = [Target::Invalid, Target::Shared].map(Sort::Invalidate);
    let [all, most] = [all, most].map(Then::Arrives);
    let faults = |phase, access| Pair::Page(phase, Event::Fault(access));
    match scene {
        Scene::Denied => vec![
            Echo::new(faults(Phase::Shared, Access::Write), 1, all, 3_000),
            Echo::new(faults(Phase::Absent, Access::Read), 3, all, 4_000),
            Echo::new(faults(Phase::Absent, Access::Read), 3, most, 4_000),
            Echo::new(faults(Phase::Absent, Access::Write), 3, all, 4_000),
            Echo::new(faults(Phase::Absent, Access::Write), 3, most, 4_000),
        ],
        Scene::Timers => {
            let came = Pair::Page(Phase::Reading, Event::Data(Version::new(0)));
            vec![Echo::new(came, 2, all, 5_000)]
        }
        Scene::Repeats => {
            let taken = [State::Invalid, State::Shared, State::Modified];
            let taken = taken.map(|state| Pair::Word(WordKind::of_state(state), Happening::Taken));
            let held = |was| {
                let held = Word::default().locked(was, BladeSet::EMPTY);
                Pair::Word(WordKind::of(held), Happening::Given)
            };
            let given = [Prior::Invalid, Prior::Shared, Prior::Modified].map(held);
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
            late.map(|(after, what)| Echo::new(after, 1, Then::Arrives(what), 1_000))
                .collect()
        }
        Scene::Numbers => {
            let kind = WordKind::of_state(State::Modified);
            let begun = Pair::Word(kind, Happening::Request(Want::Acquire, false));
            vec![Echo::new(begun, 1, Then::Arrives(Sort::Answer), 8_000)]
        }
        Scene::Leaving | Scene::Halves | Scene::Moves | Scene::Silence => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use mind_common::{refusal::Refusal, verdict::Verdict};
    use mind_machines::datagram::Body;

    use super::*;
    use crate::{
        coverage::Coverage,
        run,
        trace::{Record, What},
    };

    /// What each is there for, in so many runs.
    const RUNS: u64 = 40;

    #[test]
    fn each_brings_about_what_it_is_there_for() {
        let mut reached = [(); Scene::ALL.len()].map(|()| Coverage::default());
        for number in 0..RUNS * Scene::ALL.len() as u64 {
            let outcome = run(&plan(5 * number), false);
            assert_eq!(outcome.failure, None, "{number}");
            reached[number as usize % Scene::ALL.len()].add(&outcome.coverage);
        }
        let wanted_back = |phase, target| {
            let event = Event::Invalidate {
                target,
                wanted: true,
                residency_over: false,
            };
            Pair::Page(phase, event)
        };
        let held = |was| WordKind::of(Word::default().locked(was, BladeSet::EMPTY));
        let upgrade = Happening::Request(Want::Upgrade, true);
        let busy = Event::NotStored(Refusal::Busy);
        let cleaning = |evicting| Phase::Cleaning { evicting };
        let all = [
            (Scene::Denied, wanted_back(Phase::Reading, Target::Invalid)),
            (Scene::Denied, wanted_back(Phase::Reading, Target::Shared)),
            (
                Scene::Timers,
                Pair::Page(Phase::Upgrading, Event::ResidencyOver),
            ),
            (
                Scene::Timers,
                Pair::Page(cleaning(true), Event::ResidencyOver),
            ),
            (
                Scene::Leaving,
                Pair::Page(Phase::Leaving, Event::Fault(Access::Read)),
            ),
            (Scene::Repeats, Pair::Word(held(Prior::Lost), upgrade)),
            (Scene::Repeats, Pair::Word(held(Prior::Shared), upgrade)),
            (
                Scene::Halves,
                Pair::Word(held(Prior::Lost), Happening::ListedGone),
            ),
            (Scene::Moves, Pair::Page(cleaning(true), busy)),
            (Scene::Moves, Pair::Page(cleaning(false), busy)),
            (
                Scene::Silence,
                Pair::Page(Phase::Upgrading, Event::Refused(Refusal::Unreachable)),
            ),
        ];
        for (scene, pair) in all {
            let number = Scene::ALL.iter().position(|other| *other == scene);
            let times = reached[number.unwrap()].of(pair);
            assert!(times >= RUNS / 4, "{scene:?}: {pair} {times} times");
        }
    }

    /// Answers to an invalidation of one slot's while another's waits for the same blade's, for the
    /// same one, with the same number.
    fn namesakes(records: &[Record]) -> usize {
        let mut asked = None;
        let mut namesakes = 0;
        for record in records {
            match &record.what {
                What::Forwarded(_, packet, _) => {
                    if let Body::Invalidate(invalidation) = packet.body {
                        asked = Some(invalidation);
                    }
                }
                What::Switched(_, packet, verdict) => {
                    let answer = match packet.body {
                        Body::Answer { invalidation, .. } | Body::Forward { invalidation, .. } => {
                            invalidation
                        }
                        _ => continue,
                    };
                    match asked {
                        Some(_) if *verdict != Verdict::StaleAnswer => asked = None,
                        Some(asked)
                            if asked.slot != answer.slot
                                && asked.episode == answer.episode
                                && asked.requester == answer.requester =>
                        {
                            namesakes += 1;
                        }
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        namesakes
    }

    #[test]
    fn answers_meet_the_number_that_they_have_in_another_slot() {
        let number = Scene::ALL.iter().position(|one| *one == Scene::Numbers);
        let seeds =
            (0..RUNS).map(|run| 5 * (run * Scene::ALL.len() as u64 + number.unwrap() as u64));
        let met = seeds.filter(|seed| namesakes(&run(&plan(*seed), true).records) > 0);
        let met = met.count() as u64;
        assert!(met >= RUNS / 2, "{met} times");
    }
}
