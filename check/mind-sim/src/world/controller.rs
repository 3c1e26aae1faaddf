//! Drives the controller: what it wants is carried out one act at a time, so that packets come between any two.

use mind_api::message::{BladeKind, Reply};
use mind_common::{addr::Va, directory::State};
use mind_machines::controller::{
    Act, Event as Told, Input, OperationId, Output, Seen,
    books::{
        records,
        tables::{Key, Value},
    },
};

use crate::{
    coverage::{Happening, Kind, Pair},
    trace::What,
    world::{Event, World, connection::Message},
};

/// How long an act of the controller takes at least, in nanoseconds.
const STEP: u64 = 200;

impl World<'_> {
    /// The controller gets to know something, unless there is none.
    pub(crate) fn tell_controller(&mut self, input: Input) {
        if self.is_down {
            return;
        }
        self.record(What::Input(input.clone()));
        self.controller.handle(self.queue.now(), input);
        self.step_later();
    }

    pub(crate) fn step_later(&mut self) {
        let delay = match self.is_starting {
            true => 0,
            false => {
                let most = self.load().controller.max(STEP);
                self.random.u64(STEP..=most)
            }
        };
        self.step_at(self.queue.now() + delay);
    }

    /// No step is scheduled any more.
    pub(crate) fn forget_step(&mut self) {
        self.step_at = None;
    }

    fn step_at(&mut self, at: u64) {
        if self.step_at.is_none_or(|already| at < already) {
            self.step_at = Some(at);
            self.queue.at(at, Event::Step);
        }
    }

    /// Lets the controller say what it wants, up to its next act.
    pub(crate) fn step(&mut self) {
        let now = self.queue.now();
        // It may have been scheduled anew since.
        if self.step_at.is_none_or(|at| at > now) {
            return;
        }
        self.step_at = None;
        while let Some(output) = self.controller.poll(now) {
            if self.dies_before_output() {
                return;
            }
            self.record(What::Output(output.clone()));
            match output {
                Output::Act { operation, act } => {
                    self.act(operation, &act);
                    return self.step_later();
                }
                Output::WaitForPackets { operation } => self.wait_for_packets(operation),
                Output::Order {
                    session,
                    order,
                    command,
                    ..
                } => self.send_to_agent(session, Message::Command(order, command)),
                Output::Reply {
                    session, id, body, ..
                } => {
                    let is_done = matches!(body, Ok(Reply::Mapped { .. } | Reply::Done));
                    self.send_to_agent(session, Message::Reply(id, body));
                    if is_done && self.dies_after_answer() {
                        return;
                    }
                }
                Output::KeepSoon { changes } => self.kept_soon.push(changes),
                Output::Event(told) => self.told(told),
            }
        }
        self.check_agreement();
        self.check_promises();
        if let Some(until) = self.controller.deadline() {
            self.step_at(until.max(now + 1));
        }
    }

    /// An epoch is over. There is another one after it while threads run.
    pub(crate) fn epoch(&mut self, length: u64) {
        let counts = std::mem::take(&mut self.invalidated);
        let slots = self.switch.slots().iter();
        let used = slots.filter(|slot| slot.word.state() != State::Free);
        self.tell_controller(Input::Epoch {
            counts: counts.into_iter().collect(),
            used: u32::try_from(used.count()).unwrap_or(u32::MAX),
        });
        if !self.unfinished().is_empty() {
            self.queue.after(length, Event::Epoch(length));
        }
    }

    /// Carries an act out, and says what came of it.
    fn act(&mut self, operation: OperationId, act: &Act) {
        self.words.clear();
        if let Act::Swap { .. } | Act::Open { .. } | Act::Forget { .. } | Act::Lose { .. } = act {
            let words = self.switch.slots().iter().map(|slot| slot.word);
            self.words.extend(words);
        }
        let result = match act {
            Act::Keep { changes } => {
                for earlier in std::mem::take(&mut self.kept_soon) {
                    self.record_changes(&earlier);
                }
                self.record_changes(changes);
                Seen::Done(Ok(()))
            }
            Act::GiveSlots { slots } => {
                self.retire(slots.clone());
                Seen::Done(Ok(()))
            }
            act => self
                .switch
                .execute(act)
                .unwrap_or_else(|| unreachable!("it is the switch's: {act:?}")),
        };
        self.count_changes();
        if let Act::Install {
            key: Key::Protection(domain, prefix),
            value,
        } = act
        {
            let is_allowed = matches!(value, Some(Value::Protection(_)));
            let now = self.queue.now();
            self.mapped.changed(*domain, *prefix, is_allowed, now);
        }
        self.notice_cuts();
        let done = Input::Done { operation, result };
        self.controller.handle(self.queue.now(), done);
    }

    /// Keeps records, which outlive the controller.
    pub(super) fn record_changes(&mut self, changes: &[records::Change]) {
        for (key, record) in changes {
            if let (records::Key::Vma(_), None, Some(records::Record::Vma(vma, _))) =
                (key, record, self.records.get(key))
            {
                let end = vma.end();
                self.lost_ranges
                    .retain(|va, _| !(vma.va()..Va(end)).contains(va));
            }
            match record {
                Some(record) => self.records.insert(*key, record.clone()),
                None => self.records.remove(key),
            };
        }
    }

    /// Operators are told something.
    fn told(&mut self, told: Told) {
        match told {
            Told::Lost { region, .. } => self.lost.push((region.base(), region.size())),
            Told::Refused { page, .. } => self.lost.push((page, 1)),
            Told::VmaLost { va, .. } => {
                let domains = &self.controller.books().domains;
                let vma = domains.vma(va);
                let lost = vma.into_iter().flat_map(|vma| domains.lost_ranges(vma));
                let lost = lost.map(|(from, to)| (Va(from), to - from));
                self.lost_ranges.extend(lost);
            }
            Told::Joined(incarnation) if incarnation.kind == BladeKind::Memory => {
                self.memory_joined(incarnation.number);
            }
            _ => {}
        }
    }

    fn count_changes(&mut self) {
        let both = self.words.iter().zip(self.switch.slots());
        let pairs = both.filter_map(|(before, slot)| {
            let happening = Happening::of_change(*before, slot.word)?;
            Some(Pair::Word(Kind::of(*before), happening))
        });
        let pairs: Vec<_> = pairs.collect();
        for pair in pairs {
            self.happened(pair, None);
        }
        for slot in 0..self.words.len() {
            self.changed(slot, self.words[slot]);
        }
    }
}
