//! Incarnations of compute blades: they begin, hang, lose their connection, crash, and are followed
//! by the next.

use mind_api::message::BladeKind;
use mind_common::id::{BladeId, Connection};
use mind_machines::{
    Node,
    controller::books::{
        blades::Incarnation,
        records::{Key, Record},
    },
};

use crate::{
    Failure,
    trace::What,
    world::host::Host,
    world::{Event, World},
};

/// When threads enter their domains at first, in nanoseconds.
const FIRST: std::ops::Range<u64> = 0..200_000;

impl World<'_> {
    pub(crate) fn host(&mut self, blade: BladeId) -> Option<&mut Host> {
        self.machines.get_mut(&blade)?.host.as_mut()
    }

    /// An incarnation begins: its programs enter their domains.
    pub(crate) fn begin_incarnation(&mut self, connection: Connection) {
        let blade = connection.blade;
        let capacity = self.plan.capacity;
        if let Some(machine) = self.machines.get_mut(&blade) {
            machine.host = Some(Host::new(connection, capacity, self.plan.load.residency));
        }
        for number in 0..self.threads.len() {
            if self.plan.programs[number].blade == blade {
                let thread = &mut self.threads[number];
                (thread.start, thread.domain) = (0, None);
                if self.is_starting {
                    let delay = self.random.u64(FIRST);
                    self.beginning.push((delay, number, connection));
                } else {
                    self.enter(number, 0, connection);
                }
            }
        }
    }

    /// An incarnation ends and loses its state; the controller learns of it after so long. Whether there was one.
    pub(crate) fn end(&mut self, blade: BladeId, noticed: u64) -> bool {
        let Some(machine) = self.machines.get_mut(&blade) else {
            return false;
        };
        let Some(host) = machine.host.take() else {
            return false;
        };
        machine.hung_until = 0;
        if !host.is_cut {
            machine.remains = Some((host.connection, host.dirty()));
        }
        for number in 0..self.threads.len() {
            if self.plan.programs[number].blade == blade {
                self.threads[number].stop();
            }
        }
        self.end_agent(Node::Compute(blade), noticed);
        true
    }

    /// A blade crashes; the controller finds out, and the blade registers again.
    pub(crate) fn crash(&mut self, blade: BladeId, noticed: u64, back: u64) {
        let node = Node::Compute(blade);
        let agent = self.agents.get(&node);
        let is_joining = agent.is_some_and(|agent| agent.incarnation.is_none());
        if is_joining {
            self.end_agent(node, noticed);
        }
        if is_joining || self.end(blade, noticed) {
            self.queue.after(back, Event::Begin(node));
        }
    }

    /// The daemon hangs.
    pub(crate) fn hang(&mut self, blade: BladeId, lasts: u64) {
        let until = self.queue.now().saturating_add(lasts);
        if let Some(machine) = self.machines.get_mut(&blade)
            && machine.host.is_some()
        {
            machine.hung_until = until;
        }
    }

    /// The event, unless it waits for a daemon that hangs.
    pub(crate) fn unless_hung(&mut self, event: Event) -> Option<Event> {
        let blade = match &event {
            Event::Down(Node::Compute(blade), _) | Event::Poll(blade) => *blade,
            Event::Fault(_, connection, ..)
            | Event::Left(.., connection)
            | Event::Enters(.., connection) => connection.blade,
            Event::Reconnect(Node::Compute(blade), _) => *blade,
            Event::ToAgent(session, _) | Event::SessionLost(session) => {
                match self.is_heard(*session) {
                    Some(Node::Compute(blade)) => blade,
                    Some(Node::Memory(_)) | None => return Some(event),
                }
            }
            _ => return Some(event),
        };
        let until = self.machines.get(&blade).map_or(0, |it| it.hung_until);
        if until <= self.queue.now() {
            return Some(event);
        }
        // Timers are handled at some time among all packets that have come.
        let late = match event {
            Event::Poll(_) | Event::Down(..) => self.tardiness(),
            _ => 0,
        };
        self.queue.at(until + late, event);
        None
    }

    /// The connection to the controller breaks, and both find out at some time.
    pub(crate) fn disconnect(&mut self, blade: BladeId, noticed: u64, found: u64) {
        let agent = self.agents.get(&Node::Compute(blade));
        let session = agent.and_then(|agent| agent.session);
        if let Some(session) = session.filter(|_| self.host(blade).is_some()) {
            self.break_connection(session);
            self.queue.after(noticed, Event::Closed(session));
            self.queue.after(found, Event::SessionLost(session));
        }
    }

    /// Handles blades whose packets the switch drops for good: their pages stay, their writes may be lost. Before it is
    /// recorded that a blade is gone, another controller may let it go on.
    pub(crate) fn notice_cuts(&mut self) {
        for (blade, machine) in &mut self.machines {
            let record = self
                .records
                .get(&Key::Blade(BladeKind::Compute, blade.get()));
            let is_received = |connection| match record {
                Some(Record::Blade(known)) => {
                    known.is_here && known.incarnation == Incarnation::compute(connection)
                }
                _ => false,
            };
            if let Some((connection, dirty)) = machine.remains.take() {
                if is_received(connection) {
                    machine.remains = Some((connection, dirty));
                } else {
                    dirty
                        .into_iter()
                        .for_each(|page| self.checker.owner_lost(page));
                    let cut = What::Cut(Node::Compute(*blade));
                    self.log.push(self.queue.now(), cut);
                }
            }
            if let Some(host) = &mut machine.host
                && !host.is_cut
                && !is_received(host.connection)
            {
                host.is_cut = true;
                let cut = What::Cut(Node::Compute(*blade));
                self.log.push(self.queue.now(), cut);
                // Until it finds out, its programs go on with the pages that they have: these must be current now.
                let mut copies = host.cache.iter();
                let differs = copies.find(|(page, cached)| {
                    let now = self.checker.now(**page);
                    now.is_some_and(|now| now != cached.image)
                });
                if let Some((page, _)) = differs {
                    let stale = Failure::Disagrees(blade.to_string(), *page);
                    self.failure.get_or_insert(stale);
                }
                for page in host.dirty() {
                    self.checker.owner_lost(page);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Outcome,
        plan::{Disturbance, MILLISECOND, Op, Place, Plan, Program, blade, calm},
        run,
        trace::Record,
    };

    const HOST: Node = Node::Compute(BladeId::from_low_bits(0));

    /// The outcome of two blades that write a page in turn, each twice, with that disturbance of
    /// the first.
    fn outcome(disturbance: Disturbance) -> Outcome {
        let place = Place {
            area: 0,
            page: 0,
            word: 0,
        };
        let plan = calm(100 * MILLISECOND);
        let programs = [[1, 20], [10, 30]].into_iter().enumerate();
        let programs = programs.map(|(number, times)| Program {
            blade: blade(number as u8),
            domain: plan.areas[0].domain,
            ops: times
                .into_iter()
                .flat_map(|at| [Op::Until(at * MILLISECOND), Op::Store(place)])
                .collect(),
        });
        let outcome = run(
            &Plan {
                blades: 2,
                programs: programs.collect(),
                disturbances: vec![(5 * MILLISECOND, disturbance)],
                ..plan
            },
            true,
        );
        assert_eq!(outcome.failure, None);
        outcome
    }

    /// When each thread stored, in milliseconds.
    fn stores(records: &[Record]) -> [Vec<u64>; 2] {
        [0, 1].map(|number| {
            let stores = records.iter().filter_map(|record| match record.what {
                What::Stored(thread, ..) if thread == number => Some(record.at / MILLISECOND),
                _ => None,
            });
            stores.collect()
        })
    }

    #[test]
    fn a_daemon_that_hangs_handles_later_what_came_meanwhile() {
        let outcome = outcome(Disturbance::Hang {
            blade: blade(0),
            lasts: 8 * MILLISECOND,
        });
        assert_eq!(stores(&outcome.records), [vec![1, 20], vec![13, 30]]);
    }

    #[test]
    fn a_blade_that_crashes_registers_as_another_incarnation() {
        let outcome = outcome(Disturbance::Crash {
            blade: blade(0),
            noticed: MILLISECOND,
            back: 2 * MILLISECOND,
        });
        assert_eq!(stores(&outcome.records), [vec![1, 20], vec![10, 30]]);
        let records = outcome.records.iter();
        let connections = records.filter_map(|record| match record.what {
            What::Sent(HOST, packet, _) => Connection::from_qp(packet.envelope.qp),
            _ => None,
        });
        let mut connections: Vec<_> = connections
            .map(|connection| connection.incarnation)
            .collect();
        connections.dedup();
        assert_eq!(connections.len(), 2);
    }

    #[test]
    fn a_blade_without_the_controller_goes_on_until_it_finds_out() {
        let outcome = outcome(Disturbance::Disconnect {
            blade: blade(0),
            noticed: 20 * MILLISECOND,
            found: 25 * MILLISECOND,
        });
        assert_eq!(stores(&outcome.records), [vec![1, 20], vec![10, 30]]);
        let cuts = outcome.records.iter();
        let cuts = cuts.filter(|record| record.what == What::Cut(HOST));
        let cuts: Vec<_> = cuts.map(|record| record.at / MILLISECOND).collect();
        assert!(matches!(cuts[..], [25..=27]), "{cuts:?}");
    }
}
