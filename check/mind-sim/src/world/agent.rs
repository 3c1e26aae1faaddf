//! The agents of compute blades: how they handle packets, faults, commands and timers, as the real
//! daemon does.

use mind_common::{
    addr::{PAGE_SHIFT, SLICE_SHIFT, Va, WINDOW_BASE},
    id::{BladeId, Connection, DomainId},
    wire::Syndrome,
};
use mind_machines::{
    Node,
    compute::{Access, Action},
    controller::{Ask, Command, Input, Link, Request},
    datagram::{Body, Datagram, PageRequest},
};

use crate::{
    Failure, Flaw,
    coverage::Pair,
    plan::Image,
    trace::{Cache, What},
    world::host::{Cached, Host},
    world::program::{ENTRY, OF_DOMAIN},
    world::{Event, World},
};

/// How long a message between the controller and an agent takes, in nanoseconds.
const CONTROL: std::ops::Range<u64> = 20_000..200_000;
/// How long the controller waits for a flush, in nanoseconds.
const FLUSH_LIMIT: u64 = 2_000_000_000;
/// After how long a daemon that was ended is started again, in nanoseconds.
pub(crate) const RESTART: u64 = 5_000_000;
/// Flushes that threads asked for, by token: this and the ticket of the thread.
const OF_THREAD: u64 = 1 << 32;

impl World<'_> {
    // Connections to the controller: nothing is lost, and order is kept.

    fn arrival(&mut self, link: Link, to_controller: bool) -> u64 {
        let at = self.queue.now() + self.random.u64(CONTROL);
        let last = self.sent.entry((link, to_controller)).or_default();
        *last = at.max(*last);
        *last
    }

    /// The controller sends a command.
    pub(crate) fn send_command(&mut self, link: Link, command: Command) {
        self.record(What::Command(link, command));
        let at = self.arrival(link, false);
        self.queue.at(at, Event::Command(link, command));
        if let Command::Flush { id, .. } = command {
            let overdue = Event::ControllerInput(Input::Overdue { id });
            self.queue.after(FLUSH_LIMIT, overdue);
        }
    }

    /// The controller receives a request.
    pub(crate) fn receive_from_controller(&mut self, ask: Ask) {
        let delay = self.random.u64(CONTROL);
        self.queue
            .after(delay, Event::ControllerInput(Input::Ask(ask)));
    }

    fn send_to_controller(&mut self, connection: Connection, input: Input) {
        let is_disconnected =
            |host: &mut Host| host.connection == connection && host.is_disconnected;
        if self.host(connection.blade).is_some_and(is_disconnected) {
            return;
        }
        let at = self.arrival(Link::Compute(connection.to_qp()), true);
        self.queue.at(at, Event::ControllerInput(input));
    }

    pub(crate) fn ask(&mut self, connection: Connection, id: u32, request: Request) {
        let from = Some(connection);
        self.send_to_controller(connection, Input::Ask(Ask { from, id, request }));
    }

    /// A command arrives at an agent.
    pub(crate) fn command_arrived(&mut self, link: Link, command: Command) {
        match link {
            Link::Memory(number) => self.command_memory(link, number, command),
            Link::Compute(_) => {
                if let Some(connection) = link.life() {
                    self.command_blade(connection, command);
                }
            }
        }
    }

    fn command_memory(&mut self, link: Link, number: u8, command: Command) {
        let fences = !self.has(Flaw::NoFences);
        let Some(memory) = self.memories.get_mut(&number) else {
            return;
        };
        let id = match command {
            Command::Zero { id, .. } if self.mapped.unzeroed(number) > self.queue.now() => {
                let at = self.arrival(link, true);
                let answer = Input::Answer { id, done: false };
                self.queue.at(at, Event::ControllerInput(answer));
                return;
            }
            Command::Zero { id, first, count } => {
                memory.zero(first, count);
                let base = WINDOW_BASE + (u64::from(number) << SLICE_SHIFT);
                for page in first..first + count {
                    self.checker.zeroed(Va(base + (page << PAGE_SHIFT)));
                }
                id
            }
            Command::FencePages { id, first, count } => {
                if fences {
                    memory.fence(first, count);
                }
                id
            }
            Command::FenceBlade {
                id,
                life: connection,
            } => {
                memory.fence_blade(connection);
                id
            }
            Command::Registered
            | Command::Reply { .. }
            | Command::Flush { .. }
            | Command::Leave => return,
        };
        let at = self.arrival(link, true);
        self.queue
            .at(at, Event::ControllerInput(Input::Answer { id, done: true }));
    }

    fn command_blade(&mut self, connection: Connection, command: Command) {
        let blade = connection.blade;
        if command == Command::Registered {
            self.begin_incarnation(connection);
            return;
        }
        let hears = |host: &mut Host| host.connection == connection && !host.is_disconnected;
        if !self.host(blade).is_some_and(hears) {
            return;
        }
        match command {
            Command::Flush { id, start, length } => {
                self.flush(blade, start, length, None, u64::from(id));
            }
            Command::Reply { id, done } => match self.thread_of(id & !ENTRY) {
                Some(thread) if id & ENTRY != 0 => self.entered(thread),
                Some(thread) => self.synced(thread, done),
                None => {}
            },
            Command::Leave => {
                self.end(blade);
                self.queue.after(RESTART, Event::Begin(blade));
            }
            Command::Registered
            | Command::Zero { .. }
            | Command::FencePages { .. }
            | Command::FenceBlade { .. } => {}
        }
    }

    // Inputs.

    /// Gives a blade's machine an input, and carries out its actions.
    fn with_blade(
        &mut self,
        blade: BladeId,
        data: Option<Image>,
        does: impl FnOnce(u64, &mut Host, &mut Vec<Action>),
    ) {
        let now = self.queue.now();
        let Some(machine) = self.machines.get_mut(&blade) else {
            return;
        };
        let mut actions = std::mem::take(&mut machine.actions);
        if let Some(host) = &mut machine.host {
            does(now, host, &mut actions);
        }
        for action in actions.drain(..) {
            self.carry_out(blade, action, data);
        }
        if let Some(machine) = self.machines.get_mut(&blade) {
            machine.actions = actions;
        }
        if let Some(host) = self.host(blade)
            && let Some(at) = host.blade.next_deadline()
            && host.poll_at.is_none_or(|already| at < already)
        {
            host.poll_at = Some(at);
            let late = self.tardiness();
            self.queue.at(at + late, Event::Poll(blade));
        }
    }

    pub(crate) fn at_blade(&mut self, blade: BladeId, packet: Datagram<Image>) {
        self.record(What::Arrived(Node::Compute(blade), packet));
        let is_done = matches!(
            packet.body,
            Body::Acknowledge {
                syndrome: Syndrome::Ack,
                ..
            }
        );
        if let Some(host) = self.host(blade)
            && is_done
            && packet.envelope.qp == host.connection.to_qp()
            && let Some((page, count)) = host.writing.remove(&packet.seq().get())
            && !host.is_cut
        {
            self.checker.acknowledged(page, count);
        }
        self.with_blade(blade, packet.data().copied(), |now, host, actions| {
            host.blade.receive(now, packet.map(|_| ()), actions);
        });
    }

    pub(crate) fn poll(&mut self, blade: BladeId) {
        self.with_blade(blade, None, |now, host, actions| {
            if host.poll_at.is_some_and(|at| at <= now) {
                host.poll_at = None;
                host.blade.poll(now, actions);
            }
        });
    }

    pub(crate) fn fault(
        &mut self,
        thread: usize,
        connection: Connection,
        page: PageRequest,
        access: Access,
    ) {
        if self.threads[thread].is_down() {
            return;
        }
        if self
            .host(connection.blade)
            .is_some_and(|host| host.connection == connection)
        {
            self.fault_received(thread, page.page);
        }
        self.with_blade(connection.blade, None, |now, host, actions| {
            if host.connection == connection {
                host.blade.fault(now, page, access, actions);
            }
        });
    }

    pub(crate) fn flush(
        &mut self,
        blade: BladeId,
        start: Va,
        length: u64,
        domain: Option<DomainId>,
        token: u64,
    ) {
        let range = start.0..start.0 + length;
        self.with_blade(blade, None, |now, host, actions| {
            host.blade.flush(now, range, domain, token, actions);
        });
    }

    /// Flushes for a thread's sync.
    pub(crate) fn flush_for(
        &mut self,
        thread: usize,
        blade: BladeId,
        start: Va,
        length: u64,
        domain: DomainId,
    ) {
        let token = OF_THREAD | u64::from(self.ticket(thread));
        self.flush(blade, start, length, Some(domain), token);
    }

    // Actions.

    fn carry_out(&mut self, blade: BladeId, action: Action, data: Option<Image>) {
        let Some(host) = self.machines.get_mut(&blade).and_then(|m| m.host.as_mut()) else {
            return;
        };
        let connection = host.connection;
        let persists = self.persists;
        let protects = self.plan.flaw != Some(Flaw::NoProtection);
        match action {
            Action::Send(Datagram { envelope, body }) => {
                let image = match body.data() {
                    Some(page) => match host.cache.get(&page.page) {
                        Some(cached) if !cached.is_writable || persists => cached.image,
                        _ => return self.fail(Failure::Unprotected(blade, page.page)),
                    },
                    None => Image::default(),
                };
                if let Body::Write { page, .. } = body {
                    let count = self.checker.count(page.page);
                    host.writing.insert(envelope.seq.get(), (page.page, count));
                }
                let packet = Datagram {
                    envelope,
                    body: body.map(|_| image),
                };
                self.send(Node::Compute(blade), packet);
            }
            Action::Install { page, writable } => {
                let Some(image) = data else {
                    return self.fail(Failure::NoData(blade, page.page));
                };
                let is_writable = writable;
                let cached = Cached {
                    image,
                    is_writable,
                    domain: page.domain,
                };
                host.cache.insert(page.page, cached);
                if !host.is_cut {
                    let fails = self.mapped.area(self.plan, page.page);
                    let fails = fails.is_some_and(|area| area.fails);
                    match self.checker.installed(page.page, image) {
                        Ok(is_older) if is_older && fails => {
                            self.fail(Failure::Older(blade, page.page));
                        }
                        Ok(_) => {}
                        Err(wrong) => self.fail(Failure::Wrong(blade, wrong)),
                    }
                    self.check_sharing(blade, page.page, writable);
                }
                self.cached(blade, page, Cache::Installed(writable));
                self.wake(blade, page);
            }
            Action::Map { page, writable } => {
                let is_cut = host.is_cut;
                match host.cache.get_mut(&page.page) {
                    Some(cached) => cached.is_writable |= writable,
                    None => return self.fail(Failure::NotHere(blade, page.page)),
                }
                if !is_cut {
                    self.check_sharing(blade, page.page, writable);
                }
                self.cached(blade, page, Cache::Mapped(writable));
                self.wake(blade, page);
            }
            Action::Protect { page } => match host.cache.get_mut(&page.page) {
                Some(cached) => {
                    cached.is_writable &= !protects;
                    self.cached(blade, page, Cache::Protected);
                }
                None => self.fail(Failure::NotHere(blade, page.page)),
            },
            Action::Drop { page } => {
                if host.cache.remove(&page.page).is_none() {
                    self.fail(Failure::NotHere(blade, page.page));
                }
                self.cached(blade, page, Cache::Dropped);
            }
            Action::Fail {
                page,
                access,
                refusal,
            } => self.failed(blade, page, access, refusal),
            Action::Lost { page, .. } => {
                if !host.is_cut {
                    self.fail(Failure::Refused(blade, page.page));
                }
                self.ask(connection, 0, Request::ReportLoss(page.page));
            }
            Action::ReportStuck { page } => {
                self.ask(connection, 0, Request::ReportStuck(page.page))
            }
            Action::Served { .. } => {}
            Action::Stepped { before, event, .. } => {
                self.happened(Pair::Page(before, event), Some(blade));
            }
            Action::Flushed { token } if token & OF_THREAD != 0 => {
                let ticket = (token & !OF_THREAD) as u32;
                if let Some(thread) = self.thread_of(ticket)
                    && let Some((start, length)) = self.threads[thread].flushed(connection)
                {
                    let sync = Request::Sync { start, length };
                    self.ask(connection, ticket, sync);
                }
            }
            Action::Flushed { token: OF_DOMAIN } => {}
            Action::Flushed { token } => {
                let id = token as u32;
                self.send_to_controller(connection, Input::Answer { id, done: true });
            }
        }
    }

    fn cached(&mut self, blade: BladeId, page: PageRequest, change: Cache) {
        self.record(What::Cache(blade, page.page, change));
    }

    /// A single writer, or many readers, at every instant.
    fn check_sharing(&mut self, blade: BladeId, page: Va, is_writer: bool) {
        let others = self.machines.iter().filter(|(other, _)| **other != blade);
        let conflict = others.into_iter().find(|(_, machine)| {
            let host = machine.host.as_ref().filter(|host| !host.is_cut);
            let cached = host.and_then(|host| host.cache.get(&page));
            cached.is_some_and(|cached| is_writer || cached.is_writable)
        });
        if let Some((&other, _)) = conflict {
            self.fail(Failure::Shared { page, blade, other });
        }
    }
}
