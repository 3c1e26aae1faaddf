//! The axioms: which relations between the events of an execution must be acyclic.

use super::{Axioms, Candidates, Event, Execution};

/// A relation between events: for each, the set of those that it is related to.
pub(super) type Relation = Vec<u64>;

impl Candidates<'_> {
    /// Whether the execution is one of the model's.
    pub(super) fn satisfies(&self, execution: &Execution, axioms: Axioms) -> bool {
        let place = |event: usize| {
            let order = &execution.order[self.events[event].location];
            order
                .iter()
                .position(|of| *of == event)
                .map_or(0, |place| place + 1)
        };
        // The place in coherence order of what a load reads; 0 is the initial value.
        let read = |event: usize| execution.source.get(&event).map_or(0, |of| place(*of));
        let numbered = |related: &dyn Fn(usize, usize) -> bool| {
            let row = |one| {
                let of = (0..self.events.len()).filter(|two| one != *two && related(one, *two));
                of.fold(0_u64, |row, two| row | 1 << two)
            };
            (0..self.events.len()).map(row).collect::<Relation>()
        };
        let events = &self.events;
        let same = |one: usize, two: usize| events[one].location == events[two].location;
        let apart = |one: usize, two: usize| events[one].thread != events[two].thread;

        let co = numbered(&|one, two| {
            same(one, two) && events[one].writes && events[two].writes && place(one) < place(two)
        });
        let fr = numbered(&|one, two| {
            same(one, two) && events[one].reads && events[two].writes && read(one) < place(two)
        });
        let rf = numbered(&|one, two| execution.source.get(&two) == Some(&one));
        let po_loc = relation(events, |one, two| one.location == two.location);
        let po_loc = and(&po_loc, &self.po);
        let communication = or(&or(&co, &fr), &rf);
        match axioms {
            Axioms::Coherence => acyclic(&or(&communication, &po_loc)),
            Axioms::Sc => acyclic(&or(&communication, &self.po)),
            Axioms::Tso => {
                let rfe = and(&rf, &numbered(&apart));
                let kept = relation(events, |one, two| one.reads || two.writes);
                let kept = or(&and(&kept, &self.po), &self.fenced);
                acyclic(&or(&communication, &po_loc))
                    && acyclic(&or(&or(&co, &fr), &or(&rfe, &kept)))
            }
        }
    }
}

pub(super) fn relation(events: &[Event], related: impl Fn(&Event, &Event) -> bool) -> Relation {
    let row = |one: &Event| {
        let numbered = events.iter().enumerate();
        let of = numbered.filter(|(_, two)| related(one, two));
        of.fold(0_u64, |row, (number, _)| {
            row | 1_u64.unbounded_shl(number as u32)
        })
    };
    events.iter().map(row).collect()
}

fn or(one: &Relation, two: &Relation) -> Relation {
    one.iter().zip(two).map(|(one, two)| one | two).collect()
}

fn and(one: &Relation, two: &Relation) -> Relation {
    one.iter().zip(two).map(|(one, two)| one & two).collect()
}

/// Whether there is no cycle: events without successors are taken away until none is left.
fn acyclic(relation: &Relation) -> bool {
    let mut left = (0..relation.len()).fold(0_u64, |left, event| left | 1 << event);
    loop {
        let ends = |event: &usize| left >> event & 1 == 1 && relation[*event] & left == 0;
        let gone = (0..relation.len())
            .filter(ends)
            .fold(0_u64, |gone, event| gone | 1 << event);
        left &= !gone;
        if left == 0 || gone == 0 {
            return left == 0;
        }
    }
}
