//! What is done with the regions of a range: they are freed, flushed, given up; and memory that was freed is
//! zeroed.

use std::collections::{BTreeMap, VecDeque};

use mind_api::{
    errno::{Errno, Failure},
    message::{Command, RegionChange, Reply, Report},
};
use mind_common::{
    addr::{PAGE_SHIFT, Region, Va},
    directory::{Prior, machine::may_write_back},
    id::BladeSet,
};

use super::{
    Act, Controller, Entry, OperationId, Output, Seen,
    books::{
        PAGE,
        blades::Incarnation,
        memory::{GRANULE, Piece},
        records, tables,
    },
    change::Changing,
    index::Errand,
    operation::{
        Claim, Counting, Finding, Operation, Otherwise, Purpose, Syncing, Task, Waits, Zeroing,
    },
    procedure::Change,
};

/// Compute blades of whose counters one reply tells: so many reports fit in a frame.
const MOST_REPORTS: usize = 16;

impl Controller {
    /// Gives slots for further use.
    pub(super) fn give(&mut self, id: OperationId, operation: &mut Operation, slots: Vec<u32>) {
        if operation.seen.take().is_none() {
            let act = Act::GiveSlots { slots };
            self.act(id, operation, act, Task::Give(Vec::new()));
        }
    }

    /// Frees the regions of a range, as many at once as may be.
    pub(super) fn free_regions(
        &mut self,
        now: u64,
        id: OperationId,
        operation: &mut Operation,
        from: Va,
        to: Va,
    ) {
        let most = self.config.batch;
        match operation.seen.take() {
            Some(Seen::Regions { found, next }) => {
                if let Some(next) = next {
                    operation.tasks.push(Task::FreeRegions(next, to));
                }
                if !found.is_empty() {
                    let free = self.changing(
                        now,
                        Change::Free,
                        found.into_iter().map(|entry| (entry, None)),
                    );
                    operation.tasks.push(Task::Change(free));
                }
            }
            _ => self.act(
                id,
                operation,
                Act::Find { from, to, most },
                Task::FreeRegions(from, to),
            ),
        }
    }

    /// When it is too late for a blade to have flushed a range.
    pub(super) fn flush_limit(&self, now: u64, from: u64, to: u64) -> u64 {
        let pages = (to - from) >> PAGE_SHIFT;
        now.saturating_add(self.config.flush)
            .saturating_add(self.config.flush_page.saturating_mul(pages))
    }

    /// Has blades write back and drop what they have of a range; one that does not is fenced.
    pub(super) fn flush(
        &mut self,
        now: u64,
        id: OperationId,
        operation: &mut Operation,
        blades: BladeSet,
        from: u64,
        to: u64,
    ) {
        if blades.is_empty() {
            for (incarnation, result) in std::mem::take(&mut operation.heard) {
                if let Err(failure) = result {
                    self.begin_fencing(incarnation, Some(failure));
                }
            }
            return;
        }
        let until = self.flush_limit(now, from, to);
        for blade in blades.iter() {
            if let Some(incarnation) = self.books.blades.compute(blade) {
                let command = Command::FlushRange {
                    va: from,
                    length: to - from,
                };
                self.order(id, operation, incarnation, command, Some(until));
            }
        }
        operation.waits = Waits::Orders;
        operation.tasks.push(Task::Flush(BladeSet::EMPTY, from, to));
    }

    /// A blade gives up what it owns of a range. Regions that others have meanwhile were written back for that.
    pub(super) fn sync(
        &mut self,
        now: u64,
        id: OperationId,
        operation: &mut Operation,
        mut syncing: Syncing,
    ) {
        let most = self.config.batch;
        match operation.seen.take() {
            Some(Seen::Regions { found, next }) => {
                syncing.found = found.into();
                syncing.from = next.unwrap_or(syncing.to);
            }
            Some(Seen::Word(word)) => {
                syncing.is_lost |= word.prior() == Some(Prior::Lost);
                if let Some(entry) = syncing.found.pop_front()
                    && may_write_back(word, syncing.blade)
                {
                    syncing.owned.push(entry);
                }
            }
            _ => {}
        }
        if let Some(entry) = syncing.found.front() {
            let slot = entry.slot;
            return self.act(id, operation, Act::Look { slot }, Task::Sync(syncing));
        }
        let owned = std::mem::take(&mut syncing.owned);
        let (from, to) = (syncing.from, syncing.to);
        if !owned.is_empty() {
            let reset = self.changing(
                now,
                Change::Reset,
                owned.into_iter().map(|entry| (entry, None)),
            );
            return operation.first([Task::Change(reset), Task::Sync(syncing)]);
        }
        if from < to {
            self.act(
                id,
                operation,
                Act::Find { from, to, most },
                Task::Sync(syncing),
            );
        } else if syncing.is_lost {
            let message = "part of the range is lost; see `mind-ctl status` on the switch";
            self.reply(id, operation, Err(Failure::new(Errno::EIO, message)));
        }
    }

    /// Finds the region of an address, and does to it what is wanted.
    pub(super) fn find_region(
        &mut self,
        now: u64,
        id: OperationId,
        operation: &mut Operation,
        finding: Finding,
    ) {
        let Finding { va, purpose, entry } = finding;
        let found = match operation.seen.take() {
            Some(Seen::Regions { found, .. }) => found,
            Some(Seen::Slot(slot)) => return self.split(now, id, operation, finding, slot),
            _ => {
                // Of a merge, both halves.
                let whole = match (purpose, entry) {
                    (Purpose::Change(RegionChange::Merge), Some(entry)) => entry.region.whole(),
                    (Purpose::Merge(whole), _) => Some(whole),
                    _ => None,
                };
                let (from, to) = match whole {
                    Some(whole) => (whole.base(), Va(whole.base().0 + whole.size())),
                    None => (va, Va(va.0 + 1)),
                };
                let act = Act::Find { from, to, most: 2 };
                return self.act(id, operation, act, Task::FindRegion(finding));
            }
        };
        let here = found
            .iter()
            .copied()
            .find(|entry| entry.region.contains(va))
            // The other half may be in so many parts that they are all that was found.
            .or(entry);
        let changed = match (purpose, here) {
            (Purpose::Unstick, Some(here)) => Some(self.unsticking(now, here)),
            (Purpose::MarkLost(with), Some(here)) => Some(self.marking_lost(now, here, with)),
            (Purpose::Reclaim(entry), Some(here)) if entry == here => {
                let reset = self.changing(now, Change::Reset, [(here, None)]);
                let reclaim = self.changing(now, Change::Reclaim, [(here, None)]);
                return operation.first([Task::Change(reset), Task::Change(reclaim)]);
            }
            (Purpose::FreeLost(entry), Some(here)) if entry == here => {
                Some(self.changing(now, Change::Free, [(here, None)]))
            }
            (Purpose::Split(region), Some(here)) if here.region == region => {
                let finding = Finding {
                    entry: Some(here),
                    ..finding
                };
                return self.act(id, operation, Act::TakeSlot, Task::FindRegion(finding));
            }
            (Purpose::Merge(whole), _) => self.merging(now, whole, &found),
            (
                Purpose::Unstick
                | Purpose::MarkLost(_)
                | Purpose::Reclaim(_)
                | Purpose::FreeLost(_)
                | Purpose::Split(_),
                _,
            ) => None,
            (Purpose::Tell(changed), Some(Entry { region, .. })) => {
                let reply = Reply::Region {
                    va: region.base().0,
                    length: region.size(),
                    changed,
                };
                return self.reply(id, operation, Ok(reply));
            }
            (Purpose::Change(_) | Purpose::Tell(_), None) => {
                let message = format!("the region at {va} has no slot: no blade has touched it");
                return self.reply(id, operation, Err(Failure::new(Errno::EFAULT, message)));
            }
            (Purpose::Change(RegionChange::Merge), Some(here)) if entry.is_none() => {
                let finding = Finding {
                    entry: Some(here),
                    ..finding
                };
                return match self.fits_in_piece(here.region.whole()) {
                    true => operation.tasks.push(Task::FindRegion(finding)),
                    false => self.reply(id, operation, Err(unchangeable(va))),
                };
            }
            (Purpose::Change(RegionChange::Split), Some(here)) => {
                let finding = Finding {
                    entry: Some(here),
                    ..finding
                };
                return self.act(id, operation, Act::TakeSlot, Task::FindRegion(finding));
            }
            (Purpose::Change(change), Some(here)) => {
                match self.changing_region(now, here, change, &found) {
                    Ok(changing) => {
                        let tell = Finding {
                            purpose: Purpose::Tell(true),
                            entry: None,
                            va,
                        };
                        operation.tasks.push(Task::FindRegion(tell));
                        Some(changing)
                    }
                    Err(failure) => return self.reply(id, operation, Err(failure)),
                }
            }
        };
        operation.tasks.extend(changed.map(Task::Change));
    }

    /// Whether a region is within one piece of a vma.
    fn fits_in_piece(&self, region: Option<Region>) -> bool {
        region.is_some_and(|region| {
            let vma = self.books.domains.vma_with(region.base());
            let piece = vma.and_then(|vma| vma.piece_at(region.base()));
            piece.is_some_and(|piece| region.base().0 + region.size() <= piece.end())
        })
    }

    /// Splits the region that was found, with a slot that was taken for its upper half.
    fn split(
        &mut self,
        now: u64,
        id: OperationId,
        operation: &mut Operation,
        finding: Finding,
        slot: Option<u32>,
    ) {
        let here = finding.entry;
        let upper = here.and_then(|here| here.region.halves());
        match (here, upper, slot) {
            (Some(here), Some((_, region)), Some(slot)) => {
                let upper = Entry { region, slot };
                let splitting = self.changing(now, Change::Split, [(here, Some(upper))]);
                let tell = Finding {
                    purpose: Purpose::Tell(true),
                    entry: None,
                    ..finding
                };
                let tell = operation.asker.is_some().then_some(Task::FindRegion(tell));
                operation.tasks.extend(tell);
                operation.tasks.push(Task::Change(splitting));
            }
            (_, _, None) => {
                let message =
                    "no slot of the directory is left now; some are taken back: try again";
                let failure = Failure::new(Errno::EBUSY, message.to_owned());
                self.reply(id, operation, Err(failure));
            }
            (_, _, Some(slot)) => {
                self.reply(id, operation, Err(unchangeable(finding.va)));
                operation.tasks.push(Task::Give(vec![slot]));
            }
        }
    }

    /// How a region is reset or merged; `found` are the halves of what it is merged to.
    fn changing_region(
        &mut self,
        now: u64,
        here: Entry,
        change: RegionChange,
        found: &[Entry],
    ) -> Result<Changing, Failure> {
        let va = here.region.base();
        match change {
            RegionChange::Reset => Ok(self.changing(now, Change::Reset, [(here, None)])),
            RegionChange::Split | RegionChange::Merge => {
                let halves = here.region.whole().and_then(Region::halves);
                let (lower, upper) = halves.ok_or_else(|| unchangeable(va))?;
                let find = |half| found.iter().copied().find(|entry| entry.region == half);
                let (first, second) = find(lower).zip(find(upper)).ok_or_else(|| {
                    let message = format!(
                        "a half of {va}'s region and its neighbour has no slot, or is no half"
                    );
                    Failure::new(Errno::EINVAL, message)
                })?;
                Ok(self.changing(now, Change::Merge, [(first, Some(second))]))
            }
        }
    }

    // Memory.

    /// Has a memory blade zero what was freed, unless that is under way.
    pub(super) fn begin_zeroing(&mut self, blade: u8) {
        if self.index.of_errand(Errand::Zero(blade)).is_none() {
            self.begin(
                Claim::default(),
                None,
                vec![Task::Zero(blade, Zeroing::Next)],
            );
        }
    }

    /// Something of the memory blade's that was freed and can be zeroed, as much as is zeroed at once.
    fn unclean(&self, blade: u8) -> Option<Piece> {
        let mut its = self.cleared.range((blade, 0)..=(blade, u64::MAX));
        let (_, va) = its.next()?;
        let most = self.config.zero.max(GRANULE) / GRANULE * GRANULE;
        self.books.unclean.get(va)?.part(*va, va + most)
    }

    /// Has memory zeroed, part by part. Before that, packets that were admitted while it was mapped leave the switch, and
    /// regions that they have opened are freed.
    pub(super) fn zero(
        &mut self,
        now: u64,
        id: OperationId,
        operation: &mut Operation,
        blade: u8,
        zeroing: Zeroing,
    ) {
        match zeroing {
            Zeroing::Next => self.zero_next(operation, blade),
            Zeroing::Freed(piece) => {
                let Some(memory) = self.books.blades.here_memory(blade) else {
                    return;
                };
                let command = Command::ZeroPages {
                    first: piece.extent.first_page(),
                    count: piece.extent.pages(),
                };
                self.order(id, operation, memory, command, None);
                operation.waits = Waits::Orders;
                operation
                    .tasks
                    .push(Task::Zero(blade, Zeroing::Ordered(piece)));
            }
            Zeroing::Ordered(piece) => {
                let Some((_, result)) = operation.heard.pop() else {
                    return;
                };
                match result.and_then(|report| done(piece, &report)) {
                    Ok(zeroed) => {
                        self.hold(id);
                        let keys = self.zeroed(zeroed);
                        // What a controller that follows does not know to be zeroed is zeroed again; what is put there
                        // is recorded after this.
                        self.keep_soon();
                        operation.first([
                            // Nothing is put at these addresses before they are at home again.
                            Task::Install(keys, Otherwise::Report),
                            Task::Release,
                            Task::Zero(blade, Zeroing::Next),
                        ]);
                    }
                    // If the blade is gone, what it has is gone with it.
                    Err(failure) => {
                        let what = "zeroing memory that was freed";
                        self.event(super::Event::Failed { what, failure });
                        operation.waits = Waits::Until(now.saturating_add(self.config.again));
                        operation.tasks.push(Task::Zero(blade, Zeroing::Next));
                    }
                }
            }
        }
    }

    fn zero_next(&mut self, operation: &mut Operation, blade: u8) {
        if self.books.blades.here_memory(blade).is_none() {
            return;
        }
        let next = Task::Zero(blade, Zeroing::Next);
        if let Some(piece) = self.unclean(blade) {
            let (from, to) = (Va(piece.va), Va(piece.end()));
            let tasks = vec![Task::FreeRegions(from, to)];
            if !seeded!(FreedOnce) {
                let freeing = self.begin(Claim::range(from, piece.extent.length), None, tasks);
                operation.waits = Waits::Operations([freeing].into());
            }
            return operation
                .tasks
                .push(Task::Zero(blade, Zeroing::Freed(piece)));
        }
        let unclean = self.books.unclean_of(blade);
        let waiting: Vec<u64> = unclean.map(|piece| piece.va).collect();
        if !waiting.is_empty() {
            operation.first([Task::WaitForPackets, Task::Cleared(waiting), next]);
        }
    }

    /// The operation goes on when the packets have left the switch that are in it.
    pub(super) fn wait_for_packets(&mut self, id: OperationId, operation: &mut Operation) {
        operation.waits = Waits::Seen;
        self.outbox
            .push_back(Output::WaitForPackets { operation: id });
    }

    /// Packets that may have found memory which was freed have left the switch.
    pub(super) fn cleared(&mut self, operation: &mut Operation, freed: Vec<u64>) {
        operation.seen = None;
        let freed = freed.iter();
        let unclean = freed.filter_map(|va| self.books.unclean.get(va));
        let unclean = unclean.map(|piece| (piece.extent.blade, piece.va));
        self.cleared.extend(unclean);
    }

    /// Part of what was freed is zeroed. The entries of the table that change.
    fn zeroed(&mut self, zeroed: Piece) -> VecDeque<tables::Key> {
        self.cleared.remove(&(zeroed.extent.blade, zeroed.va));
        let Some(whole) = self.books.take_unclean(zeroed.va) else {
            return VecDeque::new();
        };
        self.books.memory.zeroed(zeroed);
        self.books.touch(records::Key::Unclean(zeroed.va));
        let rest = whole.part(zeroed.end(), whole.end());
        if let Some(rest) = rest {
            self.books.put_unclean(rest);
            self.cleared.insert((rest.extent.blade, rest.va));
            self.books.touch(records::Key::Unclean(rest.va));
        }
        let places = self.books.places.replace(&[whole], rest.as_slice());
        places.into_iter().map(tables::Key::Translation).collect()
    }

    // Reports.

    /// The compute blades from that number on whose counters are wanted, as many as one reply may have.
    pub(super) fn counting(&self, from: u64, limit: u32) -> Counting {
        let limit = usize::try_from(limit).map_or(MOST_REPORTS, |limit| limit.min(MOST_REPORTS));
        let mut here = self.computes().iter();
        let mut blades = BladeSet::EMPTY;
        let mut next = here.find(|blade| u64::from(blade.get()) >= from);
        while let Some(blade) = next.filter(|_| (blades.len() as usize) < limit.max(1)) {
            blades = blades.with(blade);
            next = here.next();
        }
        Counting {
            blades,
            next,
            is_asked: false,
        }
    }

    /// Asks compute blades what they count, and tells the asker. A report that no agent makes is left out.
    pub(super) fn count(
        &mut self,
        now: u64,
        id: OperationId,
        operation: &mut Operation,
        counting: Counting,
    ) {
        if !counting.is_asked {
            let until = now.saturating_add(self.config.report);
            for blade in counting.blades.iter() {
                if let Some(incarnation) = self.books.blades.compute(blade) {
                    self.order(id, operation, incarnation, Command::CountCache, Some(until));
                }
            }
            operation.waits = Waits::Orders;
            return operation.tasks.push(Task::Count(Counting {
                is_asked: true,
                ..counting
            }));
        }
        let heard = std::mem::take(&mut operation.heard).into_iter();
        let report = |(incarnation, result): (Incarnation, _)| match result {
            Ok(Report::Cache(report)) if report.is_bounded() => {
                Some((self.name_of(incarnation), *report))
            }
            _ => None,
        };
        let caches: BTreeMap<_, _> = heard.filter_map(report).collect();
        let next = counting.next.map(|blade| blade.get().into());
        self.reply(id, operation, Ok(Reply::Caches { caches, next }));
    }
}

/// What of a piece a memory blade says that it has zeroed: whole granules of it.
fn done(piece: Piece, report: &Report) -> Result<Piece, Failure> {
    let pages = match report {
        Report::Zeroed { pages } => *pages,
        _ => 0,
    };
    let length = pages.saturating_mul(PAGE).min(piece.extent.length) / GRANULE * GRANULE;
    piece.part(piece.va, piece.va + length).ok_or_else(|| {
        let message = format!(
            "memory blade {} was to zero {} pages from {} on, and says {report:?}",
            piece.extent.blade,
            piece.extent.pages(),
            piece.extent.first_page()
        );
        Failure::new(Errno::EPROTO, message)
    })
}

/// What an operator is told who wants a region changed that cannot be.
fn unchangeable(va: Va) -> Failure {
    let message =
        format!("the region at {va} has no halves, or no other half in the same piece of its vma");
    Failure::new(Errno::EINVAL, message)
}
