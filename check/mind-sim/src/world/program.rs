//! Programs: they enter their domain on their blade, and end while the blade goes on.

use mind_api::message::{OnLoss, Request};
use mind_common::{
    addr::{Va, WINDOW_BASE, WINDOW_SIZE},
    id::{BladeId, Connection, DomainId},
};
use mind_machines::Node;

use crate::{
    Failure,
    world::agent::Purpose,
    world::host::Flush,
    world::{Event, World},
};

/// How long it takes until a daemon learns that a program has ended, in nanoseconds.
const PIDFD: std::ops::Range<u64> = 1_000..100_000;
/// So many threads there are at most: processes have their numbers, and higher ones when they are started again.
const THREADS: i32 = 1 << 12;

/// The number of a thread's process, which was started so often before on this incarnation of its blade.
pub(crate) const fn pid(thread: usize, start: i32) -> i32 {
    thread as i32 + 1 + start * THREADS
}

impl World<'_> {
    /// The request by which a process enters a domain of the plan.
    pub(crate) fn entry(&self, domain: usize, pid: i32) -> Request {
        Request::EnterProcess {
            domain: format!("domain {domain}"),
            pid,
            on_loss: Some(self.plan.domains[domain]),
        }
    }

    /// What the domain with that number has chosen.
    pub(crate) fn on_loss(&self, domain: DomainId) -> OnLoss {
        let known = self.domains.get(&domain);
        known.map_or_else(OnLoss::default, |domain| self.plan.domains[*domain])
    }

    /// The thread that was started so often enters its domain, on a blade that is up.
    pub(crate) fn enter(&mut self, number: usize, start: i32, connection: Connection) {
        let is_up = |host: &&mut crate::world::host::Host| host.connection == connection;
        if self.threads[number].start == start
            && self.host(connection.blade).filter(is_up).is_some()
        {
            let request = self.entry(self.plan.programs[number].domain, pid(number, start));
            let node = Node::Compute(connection.blade);
            self.ask(node, request, Purpose::Enters(number, start));
        }
    }

    /// The controller has confirmed that a thread entered. If the thread has ended meanwhile, it leaves.
    pub(crate) fn entered(
        &mut self,
        number: usize,
        start: i32,
        domain: DomainId,
        connection: Connection,
    ) {
        if let Some(host) = self.host(connection.blade) {
            host.programs.insert((domain, pid(number, start)));
        }
        let thread = &mut self.threads[number];
        if thread.start != start || !thread.is_down() {
            return self.left(domain, pid(number, start), connection);
        }
        thread.domain = Some(domain);
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
    pub(crate) fn exit(&mut self, blade: BladeId, domain: usize, threads: usize, back: u64) {
        let Some(connection) = self.host(blade).map(|host| host.connection) else {
            return;
        };
        let programs = self.plan.programs.iter().enumerate();
        let own = programs.filter(|(_, of)| of.blade == blade && of.domain == domain);
        let gone = own.map(|(number, _)| number).take(threads);
        let heard = self.random.u64(PIDFD).min(back);
        for number in gone {
            let thread = &mut self.threads[number];
            let pid = pid(number, thread.start);
            let entered = thread.domain.take();
            thread.stop();
            thread.start += 1;
            if let Some(domain) = entered {
                let left = Event::Left(domain, pid, connection);
                self.queue.after(heard, left);
            }
            let thread = &self.threads[number];
            if !thread.is_done() {
                let enters = Event::Enters(number, thread.start, connection);
                self.queue.after(back, enters);
            }
        }
    }

    /// The daemon learns that a process has ended. If no thread of its domain is left on the blade, the domain's pages
    /// there are written back, whether or not they may be read any more.
    pub(crate) fn left(&mut self, domain: DomainId, pid: i32, connection: Connection) {
        let Some(host) = self
            .host(connection.blade)
            .filter(|host| host.connection == connection)
        else {
            return;
        };
        if !host.programs.remove(&(domain, pid)) {
            return;
        }
        if !host.programs.iter().any(|(of, _)| *of == domain) {
            let all = (Va(WINDOW_BASE), WINDOW_SIZE);
            let (blade, domain) = (connection.blade, Some(domain));
            self.flush(blade, all.0, all.1, domain, Flush::Domain);
        }
        let exit = Request::ExitProcess {
            domain: domain.0,
            pid,
        };
        self.ask(Node::Compute(connection.blade), exit, Purpose::Tells);
    }
}

#[cfg(test)]
mod tests {
    use mind_common::addr::PAGE_SHIFT;
    use mind_machines::{controller::Input, datagram::Body};

    use super::*;
    use crate::{
        Outcome,
        plan::{Area, Disturbance, MILLISECOND, Op, Place, Plan, Program, blade, calm},
        run,
        trace::What,
    };

    /// A word of the domain's area.
    fn place(domain: usize) -> Place {
        Place {
            area: domain,
            page: 0,
            word: 0,
        }
    }

    /// The outcome of two threads of one domain and one of another on a blade, of which so many of
    /// the first domain end.
    fn outcome(threads: usize) -> Outcome {
        let areas = [0, 1].map(|domain| Area {
            domain,
            order: 1,
            is_writable: true,
            is_mapped: true,
            is_named: false,
        });
        let programs = [0, 0, 1].map(|domain| Program {
            blade: blade(0),
            domain,
            ops: [1, 3, 9]
                .into_iter()
                .flat_map(|at| [Op::Until(at * MILLISECOND), Op::Store(place(domain))])
                .collect(),
        });
        let exit = Disturbance::Exit {
            blade: blade(0),
            domain: 0,
            threads,
            back: 3 * MILLISECOND,
        };
        let outcome = run(
            &Plan {
                domains: vec![OnLoss::LastWritten; 2],
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

    /// Threads that go on, domains that processes leave, pages that are written back; after the end of the threads.
    fn after(outcome: &Outcome) -> (Vec<usize>, Vec<u32>, Vec<u64>) {
        let (mut stores, mut leave, mut written) = (Vec::new(), Vec::new(), Vec::new());
        for record in &outcome.records {
            match &record.what {
                What::Stored(number, ..) if record.at > 5 * MILLISECOND => stores.push(*number),
                What::Input(Input::Request {
                    body: Request::ExitProcess { domain, .. },
                    ..
                }) => leave.push(*domain),
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
            (vec![0, 1, 2], vec![1, 1], vec![0])
        );
    }

    #[test]
    fn pages_of_other_programs_of_the_domain_stay() {
        assert_eq!(after(&outcome(1)), (vec![0, 1, 2], vec![1], Vec::new()));
    }
}
