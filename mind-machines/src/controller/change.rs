//! Changes of regions: shows each [`Procedure`] its words, and does what it says, of many at once.
//!
//! No other operation comes between looking at words and changing them, so that no blade is found to be gone in between;
//! packets may come between any two acts. A word that names a blade which is gone is made to forget it before it is
//! shown, whether or not that blade's departure has come so far.

use std::collections::{BTreeSet, VecDeque};

use mind_api::message::{Command, OnLoss};
#[cfg(feature = "model")]
use mind_common::serial::Episode;
use mind_common::{
    addr::Region,
    directory::{
        Word,
        machine::{Loss, on_loss},
    },
    id::{BladeId, BladeSet},
};

use super::{
    Act, Controller, Entry, Event, Lost, OperationId, Seen,
    books::blades::Incarnation,
    operation::{Operation, Task, Waits},
    procedure::{Change, Do, Jointly, Outcome, Procedure, Which, jointly},
};

/// Where a change is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    /// Words are looked at and changed: of this run.
    Words(usize),
    /// Blades were told to flush.
    Flushed,
    /// Blades that did not flush are being fenced, by these operations.
    Departing(BTreeSet<OperationId>),
    /// Memory fences the pages, once operations of blades that are gone are fenced.
    Fencing(bool),
    /// The tables follow: of each run.
    Rewiring(VecDeque<Act>),
    /// Until a time.
    Waiting,
}

/// One region's part of a change: it is asked what to do, and its words are swapped.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Run {
    pub(super) procedure: Procedure,
    pub(super) entry: Entry,
    pub(super) upper: Option<Entry>,
    /// What it says; to be asked if nothing.
    next: Option<Do>,
    /// The words, as far as they have been looked at.
    words: [Option<Word>; 2],
    /// With which blade writes were lost.
    lost_with: Option<Incarnation>,
}

impl Run {
    fn entries(&self) -> impl Iterator<Item = Entry> {
        [Some(self.entry), self.upper].into_iter().flatten()
    }

    /// What it is about: of a merge, both halves.
    fn whole(&self) -> Region {
        let region = self.entry.region;
        let joined = region
            .whole()
            .filter(|_| self.procedure.change() == Change::Merge);
        joined.unwrap_or(region)
    }

    fn slot(&self, which: Which) -> Option<u32> {
        match which {
            Which::First => Some(self.entry.slot),
            Which::Second => self.upper.map(|upper| upper.slot),
        }
    }
}

/// A change under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Changing {
    change: Change,
    runs: Vec<Run>,
    stage: Stage,
    /// The word of the run that is looked at or swapped; with what it is to become and the blade that is gone, if that
    /// is why.
    swapping: Option<(Which, Option<(Word, BladeId)>)>,
}

impl Changing {
    /// The same, because of writes that were lost with a blade.
    fn because_of(mut self, incarnation: Incarnation) -> Self {
        for run in &mut self.runs {
            run.lost_with = Some(incarnation);
        }
        self
    }

    /// Every word that it remembers, for a model checker that renames episodes.
    #[cfg(feature = "model")]
    pub(super) fn visit_words(&mut self, visit: &mut impl FnMut(&mut Word)) {
        for run in &mut self.runs {
            run.words.iter_mut().flatten().for_each(&mut *visit);
            match &mut run.next {
                Some(Do::Swap { old, new, .. }) => {
                    visit(old);
                    visit(new);
                }
                // A slot that is opened has its own next episode.
                Some(Do::Rewire { second }) => *second = second.with_episode(Episode::default()),
                Some(Do::Wait { .. } | Do::Flush { .. } | Do::Fence | Do::Done(_)) | None => {}
            }
            if let Some(episode) = run.procedure.watched_mut() {
                let mut word = Word::default().with_episode(*episode);
                visit(&mut word);
                *episode = word.episode();
            }
        }
        if let Some((_, Some((word, _)))) = &mut self.swapping {
            visit(word);
        }
        if let Stage::Rewiring(acts) = &mut self.stage {
            for act in acts {
                if let Act::Open { word, .. } = act {
                    *word = word.with_episode(Episode::default());
                }
            }
        }
    }

    /// The operations that fence blades which did not flush, for a model checker that renames operations.
    #[cfg(feature = "model")]
    pub(super) const fn fencing_mut(&mut self) -> Option<&mut BTreeSet<OperationId>> {
        match &mut self.stage {
            Stage::Departing(fencing) => Some(fencing),
            _ => None,
        }
    }

    /// Writes into the region of a slot were lost with a blade; whether it has that slot.
    pub(super) fn lost(&mut self, slot: u32, with: Incarnation) -> bool {
        let hit = self
            .runs
            .iter_mut()
            .find(|run| run.entries().any(|entry| entry.slot == slot));
        if let Some(run) = hit {
            run.procedure.lost(with.connection().blade, Loss::Writes);
            run.lost_with = Some(with);
            return true;
        }
        false
    }
}

impl Controller {
    /// A change of regions, of two with the upper half.
    pub(super) fn changing(
        &self,
        now: u64,
        change: Change,
        entries: impl IntoIterator<Item = (Entry, Option<Entry>)>,
    ) -> Changing {
        let config = &self.config;
        let patience = match change.is_of_two() {
            true => config.optional,
            false => config.full,
        };
        let procedure = Procedure::new(change, now, patience, config.pause, self.computes());
        self.changing_by(procedure, entries)
    }

    /// The merge of halves, if no blade has to give up anything for it.
    pub(super) fn joining(&self, now: u64, lower: Entry, upper: Entry) -> Changing {
        let config = &self.config;
        let (change, computes) = (Change::Merge, self.computes());
        let procedure = Procedure::new(change, now, config.optional, config.pause, computes);
        self.changing_by(procedure.sparing_copies(), [(lower, Some(upper))])
    }

    /// The reset of a region of which a blade says that it is stuck, if it is.
    pub(super) fn unsticking(&self, now: u64, entry: Entry) -> Changing {
        let config = &self.config;
        let procedure = Procedure::for_stuck(now, config.stuck, config.pause, self.computes());
        self.changing_by(procedure, [(entry, None)])
    }

    /// What was written into a region went with a blade.
    pub(super) fn marking_lost(&self, now: u64, entry: Entry, with: Incarnation) -> Changing {
        self.changing(now, Change::MarkLost, [(entry, None)])
            .because_of(with)
    }

    fn changing_by(
        &self,
        procedure: Procedure,
        entries: impl IntoIterator<Item = (Entry, Option<Entry>)>,
    ) -> Changing {
        let run = |(entry, upper): (Entry, Option<Entry>)| Run {
            procedure: match self.on_loss(entry.region) {
                OnLoss::Fail => procedure.failing_on_loss(),
                OnLoss::LastWritten => procedure,
            },
            entry,
            upper,
            next: None,
            words: [None; 2],
            lost_with: None,
        };
        Changing {
            change: procedure.change(),
            runs: entries.into_iter().map(run).collect(),
            stage: Stage::Words(0),
            swapping: None,
        }
    }

    /// What the domain of a region chose for when writes are lost.
    fn on_loss(&self, region: Region) -> OnLoss {
        let vma = self.books.domains.vma_with(region.base());
        let domain = vma.and_then(|vma| self.books.domains.get(vma.domain));
        domain.map_or_else(OnLoss::default, |domain| domain.on_loss)
    }

    /// Does the next thing of a change.
    pub(super) fn change(
        &mut self,
        now: u64,
        id: OperationId,
        operation: &mut Operation,
        mut changing: Changing,
    ) {
        match &mut changing.stage {
            Stage::Words(number) => {
                let number = *number;
                self.hold(id);
                match number < changing.runs.len() {
                    true => self.ask(now, id, operation, changing, number),
                    false => self.proceed(now, id, operation, changing),
                }
            }
            Stage::Flushed => self.hear(id, operation, changing),
            Stage::Departing(fencing) => {
                operation.waits = Waits::Operations(std::mem::take(fencing));
                restart(&mut changing);
                operation.tasks.push(Task::Change(changing));
            }
            Stage::Fencing(is_ordered) => match *is_ordered {
                false => self.fence_pages(id, operation, changing),
                true => {
                    for (_, result) in std::mem::take(&mut operation.heard) {
                        if let Err(failure) = result {
                            // Without its memory blade a page cannot be had, fenced or not.
                            let what = "fencing pages";
                            self.event(Event::Failed { what, failure });
                        }
                    }
                    let fencing = changing
                        .runs
                        .iter_mut()
                        .filter(|run| run.next == Some(Do::Fence));
                    let lost: Vec<_> = fencing
                        .map(|run| {
                            run.procedure.fenced();
                            Lost {
                                region: run.whole(),
                                with: run.lost_with,
                            }
                        })
                        .collect();
                    let is_told = changing.change != Change::Free;
                    restart(&mut changing);
                    operation.tasks.push(Task::Change(changing));
                    // Before words are given back: a controller that dies then is followed by one that does not see it.
                    for lost in lost.into_iter().filter(|_| is_told) {
                        self.report_loss(operation, lost);
                    }
                }
            },
            Stage::Rewiring(acts) => {
                operation.seen = None;
                match acts.pop_front() {
                    Some(act) => self.act(id, operation, act, Task::Change(changing)),
                    None => {
                        changing
                            .runs
                            .iter_mut()
                            .for_each(|run| run.procedure.rewired());
                        restart(&mut changing);
                        operation.tasks.push(Task::Change(changing));
                    }
                }
            }
            Stage::Waiting => {
                restart(&mut changing);
                operation.tasks.push(Task::Change(changing));
            }
        }
    }

    /// Asks a run what to do, once its words are known; swaps what it wants swapped.
    fn ask(
        &mut self,
        now: u64,
        id: OperationId,
        operation: &mut Operation,
        mut changing: Changing,
        number: usize,
    ) {
        if let Some(Seen::Word(word)) = operation.seen.take() {
            self.looked(operation, &mut changing, number, word);
        }
        let run = &mut changing.runs[number];
        for (index, which) in [Which::First, Which::Second].into_iter().enumerate() {
            let Some(slot) = run.slot(which) else {
                continue;
            };
            let Some(word) = run.words[index] else {
                changing.swapping = Some((which, None));
                return self.act(id, operation, Act::Look { slot }, Task::Change(changing));
            };
            if let Some((blade, new)) = self.forgotten(word) {
                changing.swapping = Some((which, Some((new, blade))));
                run.words[index] = None;
                let old = word;
                return self.act(
                    id,
                    operation,
                    Act::Swap { slot, old, new },
                    Task::Change(changing),
                );
            }
        }
        let [first, second] = run.words.map(Option::unwrap_or_default);
        let next = run.procedure.next(now, first, second);
        // They have said what they had to say, and may change; after a swap, whether it was made shows in them.
        run.words = [None; 2];
        if let Do::Swap {
            slot: which,
            old,
            new,
        } = next
        {
            changing.swapping = Some((which, None));
            #[cfg(feature = "mutants")]
            let new = mutated(changing.change, which, old, new);
            if let Some(slot) = changing.runs[number].slot(which) {
                return self.act(
                    id,
                    operation,
                    Act::Swap { slot, old, new },
                    Task::Change(changing),
                );
            }
        }
        changing.runs[number].next = Some(next);
        changing.stage = Stage::Words(number + 1);
        operation.tasks.push(Task::Change(changing));
    }

    /// A word of a run is known, or was swapped.
    fn looked(
        &mut self,
        operation: &mut Operation,
        changing: &mut Changing,
        number: usize,
        word: Word,
    ) {
        let Some((which, forgetting)) = changing.swapping.take() else {
            return;
        };
        let run = &mut changing.runs[number];
        if let Some((_, gone)) = forgetting.filter(|(wanted, _)| word.raw() == wanted.raw()) {
            self.lost_in_passing(operation, run, which, gone, word);
        }
        run.words[which as usize] = Some(word);
    }

    /// A word was made to forget a blade that is gone: if writes were lost by that, its departure gets to know.
    fn lost_in_passing(
        &mut self,
        _operation: &mut Operation,
        run: &mut Run,
        which: Which,
        gone: BladeId,
        word: Word,
    ) {
        let departed = self
            .departed
            .iter()
            .find(|departed| departed.incarnation.connection().blade == gone);
        let Some(with) = departed.map(|departed| departed.incarnation) else {
            return;
        };
        if !super::procedure::is_orphan(word) {
            return;
        }
        run.procedure.lost(gone, Loss::Writes);
        run.lost_with = Some(with);
        let entry = match which {
            Which::First => Some(run.entry),
            Which::Second => run.upper,
        };
        self.note_lost_write(with, entry);
    }

    /// What the word becomes that names a blade which is gone, and which.
    fn forgotten(&self, word: Word) -> Option<(BladeId, Word)> {
        let is_gone = |blade: &BladeId| {
            let mut departed = self.departed.iter();
            departed.any(|gone| !gone.is_forgotten && gone.incarnation.connection().blade == *blade)
                && self.books.blades.compute(*blade).is_none()
        };
        let requester = word.state().is_busy().then(|| word.requester());
        let gone = word.blades().iter().chain(requester).find(is_gone)?;
        let step = on_loss(word, gone);
        #[cfg(feature = "mutants")]
        let step = crate::mutant::lost(word, step);
        Some((gone, step?.next))
    }

    /// Every run says something that needs more than words, or is over.
    fn proceed(
        &mut self,
        now: u64,
        id: OperationId,
        operation: &mut Operation,
        mut changing: Changing,
    ) {
        let runs = &changing.runs;
        let entries = |says: fn(&Do) -> bool| {
            let runs = runs
                .iter()
                .filter(move |run| run.next.as_ref().is_some_and(says));
            runs.flat_map(Run::entries)
        };
        changing.stage = match jointly(runs.iter().filter_map(|run| run.next)) {
            Jointly::Flush { blades } => {
                self.release(id);
                let regions: Vec<_> = entries(|says| matches!(says, Do::Flush { .. })).collect();
                if seeded!(FlushNotAwaited) {
                    let all = changing.runs.iter_mut();
                    all.for_each(|run| {
                        blades.iter().for_each(|blade| run.procedure.flushed(blade))
                    });
                } else {
                    self.order_flush(now, id, operation, blades, &regions);
                }
                operation.waits = Waits::Orders;
                Stage::Flushed
            }
            Jointly::Fence => {
                self.release(id);
                // No blade gets the regions before operations of blades that are gone are refused.
                operation.waits = Waits::Fences;
                Stage::Fencing(false)
            }
            Jointly::Rewire { second } => Stage::Rewiring(rewiring(&changing, second)),
            Jointly::Wait { until } => {
                self.release(id);
                operation.waits = Waits::Until(until);
                Stage::Waiting
            }
            Jointly::Over => {
                self.release(id);
                return self.ended(operation, &changing);
            }
        };
        operation.tasks.push(Task::Change(changing));
    }

    /// Has blades write back and drop what they have from the first of the regions to the last.
    fn order_flush(
        &mut self,
        now: u64,
        id: OperationId,
        operation: &mut Operation,
        blades: BladeSet,
        regions: &[Entry],
    ) {
        let start = regions
            .iter()
            .map(|entry| entry.region.base().0)
            .min()
            .unwrap_or(0);
        let end = regions
            .iter()
            .map(|entry| entry.region.base().0 + entry.region.size())
            .max();
        let end = end.unwrap_or(start);
        let until = self.flush_limit(now, start, end);
        for blade in blades.iter() {
            let command = Command::FlushRange {
                va: start,
                length: end - start,
            };
            match self.books.blades.compute(blade) {
                Some(incarnation) => self.order(id, operation, incarnation, command, Some(until)),
                // It is gone, and words are made to forget it before they are shown.
                None => operation.heard.push((
                    Incarnation::compute(mind_common::id::Connection {
                        blade,
                        incarnation: 0,
                    }),
                    Ok(mind_api::message::Report::Done),
                )),
            }
        }
    }

    /// What the blades answered that were told to flush. One that did not is fenced first.
    fn hear(&mut self, _id: OperationId, operation: &mut Operation, mut changing: Changing) {
        let mut fencing = BTreeSet::new();
        for (incarnation, result) in std::mem::take(&mut operation.heard) {
            let blade = incarnation.connection().blade;
            if let Err(failure) = result
                && !seeded!(LateNotFenced)
            {
                fencing.extend(self.begin_fencing(incarnation, Some(failure)));
            }
            // What it costs that a blade is gone is told when words forget it.
            changing
                .runs
                .iter_mut()
                .for_each(|run| run.procedure.flushed(blade));
        }
        changing.stage = Stage::Departing(fencing);
        operation.tasks.push(Task::Change(changing));
    }

    /// Has memory fence the pages of the regions that need it.
    fn fence_pages(&mut self, id: OperationId, operation: &mut Operation, mut changing: Changing) {
        if !self.departed.is_empty() {
            operation.waits = Waits::Fences;
            operation.tasks.push(Task::Change(changing));
            return;
        }
        let fencing = changing
            .runs
            .iter()
            .filter(|run| run.next == Some(Do::Fence));
        let mut regions: Vec<_> = fencing
            .flat_map(Run::entries)
            .map(|entry| entry.region)
            .collect();
        regions.sort_unstable();
        for region in regions {
            let (base, size) = (region.base().0, region.size());
            // A region is within one piece.
            let piece = self.books.piece_at(region.base());
            let Some(part) = piece.and_then(|piece| piece.part(base, base + size)) else {
                continue;
            };
            let memory = self.books.blades.here_memory(part.extent.blade);
            if let Some(memory) = memory {
                let command = Command::FencePages {
                    first: part.extent.first_page(),
                    count: part.extent.pages(),
                };
                self.order(id, operation, memory, command, None);
            }
        }
        operation.waits = Waits::Orders;
        changing.stage = Stage::Fencing(true);
        operation.tasks.push(Task::Change(changing));
    }

    /// Slots that are free again may be used.
    fn ended(&mut self, operation: &mut Operation, changing: &Changing) {
        let mut free = Vec::new();
        for run in &changing.runs {
            let Some(Do::Done(outcome)) = run.next else {
                continue;
            };
            self.event(Event::Changed(changing.change, outcome));
            let is_changed = matches!(outcome, Outcome::Changed(_));
            if matches!(changing.change, Change::Free | Change::Reclaim) && is_changed {
                self.note_reclaimed();
            }
            match (changing.change, run.upper) {
                (Change::Free | Change::Reclaim, _) if is_changed => free.push(run.entry.slot),
                (Change::Merge, Some(upper)) if is_changed => free.push(upper.slot),
                (Change::Split, Some(upper)) if !is_changed => free.push(upper.slot),
                (Change::Reclaim, _) if outcome == Outcome::Lost => {
                    self.keep_lost(operation, run.entry);
                }
                _ => {}
            }
            // What an operator wants stays so.
            if operation.asker.is_none() {
                self.note_size(changing.change, run.whole(), is_changed);
            }
            self.note_changed(operation, is_changed);
        }
        if !free.is_empty() {
            operation.tasks.push(Task::Give(free));
        }
    }

    /// An operator who wants to know whether the region was changed is told.
    fn note_changed(&mut self, operation: &mut Operation, is_changed: bool) {
        use super::operation::{Finding, Purpose};
        if let Some(Task::FindRegion(Finding {
            purpose: Purpose::Tell(changed),
            ..
        })) = operation.tasks.last_mut()
        {
            *changed = is_changed;
        }
    }

    /// Writes into a region are lost: its vma remembers it, operators are told, and it is recorded.
    fn report_loss(&mut self, operation: &mut Operation, lost: Lost) {
        let blade = match lost.with {
            Some(with) => self.name_of(with),
            None => "a blade that is gone".to_owned(),
        };
        let region = lost.region;
        let vma = self.note_loss(region.base(), &blade);
        self.event(Event::Lost { region, vma, blade });
        operation.lost.push(lost);
        operation.first([Task::Keep, Task::Release]);
    }
}

/// All runs are asked again, with their words as they are then.
fn restart(changing: &mut Changing) {
    for run in &mut changing.runs {
        run.next = None;
        run.words = [None; 2];
    }
    changing.stage = Stage::Words(0);
}

/// How the tables follow, once all words are locked.
fn rewiring(changing: &Changing, second: Word) -> VecDeque<Act> {
    let mut acts = VecDeque::new();
    for run in &changing.runs {
        let Entry { slot, region } = run.entry;
        match (changing.change, run.upper) {
            (Change::Free | Change::Reclaim, _) => {
                acts.push_back(Act::Assign { region, slot: None });
            }
            (Change::Split, Some(upper)) => {
                let lower = region.halves().map(|(lower, _)| lower);
                #[cfg(feature = "mutants")]
                let second = match crate::mutant::Mutant::SplitForgetsSharers.is_active() {
                    true => second.locked(mind_common::directory::Prior::Invalid, BladeSet::EMPTY),
                    false => second,
                };
                acts.push_back(Act::Cover { slot, region: None });
                acts.push_back(Act::Cover {
                    slot,
                    region: lower,
                });
                acts.push_back(Act::Open {
                    slot: upper.slot,
                    region: upper.region,
                    word: second,
                });
                acts.push_back(Act::Assign {
                    region: upper.region,
                    slot: Some(upper.slot),
                });
            }
            (Change::Merge, Some(upper)) => {
                acts.push_back(Act::Assign {
                    region: upper.region,
                    slot: Some(slot),
                });
                acts.push_back(Act::Cover { slot, region: None });
                acts.push_back(Act::Cover {
                    slot,
                    region: region.whole(),
                });
            }
            _ => {}
        }
    }
    acts
}

/// The word that a bug puts in the place of another.
#[cfg(feature = "mutants")]
fn mutated(change: Change, which: Which, old: Word, new: Word) -> Word {
    use crate::mutant::Mutant;
    use mind_common::directory::State;
    let is_merged = change == Change::Merge && which == Which::First && old.prior().is_some();
    let is_forced = old.state() == State::SharedToModified;
    if Mutant::MergeForgetsSharers.is_active() && is_merged
        || Mutant::OnlyListedFlushed.is_active() && is_forced
    {
        return new.with_blades(old.blades());
    }
    new
}
