//! The transitions: programs touch the same pages in an order that makes each batch of accesses one
//! transition, and the agents' counters prove that it was.
//!
//! Every page lies in a region of its own, and every round in fresh memory, which is freed at its
//! end: so nothing that one access does is part of another's time, and nothing is ever evicted.
//!
//! A region of fresh memory has no slot in the directory, and gets one by its first touch. That is a kind of its own; all
//! others are measured on regions that have one. Where no blade is to have a region, it is reset after its first touch:
//! its blades give it up, and it keeps its slot.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use mind_api::program::TransitionReport;
use mind_cli::Interrupt;
use mind_common::{
    addr::{INITIAL_REGION_ORDER, PAGE_SIZE},
    directory::Transition,
};

use crate::{
    samples::Samples,
    system::{
        blades::{Blades, CACHE},
        operator::Operator,
        task::{Access, Task},
    },
};

/// Pages of each kind in a round, at most: all kinds fit in a cache, with room for its reserve.
pub(super) const BATCH: usize = 250;
/// From one page to the next: a region, so that each has one of its own.
pub(super) const STRIDE: u64 = (PAGE_SIZE as u64) << INITIAL_REGION_ORDER;
/// Of so many accesses, one may have caused another transition: a packet was lost, and its request
/// came twice.
pub(super) const ACCESSES_PER_STRAY: usize = 200;

const _: () = assert!(3 * BATCH < CACHE as usize / PAGE_SIZE * 9 / 10);

/// Which of a round's fresh pages.
#[derive(Clone, Copy)]
enum Pages {
    /// Those that are read first.
    Read,
    /// Those that are written first.
    Written,
    /// Those that two blades share before a third writes.
    Spread,
}

/// A batch of accesses, each on one page of its kind, in order.
struct Step {
    blade: usize,
    access: Access,
    pages: Pages,
    /// Whether the pages' regions are reset before.
    resets: bool,
    kind: Kind,
    /// Whether its times count; otherwise it prepares others.
    counts: bool,
}

const fn step(blade: usize, access: Access, pages: Pages, transition: Transition) -> Step {
    Step {
        blade,
        access,
        pages,
        resets: false,
        kind: Kind::of(transition),
        counts: true,
    }
}

/// On regions that have no slot.
const fn first_touch(blade: usize, access: Access, pages: Pages, transition: Transition) -> Step {
    Step {
        kind: Kind {
            transition,
            case: Case::FirstTouch,
        },
        ..step(blade, access, pages, transition)
    }
}

/// One that only prepares others.
const fn before(step: Step) -> Step {
    Step {
        counts: false,
        ..step
    }
}

/// On regions that are reset before.
const fn after_reset(step: Step) -> Step {
    Step {
        resets: true,
        ..step
    }
}

/// A transition that is told apart from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    /// The transition of the directory.
    transition: Transition,
    case: Case,
}

/// What tells kinds of the same transition apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    /// The region has a slot, and at most one blade is invalidated.
    Usual,
    /// Several blades are invalidated.
    Several,
    /// The region has no slot yet.
    FirstTouch,
}

impl Kind {
    /// The first read of a region.
    pub(super) const FIRST_TOUCH: Self = Self {
        transition: Transition::InvalidToShared,
        case: Case::FirstTouch,
    };

    /// The one where the region has a slot, and at most one blade is invalidated.
    pub(super) const fn of(transition: Transition) -> Self {
        Self {
            transition,
            case: Case::Usual,
        }
    }

    const fn several(transition: Transition) -> Self {
        Self {
            transition,
            case: Case::Several,
        }
    }

    /// Its name, for people.
    pub(super) fn name(self) -> String {
        let name = self.transition.name();
        match self.case {
            Case::Usual => name.to_owned(),
            Case::Several => format!("{name} (two)"),
            Case::FirstTouch => "first touch".to_owned(),
        }
    }

    /// Its name in JSON: `i_s`.
    pub(super) fn key(self) -> String {
        let key = self.transition.name().to_lowercase().replace("->", "_");
        match self.case {
            Case::Usual => key,
            Case::Several => key + "_several",
            Case::FirstTouch => "first_touch".to_owned(),
        }
    }
}

/// What happens to a round's pages.
const STEPS: [Step; 12] = [
    first_touch(0, Access::Read, Pages::Read, Transition::InvalidToShared),
    after_reset(step(
        0,
        Access::Read,
        Pages::Read,
        Transition::InvalidToShared,
    )),
    step(1, Access::Read, Pages::Read, Transition::SharedToShared),
    step(0, Access::Write, Pages::Read, Transition::SharedToModified),
    step(1, Access::Read, Pages::Read, Transition::ModifiedToShared),
    step(0, Access::Write, Pages::Read, Transition::SharedToModified),
    step(
        1,
        Access::Write,
        Pages::Read,
        Transition::ModifiedToModified,
    ),
    before(first_touch(
        0,
        Access::Write,
        Pages::Written,
        Transition::InvalidToModified,
    )),
    after_reset(step(
        0,
        Access::Write,
        Pages::Written,
        Transition::InvalidToModified,
    )),
    before(first_touch(
        1,
        Access::Read,
        Pages::Spread,
        Transition::InvalidToShared,
    )),
    before(step(
        2,
        Access::Read,
        Pages::Spread,
        Transition::SharedToShared,
    )),
    Step {
        kind: Kind::several(Transition::SharedToModified),
        ..step(
            0,
            Access::Write,
            Pages::Spread,
            Transition::SharedToModified,
        )
    },
];

/// What is measured, in the report's order.
pub(super) const MEASURED: [Kind; 8] = [
    Kind::FIRST_TOUCH,
    Kind::of(Transition::InvalidToShared),
    Kind::of(Transition::SharedToShared),
    Kind::of(Transition::InvalidToModified),
    Kind::of(Transition::SharedToModified),
    Kind::several(Transition::SharedToModified),
    Kind::of(Transition::ModifiedToShared),
    Kind::of(Transition::ModifiedToModified),
];

/// What was measured.
#[derive(Debug, Default)]
pub(super) struct Transitions {
    /// Times by [`Kind::key`].
    pub(super) samples: BTreeMap<String, Samples>,
    /// The agent's median over all accesses of that transition, from reading the fault to resolving it; by
    /// [`Kind::key`], in microseconds.
    pub(super) agent_us: BTreeMap<String, f64>,
    /// Accesses that caused another transition than they should have.
    pub(super) strays: usize,
}

impl Transitions {
    /// Measures a round of batches of `batch` accesses, at most [`BATCH`].
    pub(super) fn round(
        &mut self,
        blades: &mut Blades,
        operator: &Operator,
        batch: usize,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let half = batch as u64 * STRIDE;
        let first = blades.map(3 * half)?;
        for step in STEPS {
            interrupt.check()?;
            let first = match step.pages {
                Pages::Read => first,
                Pages::Written => first + half,
                Pages::Spread => first + 2 * half,
            };
            if step.resets {
                let mut pages = (0..batch as u64).map(|number| first + number * STRIDE);
                pages.try_for_each(|page| operator.reset_region(page))?;
            }
            let task = Task::Touch {
                first,
                stride: STRIDE,
                count: batch,
                access: step.access,
            };
            let before = blades.report(step.blade)?.transitions;
            let nanos = blades.worker(step.blade).times(&task)?;
            let after = blades.report(step.blade)?.transitions;
            let taken = taken(&before, &after);
            let transition = step.kind.transition;
            let strays = strays(&taken, transition, batch);
            if strays * ACCESSES_PER_STRAY > batch {
                bail!(
                    "{batch} accesses by {} must be {}, and were {}",
                    blades.name(step.blade),
                    transition.name(),
                    described(&taken)
                );
            }
            self.strays += strays;
            if !step.counts {
                continue;
            }
            let key = step.kind.key();
            self.samples.entry(key.clone()).or_default().add(nanos);
            let agents = after
                .iter()
                .find(|other| other.transition == transition.name());
            if let Some(agents) = agents {
                let micros = agents.p50_ns as f64 / 1000.0;
                self.agent_us.insert(key, micros);
            }
        }
        blades.unmap()
    }
}

/// How often each transition was caused between two reports of an agent.
pub(super) fn taken(
    before: &[TransitionReport],
    after: &[TransitionReport],
) -> BTreeMap<String, usize> {
    let count_before = |name: &str| {
        let transition = before
            .iter()
            .find(|transition| transition.transition == name);
        transition.map_or(0, |transition| transition.count)
    };
    after
        .iter()
        .map(|transition| {
            let count = transition
                .count
                .saturating_sub(count_before(&transition.transition));
            (transition.transition.clone(), count as usize)
        })
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// How many of `count` accesses did not cause `transition`, or how many other transitions there
/// were.
fn strays(taken: &BTreeMap<String, usize>, transition: Transition, count: usize) -> usize {
    let right = taken.get(transition.name()).copied().unwrap_or(0);
    let others = taken.values().sum::<usize>() - right;
    others.max(right.abs_diff(count))
}

fn described(taken: &BTreeMap<String, usize>) -> String {
    if taken.is_empty() {
        return "no faults with a transition".to_owned();
    }
    let ways = taken
        .iter()
        .map(|(transition, count)| format!("{count} {transition}"));
    ways.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reports(counts: &[(&str, u64)]) -> Vec<TransitionReport> {
        let report = |&(transition, count): &(&str, u64)| TransitionReport {
            transition: transition.to_owned(),
            count,
            ..TransitionReport::default()
        };
        counts.iter().map(report).collect()
    }

    #[test]
    fn keys_are_those_that_the_bench_promises() {
        let keys = MEASURED.map(Kind::key);
        assert_eq!(
            keys,
            [
                "first_touch",
                "i_s",
                "s_s",
                "i_m",
                "s_m",
                "s_m_several",
                "m_s",
                "m_m"
            ]
        );
        assert_eq!(Kind::FIRST_TOUCH.name(), "first touch");
    }

    #[test]
    fn every_transition_is_measured_in_every_round() {
        for kind in MEASURED {
            let is_measured = STEPS.iter().any(|step| step.counts && step.kind == kind);
            assert!(is_measured, "{kind:?}");
        }
    }

    /// The directory's own rules say what each step is.
    #[test]
    fn steps_are_the_transitions_that_they_say() {
        #[derive(Clone, Copy, PartialEq)]
        enum State {
            /// Without a slot.
            Untouched,
            Invalid,
            Shared([bool; 3]),
            Modified(usize),
        }
        let mut states = [State::Untouched; 3];
        for step in STEPS {
            let state = &mut states[step.pages as usize];
            if step.resets {
                assert!(*state != State::Untouched, "there is nothing to reset");
                *state = State::Invalid;
            }
            let is_first = *state == State::Untouched;
            assert_eq!(step.kind.case == Case::FirstTouch, is_first);
            let transition = match (*state, step.access) {
                (State::Untouched | State::Invalid, Access::Read) => Transition::InvalidToShared,
                (State::Untouched | State::Invalid, Access::Write) => Transition::InvalidToModified,
                (State::Shared(holders), Access::Read) => {
                    assert!(!holders[step.blade], "this would be no fault");
                    Transition::SharedToShared
                }
                (State::Shared(holders), Access::Write) => {
                    let others =
                        (0..holders.len()).filter(|&blade| blade != step.blade && holders[blade]);
                    let is_of_several = step.kind.case == Case::Several;
                    let expected = if is_of_several { 2 } else { 1 };
                    assert_eq!(others.count(), expected, "so many are invalidated");
                    Transition::SharedToModified
                }
                (State::Modified(holders), access) => {
                    assert_ne!(holders, step.blade, "this would be no fault");
                    match access {
                        Access::Read => Transition::ModifiedToShared,
                        Access::Write => Transition::ModifiedToModified,
                    }
                }
            };
            assert_eq!(transition, step.kind.transition);
            *state = match (*state, step.access) {
                (_, Access::Write) => State::Modified(step.blade),
                (before, Access::Read) => {
                    let mut holders = match before {
                        State::Shared(holders) => holders,
                        State::Untouched | State::Invalid | State::Modified(_) => [false; 3],
                    };
                    if let State::Modified(owner) = before {
                        holders[owner] = true;
                    }
                    holders[step.blade] = true;
                    State::Shared(holders)
                }
            };
        }
    }

    #[test]
    fn what_agents_counted_tells_strays() {
        let before = reports(&[("I->S", 5), ("S->S", 7)]);
        let all = taken(&before, &reports(&[("I->S", 15), ("S->S", 7), ("S->M", 0)]));
        assert_eq!(described(&all), "10 I->S");
        assert_eq!(strays(&all, Transition::InvalidToShared, 10), 0);
        assert_eq!(strays(&all, Transition::SharedToShared, 10), 10);
        let some = taken(&before, &reports(&[("I->S", 14), ("S->S", 8)]));
        assert_eq!(described(&some), "9 I->S, 1 S->S");
        assert_eq!(strays(&some, Transition::InvalidToShared, 10), 1);
        assert_eq!(
            strays(&taken(&before, &before), Transition::InvalidToShared, 10),
            10
        );
    }
}
