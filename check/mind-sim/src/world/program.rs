//! Programs: they enter their domain on their blade, and end while the blade goes on.

use mind_common::{
    addr::{Va, WINDOW_BASE, WINDOW_SIZE},
    id::{BladeId, Connection, DomainId},
};
use mind_machines::controller::Request;

use crate::{
    Failure,
    world::{Event, World},
};

/// The token of the flush of a domain without programs.
pub(crate) const OF_DOMAIN: u64 = 1 << 33;
/// Replies about domains, by number: this and the ticket of the thread.
pub(crate) const ENTRY: u32 = 1 << 31;
/// Bits of a ticket that are the thread's number.
const OF_NUMBER: u32 = 12;
/// How long it takes until a daemon learns that a program has ended, in nanoseconds.
const PIDFD: std::ops::Range<u64> = 1_000..100_000;

impl World<'_> {
    /// Identifies the answer that the thread waits for: an answer to a request from before the
    /// thread was started again has another ticket. Never 0.
    pub(crate) fn ticket(&self, number: usize) -> u32 {
        let turn = self.threads[number].turn as u32;
        (turn << OF_NUMBER | number as u32) & !ENTRY
    }

    /// The thread with that ticket, if there is one.
    pub(crate) fn thread_of(&self, ticket: u32) -> Option<usize> {
        let number = (ticket & ((1 << OF_NUMBER) - 1)) as usize;
        (number < self.threads.len() && self.ticket(number) == ticket).then_some(number)
    }

    /// The thread with that ticket enters its domain, on a blade that is up.
    pub(crate) fn enter(&mut self, ticket: u32, connection: Connection) {
        let Some(number) = self.thread_of(ticket) else {
            return;
        };
        let domain = self.plan.programs[number].domain;
        if let Some(host) = self
            .host(connection.blade)
            .filter(|host| host.connection == connection)
        {
            host.programs.insert((domain, ticket));
            self.threads[number].entry = ticket;
            let id = ENTRY | ticket;
            let place = Request::Place {
                domain,
                blade: connection.blade,
                is_placed: true,
            };
            self.ask(connection, id, place);
        }
    }

    /// The controller has confirmed that a thread entered.
    pub(crate) fn entered(&mut self, number: usize) {
        if let Some(scripted_thread) = self.scripted.get_mut(number)
            && std::mem::replace(&mut scripted_thread.is_begun, true)
        {
            let blade = self.plan.programs[number].blade;
            return self.fail(Failure::Gone(blade));
        }
        self.start_thread(number);
    }

    /// The first so many threads of the domain end together; after a while they are started again,
    /// and go on with the operations that they had not begun.
    pub(crate) fn exit(&mut self, blade: BladeId, domain: DomainId, threads: usize, back: u64) {
        let Some(connection) = self.host(blade).map(|host| host.connection) else {
            return;
        };
        let programs = self.plan.programs.iter().enumerate();
        let own = programs.filter(|(_, of)| of.blade == blade && of.domain == domain);
        let gone = own.map(|(number, _)| number).take(threads);
        let heard = self.random.u64(PIDFD).min(back);
        for number in gone {
            let thread = &mut self.threads[number];
            let entry = thread.entry;
            thread.stop();
            let is_done = thread.is_done();
            self.queue
                .after(heard, Event::Left(domain, entry, connection));
            if !is_done {
                let ticket = self.ticket(number);
                self.queue.after(back, Event::Enters(ticket, connection));
            }
        }
    }

    /// The daemon learns that a thread, which entered with that ticket, has ended. If no thread of its domain is left
    /// on the blade, the domain's pages there are written back, whether or not they may be read any more.
    pub(crate) fn left(&mut self, domain: DomainId, entry: u32, connection: Connection) {
        let Some(host) = self
            .host(connection.blade)
            .filter(|host| host.connection == connection)
        else {
            return;
        };
        let was_there = host.programs.remove(&(domain, entry));
        let is_left = host.programs.iter().any(|(of, _)| *of == domain);
        if !was_there || is_left {
            return;
        }
        let all = (Va(WINDOW_BASE), WINDOW_SIZE);
        self.flush(connection.blade, all.0, all.1, Some(domain), OF_DOMAIN);
        let place = Request::Place {
            domain,
            blade: connection.blade,
            is_placed: false,
        };
        self.ask(connection, 0, place);
    }
}

#[cfg(test)]
mod tests {
    use mind_common::addr::{PAGE_SHIFT, Region};
    use mind_machines::{controller::Input, datagram::Body};

    use super::*;
    use crate::{
        Outcome,
        plan::{Area, Disturbance, MILLISECOND, Op, Place, Plan, Program, blade, calm},
        run,
        trace::What,
    };

    const DOMAINS: [DomainId; 2] = [DomainId(1), DomainId(2)];

    fn place(domain: usize) -> Place {
        Place {
            page: Va(WINDOW_BASE + ((domain as u64) << 21)),
            word: 0,
        }
    }

    /// The outcome of two threads of one domain and one of another on a blade, of which so many of
    /// the first domain end.
    fn outcome(threads: usize) -> Outcome {
        let areas = [0, 1].map(|domain| Area {
            domain: DOMAINS[domain],
            region: Region::containing(place(domain).page, 1).unwrap(),
            fails: false,
            is_writable: true,
            is_mapped: true,
        });
        let programs = [0, 0, 1].map(|domain| Program {
            blade: blade(0),
            domain: DOMAINS[domain],
            ops: [1, 3, 9]
                .into_iter()
                .flat_map(|at| [Op::Until(at * MILLISECOND), Op::Store(place(domain))])
                .collect(),
        });
        let exit = Disturbance::Exit {
            blade: blade(0),
            domain: DOMAINS[0],
            threads,
            back: 3 * MILLISECOND,
        };
        let outcome = run(
            &Plan {
                areas: areas.to_vec(),
                programs: programs.to_vec(),
                disturbances: vec![(5 * MILLISECOND, exit)],
                ..calm(10 * MILLISECOND)
            },
            true,
        );
        assert_eq!(outcome.failure, None);
        outcome
    }

    /// Threads that go on, domains that leave, pages that are written back; after the end of the
    /// threads.
    fn after(outcome: &Outcome) -> (Vec<usize>, Vec<DomainId>, Vec<u64>) {
        let (mut stores, mut leave, mut written) = (Vec::new(), Vec::new(), Vec::new());
        for record in &outcome.records {
            match &record.what {
                What::Stored(number, ..) if record.at > 5 * MILLISECOND => stores.push(*number),
                What::Input(Input::Ask(ask)) => {
                    if let Request::Place {
                        domain,
                        is_placed: false,
                        ..
                    } = ask.request
                    {
                        leave.push(domain);
                    }
                }
                What::Sent(_, packet, _) => {
                    if let Body::Write { page, .. } = packet.body {
                        written.push((page.page.0 - WINDOW_BASE) >> PAGE_SHIFT);
                    }
                }
                _ => {}
            }
        }
        stores.sort_unstable();
        (stores, leave, written)
    }

    #[test]
    fn a_domains_pages_are_written_back_when_its_last_program_ends() {
        assert_eq!(
            after(&outcome(usize::MAX)),
            (vec![0, 1, 2], vec![DOMAINS[0]], vec![0])
        );
    }

    #[test]
    fn pages_of_other_programs_of_the_domain_stay() {
        assert_eq!(after(&outcome(1)), (vec![0, 1, 2], Vec::new(), Vec::new()));
    }
}
