//! The state after an action.

use std::sync::Arc;

use mind_api::message::{RegionChange, Request};
use mind_common::permission::PermissionClass;
use mind_common::{id::BladeId, refusal::Refusal, verdict::Verdict, wire::Cost};
use mind_machines::{
    Node,
    compute::{self, Access},
    controller::Input,
    datagram::{Body, Datagram, PageRequest},
};

use crate::{
    action::Action,
    canonical::canonical,
    operation::{FLUSH, is_of_operation},
    property::Violation,
    value::{Age, Value},
    world::{Copied, DOMAIN, Flight, MEMORY, Position, STRANGER, World, number, page},
};

/// The state after `action`, in its canonical form; `None` where the action does nothing.
pub fn step(before: &World, action: &Action) -> Option<World> {
    let mut world = raw(before, action);
    canonical(&mut world);
    (world != *before).then_some(world)
}

/// The state after `action`, not canonical.
pub fn raw(before: &World, action: &Action) -> World {
    let mut world = before.clone();
    world.act(action);
    if !Arc::ptr_eq(&world.controller, &before.controller) {
        world.advance();
    }
    for host in world.hosts.iter_mut().flatten() {
        for (number, excused) in host.excused.iter_mut().enumerate() {
            *excused &= host.blade.waiting(page(number as u8)).is_some();
        }
    }
    world
}

impl World {
    fn act(&mut self, action: &Action) {
        match *action {
            Action::Fault {
                blade,
                page: of,
                access,
                is_stranger,
            } => {
                self.budget.faults = self.budget.faults.map(|left| left - 1);
                self.budget.strangers -= u8::from(is_stranger);
                let domain = if is_stranger { STRANGER } else { DOMAIN };
                if self.rights.least < needed(access)
                    && let Some(host) = &mut self.hosts[blade]
                {
                    host.excused[usize::from(of)] = true;
                }
                self.with(blade, None, |blade, out| {
                    let named = PageRequest {
                        page: page(of),
                        domain,
                    };
                    blade.fault(0, named, access, out);
                });
            }
            Action::Store { blade, page } => self.store(blade, page),
            Action::Deliver(flight) => {
                self.network.retain(|other| *other != flight);
                self.deliver(flight);
            }
            Action::Repeat(flight) => {
                self.budget.repeats -= 1;
                self.deliver(flight);
            }
            Action::Lose(flight) => {
                self.budget.losses -= 1;
                self.network.retain(|other| *other != flight);
            }
            Action::Fire {
                blade,
                alarm,
                late,
                is_early,
            } => {
                self.budget.early -= u8::from(is_early);
                self.with(blade, None, |blade, out| blade.fire(alarm, late, out));
            }
            Action::Control => self.control(),
            Action::Hear(session) => self.hear(session),
            Action::Overdue(order) => {
                self.budget.overdue -= 1;
                self.overdue(order);
            }
            Action::Crash(blade) => {
                self.budget.crashes -= 1;
                if let Some(host) = self.hosts[blade].take() {
                    self.disconnect(host.blade.connection());
                }
            }
            Action::Operate { blade, page } => self.begin_operation(blade, page),
            Action::Resend(blade) => self.send_operation(blade),
            Action::Rejoin(blade) => {
                self.budget.rejoins -= 1;
                if let Some(blade) = BladeId::new(blade as u8) {
                    self.register(Node::Compute(blade));
                }
            }
            Action::Reset => {
                self.budget.resets -= 1;
                self.operate(RegionChange::Reset);
            }
            Action::Split => {
                self.budget.splits -= 1;
                self.operate(RegionChange::Split);
            }
            Action::Merge => {
                self.budget.merges -= 1;
                self.operate(RegionChange::Merge);
            }
            Action::Reclaim => {
                self.budget.reclaims -= 1;
                self.tell(Input::Short);
            }
            Action::Wake => Arc::make_mut(&mut self.controller).wake(),
            Action::Map => {
                self.budget.maps -= 1;
                self.ask_for(PermissionClass::Write);
            }
            Action::Unmap => {
                self.budget.unmaps -= 1;
                self.ask_for(PermissionClass::None);
            }
            Action::Protect(class) => {
                self.budget.protects -= 1;
                self.ask_for(class);
            }
        }
    }

    fn deliver(&mut self, flight: Flight) {
        let Flight { position, packet } = flight;
        match position {
            Position::From(port) => self.switched(port, packet),
            Position::To(Node::Memory(_)) => {
                let (verdict, answer) = self.memory.handle(packet);
                if let (Verdict::Operated, Body::Atomic { va, .. }) = (verdict, packet.body) {
                    self.operated(packet.envelope.qp, packet.envelope.seq, number(va));
                }
                match (verdict, packet.data()) {
                    (Verdict::Stored, Some(data)) => self.stored(*data),
                    (Verdict::UnexpectedOpcode | Verdict::Invalid | Verdict::OutOfRange, _) => {
                        self.violate(Violation::Unanswered(verdict));
                    }
                    _ => {}
                }
                // The switch forwards it without reading the directory, so both steps are taken at
                // once.
                if let Some(answer) = answer {
                    self.switched(MEMORY, answer);
                }
            }
            Position::To(Node::Compute(to)) => {
                if is_of_operation(packet.envelope.seq)
                    && !matches!(packet.body, Body::Invalidate(_))
                {
                    self.hear_of_operation(usize::from(to.get()), &packet);
                    return;
                }
                let data = packet.data().copied();
                self.with(usize::from(to.get()), data, |blade, out| {
                    blade.receive(0, packet.map(|_| ()), out);
                });
            }
        }
    }

    fn switched(&mut self, port: Node, packet: Datagram<Value>) {
        let handled = self.switch.handle(port, packet);
        if is_unexpected(handled.verdict) {
            self.violate(Violation::Unanswered(handled.verdict));
        }
        for (node, packet) in handled.sent {
            self.send(Position::To(node), packet);
        }
    }

    /// Sends a packet; the same packet is on its way once only. Its attempt count says whether it
    /// was sent before, not how often, and it does not say what an invalidation cost.
    pub(crate) fn send(&mut self, position: Position, mut packet: Datagram<Value>) {
        packet.envelope.attempt = match position {
            Position::From(_) => packet.envelope.attempt.min(1),
            // The transition of the directory, for statistics.
            Position::To(_) => 0,
        };
        if let Body::Answer { cost, .. } | Body::Forward { cost, .. } = &mut packet.body {
            *cost = Cost::default();
        }
        let flight = Flight { position, packet };
        if !self.network.contains(&flight) {
            self.network.push(flight);
        }
    }

    /// Calls a blade's machine, and carries out its actions; `data` is the page that came.
    pub(crate) fn with(
        &mut self,
        at: usize,
        data: Option<Value>,
        act: impl FnOnce(&mut compute::Blade, &mut Vec<compute::Action>),
    ) {
        let Some(Some(host)) = self.hosts.get_mut(at) else {
            return;
        };
        let mut out = Vec::new();
        act(&mut host.blade, &mut out);
        for action in out {
            self.carry_out(at, data, action);
        }
    }

    fn carry_out(&mut self, at: usize, data: Option<Value>, action: compute::Action) {
        let mapping = |writable| {
            if writable {
                PermissionClass::Write
            } else {
                PermissionClass::Read
            }
        };
        match action {
            compute::Action::Send(Datagram { envelope, body }) => {
                let age = |page: PageRequest| {
                    let number = number(page.page);
                    let copy = self.copy(at, number);
                    Value {
                        page: number,
                        age: copy.map_or(Age::Old, |copy| copy.age),
                    }
                };
                let port = self.hosts[at].as_ref().map(|host| host.blade.connection());
                if let Some(connection) = port {
                    let packet = Datagram {
                        envelope,
                        body: body.map(age),
                    };
                    self.send(Position::From(Node::Compute(connection.blade)), packet);
                }
            }
            compute::Action::Install { page, writable } => {
                self.granted(page);
                let number = number(page.page);
                match data {
                    Some(data) if data.page == number => {
                        self.installed(at, data);
                        let age = self.seen(data).unwrap_or(data.age);
                        self.put(
                            at,
                            number,
                            Copied {
                                mapping: mapping(writable),
                                age,
                            },
                        );
                    }
                    _ => self.violate(Violation::WrongPage),
                }
            }
            compute::Action::Map { page, writable } => {
                self.granted(page);
                self.map(at, number(page.page), mapping(writable));
            }
            compute::Action::Protect { page } => {
                self.map(at, number(page.page), PermissionClass::Read);
            }
            compute::Action::Drop { page } => {
                self.put(at, number(page.page), Copied::default());
            }
            compute::Action::Fail { page, refusal, .. } => {
                let is_excused = page.domain == STRANGER || self.is_excused(at, number(page.page));
                let is_right = is_excused && refusal == Refusal::Denied;
                if self.is_accepted(at) && !is_right {
                    self.violate(Violation::Refused(refusal));
                }
            }
            compute::Action::Lost { refusal, .. } => {
                if self.is_accepted(at) {
                    self.violate(Violation::Lost(refusal));
                }
            }
            compute::Action::ReportStuck { page } => {
                if let Some(host) = &self.hosts[at] {
                    let va = page.page.0;
                    self.request(host.blade.connection(), 0, Request::ReportStuck { va });
                }
            }
            compute::Action::Flushed { token: FLUSH } => self.send_operation(at),
            compute::Action::Flushed { token } => self.report(token),
            compute::Action::Served { .. } | compute::Action::Stepped { .. } => {}
        }
    }

    fn granted(&mut self, page: PageRequest) {
        if page.domain != DOMAIN {
            self.violate(Violation::Granted(page.domain));
        }
    }

    fn is_excused(&self, at: usize, number: u8) -> bool {
        let host = self.hosts.get(at).and_then(Option::as_ref);
        host.is_some_and(|host| host.excused[usize::from(number)])
    }

    fn copy(&self, at: usize, number: u8) -> Option<Copied> {
        let host = self.hosts.get(at)?.as_ref()?;
        host.cache.get(usize::from(number)).copied()
    }

    pub(crate) fn put(&mut self, at: usize, number: u8, copy: Copied) {
        if let Some(Some(host)) = self.hosts.get_mut(at)
            && let Some(there) = host.cache.get_mut(usize::from(number))
        {
            *there = copy;
        }
    }

    fn map(&mut self, at: usize, number: u8, mapping: PermissionClass) {
        match self.copy(at, number) {
            Some(copy) if copy.mapping != PermissionClass::None => {
                self.put(at, number, Copied { mapping, ..copy });
            }
            _ => self.violate(Violation::NoCopy),
        }
    }

    pub(crate) fn violate(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
    }
}

/// Verdicts of the switch on packets that a blade never sends, or that it cannot deal with.
const fn is_unexpected(verdict: Verdict) -> bool {
    matches!(
        verdict,
        Verdict::UnexpectedOpcode
            | Verdict::Malformed
            | Verdict::Internal
            | Verdict::Invalid
            | Verdict::NoMemory
            | Verdict::NoOrigin
    )
}

/// The mapping that a thread's access needs.
pub const fn needed(access: Access) -> PermissionClass {
    match access {
        Access::Read => PermissionClass::Read,
        Access::Write => PermissionClass::Write,
    }
}
