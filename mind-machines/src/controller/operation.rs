//! An operation under way: what is left to be done, what it waits for, and what no other may touch meanwhile.

use std::collections::{BTreeSet, VecDeque};

use mind_api::{
    errno::Failure,
    message::{Access, Registration, Report, Request},
};
use mind_common::{
    addr::{BLOCK_SHIFT, Region, Va},
    id::BladeSet,
};

use super::{
    Entry, Lost, OperationId, Seen, Session,
    books::{
        Answer,
        blades::{Incarnation, Port},
        domains::Process,
        protection::Range,
        tables::Key,
    },
    change::Changing,
    reclaim::Reclaiming,
    takeover::TakingOver,
};

/// What no other operation may touch while one has it: of two whose claims conflict, the later one waits for the
/// earlier one's end. Others do not wait for each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Claim {
    /// Addresses, at least one: the first, and the one after the last.
    pub(super) range: Option<(u64, u64)>,
    /// Something else.
    pub(super) thing: Option<Thing>,
}

/// What is claimed beside addresses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Thing {
    /// The blade behind a port.
    Port(Port),
    /// The name of an area in a domain.
    Area(u32, String),
    /// The process with that number on a compute blade.
    Process(Process),
}

impl Claim {
    /// Addresses.
    pub(super) fn range(va: Va, length: u64) -> Self {
        let range = (va.0, va.0.saturating_add(length));
        Self {
            range: Some(range).filter(|(start, end)| start < end),
            thing: None,
        }
    }

    /// The blocks of addresses: whatever regions they are in, these are in there.
    pub(super) fn blocks(va: Va, length: u64) -> Self {
        let size = 1 << BLOCK_SHIFT;
        let first = va.0 & !(size - 1);
        let end = va.0.saturating_add(length);
        Self::range(
            Va(first),
            end.checked_next_multiple_of(size).unwrap_or(end) - first,
        )
    }

    /// The block of an address: whatever region the address is in, it is in there.
    pub(super) fn block(va: Va) -> Self {
        let size = 1 << BLOCK_SHIFT;
        Self::range(Va(va.0 & !(size - 1)), size)
    }

    /// Something else than addresses.
    pub(super) const fn thing(thing: Thing) -> Self {
        Self {
            range: None,
            thing: Some(thing),
        }
    }
}

/// Who waits for an operation's answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Asker {
    /// The connection that the request came by, or the one after it.
    pub(super) session: Session,
    /// The blade whose agent it is, if it is one.
    pub(super) by: Option<Incarnation>,
    /// The request's number.
    pub(super) id: u64,
}

/// What an operation waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Waits {
    /// Nothing.
    Nothing,
    /// What comes of an act.
    Seen,
    /// The answers to all orders that it gave.
    Orders,
    /// A time, in the caller's nanoseconds.
    Until(u64),
    /// The ends of other operations.
    Operations(BTreeSet<OperationId>),
    /// That no compute blade is gone whose operations memory may still carry out.
    Fences,
    /// That memory which was freed is zeroed.
    Zeroed,
    /// That all blades are back, or a time.
    Blades(u64),
}

/// What to do where a table does not take an entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Otherwise {
    /// Nothing can be done.
    Report,
    /// The vma there, which is new, is unmapped again.
    Unmap(Va),
    /// A domain may do what it could before.
    Restore(u32, Vec<Range>),
    /// A region that is lost keeps its slot.
    KeepSlot,
}

/// One thing to be done. An operation's tasks are done from the last to the first; each may put others on top.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Task {
    /// Decide what a request means.
    Decide(Box<Request>),
    /// Make entries of tables say what they should, in this order; no other operation comes between.
    Install(VecDeque<Key>, Otherwise),
    /// Record what has changed; no other operation comes between.
    Keep,
    /// Answer the request.
    Reply(Answer),
    /// Answer the request, and have the answer recorded soon.
    Finish(Answer),
    /// Other operations may come between from here on.
    Release,
    /// Wait until the packets have left the switch that are in it.
    WaitForPackets,
    /// Give slots for further use.
    Give(Vec<u32>),
    /// Memory that was freed can be zeroed, since no packet is in the switch that was admitted before.
    Cleared(Vec<u64>),
    /// Take slots back that can be done without.
    Reclaim(Reclaiming),
    /// Adapt sizes of regions to what an epoch was like.
    Adapt(Vec<Purpose>),
    /// Make a vma, for which all is ready.
    Map(Mapping),
    /// Change regions.
    Change(Changing),
    /// Free the regions of a vma from an address on.
    FreeRegions(Va, Va),
    /// A vma that is closing has no regions any more.
    Unmapped(Va),
    /// Have blades write back and drop what they have of a range.
    Flush(BladeSet, u64, u64),
    /// Have a blade give up what it owns of a range, from an address on; what was found of that.
    Sync(Syncing),
    /// Find the region of an address, and change it.
    FindRegion(Finding),
    /// The blade behind a port joins.
    Join(Port, Box<Registration>),
    /// An incarnation of a blade is fenced.
    Fence(Incarnation),
    /// Words forget a compute blade, from a slot on; the regions of which writes were lost by that.
    Forget(Incarnation, u32, Vec<Entry>),
    /// Memory blades refuse what a compute blade that is gone may still have sent.
    FenceOperations(Incarnation, Vec<Entry>),
    /// The processes of a compute blade are gone; regions that it had written into are lost.
    EndProcesses(Incarnation, Vec<Entry>),
    /// The other processes of a compute blade are gone, from that one of a domain on.
    Exits(Incarnation, (u32, i32)),
    /// A process of a blade is gone.
    Exit(u32, Process),
    /// Writes into these regions are lost with a compute blade.
    MarkLost(Incarnation, VecDeque<Entry>),
    /// What a memory blade kept is lost with it.
    Lose(Incarnation, Losing),
    /// Have memory that was freed zeroed.
    Zero(u8, Zeroing),
    /// Vmas are given up.
    GiveUp(GivingUp),
    /// Free the next vma of a domain that is to be freed.
    FreeNext(u32),
    /// Have blades drop what they have of vmas that are lost with a memory blade, from an address on.
    FlushLost(u8, Va),
    /// Take over from another controller.
    TakeOver(TakingOver),
    /// Ask compute blades what they count.
    Count(Counting),
}

/// How far it is known to all that what a memory blade kept is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Losing {
    /// Vmas, from an address on: no access to them is allowed any more, to regions that have slots or not.
    Vmas(Va),
    /// The words of regions, from a slot on.
    Regions(u32),
}

/// Blades are asked what they count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Counting {
    /// Which compute blades.
    pub(super) blades: BladeSet,
    /// The next one that is not asked, if there is one.
    pub(super) next: Option<mind_common::id::BladeId>,
    /// Whether they were asked.
    pub(super) is_asked: bool,
}

/// How far the zeroing of what was freed is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Zeroing {
    /// The next part is chosen.
    Next,
    /// No region is left in this part.
    Freed(super::books::memory::Piece),
    /// The memory blade was told to zero it.
    Ordered(super::books::memory::Piece),
}

/// A vma that is to be made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Mapping {
    pub(super) domain: u32,
    /// Its addresses and memory, by address.
    pub(super) pieces: Vec<super::books::memory::Piece>,
    pub(super) length: u64,
    pub(super) access: Access,
    /// With the process that opens it, for an area.
    pub(super) area: Option<(String, Process)>,
}

/// What is given up that a process had open which has left its domain, or all vmas of a domain that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct GivingUp {
    pub(super) domain: u32,
    /// The process, if the domain has not ended.
    pub(super) by: Option<Process>,
    /// From this address on.
    pub(super) from: Va,
}

/// A blade gives up what it owns of a range.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Syncing {
    pub(super) blade: mind_common::id::BladeId,
    pub(super) from: Va,
    pub(super) to: Va,
    /// Regions whose words are still to be looked at.
    pub(super) found: VecDeque<Entry>,
    /// Those that the blade owns.
    pub(super) owned: Vec<Entry>,
    /// Whether something of the range is lost.
    pub(super) is_lost: bool,
}

/// The region of an address is to be found, and changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Finding {
    pub(super) va: Va,
    pub(super) purpose: Purpose,
    /// The region, once it is found.
    pub(super) entry: Option<Entry>,
}

/// What is to become of a region that is being found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    /// It is reset if it is stuck.
    Unstick,
    /// It is reset, split or merged, for an operator.
    Change(mind_api::message::RegionChange),
    /// What was written into it is lost.
    MarkLost(Incarnation),
    /// An operator is told what it is now; whether it was changed.
    Tell(bool),
    /// It is to do without a slot, if it is this region.
    Reclaim(Entry),
    /// Its slot is freed, if it is this region: the tables say that it is lost.
    FreeLost(Entry),
    /// It is split, if it is this region.
    Split(Region),
    /// The halves of this region are merged, if both have slots.
    Merge(Region),
}

/// An operation under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Operation {
    pub(super) claim: Claim,
    /// Whether it has what it claims.
    pub(super) is_admitted: bool,
    /// What is left to be done, the next one last.
    pub(super) tasks: Vec<Task>,
    pub(super) waits: Waits,
    pub(super) asker: Option<Asker>,
    /// What came of its last act.
    pub(super) seen: Option<Seen>,
    /// What agents answered to its orders.
    pub(super) heard: Vec<(Incarnation, Result<Report, Failure>)>,
    /// What its changes of regions lost.
    pub(super) lost: Vec<Lost>,
}

impl Operation {
    pub(super) fn new(claim: Claim, asker: Option<Asker>, tasks: Vec<Task>) -> Self {
        Self {
            claim,
            is_admitted: false,
            tasks,
            waits: Waits::Nothing,
            asker,
            seen: None,
            heard: Vec::new(),
            lost: Vec::new(),
        }
    }

    /// Puts tasks on top, the first of them uppermost.
    pub(super) fn first(
        &mut self,
        tasks: impl IntoIterator<Item = Task, IntoIter: DoubleEndedIterator>,
    ) {
        self.tasks.extend(tasks.into_iter().rev());
    }

    /// Writes into the region of a slot were lost with a blade; whether it is changing that region.
    pub(super) fn lose_writes(&mut self, slot: u32, with: Incarnation) -> bool {
        // The uppermost change is under way, others of the same region have not begun.
        self.tasks.iter_mut().rev().any(|task| match task {
            Task::Change(changing) => changing.lost(slot, with),
            _ => false,
        })
    }
}
