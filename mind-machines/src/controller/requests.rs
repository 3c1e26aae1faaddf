//! What the controller is asked for, and what is to be done for it.

use crate::controller::procedure::Change;
use mind_common::{
    addr::{PAGE_SHIFT, Prefix, Region, Va},
    directory::{State, Word, machine::may_write_back},
    id::{BladeId, BladeSet, Connection, DomainId},
    table::Permission,
};

use super::{Controller, Entry, Link, Lost, Step, Task};
use crate::switch::Switch;

/// What somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ask {
    /// Who gets the reply; an operator looks for himself.
    pub from: Option<Connection>,
    /// The number of the reply.
    pub id: u32,
    /// What.
    pub request: Request,
}

impl Ask {
    /// A request that nobody waits for.
    pub const fn of_nobody(request: Request) -> Self {
        Self {
            from: None,
            id: 0,
            request,
        }
    }
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// A compute blade is there, in a new life. It learns which by
    /// [`Registered`](super::Command::Registered) on the connection of that life.
    Register(BladeId),
    /// The connection of a life is gone.
    Lost(Connection),
    /// A blade's request for the page does not complete.
    ReportStuck(Va),
    /// Memory refused what a blade had to write back.
    ReportLoss(Va),
    /// The asker gives up what it owns of the range.
    Sync {
        /// The first address.
        start: Va,
        /// Bytes.
        length: u64,
    },
    /// Nobody has any of the region any more.
    Reset(Va),
    /// The region's halves become regions.
    Split(Va),
    /// The region joins its other half.
    Merge(Va),
    /// Zeroed memory for a domain, in one region of which nothing is mapped.
    Map {
        /// Which domain.
        domain: DomainId,
        /// Where.
        region: Region,
        /// What the domain may do.
        permission: Permission,
        /// Whether its accesses fail after writes were lost.
        fails: bool,
    },
    /// The domain may do something else with what is mapped there, whole, from now on.
    Protect {
        /// Whose it is.
        domain: DomainId,
        /// Where.
        region: Region,
        /// What the domain may do.
        permission: Permission,
    },
    /// What was mapped there is nobody's any more, in however many regions it is now.
    Unmap {
        /// Whose it was.
        domain: DomainId,
        /// Where.
        region: Region,
    },
    /// Processes of a domain run on the blade, or none any more.
    Place {
        /// The domain.
        domain: DomainId,
        /// The blade.
        blade: BladeId,
        /// Which of the two.
        is_placed: bool,
    },
}

fn prefix(region: Region) -> Prefix {
    Prefix {
        base: region.base(),
        shift: PAGE_SHIFT + u32::from(region.order()),
    }
}

/// Whether the domain has that mapped, whole.
fn is_mapped(switch: &Switch, domain: DomainId, region: Region) -> bool {
    let protection = &switch.tables().protection;
    protection.contains_key(&(domain, prefix(region)))
}

impl Controller {
    /// Begins what is asked for: puts it on top of what is to be done.
    pub(super) fn begin(&mut self, ask: Ask, now: u64, switch: &Switch) {
        let top = self.tasks.len();
        // It may show that blades are gone; whoever asked hears after that.
        self.tasks.push(Task::Bury);
        if let Request::Register(blade) = ask.request {
            let life = self.register(blade);
            self.tasks.insert(top, Task::Welcome(life));
            return;
        }
        let is_possible = self.plan(ask, now, switch);
        if let Some(life) = ask.from {
            let reply = Task::Reply(Link::of(life), ask.id, is_possible);
            self.tasks.insert(top, reply);
        }
    }

    /// Whether it can be done.
    fn plan(&mut self, ask: Ask, now: u64, switch: &Switch) -> bool {
        match ask.request {
            Request::Register(_) => return false,
            Request::Lost(life) => self.disconnected(life),
            Request::ReportStuck(va) => {
                let Some(entry) = self.at(va) else {
                    return true;
                };
                let reset = self.changing(Change::Reset, [(entry, None)], now, true);
                self.tasks.push(Task::Change(reset));
            }
            Request::ReportLoss(va) => {
                if let Some(entry) = self.at(va) {
                    let with = ask.from;
                    let region = entry.region;
                    self.lost.push(Lost { region, with });
                }
            }
            Request::Sync { start, length } => {
                return self.sync(ask.from, start, length, now, switch);
            }
            Request::Reset(va) => {
                let Some(entry) = self.at(va) else {
                    return false;
                };
                let reset = self.changing(Change::Reset, [(entry, None)], now, false);
                self.tasks.push(Task::Change(reset));
            }
            Request::Split(va) => return self.split(va, now),
            Request::Merge(va) => return self.merge(va, now),
            Request::Map {
                domain,
                region,
                permission,
                fails,
            } => return self.map(domain, region, permission, fails),
            Request::Protect {
                domain,
                region,
                permission,
            } => {
                if !is_mapped(switch, domain, region) {
                    return false;
                }
                let step = Step::Protect(domain, prefix(region), Some(permission));
                self.tasks.push(Task::Step(step));
            }
            Request::Unmap { domain, region } => {
                if !is_mapped(switch, domain, region) {
                    return false;
                }
                self.unmap(domain, region, now);
            }
            Request::Place {
                domain,
                blade,
                is_placed,
            } => {
                // Somebody may have gone after he asked.
                let is_placed = is_placed && self.life(blade).is_some();
                let step = Step::Place(domain, blade, is_placed);
                self.tasks.push(Task::Step(step));
            }
        }
        true
    }

    fn within(&self, start: Va, length: u64) -> Vec<Entry> {
        let end = start.0.saturating_add(length);
        let overlaps = |entry: &&Entry| {
            let base = entry.region.base().0;
            base < end && base + entry.region.size() > start.0
        };
        self.regions.values().filter(overlaps).copied().collect()
    }

    fn sync(
        &mut self,
        caller: Option<Connection>,
        start: Va,
        length: u64,
        now: u64,
        switch: &Switch,
    ) -> bool {
        let Some(caller) = caller else {
            return false;
        };
        let is_owned = |entry: &Entry| {
            let slot = switch.slots().get(entry.slot);
            slot.is_some_and(|slot| may_write_back(slot.word, caller.blade))
        };
        let owned = self.within(start, length).into_iter().filter(is_owned);
        let owned: Vec<_> = owned.map(|entry| (entry, None)).collect();
        let reset = self.changing(Change::Reset, owned, now, false);
        self.tasks.push(Task::Change(reset));
        true
    }

    fn split(&mut self, va: Va, now: u64) -> bool {
        let Some(entry) = self.at(va) else {
            return false;
        };
        let Some((_, upper)) = entry.region.halves() else {
            return false;
        };
        let Some(slot) = self.free.pop_first() else {
            return false;
        };
        let upper = Entry {
            slot,
            region: upper,
            ..entry
        };
        let split = self.changing(Change::Split, [(entry, Some(upper))], now, false);
        self.tasks.push(Task::Change(split));
        true
    }

    fn merge(&mut self, va: Va, now: u64) -> bool {
        let halves = self.at(va).and_then(|entry| entry.region.whole()?.halves());
        let Some((lower, upper)) = halves else {
            return false;
        };
        let find = |half: Region| {
            let entry = self.regions.get(&half.base()).copied();
            entry.filter(|entry| entry.region == half)
        };
        let Some((first, second)) = find(lower).zip(find(upper)) else {
            return false;
        };
        if first.fails != second.fails {
            return false;
        }
        let merge = self.changing(Change::Merge, [(first, Some(second))], now, false);
        self.tasks.push(Task::Change(merge));
        true
    }

    fn map(
        &mut self,
        domain: DomainId,
        region: Region,
        permission: Permission,
        fails: bool,
    ) -> bool {
        if !self.within(region.base(), region.size()).is_empty() {
            return false;
        }
        let Some(slot) = self.free.pop_first() else {
            return false;
        };
        let entry = Entry {
            slot,
            region,
            fails,
        };
        self.regions.insert(region.base(), entry);
        let nobody = Word::default().settled(State::Invalid, BladeSet::EMPTY);
        let steps = [
            Step::Open(slot, region, nobody),
            Step::Assign(region, Some(slot)),
            Step::Protect(domain, prefix(region), Some(permission)),
        ];
        self.tasks.extend(steps.into_iter().rev().map(Task::Step));
        self.tasks.push(Task::UnlessZeroed(entry, steps.len()));
        self.tasks.push(Task::Step(Step::Zero(region)));
        true
    }

    /// Memory has answered whether the pages are zeros. If not, half done is not done: back to what
    /// was.
    pub(super) fn unless_zeroed(&mut self, entry: Entry, steps: usize) {
        if self.results.values().all(|done| *done) {
            return;
        }
        let left = self.tasks.len().saturating_sub(steps);
        self.tasks.truncate(left);
        self.regions.remove(&entry.region.base());
        self.free.insert(entry.slot);
        let reply = self.tasks.iter_mut().rev().find_map(|task| match task {
            Task::Reply(_, _, done) => Some(done),
            _ => None,
        });
        if let Some(done) = reply {
            *done = false;
        }
    }

    fn unmap(&mut self, domain: DomainId, region: Region, now: u64) {
        let entries = self.within(region.base(), region.size());
        let entries = entries.into_iter().map(|entry| (entry, None));
        let free = self.changing(Change::Free, entries, now, false);
        self.tasks.push(Task::Change(free));
        let step = Step::Protect(domain, prefix(region), None);
        self.tasks.push(Task::Step(step));
    }
}
