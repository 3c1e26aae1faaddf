//! Runs in which a few blades follow a fixed sequence of steps, again and again, to cover what
//! takes several rare events in the right order.

mod script;

use mind_common::{
    directory::{Prior, State, Target, Want, Word, index::UNIT_ORDER},
    id::BladeSet,
    serial::Version,
};
use mind_machines::compute::{
    Access,
    page::{Event, Phase},
};

use self::script::Script;
use super::{Area, Load, MILLISECOND, NetworkFaults, OnLoss, Plan, Program, blade, generator};
use crate::{
    coverage::{Happening, Kind as WordKind, Pair},
    trigger::{Effect, PacketKind, Trigger},
};

/// The domain of the memory, and its only area, which is one region until it is split.
const DOMAIN: usize = 0;
const AREA: usize = 0;

/// The first page of each half of the area.
const HALVES: [u64; 2] = [0, 1 << (UNIT_ORDER - 1)];

/// A microsecond, in nanoseconds.
const MICROSECOND: u64 = 1_000;

/// Threads of a blade in [`Sequence::Leaving`]; all but one read.
const LEAVERS: usize = 6;

/// The sequences, by what they bring about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sequence {
    /// A blade is denied writing a page that has just come, gives it up for another blade, and
    /// requests it again while it is invalidated again.
    Denied,
    /// Timers of a page fire after it was given up and requested again.
    Timers,
    /// A page that is to be forwarded waits for another of its region, while faults on it that came
    /// before are received.
    Leaving,
    /// A blade is granted an UPGRADE and the answer is lost; when it repeats it, its region has
    /// gone to a blade that crashed, or was reset.
    Repeats,
    /// The owner of one half of a region crashes while the halves are merged, and sharers of the
    /// other half stay listed.
    Halves,
    /// Pages are written back while their region is split and merged.
    Moves,
    /// A blade that sends an UPGRADE is isolated until it gives up.
    Isolation,
    /// Two blades take a page from each other before and after its region is split, and answers
    /// from before arrive when the other slot's invalidations have the same numbers.
    Numbers,
}

impl Sequence {
    const ALL: [Self; 8] = [
        Self::Denied,
        Self::Timers,
        Self::Leaving,
        Self::Repeats,
        Self::Halves,
        Self::Moves,
        Self::Isolation,
        Self::Numbers,
    ];

    /// How long it takes, in nanoseconds, and how often it is repeated.
    const fn rounds(self) -> (u64, u64) {
        match self {
            Self::Denied => (6 * MILLISECOND, 8),
            Self::Timers => (12 * MILLISECOND, 6),
            Self::Leaving => (10 * MILLISECOND, 8),
            Self::Moves => (2 * MILLISECOND, 20),
            Self::Numbers => (6 * MILLISECOND, 1),
            Self::Isolation => (8_000 * MILLISECOND, 1),
            Self::Repeats | Self::Halves => (12 * MILLISECOND, 6),
        }
    }
}

fn threads(sequence: Sequence) -> (u8, usize) {
    match sequence {
        Sequence::Denied | Sequence::Timers | Sequence::Numbers => (2, 1),
        Sequence::Moves | Sequence::Isolation => (1, 1),
        Sequence::Leaving => (2, LEAVERS),
        Sequence::Repeats | Sequence::Halves => (3, 1),
    }
}

/// The run of a seed.
pub(super) fn plan(seed: u64) -> Plan {
    let sequence = Sequence::ALL[(seed / 5 % Sequence::ALL.len() as u64) as usize];
    let (blades, threads) = threads(sequence);
    let homes = (0..blades).flat_map(|number| std::iter::repeat_n(number, threads));
    let programs = homes.map(|number| Program {
        blade: blade(number),
        domain: DOMAIN,
        ops: Vec::new(),
    });
    let mut script = Script {
        random: generator(seed, 1),
        programs: programs.collect(),
        disturbances: Vec::new(),
    };
    let (length, count) = sequence.rounds();
    let has_room = match sequence {
        Sequence::Leaving => script.random.u8(0..3) > 0,
        Sequence::Timers | Sequence::Moves => false,
        _ => true,
    };
    for round in 0..count {
        let at = MILLISECOND + round * length + script.random.u64(0..100_000);
        match sequence {
            Sequence::Denied => script.denied(at),
            Sequence::Timers => script.timers(at),
            Sequence::Leaving => script.leaving(at, has_room),
            Sequence::Moves => script.moves(at, round),
            Sequence::Isolation => script.isolation(at),
            Sequence::Numbers => script.numbers(at),
            Sequence::Repeats => script.repeats(at),
            Sequence::Halves => script.halves(at),
        }
    }
    let random = &mut script.random;
    let load = Load {
        faults: match sequence {
            Sequence::Leaving => 1_000 * MICROSECOND,
            _ => 2 * MICROSECOND,
        },
        late_faults: match sequence {
            Sequence::Leaving => 300,
            _ => 1000,
        },
        timers: match sequence {
            Sequence::Timers => 4 * MILLISECOND,
            _ => 20 * MICROSECOND,
        },
        controller: match sequence {
            Sequence::Moves => 80 * MICROSECOND,
            _ => 5_000 << random.u32(0..5),
        },
        residency: match sequence {
            Sequence::Denied | Sequence::Leaving => 400 * MICROSECOND,
            _ => Load::default().residency,
        },
    };
    Plan {
        seed,
        epoch: None,
        blades,
        memories: 1,
        capacity: if has_room { 1024 } else { 1 },
        domains: vec![match sequence {
            Sequence::Repeats | Sequence::Halves => OnLoss::Fail,
            _ => OnLoss::LastWritten,
        }],
        areas: vec![Area {
            domain: DOMAIN,
            order: UNIT_ORDER,
            is_writable: true,
            is_mapped: true,
            is_named: false,
        }],
        programs: script.programs,
        pace: MICROSECOND,
        load,
        network_faults: NetworkFaults {
            loss: 0,
            duplication: 0,
            lateness: 0,
            latest: 0,
            hold_ups: 0,
            longest: 0,
            until: MILLISECOND + count * length,
        },
        disturbances: script.disturbances,
        triggers: triggers(sequence),
        flaw: None,
    }
}

fn triggers(sequence: Sequence) -> Vec<Trigger> {
    let [all, most] = [Target::Invalid, Target::Shared].map(PacketKind::Invalidate);
    let [all, most] = [all, most].map(Effect::Arrives);
    let faults = |phase, access| Pair::Page(phase, Event::Fault(access));
    match sequence {
        Sequence::Denied => vec![
            Trigger::new(faults(Phase::Shared, Access::Write), 1, all, 3_000),
            Trigger::new(faults(Phase::Absent, Access::Read), 3, all, 4_000),
            Trigger::new(faults(Phase::Absent, Access::Read), 3, most, 4_000),
            Trigger::new(faults(Phase::Absent, Access::Write), 3, all, 4_000),
            Trigger::new(faults(Phase::Absent, Access::Write), 3, most, 4_000),
        ],
        Sequence::Timers => {
            let came = Pair::Page(Phase::Reading, Event::Data(Version::new(0)));
            vec![Trigger::new(came, 2, all, 5_000)]
        }
        Sequence::Repeats => {
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
            // No blade gets the page by these.
            let futile = [
                PacketKind::Request(Want::Upgrade, true),
                PacketKind::Request(Want::Upgrade, false),
                PacketKind::Answer,
                PacketKind::Write,
            ];
            let others = [Want::Read, Want::Acquire].map(|want| PacketKind::Request(want, true));
            let always = taken.into_iter().chain(given).chain(begun);
            let always = always.flat_map(|after| futile.map(|what| (after, what)));
            let taken = taken.into_iter();
            let taken = taken.flat_map(|after| others.map(|what| (after, what)));
            let late = always.chain(taken);
            late.map(|(after, what)| Trigger::new(after, 1, Effect::Arrives(what), 1_000))
                .collect()
        }
        Sequence::Numbers => {
            let kind = WordKind::of_state(State::Modified);
            let begun = Pair::Word(kind, Happening::Request(Want::Acquire, false));
            vec![Trigger::new(
                begun,
                1,
                Effect::Arrives(PacketKind::Answer),
                8_000,
            )]
        }
        Sequence::Leaving | Sequence::Halves | Sequence::Moves | Sequence::Isolation => Vec::new(),
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

    /// Runs in which each must bring about its event.
    const RUNS: u64 = 40;

    #[test]
    fn each_brings_its_event_about() {
        let mut reached = [(); Sequence::ALL.len()].map(|()| Coverage::default());
        for number in 0..RUNS * Sequence::ALL.len() as u64 {
            let outcome = run(&plan(5 * number), false);
            assert_eq!(outcome.failure, None, "{number}");
            reached[number as usize % Sequence::ALL.len()].add(&outcome.coverage);
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
            (
                Sequence::Denied,
                wanted_back(Phase::Reading, Target::Invalid),
            ),
            (
                Sequence::Denied,
                wanted_back(Phase::Reading, Target::Shared),
            ),
            (
                Sequence::Timers,
                Pair::Page(Phase::Upgrading, Event::ResidencyOver),
            ),
            (
                Sequence::Timers,
                Pair::Page(cleaning(true), Event::ResidencyOver),
            ),
            (
                Sequence::Leaving,
                Pair::Page(Phase::Leaving, Event::Fault(Access::Read)),
            ),
            (Sequence::Repeats, Pair::Word(held(Prior::Lost), upgrade)),
            (Sequence::Repeats, Pair::Word(held(Prior::Shared), upgrade)),
            (
                Sequence::Halves,
                Pair::Word(held(Prior::Lost), Happening::ListedGone),
            ),
            (Sequence::Moves, Pair::Page(cleaning(true), busy)),
            (Sequence::Moves, Pair::Page(cleaning(false), busy)),
            (
                Sequence::Isolation,
                Pair::Page(Phase::Upgrading, Event::Refused(Refusal::Unreachable)),
            ),
        ];
        for (sequence, pair) in all {
            let number = Sequence::ALL.iter().position(|other| *other == sequence);
            let times = reached[number.unwrap()].of(pair);
            assert!(times >= RUNS / 4, "{sequence:?}: {pair} {times} times");
        }
    }

    /// Counts answers to an invalidation of one slot that arrive while an invalidation of another
    /// slot, with the same blade, requester and number, is under way.
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
        let number = Sequence::ALL
            .iter()
            .position(|one| *one == Sequence::Numbers);
        let seeds =
            (0..RUNS).map(|run| 5 * (run * Sequence::ALL.len() as u64 + number.unwrap() as u64));
        let met = seeds.filter(|seed| namesakes(&run(&plan(*seed), true).records) > 0);
        let met = met.count() as u64;
        assert!(met >= RUNS / 2, "{met} times");
    }
}
