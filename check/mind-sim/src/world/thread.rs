//! Threads of programs: an access to a page in the cache succeeds at once, any other faults and
//! waits.

use mind_api::message::{OnLoss, Request};
use mind_common::{
    addr::Va,
    id::{BladeId, Connection, DomainId},
    refusal::Refusal,
};
use mind_machines::{Node, compute::Access, datagram::PageRequest};

use crate::{
    Failure, Flaw,
    plan::{Mapping, Op, Place, Program, QUICK},
    trace::{Cell, What},
    world::agent::{Caller, Purpose},
    world::host::{Flush, Host},
    world::program::pid,
    world::{Event, World},
};

/// The shortest pause between two operations, in nanoseconds.
const LEAST_PAUSE: u64 = 100;
/// A thread goes on within so long after its page has come, in nanoseconds.
const WAKE_UP: u64 = 5_000;
/// The shortest time until the daemon receives a fault, in nanoseconds.
const UFFD: u64 = 300;
/// Faults may fail until so long after the network's faults have stopped, in nanoseconds.
const FAILURES_UNTIL: u64 = 6_000_000_000;

/// The state of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// Its blade or its program is down, or its domain is not ready yet.
    Down,
    /// It runs on at a scheduled time.
    Ready,
    /// It faulted.
    Waits(Va, Access),
    /// It waits for its store buffer, or for other threads.
    Blocked,
    /// It syncs, with how often each page had been written when the sync began.
    Flushes(Connection, Vec<(Va, u64)>),
    /// The same, and the blade has flushed.
    Asks(Vec<(Va, u64)>),
    /// It waits for the controller.
    AwaitsController,
    /// It has done everything.
    Done,
}

/// A thread.
#[derive(Debug)]
pub(crate) struct Thread {
    state: State,
    /// What it does next, of its program.
    next: usize,
    length: usize,
    /// Counts its wake-ups.
    pub(crate) turn: u64,
    /// How often it was started again on this incarnation of its blade.
    pub(crate) start: i32,
    /// Its domain, once it has entered.
    pub(crate) domain: Option<DomainId>,
    sync: (Va, u64),
    /// When it faulted last.
    since: u64,
    /// The daemon has received that fault.
    is_received: bool,
    /// Its own random numbers, so that it does not depend on other threads.
    random: fastrand::Rng,
}

impl Thread {
    pub(crate) fn new(program: &Program, seed: u64) -> Self {
        Self {
            state: State::Down,
            next: 0,
            length: program.ops.len(),
            turn: 0,
            start: 0,
            domain: None,
            sync: (Va(0), 0),
            since: 0,
            is_received: false,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    pub(crate) fn is_down(&self) -> bool {
        self.state == State::Down
    }

    /// Its blade goes down, or its program ends: an operation that it has begun does not happen.
    pub(crate) fn stop(&mut self) {
        if !self.is_done() {
            let has_begun = !matches!(self.state, State::Down | State::Ready);
            self.state = State::Down;
            self.next = (self.next + usize::from(has_begun)).min(self.length);
            self.turn += 1;
        }
    }
}

impl World<'_> {
    pub(crate) fn start_thread(&mut self, number: usize) {
        if self.threads[number].state == State::Down {
            self.go_on(number);
        }
    }

    /// It goes on after a while: quickly once the faults have stopped.
    pub(crate) fn go_on(&mut self, number: usize) {
        let pace = if self.queue.now() < self.calm_at {
            self.plan.pace
        } else {
            QUICK.min(self.plan.pace)
        };
        self.go_on_within(number, pace);
    }

    fn go_on_within(&mut self, number: usize, most: u64) {
        let random = &mut self.threads[number].random;
        let delay = random.u64(LEAST_PAUSE..=most.max(LEAST_PAUSE));
        self.go_on_after(number, delay);
    }

    pub(crate) fn go_on_after(&mut self, number: usize, delay: u64) {
        let thread = &mut self.threads[number];
        thread.state = State::Ready;
        thread.turn += 1;
        let turn = thread.turn;
        self.queue.after(delay, Event::Run(number, turn));
    }

    pub(crate) fn rest(&mut self, number: usize) {
        self.threads[number].state = State::Blocked;
    }

    pub(crate) fn rests(&self, number: usize) -> bool {
        self.threads[number].state == State::Blocked
    }

    pub(crate) fn finish(&mut self, number: usize) {
        self.threads[number].state = State::Done;
        self.finished_at = self.queue.now();
    }

    fn done_with_op(&mut self, number: usize) {
        self.threads[number].next += 1;
        self.go_on(number);
    }

    /// Threads that wait for the page try again.
    pub(crate) fn wake(&mut self, blade: BladeId, page: PageRequest) {
        for number in 0..self.threads.len() {
            if self.plan.programs[number].blade == blade
                && self.threads[number].domain == Some(page.domain)
                && matches!(self.threads[number].state, State::Waits(at, _) if at == page.page)
            {
                self.go_on_within(number, WAKE_UP);
            }
        }
        self.wake_buffers(blade, page);
    }

    /// A thread goes on.
    pub(crate) fn run_thread(&mut self, number: usize, turn: u64) {
        let thread = &mut self.threads[number];
        if thread.turn != turn || thread.state != State::Ready {
            return;
        }
        if number < self.scripted.len() {
            return self.run_script(number);
        }
        let program = &self.plan.programs[number];
        let Some(&op) = program.ops.get(thread.next) else {
            return self.finish(number);
        };
        match op {
            Op::Load(place) => self.access(number, place, true, false),
            Op::Store(place) => self.access(number, place, false, true),
            Op::Exchange(place) => self.access(number, place, true, true),
            Op::Until(at) => match at.checked_sub(self.queue.now()) {
                None | Some(0) => self.done_with_op(number),
                Some(left) => self.go_on_after(number, left),
            },
            Op::Mapping(mapping, area) => self.ask_mapping(number, mapping, area),
            Op::Sync(area) => {
                let (blade, length) = (program.blade, self.plan.areas[area].length());
                let first = Place {
                    area,
                    page: 0,
                    word: 0,
                };
                let Some(start) = self.mapped.cell(first).map(|cell| cell.page) else {
                    return self.done_with_op(number);
                };
                let domain = thread.domain;
                let Some(host) = self.host_of(number) else {
                    return;
                };
                let connection = host.connection;
                // Pages that others wrote and no thread here has read are not counted.
                let mut own = host.dirty();
                own.retain(|page| (start.0..start.0 + length).contains(&page.0));
                let counts = own.into_iter().map(|page| (page, self.checker.count(page)));
                let counts: Vec<_> = counts.collect();
                let thread = &mut self.threads[number];
                thread.state = State::Flushes(connection, counts);
                thread.sync = (start, length);
                let flush = Flush::Sync((number, thread.turn));
                self.flush(blade, start, length, domain, flush);
            }
        }
    }

    /// A thread maps, unmaps or protects an area, unless that makes no sense now.
    fn ask_mapping(&mut self, number: usize, mapping: Mapping, area: usize) {
        let Thread {
            domain,
            start,
            turn,
            ..
        } = self.threads[number];
        let request = domain.and_then(|domain| {
            let process = (domain, pid(number, start));
            self.mapped.request(self.plan, process, mapping, area)
        });
        let Some(request) = request else {
            return self.done_with_op(number);
        };
        self.threads[number].state = State::AwaitsController;
        self.promises.asked(&request);
        let node = Node::Compute(self.plan.programs[number].blade);
        let purpose = Purpose::Maps(Some((number, turn)), mapping, area);
        self.ask(node, request, purpose);
    }

    /// The controller has answered a thread's request for a mapping.
    pub(crate) fn go_on_after_mapping(&mut self, (number, turn): Caller) {
        let thread = &self.threads[number];
        if thread.turn == turn && thread.state == State::AwaitsController {
            self.done_with_op(number);
        }
    }

    /// That incarnation of the blade has flushed for a thread's sync: what it owns is given up.
    pub(crate) fn flushed(&mut self, number: usize, turn: u64, connection: Connection) {
        let thread = &mut self.threads[number];
        let State::Flushes(of, counts) = &mut thread.state else {
            return;
        };
        let Some(domain) = thread
            .domain
            .filter(|_| *of == connection && thread.turn == turn)
        else {
            return;
        };
        thread.state = State::Asks(std::mem::take(counts));
        let (start, length) = thread.sync;
        let sync = Request::Sync {
            domain: domain.0,
            va: start.0,
            length,
        };
        let node = Node::Compute(connection.blade);
        self.ask(node, sync, Purpose::Syncs((number, turn)));
    }

    fn access(&mut self, number: usize, place: Place, loads: bool, stores: bool) {
        let Some(cell) = self.mapped.cell(place) else {
            return self.done_with_op(number);
        };
        let value = self.queue.count();
        let access = if stores { Access::Write } else { Access::Read };
        let Some(found) = self.find(number, cell, access) else {
            return self.wait_for(number, cell.page, access);
        };
        if loads {
            self.loaded(number, cell, found);
        }
        if stores {
            self.stored(number, cell, value);
        }
        self.done_with_op(number);
    }

    /// What a thread finds in its blade's cache, unless the access faults.
    pub(crate) fn find(&self, number: usize, cell: Cell, access: Access) -> Option<u64> {
        let host = self.host_of(number)?;
        let cached = host.cache.get(&cell.page)?;
        let is_own = Some(cached.domain) == self.threads[number].domain;
        let is_own = is_own || self.has(Flaw::ForeignPages);
        let may = is_own && (access == Access::Read || cached.is_writable);
        may.then(|| cached.image[cell.word])
    }

    /// A thread has accessed a page, which must be of its domain.
    fn accessed(&mut self, number: usize, page: Va, is_cut: bool) {
        let blade = self.plan.programs[number].blade;
        if !is_cut && self.mapped.owner(page) != self.threads[number].domain {
            self.fail(Failure::Foreign(blade, page));
        }
    }

    /// A thread has loaded from the cache.
    pub(crate) fn loaded(&mut self, number: usize, cell: Cell, found: u64) {
        let is_received = self.host_of(number).is_some_and(|host| !host.is_cut);
        self.accessed(number, cell.page, !is_received);
        self.record(What::Loaded(number, cell, found));
        if is_received && let Err(wrong) = self.checker.load(cell, found) {
            let blade = self.plan.programs[number].blade;
            self.fail(Failure::Wrong(blade, wrong));
        }
    }

    /// A thread stores into the cache, where the page is writable.
    pub(crate) fn stored(&mut self, number: usize, cell: Cell, value: u64) {
        let blade = self.plan.programs[number].blade;
        let machine = self.machines.get_mut(&blade);
        let Some(host) = machine.and_then(|machine| machine.host.as_mut()) else {
            return;
        };
        let is_cut = host.is_cut;
        let Some(cached) = host.cache.get_mut(&cell.page) else {
            return;
        };
        cached.image[cell.word] = value;
        let image = cached.image;
        self.accessed(number, cell.page, is_cut);
        self.record(What::Stored(number, cell, value));
        if !is_cut {
            self.checker.stored(cell.page, image);
            if let Some(domain) = self.threads[number].domain {
                let page = PageRequest {
                    page: cell.page,
                    domain,
                };
                self.check_written(blade, page);
            }
        }
    }

    fn host_of(&self, number: usize) -> Option<&Host> {
        let blade = self.plan.programs[number].blade;
        self.machines.get(&blade)?.host.as_ref()
    }

    /// A thread waits for a page.
    pub(crate) fn wait_for(&mut self, number: usize, page: Va, access: Access) {
        self.threads[number].state = State::Waits(page, access);
        self.threads[number].since = self.queue.now();
        self.threads[number].is_received = false;
        self.fault_of(number, page, access);
    }

    pub(crate) fn fault_of(&mut self, number: usize, page: Va, access: Access) {
        let connection = self.host_of(number).map(|host| host.connection);
        let Some((connection, domain)) = connection.zip(self.threads[number].domain) else {
            return;
        };
        self.record(What::Fault(number, page, access));
        let load = self.load();
        let is_late = load.late_faults == 1000 || self.random.u32(0..1000) < load.late_faults;
        let most = if is_late { load.faults } else { 0 };
        let delay = self.random.u64(UFFD..=most.max(UFFD));
        let page = PageRequest { page, domain };
        self.queue
            .after(delay, Event::Fault(number, connection, page, access));
    }

    /// The daemon receives a thread's fault.
    pub(crate) fn fault_received(&mut self, number: usize, page: Va) {
        let thread = &mut self.threads[number];
        if matches!(thread.state, State::Waits(at, _) if at == page) {
            thread.is_received = true;
        }
    }

    /// Accesses to the page fail.
    pub(crate) fn failed(
        &mut self,
        blade: BladeId,
        page: PageRequest,
        access: Access,
        refusal: Refusal,
    ) {
        for number in 0..self.threads.len() {
            let is_there = self.plan.programs[number].blade == blade;
            if !is_there || self.threads[number].domain != Some(page.domain) {
                continue;
            }
            let State::Waits(at, wanted) = self.threads[number].state else {
                continue;
            };
            if at != page.page || !self.threads[number].is_received {
                continue;
            }
            if wanted < access {
                self.go_on_within(number, WAKE_UP);
                continue;
            }
            self.record(What::Failed(number, page.page, refusal));
            let since = self.threads[number].since;
            let is_denied = refusal == Refusal::Denied && {
                let tables = self.switch.tables();
                self.mapped.denies(tables, page, wanted, since)
            };
            if refusal == Refusal::Denied {
                self.check_denied(blade, page, wanted, since);
            }
            if !is_denied && !self.may_fail(blade, page, refusal) {
                self.fail(Failure::Refusal(blade, page.page, refusal));
            }
            self.done_with_op(number);
        }
        self.failed_buffers(blade, page, refusal);
    }

    pub(crate) fn may_fail(&self, blade: BladeId, page: PageRequest, refusal: Refusal) -> bool {
        let host = self.machines.get(&blade).and_then(|m| m.host.as_ref());
        if host.is_none_or(|host| host.is_cut) {
            return true;
        }
        if matches!(refusal, Refusal::Denied | Refusal::Invalid) {
            return false;
        }
        let fails = self.on_loss(page.domain) == OnLoss::Fail;
        (fails && self.is_lost(page.page))
            || self.is_vma_lost(page.page)
            || self.queue.now() < self.calm_at + FAILURES_UNTIL
    }

    /// The controller has answered a thread's sync; if it is done, the thread's writes are in memory.
    pub(crate) fn synced(&mut self, (number, turn): Caller, is_done: bool) {
        if self.threads[number].turn == turn
            && let State::Asks(counts) = &mut self.threads[number].state
        {
            for (page, count) in std::mem::take(counts) {
                if is_done {
                    self.checker.acknowledged(page, count);
                }
            }
            self.done_with_op(number);
        }
    }
}
