//! Slots are taken back when few are left: first from regions that no blade has, then from those that no request has
//! touched since they were last looked at, then from any. When it is tables that are few, they are taken back from all
//! regions of a block.
//!
//! Packets open slots by themselves, so the controller keeps some ahead of need. It looks at slots in turn, like a
//! clock's hand, and has each region that it can do without written back and dropped by its blades
//! ([`Change::Reset`]), as for any other change; a region that no blade has then gives up its slot
//! ([`Change::Reclaim`]). A request that needs a slot waits meanwhile: the switch says "busy", and the blade asks again.
//! The word of a region that is lost says so. Where its slot is wanted, the permission class of its pages says it from
//! then on, whatever they were lost with.

use std::collections::{BTreeSet, VecDeque};

use mind_common::{
    directory::{Prior, State},
    permission::PermissionClass,
};

use super::{
    Act, Controller, Entry, OperationId, Seen,
    index::Errand,
    interface::{Left, Use},
    operation::{Claim, Finding, Operation, Otherwise, Purpose, Task, Waits},
};

/// How many times as many regions are taken at once where it is by block, since several make one table free. Each may be a
/// command to the same blade, of which few may wait.
const REGIONS_OF_BLOCKS: usize = 4;

/// Which regions are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Pass {
    /// Those that no blade has.
    Idle,
    /// Also those that no request has touched since they were last looked at.
    Cold,
    /// Any.
    All,
}

/// Slots are being taken back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Reclaiming {
    pass: Pass,
    /// The slot to look at next.
    from: u32,
    /// How many slots were looked at in this pass.
    looked: u32,
    /// Whether a slot was taken back in this pass.
    has_taken: bool,
    /// Whether it is tables that are few, so that blocks are looked at.
    is_by_block: bool,
    /// Whether the switch has said that little is left since it was last asked.
    is_told: bool,
    step: Step,
}

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// Slots are looked at.
    Look,
    /// Regions give up their slots; whether one has.
    GiveUp(bool),
    /// Enough is left, or nothing can be taken back: the switch is to say again when that changes.
    TellAgain,
    /// It will.
    End,
}

impl Reclaiming {
    /// All slots were looked at; whether to look again: not if nothing could be taken back of any.
    fn next_pass(&mut self) -> bool {
        let (next, is_over) = match self.pass {
            Pass::Idle => (Pass::Cold, false),
            Pass::Cold => (Pass::All, false),
            Pass::All => (Pass::All, !self.has_taken),
        };
        self.pass = next;
        self.looked = 0;
        self.has_taken = false;
        !is_over
    }

    /// All of it again.
    const fn again(self) -> Self {
        Self {
            pass: Pass::Idle,
            looked: 0,
            has_taken: false,
            is_told: false,
            step: Step::Look,
            ..self
        }
    }
}

impl Controller {
    /// Little is left of slots or tables.
    pub(super) fn short(&mut self) {
        if self.index.of_errand(Errand::Reclaim).is_some() {
            self.of_reclaiming(|reclaiming| reclaiming.is_told = true);
            return;
        }
        let reclaiming = Reclaiming {
            pass: Pass::Idle,
            from: self.hand,
            looked: 0,
            has_taken: false,
            is_by_block: false,
            is_told: false,
            step: Step::Look,
        };
        self.begin(Claim::default(), None, vec![Task::Reclaim(reclaiming)]);
    }

    /// Does the next thing to take slots back.
    pub(super) fn reclaim(
        &mut self,
        now: u64,
        id: OperationId,
        operation: &mut Operation,
        mut reclaiming: Reclaiming,
    ) {
        match (operation.seen.take(), reclaiming.step) {
            (Some(Seen::Uses { found, next, left }), _) => {
                self.reclaim_some(operation, reclaiming, (found, next, left));
            }
            (_, Step::GiveUp(true)) => {
                // What was taken back counts when the packets have left that may have found it.
                reclaiming.step = Step::Look;
                operation.tasks.push(Task::Reclaim(reclaiming));
                self.wait_for_packets(id, operation);
            }
            (_, Step::TellAgain) => {
                reclaiming.step = Step::End;
                reclaiming.is_told = false;
                self.act(id, operation, Act::TellAgain, Task::Reclaim(reclaiming));
            }
            (_, Step::End) => self.end_reclaiming(operation, reclaiming),
            (_, Step::Look | Step::GiveUp(false)) => {
                reclaiming.step = Step::Look;
                if reclaiming.looked + 1 >= self.config.slots && !reclaiming.next_pass() {
                    // All that there is, is lost or being changed. Blades that need a slot ask again.
                    reclaiming.step = Step::TellAgain;
                    operation.waits = Waits::Until(now.saturating_add(self.config.optional.max(1)));
                    operation.tasks.push(Task::Reclaim(reclaiming));
                    return;
                }
                reclaiming.is_told = false;
                let (from, most) = (reclaiming.from, self.config.sweep);
                let act = match reclaiming.is_by_block {
                    false => Act::LookForUses { from, most },
                    true => Act::LookIntoBlocks {
                        from,
                        most,
                        enough: REGIONS_OF_BLOCKS * self.config.batch,
                    },
                };
                self.act(id, operation, act, Task::Reclaim(reclaiming));
            }
        }
    }

    /// Nothing is taken back any more, unless the switch has said again meanwhile that little is left.
    fn end_reclaiming(&mut self, operation: &mut Operation, reclaiming: Reclaiming) {
        self.uses.clear();
        if reclaiming.is_told {
            operation.tasks.push(Task::Reclaim(reclaiming.again()));
        }
    }

    /// A region does without its slot from now on.
    pub(super) fn note_reclaimed(&mut self) {
        self.of_reclaiming(|reclaiming| {
            reclaiming.has_taken = true;
            reclaiming.step = Step::GiveUp(true);
        });
    }

    /// Notes something about slots that are being taken back, if any are.
    fn of_reclaiming(&mut self, note: impl FnOnce(&mut Reclaiming)) {
        let id = self.index.of_errand(Errand::Reclaim);
        let operation = id.and_then(|id| self.operations.get_mut(&id));
        let mut tasks = operation.into_iter().flat_map(|it| &mut it.tasks);
        let reclaiming = tasks.find_map(|task| match task {
            Task::Reclaim(reclaiming) => Some(reclaiming),
            _ => None,
        });
        if let Some(reclaiming) = reclaiming {
            note(reclaiming);
        }
    }

    /// Begins to take back those of the slots that can be done without.
    fn reclaim_some(
        &mut self,
        operation: &mut Operation,
        mut reclaiming: Reclaiming,
        (found, next, left): (Vec<Use>, Option<u32>, Left),
    ) {
        if left.is_enough() {
            reclaiming.step = Step::TellAgain;
            return operation.tasks.push(Task::Reclaim(reclaiming));
        }
        let mut victims: Vec<Use> = Vec::new();
        let mut go_on = next;
        if reclaiming.is_by_block {
            let block = |used: &Use| used.entry.region.base().block();
            for block in found.chunk_by(|one, other| block(one) == block(other)) {
                // All of them are looked at, also if one cannot be done without.
                let wanted = block
                    .iter()
                    .filter(|used| self.is_wanted(used, reclaiming.pass));
                if wanted.count() == block.len() {
                    victims.extend(block);
                }
            }
        } else {
            for used in found {
                if victims.len() == self.config.batch {
                    // The rest is looked at next time.
                    go_on = Some(used.entry.slot);
                    break;
                }
                if self.is_wanted(&used, reclaiming.pass) {
                    victims.push(used);
                }
            }
        }
        reclaiming.is_by_block = left.has_slots();
        let end = go_on.unwrap_or(self.config.slots);
        reclaiming.looked += end.saturating_sub(reclaiming.from);
        reclaiming.from = go_on.unwrap_or(1);
        self.hand = reclaiming.from;
        // Those of one block together, so that its table is in no use after them.
        victims.sort_by_key(|victim| victim.entry.region);
        let mut others = BTreeSet::new();
        for victim in &victims {
            let region = victim.entry.region;
            let finding = Finding {
                va: region.base(),
                purpose: Purpose::Reclaim(victim.entry),
                entry: None,
            };
            let claim = Claim::range(region.base(), region.size());
            others.insert(self.begin(claim, None, vec![Task::FindRegion(finding)]));
        }
        if !others.is_empty() {
            reclaiming.step = Step::GiveUp(false);
            operation.waits = Waits::Operations(others);
        }
        operation.tasks.push(Task::Reclaim(reclaiming));
    }

    /// Whether a slot can be done without in this pass.
    fn is_wanted(&mut self, used: &Use, pass: Pass) -> bool {
        let before = self.uses.insert(used.entry.slot, used.accesses);
        let is_cold = before == Some(used.accesses);
        match (used.word.state(), pass) {
            (State::Invalid, _) => true,
            (State::Locked, _) => used.word.prior() == Some(Prior::Lost),
            (State::Shared | State::Modified, Pass::Cold) => is_cold,
            (State::Shared | State::Modified, Pass::All) => true,
            _ => false,
        }
    }

    /// A region that is lost is to do without its slot: from now on it is its vma that says that accesses to it fail.
    /// A packet that was admitted before that must not find the region without its slot, and open another.
    pub(super) fn keep_lost(&mut self, operation: &mut Operation, here: Entry) {
        let region = here.region;
        let vma = self.books.domains.vma_with(region.base());
        let pages = vma.filter(|vma| !vma.is_closing).map(|vma| {
            let end = vma.end().min(region.base().0 + region.size());
            (vma.domain, end.saturating_sub(region.base().0))
        });
        // Behind the last page of its vma nothing is allowed.
        let keys = match pages {
            Some((domain, length)) if length > 0 && !seeded!(LossForgotten) => {
                self.allow(domain, region.base(), length, PermissionClass::Lost)
            }
            _ => VecDeque::new(),
        };
        let free = Finding {
            va: region.base(),
            purpose: Purpose::FreeLost(here),
            entry: None,
        };
        operation.first([
            Task::Install(keys, Otherwise::KeepSlot),
            Task::Keep,
            Task::Release,
            Task::WaitForPackets,
            Task::FindRegion(free),
        ]);
    }
}
