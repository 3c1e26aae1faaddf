//! Lives of compute blades: they begin, hang, lose their connection, fail, and come back.

use mind_common::id::{BladeId, Connection};
use mind_machines::{Node, controller::Input, switch::Port};

use crate::{
    Failure,
    trace::What,
    world::agent::RESTART,
    world::host::Host,
    world::{Event, World},
};

impl World<'_> {
    pub(crate) fn host(&mut self, blade: BladeId) -> Option<&mut Host> {
        self.machines.get_mut(&blade)?.host.as_mut()
    }

    /// A life begins: its programs ask to be let in.
    pub(crate) fn live(&mut self, life: Connection) {
        let blade = life.blade;
        let capacity = self.plan.capacity;
        if let Some(machine) = self.machines.get_mut(&blade) {
            machine.host = Some(Host::new(life, capacity, self.plan.load.hold));
        }
        for number in 0..self.threads.len() {
            if self.plan.programs[number].blade == blade {
                let ticket = self.ticket(number);
                self.enter(ticket, life);
            }
        }
    }

    /// A life is over, with all that it has. Whose it was.
    pub(crate) fn end(&mut self, blade: BladeId) -> Option<Connection> {
        let machine = self.machines.get_mut(&blade)?;
        let host = machine.host.take()?;
        machine.hung_until = 0;
        if !host.is_cut {
            machine.remains = Some((host.life, host.dirty()));
        }
        for number in 0..self.threads.len() {
            if self.plan.programs[number].blade == blade {
                self.threads[number].stop();
            }
        }
        Some(host.life)
    }

    /// A blade fails; the controller finds out, and it comes back.
    pub(crate) fn crash(&mut self, blade: BladeId, noticed: u64, back: u64) {
        if let Some(life) = self.end(blade) {
            self.queue.after(noticed, Event::Hear(Input::Broken(life)));
            self.queue.after(back, Event::Begin(blade));
        }
    }

    /// The daemon stands still.
    pub(crate) fn hang(&mut self, blade: BladeId, lasts: u64) {
        let until = self.queue.now().saturating_add(lasts);
        if let Some(machine) = self.machines.get_mut(&blade)
            && machine.host.is_some()
        {
            machine.hung_until = until;
        }
    }

    /// The event, unless it waits for a daemon that stands still.
    pub(crate) fn unless_hung(&mut self, event: Event) -> Option<Event> {
        let blade = match &event {
            Event::Down(Node::Compute(blade), _) | Event::Poll(blade) => *blade,
            Event::Fault(_, life, ..) | Event::Left(.., life) | Event::Enters(_, life) => {
                life.blade
            }
            Event::Command(link, _) => match link.life() {
                Some(life) => life.blade,
                None => return Some(event),
            },
            _ => return Some(event),
        };
        let until = self.machines.get(&blade).map_or(0, |it| it.hung_until);
        if until <= self.queue.now() {
            return Some(event);
        }
        // Timers are looked at somewhere among all packets that have come.
        let late = match event {
            Event::Poll(_) | Event::Down(..) => self.tardiness(),
            _ => 0,
        };
        self.queue.at(until + late, event);
        None
    }

    /// The connection to the controller breaks, and both find out at some time.
    pub(crate) fn sever(&mut self, blade: BladeId, noticed: u64, found: u64) {
        let Some(host) = self.host(blade) else {
            return;
        };
        host.is_severed = true;
        let life = host.life;
        self.queue.after(noticed, Event::Hear(Input::Broken(life)));
        self.queue.after(found, Event::Abandoned(life));
    }

    /// A daemon without a controller ends, and is started again.
    pub(crate) fn abandoned(&mut self, life: Connection) {
        if self.host(life.blade).is_some_and(|host| host.life == life) {
            self.end(life.blade);
            self.queue.after(RESTART, Event::Begin(life.blade));
        }
    }

    /// Whom the switch has stopped listening to: what it has is as it was, what it wrote may be
    /// gone.
    pub(crate) fn notice_cuts(&mut self) {
        for (blade, machine) in &mut self.machines {
            let port = self.switch.tables().ports.get(&Node::Compute(*blade));
            let is_heard = |life| port == Some(&Port::Compute(life));
            if let Some((life, dirty)) = machine.remains.take() {
                if is_heard(life) {
                    machine.remains = Some((life, dirty));
                } else {
                    dirty
                        .into_iter()
                        .for_each(|page| self.checker.orphaned(page));
                    let cut = What::Cut(Node::Compute(*blade));
                    self.log.push(self.queue.now(), cut);
                }
            }
            if let Some(host) = &mut machine.host
                && !host.is_cut
                && !is_heard(host.life)
            {
                host.is_cut = true;
                let cut = What::Cut(Node::Compute(*blade));
                self.log.push(self.queue.now(), cut);
                // Until it hears of it, its programs go on with what they have: that must be true now.
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
                    self.checker.orphaned(page);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use mind_common::addr::{Va, WINDOW_BASE};

    use super::*;
    use crate::{
        Outcome,
        plan::{Disturbance, MILLISECOND, Op, Place, Plan, Program, blade, calm},
        run,
        trace::Record,
    };

    const HOST: Node = Node::Compute(BladeId::from_low_bits(0));

    /// Two blades write a page in turn, each twice, while that happens to the first.
    fn outcome(disturbance: Disturbance) -> Outcome {
        let place = Place {
            page: Va(WINDOW_BASE),
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
    fn a_daemon_that_stands_still_does_later_what_came_meanwhile() {
        let outcome = outcome(Disturbance::Hang {
            blade: blade(0),
            lasts: 8 * MILLISECOND,
        });
        assert_eq!(stores(&outcome.records), [vec![1, 20], vec![13, 30]]);
    }

    #[test]
    fn a_blade_that_fails_comes_back_in_another_life() {
        let outcome = outcome(Disturbance::Crash {
            blade: blade(0),
            noticed: MILLISECOND,
            back: 2 * MILLISECOND,
        });
        assert_eq!(stores(&outcome.records), [vec![1, 20], vec![10, 30]]);
        let records = outcome.records.iter();
        let lives = records.filter_map(|record| match record.what {
            What::Sent(HOST, packet, _) => Connection::from_qp(packet.envelope.qp),
            _ => None,
        });
        let mut lives: Vec<_> = lives.map(|life| life.incarnation).collect();
        lives.dedup();
        assert_eq!(lives.len(), 2);
    }

    #[test]
    fn a_blade_without_the_controller_goes_on_until_it_finds_out() {
        let outcome = outcome(Disturbance::Sever {
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
