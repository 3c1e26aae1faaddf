//! The controller dies before any of its outputs or right after an answer, and another one takes over, with more slots or
//! fewer in some runs; agents come back to it.

use mind_api::message::Request;
use mind_common::id::BladeId;
use mind_machines::{
    Node,
    controller::{Controller, Input, Session, books::blades::Incarnation, phase::Incident},
};

use crate::{
    coverage::Pair,
    plan::{GRACE, MILLISECOND, Moment, generator},
    trace::What,
    world::agent::{Purpose, RESTART},
    world::{Event, World, number_of, slots_between},
};

/// How long it takes until an agent learns that its connection is lost, in nanoseconds.
const FOUND: std::ops::Range<u64> = 0..20 * MILLISECOND;
/// How long an agent waits before it connects again, in nanoseconds.
const RETRY: std::ops::Range<u64> = MILLISECOND..100 * MILLISECOND;
/// How long an agent that comes back too late takes, in nanoseconds.
const LATE: u64 = GRACE + 200 * MILLISECOND;

/// The purpose of the random numbers that decide of the switch's slots after the first death; after the next, one more.
const FIRST_REPLACEMENT: u64 = 0x3_0000;
/// Of the first time that some of what was to be kept is not.
const FIRST_LOSS_OF_RECORDS: u64 = 0x4_0000;

/// How the controller dies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Death {
    /// When.
    moment: Moment,
    /// How long until another one takes over, in nanoseconds.
    back: u64,
    /// The blade whose agent comes back too late.
    late: Option<BladeId>,
}

impl World<'_> {
    /// The controller dies at that moment, or after a while if that does not come.
    pub(crate) fn let_controller_die(&mut self, moment: Moment, back: u64, late: Option<BladeId>) {
        if self.death.is_none() && !self.is_down {
            self.death = Some(Death { moment, back, late });
            let latest = moment.latest(self.queue.now(), self.plan.network_faults.until);
            self.queue.at(latest, Event::Die(self.deaths));
        }
    }

    /// Whether the controller dies instead of saying something.
    pub(crate) fn dies_before_output(&mut self) -> bool {
        match self.death.as_mut().map(|death| &mut death.moment) {
            Some(Moment::Outputs(outputs)) => match outputs.checked_sub(1) {
                Some(left) => *outputs = left,
                None => self.die(),
            },
            Some(Moment::Phase(phase)) => {
                if self.controller.phases().any(|one| one == *phase) {
                    self.die();
                }
            }
            Some(Moment::Answers(_)) | None => {}
        }
        self.is_down
    }

    /// Whether the controller dies now that it has answered something.
    pub(crate) fn dies_after_answer(&mut self) -> bool {
        if let Some(Death {
            moment: Moment::Answers(answers),
            ..
        }) = &mut self.death
        {
            match answers.checked_sub(1) {
                Some(left) => *answers = left,
                None => self.die(),
            }
        }
        self.is_down
    }

    /// The controller dies at the latest, if it is the one after so many deaths.
    pub(crate) fn die_at_last(&mut self, deaths: u64) {
        if self.deaths == deaths {
            self.die();
        }
    }

    fn die(&mut self) {
        let Some(Death { back, late, .. }) = self.death.take() else {
            return;
        };
        self.record(What::Died);
        let phases: Vec<_> = self.controller.phases().collect();
        for phase in phases {
            self.coverage.count(Pair::Operation(phase, Incident::Died));
        }
        self.deaths += 1;
        self.is_down = true;
        self.late = late;
        self.forget_step();
        self.held.forget_waits();
        let mut lost = self.close_connections();
        lost.sort_unstable();
        for session in lost {
            let found = self.random.u64(FOUND);
            self.queue.after(found, Event::SessionLost(session));
        }
        self.queue.after(back, Event::TakeOver);
    }

    /// Another controller takes over.
    pub(crate) fn take_over(&mut self) {
        self.is_down = false;
        self.replace_switch();
        self.lose_what_was_kept_soon();
        let records = self.records.clone();
        let now = self.queue.now();
        self.controller = Controller::take_over(self.config, records, now);
        self.step_later();
    }

    /// Of what was to be recorded soon, some was when the controller died, the earliest of it.
    fn lose_what_was_kept_soon(&mut self) {
        let mut random = generator(self.plan.seed, FIRST_LOSS_OF_RECORDS + self.deaths);
        let mut changes = std::mem::take(&mut self.kept_soon);
        changes.truncate(random.usize(0..=changes.len()));
        for changes in changes {
            self.record_changes(&changes);
        }
    }

    /// A switch with another number of slots takes the place of the one that is there, in some runs and if what is in use
    /// fits.
    fn replace_switch(&mut self) {
        let mut random = generator(self.plan.seed, FIRST_REPLACEMENT + self.deaths);
        let (least, most) = slots_between(self.plan);
        let slots = random.usize(least / 2..=most);
        if random.bool() || slots == self.switch.slots().len() {
            return;
        }
        // The packets have left the old one before its slots go over.
        self.all_go_on();
        let carried = self.switch.carry_over(slots);
        self.record(What::Replaced(slots, carried.is_ok()));
        if carried.is_ok() {
            self.config.slots = number_of(slots);
        }
    }

    /// An agent's connection is lost: it connects again. A daemon that is not registered yet begins anew.
    pub(crate) fn session_lost(&mut self, session: Session) {
        let Some(node) = self.connections.get(&session).map(|it| it.node) else {
            return;
        };
        let late = self.late.map(Node::Compute) == Some(node);
        let Some(agent) = self.agents.get_mut(&node) else {
            return;
        };
        if agent.session != Some(session) {
            return;
        }
        agent.lose_session();
        // The controller finds out, too, if it is still the one.
        self.queue.after(0, Event::Closed(session));
        match agent.incarnation {
            Some(incarnation) => {
                let delay = match late {
                    true => LATE,
                    false => self.random.u64(RETRY),
                };
                let again = Event::Reconnect(node, incarnation);
                self.queue.after(delay, again);
            }
            None => {
                self.end_agent(node, 0);
                self.queue.after(RESTART, Event::Begin(node));
            }
        }
    }

    /// An agent connects again, and says which incarnation of its blade it is of.
    pub(crate) fn reconnect(&mut self, node: Node, incarnation: Incarnation) {
        let is_it = |agent: &crate::world::agent::Agent| {
            agent.session.is_none() && agent.incarnation == Some(incarnation)
        };
        if !self.agents.get(&node).is_some_and(is_it) {
            return;
        }
        if self.is_down {
            let delay = self.random.u64(RETRY);
            let again = Event::Reconnect(node, incarnation);
            return self.queue.after(delay, again);
        }
        let session = self.connect(node);
        let request = Request::Resume {
            kind: incarnation.kind,
            number: incarnation.number,
            incarnation: incarnation.incarnation,
        };
        if let Some(agent) = self.agents.get_mut(&node) {
            let id = agent.begin_call(request, Purpose::Resumes);
            agent.session = Some(session);
            let input = Input::Resume {
                session,
                id,
                incarnation,
            };
            self.send_to_controller(session, input);
        }
    }

    /// The controller has answered an agent that came back: what it has no answer to is asked again, or its blade's
    /// incarnation is over.
    pub(crate) fn resumed(&mut self, node: Node, is_known: bool) {
        if is_known {
            let calls = self.agents.get(&node).map(|agent| agent.waiting());
            for id in calls.unwrap_or_default() {
                self.send_call(node, id);
            }
            return;
        }
        match node {
            Node::Compute(blade) => {
                self.end(blade, 0);
            }
            Node::Memory(number) => {
                self.memories.remove(&number);
                self.end_agent(node, 0);
            }
        }
        self.queue.after(RESTART, Event::Begin(node));
    }
}
