//! The controller: who is there, which regions there are, and what becomes of them. It does what
//! `mind-controller` does, in the same order, one request after the other; each [`step`] is one
//! change of one word or table, so that packets can come between any two.
//!
//! Commands go to agents, and answers come back, on connections that keep order, lose nothing, and
//! break ([`Input::Broken`]). What the real one finds out by a timeout it is told
//! ([`Input::Overdue`]).
//!
//! Left out: names, areas, processes and addresses. A domain's regions outlive its last process,
//! and memory blades stay.
//!
//! [`step`]: Controller::step

mod change;
mod departure;
mod link;
pub mod procedure;
mod requests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use mind_common::{
    addr::{PAGE_SHIFT, Prefix, Region, SLICE_SHIFT, Va},
    directory::Word,
    id::{BladeId, BladeSet, Connection, DomainId},
    table::Permission,
};

pub use link::{Command, Input, Link};
pub use requests::{Ask, Request};

use crate::switch::Switch;
use change::Changing;
use departure::Departed;

/// How long the controller waits for regions that stay busy, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Patience {
    /// For a change that must be made.
    pub full: u64,
    /// For a split or a merge, which can be left.
    pub optional: u64,
    /// For a region of which a blade says that it is stuck.
    pub stuck: u64,
    /// How often it looks.
    pub pause: u64,
}

impl Default for Patience {
    /// The real controller's.
    fn default() -> Self {
        Self {
            full: 2_000_000_000,
            optional: 100_000_000,
            stuck: 200_000_000,
            pause: 200_000,
        }
    }
}

/// A region, its slot, and what its domain chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Which slot.
    pub slot: usize,
    /// Which region.
    pub region: Region,
    /// Whether accesses fail after writes were lost.
    pub fails: bool,
}

/// Writes that are gone, as an operator is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lost {
    /// Of which region.
    pub region: Region,
    /// With whom; nobody that is known where memory refused them.
    pub with: Option<Connection>,
}

/// What a [step](Controller::step) did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Progress {
    /// Something; there may be more to do.
    Acted,
    /// Nothing: it waits for answers.
    Awaits,
    /// Nothing before this time.
    Waits {
        /// In the caller's nanoseconds.
        until: u64,
    },
    /// Nothing, and nothing is left to do.
    Idle,
}

/// What the books say of a compute blade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Known {
    incarnation: u16,
    /// Whether this life is one of us.
    is_here: bool,
    /// Whether its connection still stands.
    is_up: bool,
}

/// One change of one table, or an order to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Zero(Region),
    Open(usize, Region, Word),
    Assign(Region, Option<usize>),
    Cover(usize, Option<Region>),
    Protect(DomainId, Prefix, Option<Permission>),
    Place(DomainId, BladeId, bool),
}

/// What is being done: the last of them first, then the one before.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Task {
    Reply(Link, u32, bool),
    Step(Step),
    /// Memory was told to zero the region: whether so many steps come after that.
    UnlessZeroed(Entry, usize),
    Admit(Connection),
    Plug(Connection),
    Welcome(Connection),
    /// With whether its agent can be told to end.
    Silence(Connection, bool),
    Deafen(Connection, bool),
    Bereave(Departed, Vec<Entry>),
    Bury,
    FenceBlade(Connection),
    Evict(BladeId),
    Change(Changing),
}

/// A controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Controller {
    patience: Patience,
    memories: BTreeSet<u8>,
    blades: BTreeMap<BladeId, Known>,
    regions: BTreeMap<Va, Entry>,
    free: BTreeSet<usize>,
    inbox: VecDeque<Ask>,
    tasks: Vec<Task>,
    departed: Vec<Departed>,
    orders: BTreeMap<u32, Link>,
    /// Of the orders that were given together.
    results: BTreeMap<Link, bool>,
    next_order: u32,
    lost: Vec<Lost>,
}

/// Where commands go.
pub type Out = Vec<(Link, Command)>;

impl Controller {
    /// Nobody is there yet but these memory blades; the directory has so many slots, all free.
    pub fn new(patience: Patience, slots: usize, memories: impl IntoIterator<Item = u8>) -> Self {
        Self {
            patience,
            memories: memories.into_iter().collect(),
            free: (0..slots).collect(),
            ..Self::default()
        }
    }

    /// The regions, by address.
    pub fn regions(&self) -> impl Iterator<Item = Entry> {
        self.regions.values().copied()
    }

    /// What was lost, in the order in which it was found out.
    pub fn lost(&self) -> &[Lost] {
        &self.lost
    }

    /// The present life of a blade, if it is one of us.
    pub fn life(&self, blade: BladeId) -> Option<Connection> {
        let known = self.blades.get(&blade).filter(|known| known.is_here)?;
        Some(Connection {
            blade,
            incarnation: known.incarnation,
        })
    }

    /// Orders that are not answered yet.
    pub fn orders(&self) -> impl Iterator<Item = (u32, Link)> {
        self.orders.iter().map(|(id, link)| (*id, *link))
    }

    /// Whether nothing is left to do.
    pub fn is_idle(&self) -> bool {
        self.inbox.is_empty() && self.tasks.is_empty() && self.departed.is_empty()
    }

    /// Hears something. What comes of it happens in [steps](Self::step).
    pub fn handle(&mut self, input: Input) {
        match input {
            Input::Ask(ask) => self.inbox.push_back(ask),
            Input::Answer { id, done } => self.settle(id, done),
            Input::Overdue { id } => self.settle(id, false),
            Input::Broken(life) => {
                if let Some(known) = self.known(life) {
                    known.is_up = false;
                }
                let link = Link::of(life);
                let vain = self.orders.iter().filter(|(_, to)| **to == link);
                let vain: Vec<_> = vain.map(|(id, _)| *id).collect();
                vain.into_iter().for_each(|id| self.settle(id, false));
                self.inbox.push_back(Ask::of_nobody(Request::Lost(life)));
            }
        }
    }

    /// Does the next thing that is to be done at `now`.
    pub fn step(&mut self, now: u64, switch: &mut Switch, out: &mut Out) -> Progress {
        if !self.orders.is_empty() {
            return Progress::Awaits;
        }
        let Some(task) = self.tasks.pop() else {
            let Some(ask) = self.inbox.pop_front() else {
                return Progress::Idle;
            };
            self.begin(ask, now, switch);
            return Progress::Acted;
        };
        // Whoever is sent away because of one answer is dealt with before the next is heard.
        let hears = |task: &Task| matches!(task, Task::Change(changing) if changing.hears());
        if let Task::UnlessZeroed(entry, steps) = task {
            self.unless_zeroed(entry, steps);
            return Progress::Acted;
        }
        if !hears(&task) && !self.tasks.iter().any(hears) {
            self.results.clear();
        }
        match task {
            Task::Reply(link, id, done) => {
                self.say(link, Command::Reply { id, done }, out);
            }
            Task::Step(step) => self.carry_out(step, switch, out),
            Task::UnlessZeroed(..) => {}
            Task::Admit(life) => {
                switch.tables_mut().compute.insert(life.blade, life);
                self.tasks.push(Task::Plug(life));
            }
            Task::Plug(life) => self.plug(life, switch),
            Task::Welcome(life) => self.say(Link::of(life), Command::Registered, out),
            Task::Silence(life, is_up) => self.silence(life, is_up, switch),
            Task::Deafen(life, is_up) => self.deafen(life, is_up, switch, out),
            Task::Bereave(departed, rest) => self.bereave(departed, rest, switch),
            Task::Bury => self.bury(now),
            Task::FenceBlade(life) => {
                for memory in self.memories.clone() {
                    let fence = |id| Command::FenceBlade { id, life };
                    self.order(Link::Memory(memory), fence, out);
                }
            }
            Task::Evict(blade) => self.evict(blade, switch),
            Task::Change(changing) => return self.proceed(changing, now, switch, out),
        }
        Progress::Acted
    }

    fn carry_out(&mut self, step: Step, switch: &mut Switch, out: &mut Out) {
        match step {
            Step::Zero(region) => {
                let zero = |id, first, count| Command::Zero { id, first, count };
                self.order_pages(region, zero, out);
            }
            Step::Open(slot, region, word) => switch.open(slot, region, word),
            Step::Assign(region, slot) => switch.assign(region, slot),
            Step::Cover(slot, region) => {
                if let Some(slot) = switch.slot_mut(slot) {
                    slot.region = region;
                }
            }
            Step::Protect(domain, prefix, permission) => {
                let protection = &mut switch.tables_mut().protection;
                match permission {
                    Some(permission) => protection.insert((domain, prefix), permission),
                    None => protection.remove(&(domain, prefix)),
                };
            }
            Step::Place(domain, blade, is_placed) => {
                let placed = switch.tables().grants.get(&domain).copied();
                let placed = placed.unwrap_or_default();
                let placed = if is_placed {
                    placed.with(blade)
                } else {
                    placed.without(blade)
                };
                switch.place(domain, placed);
            }
        }
    }

    // Connections.

    /// What is known of the blade, if this is its latest life.
    fn known(&mut self, life: Connection) -> Option<&mut Known> {
        let known = self.blades.get_mut(&life.blade);
        known.filter(|known| known.incarnation == life.incarnation)
    }

    fn is_up(&self, link: Link) -> bool {
        let Some(life) = link.life() else {
            return true;
        };
        let known = self.blades.get(&life.blade);
        known.is_some_and(|known| known.incarnation == life.incarnation && known.is_up)
    }

    fn say(&self, link: Link, command: Command, out: &mut Out) {
        if self.is_up(link) {
            out.push((link, command));
        }
    }

    /// Orders something, of which the result is to come; at once, where nobody can be asked.
    fn order(&mut self, link: Link, command: impl FnOnce(u32) -> Command, out: &mut Out) {
        if !self.is_up(link) {
            self.results.insert(link, false);
            return;
        }
        let id = self.next_order;
        self.next_order = id.wrapping_add(1);
        self.orders.insert(id, link);
        out.push((link, command(id)));
    }

    /// Orders something of the memory blade that has a region.
    fn order_pages(
        &mut self,
        region: Region,
        command: impl FnOnce(u32, u64, u64) -> Command,
        out: &mut Out,
    ) {
        let memory = region.base().slice();
        let Some(memory) = memory.filter(|memory| self.memories.contains(memory)) else {
            return;
        };
        let first = (region.base().0 & ((1 << SLICE_SHIFT) - 1)) >> PAGE_SHIFT;
        let count = region.size() >> PAGE_SHIFT;
        self.order(Link::Memory(memory), |id| command(id, first, count), out);
    }

    /// An order is answered; not that of somebody who was not waited for any more.
    fn settle(&mut self, id: u32, done: bool) {
        if let Some(link) = self.orders.remove(&id) {
            self.results.insert(link, done);
        }
    }

    /// The compute blades there are.
    fn everybody(&self) -> BladeSet {
        let here = self.blades.iter().filter(|(_, known)| known.is_here);
        here.map(|(blade, _)| *blade).collect()
    }

    /// The region that the address is in.
    fn at(&self, va: Va) -> Option<Entry> {
        let (_, entry) = self.regions.range(..=va).next_back()?;
        entry.region.contains(va).then_some(*entry)
    }
}
