//! Compute blades come and go. One that is gone is not listened to any more; what it had is
//! nobody's, and what it wrote and had not written back is mourned.

use crate::controller::procedure::Change;
use mind_common::{
    directory::{
        Word,
        machine::{self, Loss, on_loss},
    },
    id::{BladeId, Connection},
};

use super::{Command, Controller, Entry, Known, Link, Out, Step, Task};
use crate::{
    Node,
    switch::{Port, Switch},
};

/// A compute blade whose words are told, but not everybody else.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Departed {
    /// Which life of which blade.
    pub(super) life: Connection,
    /// Regions that it had written into.
    pub(super) orphans: Vec<Entry>,
}

impl Controller {
    /// A blade begins a life, which it is told at the end. Nothing of an earlier one counts any more.
    pub(super) fn register(&mut self, blade: BladeId) -> Connection {
        let before = self.blades.get(&blade).copied();
        let incarnation = before.map_or(1, |before| before.incarnation.wrapping_add(1));
        let known = Known {
            incarnation,
            is_here: false,
            is_up: true,
        };
        self.blades.insert(blade, known);
        let life = Connection { blade, incarnation };
        self.tasks.push(Task::Admit(life));
        if let Some(before) = before {
            let incarnation = before.incarnation;
            let earlier = Connection { blade, incarnation };
            self.tasks.push(Task::Bury);
            self.tasks.push(Task::Silence(earlier, before.is_up));
        }
        life
    }

    /// The port is the blade's.
    pub(super) fn plug(&mut self, life: Connection, switch: &mut Switch) {
        let port = Node::Compute(life.blade);
        switch.tables_mut().ports.insert(port, Port::Compute(life));
        if let Some(known) = self.known(life) {
            known.is_here = true;
        }
    }

    /// A connection is gone, and with it the blade, unless it has come back since or been sent away.
    pub(super) fn disconnected(&mut self, life: Connection) {
        if self.known(life).is_some_and(|known| known.is_here) {
            self.tasks.push(Task::Silence(life, false));
        }
    }

    /// The switch does not listen to a life any more.
    pub(super) fn silence(&mut self, life: Connection, is_up: bool, switch: &mut Switch) {
        let port = Node::Compute(life.blade);
        switch.tables_mut().ports.remove(&port);
        self.tasks.push(Task::Deafen(life, is_up));
    }

    /// Nor is it sent anything; its agent is told to end.
    pub(super) fn deafen(
        &mut self,
        life: Connection,
        is_up: bool,
        switch: &mut Switch,
        out: &mut Out,
    ) {
        switch.tables_mut().compute.remove(&life.blade);
        if is_up {
            out.push((Link::of(life), Command::Leave));
        }
        if let Some(known) = self.known(life) {
            known.is_here = false;
            known.is_up = false;
        }
        let departed = Departed {
            life,
            orphans: Vec::new(),
        };
        // By address, from the end.
        let rest = self.regions.values().rev().copied().collect();
        self.tasks.push(Task::Bereave(departed, rest));
    }

    /// The next word does not name it any more.
    pub(super) fn bereave(
        &mut self,
        mut departed: Departed,
        mut rest: Vec<Entry>,
        switch: &mut Switch,
    ) {
        let Some(entry) = rest.pop() else {
            self.departed.push(departed);
            return;
        };
        if let Some(slot) = switch.slot_mut(entry.slot)
            && let Some(step) = loss(slot.word, departed.life.blade)
        {
            slot.word = step.next;
            if step.verdict == Loss::Writes {
                departed.orphans.push(entry);
            }
        }
        self.tasks.push(Task::Bereave(departed, rest));
    }

    /// The rest of what the departure of blades entails. May find more that are gone.
    pub(super) fn bury(&mut self, now: u64) {
        let Some(Departed { life, orphans }) = self.departed.pop() else {
            return;
        };
        self.tasks.push(Task::Bury);
        self.tasks.push(Task::Evict(life.blade));
        let orphans = orphans.into_iter().map(|entry| (entry, None));
        let mourning = self.changing(Change::MarkLost, orphans, now, false);
        self.tasks.push(Task::Change(mourning.because_of(life)));
        self.tasks.push(Task::FenceBlade(life));
    }

    /// Its processes are in no domain any more.
    pub(super) fn evict(&mut self, blade: BladeId, switch: &Switch) {
        let grants = switch.tables().grants.iter();
        let left = grants.filter(|(_, blades)| blades.contains(blade));
        let left = left.map(|(domain, _)| Task::Step(Step::Place(*domain, blade, false)));
        self.tasks.extend(left);
    }
}

/// What the departure of a blade makes of a word.
fn loss(word: Word, gone: BladeId) -> Option<machine::Step<Loss>> {
    let step = on_loss(word, gone);
    #[cfg(feature = "mutants")]
    let step = crate::mutant::lost(word, step);
    step
}
