//! Carries out [`Trigger`]s: the last packets of each kind are kept, and arrive once more.

use mind_common::id::BladeId;
use mind_machines::{Node, datagram::Datagram};

use super::{Event, World};
use crate::{
    coverage::Pair,
    plan::{Image, MILLISECOND},
    trace::Direction,
    trigger::{Effect, PacketKind, Trigger},
};

/// The oldest copy that arrives, in nanoseconds.
const OLDEST: u64 = 5 * MILLISECOND;

/// The last packets of each kind, from or to each compute blade, and when they were sent.
pub(crate) type Kept = Vec<(BladeId, PacketKind, u64, Datagram<Image>)>;

impl World<'_> {
    /// A packet is sent by a compute blade, or to it.
    pub(crate) fn keep(&mut self, node: Node, way: Direction, packet: &Datagram<Image>) {
        if let Node::Compute(blade) = node
            && let Some(sort) = PacketKind::of(packet)
            // A packet that completes a request looks like an answer.
            && sort.way() == way
            && self
                .plan
                .triggers
                .iter()
                .any(|trigger| trigger.effect == Effect::Arrives(sort))
        {
            let is_that =
                |(of, what, ..): &(BladeId, PacketKind, u64, _)| *of == blade && *what == sort;
            self.kept_packets.retain(|kept| !is_that(kept));
            self.kept_packets
                .push((blade, sort, self.queue.now(), *packet));
        }
    }

    /// An event happened, of a page on that blade or of a word.
    pub(crate) fn happened(&mut self, pair: Pair, blade: Option<BladeId>) {
        self.coverage.count(pair);
        let now = self.queue.now();
        if now >= self.plan.network_faults.until {
            return;
        }
        for trigger in &self.plan.triggers {
            if trigger.after.is_like(pair) && self.random.u32(0..trigger.one_in) == 0 {
                self.follow(*trigger, blade);
            }
        }
    }

    fn follow(&mut self, trigger: Trigger, at: Option<BladeId>) {
        let is_meant = |blade| at.is_none_or(|at| at == blade);
        match trigger.effect {
            Effect::Arrives(sort) => {
                let now = self.queue.now();
                for &(blade, of, sent, packet) in &self.kept_packets {
                    if of != sort || !is_meant(blade) || now - sent > OLDEST {
                        continue;
                    }
                    let delay = self.random.u64(0..=trigger.within);
                    let node = Node::Compute(blade);
                    let arrives = match sort.way() {
                        Direction::Down => Event::Down(node, packet),
                        Direction::Up => Event::Up(node, packet),
                    };
                    self.queue.after(delay, arrives);
                }
            }
            Effect::Happens(disturbance) => {
                if disturbance.blade().is_none_or(is_meant) {
                    let delay = self.random.u64(0..=trigger.within);
                    self.queue.after(delay, Event::Follow(disturbance));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use mind_common::directory::{Target, Want};
    use mind_machines::compute::{
        Access,
        page::{Event as Step, Phase},
    };

    use super::*;
    use crate::{
        Outcome,
        plan::{Disturbance, Op, Place, Plan, Program, blade, calm},
        run,
        trace::What,
    };

    const WRITES: u64 = 5;
    const ACQUIRES: Pair = Pair::Page(Phase::Absent, Step::Fault(Access::Write));

    /// The outcome of two blades that write a page in turn, with that trigger.
    fn outcome(follows: Trigger) -> Outcome {
        let place = Place {
            area: 0,
            page: 0,
            word: 0,
        };
        let turn = |number: u8, turn: u64| {
            let at = (1 + 2 * turn + u64::from(number)) * MILLISECOND;
            [Op::Until(at), Op::Store(place)]
        };
        let programs = [0, 1].map(|number| Program {
            blade: blade(number),
            domain: 0,
            ops: (0..WRITES).flat_map(|write| turn(number, write)).collect(),
        });
        let plan = Plan {
            blades: 2,
            programs: programs.to_vec(),
            triggers: vec![follows],
            ..calm(100 * MILLISECOND)
        };
        let outcome = run(&plan, true);
        assert_eq!(outcome.failure, None);
        assert_eq!(outcome.coverage.of(ACQUIRES), 2 * WRITES);
        outcome
    }

    const fn always(effect: Effect) -> Trigger {
        Trigger {
            after: ACQUIRES,
            one_in: 1,
            effect,
            within: 2_000,
        }
    }

    #[test]
    fn a_disturbance_follows_what_happens_on_its_own_blade() {
        let hang = Disturbance::Hang {
            blade: blade(1),
            lasts: 0,
        };
        let records = outcome(always(Effect::Happens(hang))).records;
        let hangs = records
            .iter()
            .filter(|record| record.what == What::Disturbed(hang));
        assert_eq!(hangs.count() as u64, WRITES);
    }

    #[test]
    fn the_last_packet_of_a_kind_arrives_once_more() {
        let copies = |sort: PacketKind| {
            let records = outcome(always(Effect::Arrives(sort))).records;
            let is_that = |packet| PacketKind::of(packet) == Some(sort);
            let (mut sent, mut arrived) = (0, 0);
            for record in &records {
                match &record.what {
                    What::Sent(Node::Compute(_), packet, copies)
                    | What::Forwarded(Node::Compute(_), packet, copies)
                        if is_that(packet) =>
                    {
                        sent += *copies as u64;
                    }
                    What::Switched(Node::Compute(_), packet, _)
                    | What::Arrived(Node::Compute(_), packet)
                        if is_that(packet) =>
                    {
                        arrived += 1;
                    }
                    _ => {}
                }
            }
            arrived - sent
        };
        // Of each blade after its second write, as long as its last is young enough.
        let invalidations = copies(PacketKind::Invalidate(Target::Invalid));
        assert!(invalidations >= WRITES, "{invalidations}");
        assert!(copies(PacketKind::Answer) >= WRITES);
        // No blade sends that.
        assert_eq!(copies(PacketKind::Request(Want::Read, false)), 0);
    }
}
