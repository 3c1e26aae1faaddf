//! Compute blades: how their daemons handle packets, faults and timers, as the real one does.

use mind_api::message::{OnLoss, Report, Request};
use mind_common::{
    addr::Va,
    id::{BladeId, Connection, DomainId},
    wire::Syndrome,
};
use mind_machines::{
    Node,
    compute::{Access, Action},
    datagram::{Body, Datagram, PageRequest},
};

use crate::{
    Failure, Flaw,
    coverage::Pair,
    plan::Image,
    trace::{Cache, What},
    world::agent::Purpose,
    world::host::{Cached, Flush, Host},
    world::{Event, World},
};

impl World<'_> {
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

    /// Has a blade write back and drop what it has of a range, all or of one domain.
    pub(crate) fn flush(
        &mut self,
        blade: BladeId,
        start: Va,
        length: u64,
        domain: Option<DomainId>,
        flush: Flush,
    ) {
        let range = start.0..start.0 + length;
        self.with_blade(blade, None, |now, host, actions| {
            let token = host.begin_flush(flush);
            host.blade.flush(now, range, domain, token, actions);
        });
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
                    let fails = self.on_loss(page.domain) == OnLoss::Fail;
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
                let is_registered = !host.is_cut;
                if is_registered && !self.is_vma_lost(page.page) && !self.is_closed(page.page) {
                    self.fail(Failure::Refused(blade, page.page));
                }
                let va = page.page.0;
                self.tell(blade, Request::ReportLoss { va });
            }
            Action::ReportStuck { page } => {
                let va = page.page.0;
                self.tell(blade, Request::ReportStuck { va });
            }
            Action::Served { .. } => {}
            Action::Stepped { before, event, .. } => {
                self.happened(Pair::Page(before, event), Some(blade));
            }
            Action::Flushed { token } => match host.flushes.remove(&token) {
                Some(Flush::Order(session, order)) => {
                    self.report(session, order, Ok(Report::Done));
                }
                Some(Flush::Sync((thread, turn))) => self.flushed(thread, turn, connection),
                Some(Flush::Domain) | None => {}
            },
        }
    }

    /// An agent tells the controller something.
    fn tell(&mut self, blade: BladeId, request: Request) {
        self.ask(Node::Compute(blade), request, Purpose::Tells);
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
