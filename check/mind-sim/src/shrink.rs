//! Reduces a failing run: leaves out operations and faults as long as it still fails in the same
//! way (delta debugging: Zeller and Hildebrandt, TSE 2002).

use std::mem::discriminant;

use crate::{
    Failure,
    plan::{Op, Plan},
    run,
};

/// How many seeds are tried with a smaller plan: few at first, more when no part can be left out
/// any more.
const SEEDS_TRIED: std::ops::RangeInclusive<u64> = 8..=64;

/// Something that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// An operation, by the numbers of program and operation.
    Op(usize, usize),
    /// A disturbance, by number.
    Disturbance(usize),
}

/// The search.
struct Search {
    plan: Plan,
    failure: Failure,
    /// Runs that may still be tried.
    left: usize,
    /// How many seeds are tried with a smaller plan.
    seeds: u64,
}

/// A smaller plan that fails as `plan` does with `failure`, after at most so many runs.
pub fn shrink(plan: &Plan, failure: &Failure, runs: usize) -> (Plan, Failure) {
    let mut search = Search {
        plan: plan.clone(),
        failure: failure.clone(),
        left: runs,
        seeds: *SEEDS_TRIED.start(),
    };
    search.calm();
    loop {
        let before = parts(&search.plan).len();
        search.cut();
        if search.left == 0 {
            break;
        }
        if parts(&search.plan).len() == before {
            search.seeds *= 2;
            if search.seeds > *SEEDS_TRIED.end() {
                break;
            }
        }
    }
    search.calm();
    search.leave_out_blades();
    (search.plan, search.failure)
}

fn parts(plan: &Plan) -> Vec<Part> {
    let ops = plan.programs.iter().enumerate();
    let ops = ops
        .flat_map(|(number, program)| (0..program.ops.len()).map(move |op| Part::Op(number, op)));
    let disturbances = (0..plan.disturbances.len()).map(Part::Disturbance);
    disturbances.chain(ops).collect()
}

fn without(plan: &Plan, left_out: &[Part]) -> Plan {
    let mut plan = plan.clone();
    for (number, program) in plan.programs.iter_mut().enumerate() {
        let mut op = 0;
        program.ops.retain(|_| {
            op += 1;
            !left_out.contains(&Part::Op(number, op - 1))
        });
    }
    let mut number = 0;
    plan.disturbances.retain(|_| {
        number += 1;
        !left_out.contains(&Part::Disturbance(number - 1))
    });
    plan
}

impl Search {
    /// Accepts a plan if it fails in the same way, with the same seed or with others: with fewer
    /// operations, random events must coincide anew.
    fn takes(&mut self, plan: Plan) -> bool {
        for seed in 0..self.seeds {
            if self.left == 0 || plan == self.plan {
                return false;
            }
            self.left -= 1;
            let plan = Plan {
                seed: plan.seed.wrapping_add(seed),
                ..plan.clone()
            };
            if let Some(failure) = run(&plan, false).failure
                && discriminant(&failure) == discriminant(&self.failure)
            {
                (self.plan, self.failure) = (plan, failure);
                return true;
            }
        }
        false
    }

    /// Leaves out parts, large pieces first.
    fn cut(&mut self) {
        let mut size = parts(&self.plan).len().div_ceil(2);
        while size > 0 {
            let mut at = 0;
            loop {
                let parts = parts(&self.plan);
                let Some(piece) = parts.get(at..) else {
                    break;
                };
                let piece = &piece[..size.min(piece.len())];
                if piece.is_empty() {
                    break;
                }
                if !self.takes(without(&self.plan, piece)) {
                    at += size;
                }
            }
            size /= 2;
        }
    }

    /// Reduces the network's faults.
    fn calm(&mut self) {
        let changes: [fn(&mut Plan); 7] = [
            |plan| plan.epoch = None,
            |plan| plan.network_faults.loss = 0,
            |plan| plan.network_faults.duplication = 0,
            |plan| plan.network_faults.lateness = 0,
            |plan| plan.network_faults.hold_ups = 0,
            |plan| plan.triggers.clear(),
            |plan| plan.capacity = 1024,
        ];
        for change in changes {
            let mut plan = self.plan.clone();
            change(&mut plan);
            self.takes(plan);
        }
    }

    /// Programs without anything to do, and blades without programs.
    fn leave_out_blades(&mut self) {
        let mut plan = self.plan.clone();
        plan.programs.retain(|program| !program.ops.is_empty());
        let last = plan
            .programs
            .iter()
            .map(|program| program.blade.get())
            .max();
        plan.blades = last.map_or(plan.blades, |last| last + 1);
        plan.disturbances.retain(|(_, disturbance)| {
            disturbance
                .blade()
                .is_none_or(|blade| blade.get() < plan.blades)
        });
        self.takes(plan);
        for number in (0..self.plan.areas.len()).rev() {
            if let Some(plan) = without_area(&self.plan, number) {
                self.takes(plan);
            }
        }
    }
}

/// The plan without an area that no program uses.
fn without_area(plan: &Plan, number: usize) -> Option<Plan> {
    let mut plan = plan.clone();
    let mut ops = plan
        .programs
        .iter_mut()
        .flat_map(|program| &mut program.ops);
    if plan.areas.len() == 1 || ops.any(|op| op.area_mut() == Some(&mut { number })) {
        return None;
    }
    plan.areas.remove(number);
    plan.disturbances
        .retain_mut(|(_, disturbance)| disturbance.area_mut() != Some(&mut { number }));
    let ops = plan
        .programs
        .iter_mut()
        .flat_map(|program| &mut program.ops);
    let disturbances = plan.disturbances.iter_mut();
    let places = ops
        .filter_map(Op::area_mut)
        .chain(disturbances.filter_map(|(_, disturbance)| disturbance.area_mut()));
    for area in places {
        *area -= usize::from(*area > number);
    }
    Some(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        flaw::Flaw,
        plan::{Change, Disturbance, MILLISECOND, Op, Place, Program, blade, calm},
    };

    const PLACE: Place = Place {
        area: 0,
        page: 0,
        word: 0,
    };

    /// Two threads that read and write a page on blades of their own, a third that waits.
    fn plan() -> Plan {
        let plan = calm(MILLISECOND);
        let place = PLACE;
        let program = |number, ops: &[Op]| Program {
            blade: blade(number),
            domain: plan.areas[0].domain,
            ops: ops.to_vec(),
        };
        let wait = Op::Until(MILLISECOND / 2);
        Plan {
            blades: 4,
            programs: vec![
                program(0, &[Op::Load(place), Op::Store(place), Op::Load(place)]),
                program(1, &[wait, Op::Load(place), Op::Load(place)]),
                program(3, &[wait, wait]),
            ],
            disturbances: [0, 3]
                .map(|number| {
                    let blade = blade(number);
                    (0, Disturbance::Hang { blade, lasts: 10 })
                })
                .to_vec(),
            ..plan
        }
    }

    #[test]
    fn what_is_left_out_is_not_there_and_all_else_is() {
        let plan = plan();
        assert_eq!(parts(&plan).len(), 8 + 2);
        let small = without(
            &plan,
            &[Part::Op(0, 1), Part::Op(2, 0), Part::Disturbance(0)],
        );
        let load = Op::Load(PLACE);
        assert_eq!(small.programs[0].ops, [load, load]);
        assert_eq!(small.programs[1], plan.programs[1]);
        assert_eq!(small.programs[2].ops.len(), 1);
        assert_eq!(small.disturbances, plan.disturbances[1..]);
        assert_eq!(without(&plan, &[]), plan);
    }

    #[test]
    fn an_area_that_no_program_uses_is_left_out_and_others_keep_their_places() {
        let mut plan = plan();
        plan.areas.push(plan.areas[0]);
        plan.areas.push(plan.areas[0]);
        let other = Op::Load(Place { area: 2, ..PLACE });
        plan.programs[0].ops.push(other);
        let change = |area| (0, Disturbance::Change(Change::Split, area, 0));
        plan.disturbances = vec![change(0), change(1), change(2)];
        assert_eq!(without_area(&plan, 0), None);
        assert_eq!(without_area(&plan, 2), None);
        let small = without_area(&plan, 1).expect("no program uses it");
        assert_eq!(small.areas.len(), 2);
        let moved = Op::Load(Place { area: 1, ..PLACE });
        assert_eq!(small.programs[0].ops.last(), Some(&moved));
        assert_eq!(small.disturbances, [change(0), change(1)]);
    }

    #[test]
    fn only_what_it_takes_to_fail_is_left() {
        let plan = Plan {
            flaw: Some(Flaw::LostStores),
            ..plan()
        };
        let failure = run(&plan, false).failure.expect("stores are lost");
        let (small, same) = shrink(&plan, &failure, 1_000);
        assert_eq!(discriminant(&same), discriminant(&failure));
        assert_eq!(run(&small, false).failure, Some(same));
        // One thread writes, another reads, at some later time.
        assert_eq!(small.programs[0].ops, [Op::Store(PLACE)], "{small}");
        assert!(small.operations() <= 3, "{small}");
        assert_eq!(small.blades, 2);
        assert_eq!(small.disturbances, []);
    }

    #[test]
    fn no_more_runs_are_tried_than_it_may_take() {
        let plan = Plan {
            flaw: Some(Flaw::LostStores),
            ..plan()
        };
        let failure = run(&plan, false).failure.expect("stores are lost");
        assert_eq!(shrink(&plan, &failure, 0), (plan, failure));
    }
}
